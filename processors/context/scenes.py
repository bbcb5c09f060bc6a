"""Context, scenes: what belongs to a question although it does not ask for it: an allergy where food is, a move where a
restaurant is, an order that holds this week, a plan near the day that is named (SPEC R6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import regex

from processors.documents import parse
from processors.language import detect
from processors.times import resolve
from schemas import Category, Memory, Status

NEAR: Final = timedelta(days=2)
"""How far from a day that is named a plan still matters."""
WEEK: Final = timedelta(days=7)
_PAST: Final = timedelta(days=7)
_UNDATED: Final = timedelta(days=60)
_LONGEST: Final = 2_000
_AHEAD: Final = frozenset({Category.EVENT, Category.TASK, Category.GOAL})

_Days = list[tuple[datetime, datetime]]
_Spans = dict[str, _Days]


@dataclass(frozen=True, slots=True)
class Scene:
    """One kind of situation; `words` recognise it in a question and in a memory."""

    name: str
    words: regex.Pattern[str]
    attributes: tuple[str, ...]
    matching: frozenset[str]
    plans: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SceneBook:
    """The reviewed scenes."""

    scenes: tuple[Scene, ...]
    topics: Mapping[str, regex.Pattern[str]]
    safety: frozenset[str]

    def of(self, question: str) -> tuple[Scene, ...]:
        """The scenes a question belongs to."""
        asked = question[:_LONGEST]
        return tuple(scene for scene in self.scenes if scene.words.search(asked))


@dataclass(frozen=True, slots=True)
class Surfaced:
    """A memory to bring up. `why` is `order`, `near_date`, or `scene:` and its name; `pinned` must not be left out."""

    memory: Memory
    why: str
    pinned: bool


@lru_cache(maxsize=1)
def scene_book() -> SceneBook:
    """The packaged `scenes.yaml`."""
    return book_of(parse(files("processors.context").joinpath("scenes.yaml").read_text(encoding="utf-8")))


def book_of(data: Mapping[str, Any]) -> SceneBook:
    """From decoded YAML."""
    scenes = tuple(
        Scene(name, _both(row), tuple(row["attributes"]), frozenset(row["matching"]), tuple(row["plans"]))
        for name, row in data["scenes"].items()
    )
    topics = {name: _both(row) for name, row in data["topics"].items()}
    return SceneBook(scenes, topics, frozenset(data["safety"]))


def _both(row: Mapping[str, Any]) -> regex.Pattern[str]:
    # Tried together, since people mix their languages.
    return regex.compile(f"(?:{row['zh']})|(?:{row['en']})", regex.IGNORECASE)


def surfaced(
    question: str,
    held: Sequence[Memory],
    *,
    now: datetime,
    timezone: str,
    most: int = 5,
    book: SceneBook | None = None,
) -> tuple[Surfaced, ...]:
    """What of `held` to bring up, most important first, at most `most` (pinned ones always).

    First orders that hold only for a time, then what a scene must not miss, then plans near the days that the question
    names (or of the coming week, when it is about the calendar), then the rest of the scenes. Only active memories that
    have not run out count.
    """
    known = book or scene_book()
    standing = [memory for memory in held if memory.status is Status.ACTIVE and not _over(memory, now)]
    found: dict[str, Surfaced] = {}
    for item in sorted(_all(question, standing, known, now, timezone), key=lambda item: item[0]):
        found.setdefault(item[2].memory.id, item[2])
    ranked = list(found.values())
    pinned = [item for item in ranked if item.pinned]
    others = [item for item in ranked if not item.pinned]
    return (*pinned, *others[: max(0, most - len(pinned))])


def _all(
    question: str, standing: Sequence[Memory], book: SceneBook, now: datetime, timezone: str
) -> Iterator[tuple[int, int, Surfaced]]:
    """(weight, place, memory): lower comes first; newest stated first among equals."""
    spans: _Spans = {}
    newest = sorted(standing, key=lambda memory: (memory.last_stated_at, memory.id), reverse=True)
    scenes = book.of(question)
    for place, memory in enumerate(newest):
        if memory.category is Category.INSTRUCTION and memory.expires_at is not None:
            yield 0, place, Surfaced(memory, "order", True)
    days = _days(question, now, timezone)
    if not days and any(scene.name == "schedule" for scene in scenes):
        days = [(now, now + WEEK)]
    for place, memory in enumerate(newest):
        if days and memory.category in _AHEAD and _touches(memory, days, spans):
            yield 20, place, Surfaced(memory, "near_date", False)
    for scene in scenes:
        for place, memory in enumerate(newest):
            weight = _weight(scene, memory, book, now, spans)
            if weight is not None:
                pinned = memory.attribute in book.safety and memory.attribute in scene.attributes
                yield (10 if pinned else weight), place, Surfaced(memory, f"scene:{scene.name}", pinned)


def _weight(scene: Scene, memory: Memory, book: SceneBook, now: datetime, spans: _Spans) -> int | None:
    if memory.attribute in scene.attributes:
        return 40 + scene.attributes.index(memory.attribute)
    if memory.attribute in scene.matching and scene.words.search(f"{memory.text} {memory.value}"[:_LONGEST]):
        return 60
    if memory.category not in _AHEAD:
        return None
    about = any(book.topics[topic].search(memory.text[:_LONGEST]) for topic in scene.plans)
    return 30 if about and _lies_ahead(memory, now, spans) else None


def _over(memory: Memory, now: datetime) -> bool:
    ends = [moment for moment in (memory.valid_to, memory.expires_at) if moment is not None]
    return any(moment <= now for moment in ends)


def _days(text: str, moment: datetime, timezone: str) -> _Days:
    spans = resolve(text[:_LONGEST], moment, timezone, detect(text))
    return [(span.start, span.end or span.start) for span in spans]


def _own_days(memory: Memory, spans: _Spans) -> _Days:
    """The days that a memory names, from when it was said; each is read once per question."""
    if memory.id not in spans:
        spans[memory.id] = _days(memory.text, memory.last_stated_at, memory.timezone)
    return spans[memory.id]


def _touches(memory: Memory, days: _Days, spans: _Spans) -> bool:
    own = _own_days(memory, spans)
    if not own and memory.valid_from is not None and memory.valid_from > memory.last_stated_at:
        own = [(memory.valid_from, memory.valid_from)]
    return any(begin <= end + NEAR and stop >= start - NEAR for begin, stop in own for start, end in days)


def _lies_ahead(memory: Memory, now: datetime, spans: _Spans) -> bool:
    """Whether the plan is still to come; one without a date counts for two months."""
    own = _own_days(memory, spans)
    if own:
        return max(end for _, end in own) >= now - _PAST
    return (memory.valid_from or memory.last_stated_at) >= now - _UNDATED
