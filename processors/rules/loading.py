"""Rules, loading: the packaged YAML files become compiled rules; a broken rule fails at start-up, not in the stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import regex
import yaml

from processors.documents import parse
from processors.exceptions import FatalError
from processors.rules.bilingual import Bilingual, Engine, engine
from processors.rules.late import LatePattern, Pattern, early
from processors.rules.model import Rule
from processors.rules.prefilter import KeywordIndex, Prefilter
from processors.slots import known_slots
from schemas import Operation, digest

LANGUAGES: Final = ("zh", "en")
_MACRO: Final = regex.compile(r"<<(\w+)>>")
_DEEPEST: Final = 8


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Word lists of both languages, as patterns over folded text. Which question each answers is said in the YAML."""

    leads: Engine
    asks: Bilingual
    opens_question: Bilingual
    confirm_tag: Bilingual
    request_tail: Bilingual
    supposes: Bilingual
    voices_turn: Bilingual
    voices_sentence: Bilingual
    voices_back: Bilingual
    voices_colon: Engine
    speaker: Engine
    subject: Bilingual
    anaphora: Engine
    unworthy: Engine
    courtesy: Engine
    steers: Engine
    chores: Engine
    contrast: Bilingual
    contrast_clause: Bilingual
    corrects: Engine
    bounds: Engine
    coming: Engine
    timely: Engine
    weak_retract: Bilingual
    addressee: Engine
    for_once: Engine
    triggers: Engine


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All packaged rules in the order in which they are tried, by kind. `version` is the digest of the files."""

    claims: Prefilter
    orders: Prefilter
    retracts: Prefilter
    forgets: Prefilter
    suppressions: Prefilter
    lexicon: Lexicon
    aliases: Mapping[str, str]
    version: str


@lru_cache(maxsize=1)
def packaged_rules() -> RuleSet:
    """The rules of `packaged_texts`, compiled once.

    Raises:
        FatalError: a rule is malformed.
    """
    return compiled(packaged_texts())


@lru_cache(maxsize=1)
def _packaged() -> tuple[str, ...]:
    return tuple(packaged_texts()[language] for language in LANGUAGES)


def packaged_texts() -> dict[str, str]:
    """What stands in `zh.yaml` and `en.yaml`, by language."""
    here = files("processors.rules")
    return {language: here.joinpath(f"{language}.yaml").read_text(encoding="utf-8") for language in LANGUAGES}


def version_of(texts: Mapping[str, str]) -> str:
    """The digest of the rule files of all languages."""
    return digest(*(texts[language] for language in LANGUAGES))[:12]


def compiled(texts: Mapping[str, str]) -> RuleSet:
    """The rules that these files hold, one text for each of `LANGUAGES`.

    Raises:
        FatalError: a file is no YAML of rules, or a rule is malformed (a pattern of the packaged ones is compiled late).
    """
    return _compiled(*(texts[language] for language in LANGUAGES))


@lru_cache(maxsize=2)
def _compiled(*texts: str) -> RuleSet:
    # Seconds of work; and a replay wants the same rules twice.
    pattern_of: Callable[[str], Pattern] = LatePattern if texts == _packaged() else early
    documents = [_document(language, text) for language, text in zip(LANGUAGES, texts, strict=True)]
    rules: dict[str, list[Rule]] = {kind: [] for kind in ("claim", "order", "retract", "forget", "suppress")}
    for language, document in zip(LANGUAGES, documents, strict=True):
        for row in document["rules"]:
            rule = _rule(row, language, document["macros"], pattern_of)
            rules[rule.kind].append(rule)
    index = KeywordIndex(rules)
    return RuleSet(
        claims=Prefilter("claim", rules["claim"], index),
        orders=Prefilter("order", rules["order"], index),
        retracts=Prefilter("retract", rules["retract"], index),
        forgets=Prefilter("forget", rules["forget"], index),
        suppressions=Prefilter("suppress", rules["suppress"], index),
        lexicon=_lexicon(documents),
        aliases={str(name): attribute for document in documents for name, attribute in document["aliases"].items()},
        version=version_of(dict(zip(LANGUAGES, texts, strict=True))),
    )


def _document(language: str, text: str) -> dict[str, Any]:
    try:
        document = parse(text)
    except yaml.YAMLError as error:
        raise FatalError(f"the rules of {language} are no YAML") from error
    parts = ("rules", "macros", "lexicon", "aliases")
    if not isinstance(document, dict) or any(part not in document for part in parts):
        raise FatalError(f"the rules of {language} need {', '.join(parts)}")
    return document


def _rule(row: dict[str, Any], language: str, macros: dict[str, str], pattern_of: Callable[[str], Pattern]) -> Rule:
    name = f"{language}.{row['id']}"
    try:
        patterns = tuple(pattern_of(_expand(pattern, macros)) for pattern in row["patterns"])
        reject = pattern_of(_expand(row["reject"], macros)) if "reject" in row else None
    except (regex.error, KeyError) as error:
        raise FatalError(f"rule {name} does not compile: {error}") from error
    attribute = row.get("attribute", "")
    kind = row.get("kind", "claim")
    if kind == "claim" and not attribute.startswith("*") and attribute not in known_slots():
        raise FatalError(f"rule {name} names the attribute {attribute!r}, which slots.yaml does not have")
    return Rule(
        id=name,
        language=language,
        kind=kind,
        # "*" reads an open attribute's name from the sentence, "*grade" is one of that name.
        attribute=attribute if attribute == "*" else attribute.removeprefix("*"),
        operation=Operation(row.get("operation", "assert")),
        patterns=patterns,
        keywords=tuple(str(word) for word in row["keywords"]),
        reject=reject,
        values=tuple((group, tuple(meant)) for group, meant in row.get("values", {}).items()),
        shape=row.get("shape", "any"),
        splits=row.get("splits", False),
        confidence=row.get("confidence", 0.9),
        time=row.get("time", ""),
        also=tuple(row.get("also", {}).items()),
        ends=tuple(row.get("ends", ())),
        ttl_days=row.get("ttl_days"),
        elides=row.get("elides", True),
        alone=row.get("alone", False),
        lasting=row.get("lasting", False),
        polite=row.get("polite", False),
    )


def _lexicon(documents: list[dict[str, Any]]) -> Lexicon:
    compiled: dict[str, Any] = {}
    for field in fields(Lexicon):
        parts = {
            language: _expand(document["lexicon"][field.name], document["macros"])
            for language, document in zip(LANGUAGES, documents, strict=True)
            if field.name in document["lexicon"]
        }
        try:
            if field.type == "Bilingual":
                compiled[field.name] = Bilingual(parts)
                continue
            pattern = "|".join(f"(?:{part})" for part in parts.values())
            # Any number of fillers may stand before a statement; possessive, so that they are never given back.
            compiled[field.name] = engine(rf"(?:(?:{pattern})[\s,!~.]*)*+" if field.name == "leads" else pattern)
        except regex.error as error:
            raise FatalError(f"the word list {field.name} does not compile: {error}") from error
    return Lexicon(**compiled)


def _expand(pattern: str, macros: dict[str, str]) -> str:
    for _ in range(_DEEPEST):
        if "<<" not in pattern:
            return pattern
        pattern = _MACRO.sub(lambda match: macros[match[1]], pattern)
    # What is left of a macro would be looked for as it is written, and never found.
    raise FatalError(f"macros within macros, deeper than {_DEEPEST}")
