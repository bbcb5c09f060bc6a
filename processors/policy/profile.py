"""Policy, people room: the sensitive profile (health, religion, politics, sexuality, ethnicity, marriage, gender).

It is never inferred. A candidate that touches it is let through only when a user's own first-person words, the evidence
quote, say it: "我对花生过敏" is a statement; insulin in a shopping list, a question, or a colleague's gossip is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import regex

from processors.literals import Literals
from processors.policy.catalogue import read_yaml, words_of
from processors.policy.threats import normal_text
from schemas import Candidate, Channel, SourceKind

_SELF_NAMING = frozenset({"marital", "gender", "sexuality"})
_COMMON = frozenset("教徒族病症性恋者人的有是对过敏用户我不严重轻度患")
"""Characters that values of one topic share: they say nothing about which one it is."""
_OWN = regex.compile(r"\b(?:i am|i'm|i have|i've|i was)\b")
_CLAUSE_END = regex.compile(r"[，。！；,;.!\n]")
_LONG_WORD = regex.compile(r"[a-z]{4,}")


@dataclass(frozen=True, slots=True)
class _Topic:
    attributes: regex.Pattern[str]
    terms: regex.Pattern[str]


@dataclass(frozen=True, slots=True)
class _Lexicon:
    topics: dict[str, _Topic]
    # Of two owners: the terms that may stand anywhere, and those that begin a word.
    literals: Literals
    prefixes: tuple[str, ...]
    claims: regex.Pattern[str]
    first_person: regex.Pattern[str]
    dropped_subject: regex.Pattern[str]
    not_a_statement: regex.Pattern[str]
    other_person_zh: regex.Pattern[str]
    other_person_en: regex.Pattern[str]


@lru_cache(maxsize=1)
def _lexicon() -> _Lexicon:
    data = read_yaml("sensitive.yaml")
    rows = data["topics"].values()
    topics = {
        name: _Topic(
            regex.compile("|".join(row["attributes"])), regex.compile(_terms(row["zh"], row["en"]), regex.ASCII)
        )
        for name, row in data["topics"].items()
    }

    parts = tuple(term for row in rows for term in (*row["zh"], *(t for t in row["en"] if not t.isalpha())))
    prefixes = tuple(term for row in rows for term in row["en"] if term.isalpha())

    def both(section: str) -> regex.Pattern[str]:
        return regex.compile(f"(?:{data[section]['zh']})|(?:{data[section]['en']})", regex.ASCII)

    return _Lexicon(
        topics=topics,
        literals=Literals((parts, prefixes)),
        prefixes=prefixes,
        claims=both("claims"),
        first_person=both("first_person"),
        dropped_subject=both("dropped_subject"),
        not_a_statement=both("not_a_statement"),
        other_person_zh=regex.compile(data["other_person"]["zh"]),
        other_person_en=regex.compile(data["other_person"]["en"], regex.ASCII),
    )


def _terms(chinese: list[str], english: list[str]) -> str:
    return rf"(?:{'|'.join(chinese)}|\b(?:{'|'.join(english)}))"


def topic_of(candidate: Candidate) -> str | None:
    """The sensitive topic that a candidate claims something about, or None."""
    named = _topic_of_slot(candidate.attribute.casefold())
    if named is not None:
        return named
    if candidate.namespace.endswith("/health"):
        return "health"
    lexicon = _lexicon()
    claim = normal_text(candidate.text)
    if not _has_term(claim, lexicon):
        return None
    for name, topic in lexicon.topics.items():
        # Words such as "girl" or "single" mean too many things to make a claim outside their own slot.
        if name not in ("gender", "marital") and topic.terms.search(claim) and lexicon.claims.search(claim):
            return name
    return None


def _has_term(claim: str, lexicon: _Lexicon) -> bool:
    found = lexicon.literals.owners_in(claim)
    return 0 in found or (1 in found and any(word.startswith(lexicon.prefixes) for word in words_of(claim)))


@lru_cache(maxsize=1024)
def _topic_of_slot(attribute: str) -> str | None:
    return next((name for name, topic in _lexicon().topics.items() if topic.attributes.search(attribute)), None)


def is_stated(candidate: Candidate, topic: str, source: SourceKind) -> bool:
    """Whether the speaker says it of himself (or of his own family: "my mother has asthma") in an evidence quote."""
    if source is not SourceKind.USER_STATEMENT:
        return False
    if candidate.channel is Channel.COMMAND:
        return True
    lexicon = _lexicon()
    value = normal_text(candidate.value).strip()
    return any(_states(quote.quote, value, topic, lexicon, candidate) for quote in candidate.evidence)


def _states(quote: str, value: str, topic_name: str, lexicon: _Lexicon, candidate: Candidate) -> bool:
    topic = lexicon.topics[topic_name]
    said = normal_text(quote)
    clauses = [clause for clause in _CLAUSE_END.split(said) if clause.strip()]
    for clause in clauses if len(clauses) > 1 else [said]:
        if lexicon.not_a_statement.search(clause) and candidate.channel is not Channel.RULE:
            continue
        if not (lexicon.first_person.search(said) or lexicon.dropped_subject.search(clause)):
            continue
        if candidate.subject == "user" and _about_another(clause, quote, lexicon):
            continue
        if value and _shares(value, clause):
            return True
        # Here every term names the thing itself ("我结婚了" for 已婚); insulin, in contrast, is not yet diabetes.
        if topic_name in _SELF_NAMING and topic.terms.search(clause):
            return True
    return False


def _about_another(clause: str, quote: str, lexicon: _Lexicon) -> bool:
    if lexicon.other_person_zh.search(clause):
        return not clause.lstrip().startswith(("我是", "我有", "我对", "我患", "我得", "我信"))
    return lexicon.other_person_en.search(clause) is not None and not _OWN.search(clause)


def _shares(value: str, clause: str) -> bool:
    """Whether the value, or much of it, stands in the clause: the model may have trimmed or inflected it."""
    if value in clause:
        return True
    words = set(_LONG_WORD.findall(value))
    if words and any(word[:5] in clause for word in words):
        return True
    han = [c for c in value if "\u4e00" <= c <= "\u9fff" and c not in _COMMON]
    return bool(han) and sum(c in clause for c in han) * 3 > len(han) * 2
