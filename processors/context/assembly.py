"""Context, assembly: six layers within a token budget, the note first and the question last (SPEC R5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from types import MappingProxyType
from typing import Final
from zoneinfo import ZoneInfo

from processors.context.item import Citation, Context, Item, Layer
from processors.context.neutral import as_data
from processors.context.wording import CLOSE, OPEN, Language, Wording, wording
from processors.tokens import estimate

DEFAULT_BUDGET: Final = 1_500
"""Tokens, for an agent that states none."""

SHRINK_ORDER: Final = (Layer.RECENT, Layer.RETRIEVED, Layer.SUMMARY, Layer.FACTS, Layer.LOOPS, Layer.DECISIONS)
"""Which layer gives way first. Everything takes its short form before anything goes; then each layer shrinks to its floor
in this order, then to nothing, and pinned items go only after all others, in the same order."""

FLOOR: Final = {
    Layer.RECENT: 2,
    Layer.RETRIEVED: 2,
    Layer.SUMMARY: 3,
    Layer.FACTS: 3,
    Layer.LOOPS: 2,
    Layer.DECISIONS: 2,
}
LONGEST: Final = {Layer.RETRIEVED: 600, Layer.RECENT: 400}
_LONGEST: Final = 200
_LONGEST_LABEL: Final = 40


@dataclass(slots=True)
class _Line:
    item: Item
    place: int
    head: str
    full: str
    short: str
    full_cost: int
    short_cost: int
    shortened: bool = False
    kept: bool = True

    @property
    def cost(self) -> int:
        return self.short_cost if self.shortened else self.full_cost


def assemble(
    question: str, items: Iterable[Item], *, language: Language, timezone: str, budget: int = DEFAULT_BUDGET
) -> Context:
    """The context for a question: equal input gives equal text.

    Dates are those of `timezone` (IANA). What does not fit gives way as `SHRINK_ORDER` says; the note and the question
    are never touched, and when they alone are more than the budget the context says so in `over_budget`.

    Raises:
        zoneinfo.ZoneInfoNotFoundError: no such zone.
    """
    words, zone = wording(language), ZoneInfo(timezone)
    lines = [_line(item, place, words, zone) for place, item in enumerate(_unique(items))]
    frame = _text([], words, question, empty=False)
    room = budget - estimate(frame)
    _fit(lines, words, room)
    kept = [line for line in lines if line.kept]
    text = _text(kept, words, question, empty=not lines)
    tokens = estimate(text)
    ordered = _ordered(kept)
    return Context(
        text=text,
        language=language,
        tokens=tokens,
        budget=budget,
        over_budget=tokens > budget,
        citations=MappingProxyType(
            {
                number: Citation(line.item.ref_kind, line.item.ref_id, line.item.version, line.item.layer)
                for number, line in enumerate(ordered, start=1)
            }
        ),
        dropped=MappingProxyType(dict(Counter(line.item.layer for line in lines if not line.kept))),
        shortened=sum(line.shortened and line.full != line.short for line in kept),
    )


def _unique(items: Iterable[Item]) -> list[Item]:
    """The same thing once, in the first layer that has it; what says nothing is left out."""
    seen: set[tuple[str, str, str]] = set()
    found: list[Item] = []
    for item in sorted(items, key=lambda item: list(Layer).index(item.layer)):
        key = (item.ref_kind, item.ref_id, "" if item.ref_kind == "memory" else item.text)
        if key not in seen and as_data(item.text, longest=_LONGEST):
            seen.add(key)
            found.append(item)
    return found


def _line(item: Item, place: int, words: Wording, zone: tzinfo) -> _Line:
    longest = LONGEST.get(item.layer, _LONGEST)
    full = as_data(item.text, longest=longest)
    short = as_data(item.short or item.text, longest=min(longest, _LONGEST if item.layer is Layer.RETRIEVED else 80))
    short = short if len(short) < len(full) else full
    head = _head(item, words, zone)
    # The number costs the same up to 999, and the line break is a token; both parts end where a token ends.
    frame = estimate(f"[100] {head}”\n")
    full_cost = estimate(full)
    return _Line(
        item, place, head, full, short, frame + full_cost, frame + (full_cost if short == full else estimate(short))
    )


def _head(item: Item, words: Wording, zone: tzinfo) -> str:
    parts = [f"id={as_data(item.ref_id, longest=36)[:8]}", item.type, item.source]
    if item.date is not None:
        parts.append(f"{_day(item.date, zone)}")
    if item.until is not None:
        parts.append(f"{words.until} {_day(item.until, zone)}")
    if item.confidence is not None:
        parts.append(f"{words.confidence} {min(max(item.confidence, 0.0), 1.0):.2f}")
    described = words.separator.join(as_data(part, longest=_LONGEST_LABEL) for part in parts if part)
    label = as_data(item.label, longest=_LONGEST_LABEL)
    return f"({described}) {label}{words.colon}“" if label else f"({described}) “"


def _day(moment: datetime, zone: tzinfo) -> str:
    return f"{moment.astimezone(zone):%Y-%m-%d}"


def _fit(lines: Sequence[_Line], words: Wording, room: int) -> None:
    headings = {layer: estimate(heading + "\n") for layer, heading in words.headings.items()}

    def need() -> int:
        layers = {line.item.layer for line in lines if line.kept}
        return sum(line.cost for line in lines if line.kept) + sum(headings[layer] for layer in layers)

    for layer in SHRINK_ORDER:
        for line in _leaving(lines, layer):
            if need() <= room:
                return
            line.shortened = True
    for floors, pinned in ((FLOOR, False), ({}, False), ({}, True)):
        for layer in SHRINK_ORDER:
            for line in _leaving(lines, layer):
                if need() <= room:
                    return
                here = sum(other.kept for other in lines if other.item.layer is layer)
                if line.kept and line.item.pinned <= pinned and here > floors.get(layer, 0):
                    line.kept = False


def _leaving(lines: Sequence[_Line], layer: Layer) -> list[_Line]:
    """A layer's lines, the one that goes first in front: the oldest turn, or what matters least."""
    own = [line for line in lines if line.item.layer is layer]
    return own if layer is Layer.RECENT else own[::-1]


def _ordered(lines: Sequence[_Line]) -> list[_Line]:
    order = list(Layer)
    return sorted(lines, key=lambda line: (order.index(line.item.layer), line.place))


def _text(lines: Sequence[_Line], words: Wording, question: str, *, empty: bool) -> str:
    out = [OPEN, words.note]
    layer: Layer | None = None
    for number, line in enumerate(_ordered(lines), start=1):
        if line.item.layer is not layer:
            layer = line.item.layer
            out.append(words.headings[layer])
        out.append(f"[{number}] {line.head}{line.short if line.shortened else line.full}”")
    if empty:
        out.append(words.empty)
    return "\n".join([*out, CLOSE, "", words.question, question])
