"""Cold start: what to ask somebody who is new here, and which ways of working to propose (SPEC R9)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from processors.documents import parse
from schemas import Memory, OwnerKind, digest
from sinks.truth import Truth, questions

Language = Literal["zh", "en"]


@dataclass(frozen=True, slots=True)
class Question:
    """A guided question for one profile slot; an answer to any of `unless` makes it needless."""

    attribute: str
    unless: frozenset[str]
    words: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Procedure:
    """A way of working that an agent may propose; it is a memory only after the user agreed."""

    id: str
    attribute: str
    words: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Guide:
    """The reviewed questions and procedures, and when they are used."""

    questions: tuple[Question, ...]
    procedures: tuple[Procedure, ...]
    cold_below: int
    ask_again: timedelta
    most: int


@dataclass(frozen=True, slots=True)
class Offer:
    """What an agent may say: `questions` as (attribute, words), `procedures` as (id, attribute, words)."""

    questions: tuple[tuple[str, str], ...] = ()
    procedures: tuple[tuple[str, str, str], ...] = ()


@lru_cache(maxsize=1)
def guide() -> Guide:
    """The packaged `coldstart.yaml`."""
    data = parse(files("recall").joinpath("coldstart.yaml").read_text(encoding="utf-8"))
    return Guide(
        tuple(
            Question(row["attribute"], frozenset(row["unless"]), {"zh": row["zh"], "en": row["en"]})
            for row in data["questions"]
        ),
        tuple(Procedure(row["id"], row["attribute"], {"zh": row["zh"], "en": row["en"]}) for row in data["procedures"]),
        data["cold_below"],
        timedelta(days=data["ask_again_days"]),
        data["most"],
    )


def is_cold(held: Collection[Memory], known: Guide) -> bool:
    """Whether so little is known that asking helps."""
    return len(held) < known.cold_below


def open_questions(
    held: Collection[Memory], asked: Mapping[str, datetime], now: datetime, known: Guide
) -> list[Question]:
    """Questions whose slot is empty and that were not put within `ask_again`, in the order of use; no limit yet."""
    filled = {memory.attribute for memory in held if memory.subject == "user"}
    return [
        question
        for question in known.questions
        if question.attribute not in filled
        and not question.unless & filled
        and (question.attribute not in asked or asked[question.attribute] <= now - known.ask_again)
    ]


def proposals(held: Collection[Memory], known: Guide) -> list[Procedure]:
    """Procedures to propose: those whose attribute the user has not decided anything about."""
    decided = {memory.attribute for memory in held}
    return [procedure for procedure in known.procedures if procedure.attribute not in decided]


class ColdStart:
    """Hands out questions so that no two agents put the same one, and nobody is asked again too soon."""

    def __init__(self, truth: Truth, now: Callable[[], datetime], known: Guide | None = None) -> None:
        self._truth = truth
        self._now = now
        self._known = known or guide()

    def offer(self, tenant: str, owner: str, held: Sequence[Memory], language: Language) -> Offer:
        """At most three questions and the procedures, for a user of whom little is known; nothing for any other.

        What is offered counts as asked from now on. `held` are the person's active memories.
        """
        if not is_cold(held, self._known):
            return Offer()
        owner_key, now = digest(tenant, OwnerKind.USER, owner), self._now()
        with self._truth.reading() as connection:
            asked = questions.asked(connection, owner_key)
        wanted = {question.attribute: question for question in open_questions(held, asked, now, self._known)}
        names = list(wanted)[: self._known.most]
        before = now - self._known.ask_again
        mine = self._truth.run(
            lambda connection: questions.claim(connection, owner_key, names, now=now, not_since=before)
        )
        return Offer(
            tuple((name, wanted[name].words[language]) for name in mine),
            tuple((item.id, item.attribute, item.words[language]) for item in proposals(held, self._known)),
        )
