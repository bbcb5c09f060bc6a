"""Policy, secret room: passwords, keys and tokens. A secret is never remembered; at most the sentence around it is.

The known services' forms are detect-secrets' regular-expression plugins, used on single strings in process (its file
scanning, global settings and network verification stay untouched); spoken and Chinese forms are data (secrets.yaml).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Protocol, cast

import regex

from processors.literals import Literals
from processors.policy.catalogue import read_yaml
from processors.policy.spans import SECRET_MARK, PiiKind, Span
from processors.policy.threats import has_long_token

# Plugins that look for a service's own form. The keyword and entropy plugins are left out: they are made for source
# code and take every quoted word after "password:" or every long hash for a secret.
_PLUGINS = (
    ("artifactory", "ArtifactoryDetector"),
    ("aws", "AWSKeyDetector"),
    ("azure_storage_key", "AzureStorageKeyDetector"),
    ("basic_auth", "BasicAuthDetector"),
    ("discord", "DiscordBotTokenDetector"),
    ("github_token", "GitHubTokenDetector"),
    ("gitlab_token", "GitLabTokenDetector"),
    ("jwt", "JwtTokenDetector"),
    ("mailchimp", "MailchimpDetector"),
    ("npm", "NpmDetector"),
    ("openai", "OpenAIDetector"),
    ("private_key", "PrivateKeyDetector"),
    ("pypi_token", "PypiTokenDetector"),
    ("sendgrid", "SendGridDetector"),
    ("slack", "SlackDetector"),
    ("square_oauth", "SquareOAuthDetector"),
    ("stripe", "StripeDetector"),
    ("telegram_token", "TelegramBotTokenDetector"),
    ("twilio", "TwilioKeyDetector"),
)
_RANDOM = regex.compile(r"(?<![A-Za-z0-9_/.=&?-])[A-Za-z0-9+_-]{32,}={0,2}(?![A-Za-z0-9_/.])")
_WINDOW = 2_000
_OVERLAP = 400
"""Characters the plugins see at once, and how far two windows overlap: some of their patterns take quadratic time."""

_MIN_ENTROPY = 4.2
"""Bits per character from which 32 or more mixed letters and digits are taken for a key (a UUID or hash has under 4)."""

_SECRET_SLOT = regex.compile(
    r"pass_?(?:word|code|wd|phrase)|(?:^|_)pwd|api_?key|(?:^|_)secret(?:$|_key)|(?:access|auth|refresh|bearer)_?(?:key|token)|^token$|private_?key"
    r"|credential|(?:^|_)pin(?:_code)?$|otp|cvv|cvc|seed_phrase|mnemonic|verification_code|密码|口令|密钥|私钥|令牌|验证码|助记词"
)
_FILLER = regex.compile(
    r"(?ia)\b(?:my|the|a|an|is|was|are|of|for|to|in|on|at|and|it|its|this|that|please|remember|user|user's|users|has|have|s|changed|now|set|new|use|uses|using|i|i'm"
    r"|password|passcode|passphrase|passwd|pwd|pin|code|secret|api|key|access|token|auth|private|verification|security|credentials?|wifi|wi-fi|login|account|id"
    r"|email|gmail|server|root|admin|username|authorization|bearer)\b"
    r"|记住|帮我|请|一下|用户|我们?|的|是|为|叫|了|改成|换成|设成|密码|口令|密钥|秘钥|私钥|令牌|验证码|校验码|账号|登录|银行卡?|服务器|家里?|公司|手机|邮箱|管理员|现在|这个|别忘了|无线|网络"
)
_CJK = regex.compile(r"\p{Han}")
_LATIN_WORD = regex.compile(r"[A-Za-z]{2,}")


class _Plugin(Protocol):
    def analyze_string(self, string: str) -> Iterable[str]: ...


@dataclass(frozen=True, slots=True)
class SecretRule:
    """A form of secret; `pattern` names the secret itself in the group `secret`."""

    id: str
    parts: tuple[str, ...]
    pattern: regex.Pattern[str]
    matches: tuple[str, ...]
    spares: tuple[str, ...]


@lru_cache(maxsize=1)
def secret_rules() -> tuple[SecretRule, ...]:
    """The reviewed rules of secrets.yaml."""
    return tuple(
        SecretRule(
            row["id"],
            tuple(part.lower() for part in row["parts"]),
            regex.compile(row["pattern"], regex.ASCII),
            tuple(row["matches"]),
            tuple(row["spares"]),
        )
        for row in read_yaml("secrets.yaml")["rules"]
    )


@lru_cache(maxsize=1024)
def is_secret_slot(attribute: str) -> bool:
    """Whether a slot is named for a secret, so that whatever it holds is refused."""
    return _SECRET_SLOT.search(attribute) is not None


def worth_keeping(text: str) -> bool:
    """Whether something is left to remember without the secret (already `[secret]`) and the words that name it."""
    rest = _FILLER.sub(" ", text.replace(SECRET_MARK, " "))
    return len(_CJK.findall(rest)) >= 4 or len(_LATIN_WORD.findall(rest)) >= 3


class SecretFinder:
    """Finds secrets in a text; stateless after construction."""

    def __init__(self) -> None:
        self._rules = secret_rules()
        self._parts = Literals([rule.parts for rule in self._rules])
        # Imported here, not with the module: detect-secrets pulls in an HTTP client; only a running gate should pay.
        self._plugins = [
            cast(_Plugin, getattr(import_module(f"detect_secrets.plugins.{module}"), name)())
            for module, name in _PLUGINS
        ]

    def find(self, text: str) -> Iterator[Span]:
        """Spans of secrets; they may overlap."""
        for number in sorted(self._parts.owners_in(text.lower())):
            for match in self._rules[number].pattern.finditer(text):
                yield _span(match.start("secret"), match["secret"])
        if has_long_token(text):
            yield from self._services(text)
            for match in _RANDOM.finditer(text):
                if _looks_random(match[0]):
                    yield _span(match.start(), match[0])

    def _services(self, text: str) -> Iterator[Span]:
        for begin in range(0, max(len(text) - _OVERLAP, 1), _WINDOW - _OVERLAP):
            window = text[begin : begin + _WINDOW]
            for plugin in self._plugins:
                for secret in plugin.analyze_string(window):
                    start = window.find(secret) if secret else -1
                    if start >= 0:
                        yield _span(begin + start, secret)


def _span(start: int, secret: str) -> Span:
    return Span(start, start + len(secret), PiiKind.SECRET, secret, SECRET_MARK)


def _looks_random(token: str) -> bool:
    body = token.rstrip("=")
    if not (any(c.isdigit() for c in body) and any(c.islower() for c in body) and any(c.isupper() for c in body)):
        return False
    counts = Counter(body)
    return -sum(n / len(body) * math.log2(n / len(body)) for n in counts.values()) >= _MIN_ENTROPY
