"""Recall, standing in: of two hits that speak of the same thing, the newer one stands in the place of the better.

Where slots are known the old value is superseded in truth. Turns and free notes have no slot: a person says "8 cards",
and weeks later "now 10". Similarity cannot tell which holds, and sorting everything by date loses the answer to every
other question. So only hits are exchanged that answer the same part of the question, each with a value in it, where the
later one says that something changed, and only for questions that ask for one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from processors.recall.question import Question
from processors.recall.ranking import Ranked, Ranking
from processors.recall.wording import wording


@dataclass(frozen=True, slots=True)
class Sameness:
    """When two hits speak of the same thing.

    `shared`: part of the better hit's keyword weight that the other contains too; `strength`: least keyword score of
    the other, as a part of the better one's.
    """

    shared: float = 0.3
    strength: float = 0.4


def newest_first(
    question: Question, ranking: Ranking, *, window: int, sameness: Sameness | None = None
) -> tuple[Ranked, ...]:
    """The ranking, in whose first `window` places hits about the same thing have changed places, newest first.

    Nothing enters or leaves the window, so a later step that keeps its first places keeps what it would have kept.
    """
    ranked = ranking.ranked
    if not question.wants_newest:
        return ranked
    rule = sameness or Sameness()
    head = list(ranked[:window])
    values = [wording().text["value"].within(item.unit.text) for item in head]
    taken: set[int] = set()
    placed = list(head)
    for first, better in enumerate(head):
        if first in taken or not values[first]:
            continue
        group = [first]
        group += [
            other
            for other in range(first + 1, len(head))
            if other not in taken
            and values[other]
            and _same_thing(better, head[other], ranking.weights, rule)
            and wording().text["change"].within(_later(better, head[other]).unit.text)
        ]
        taken.update(group)
        _place(placed, head, group)
    return (*placed, *ranked[window:])


def _place(placed: list[Ranked], head: Sequence[Ranked], group: Sequence[int]) -> None:
    order = sorted(group, key=lambda index: (-head[index].unit.at, -head[index].unit.position, index))
    newest = head[order[0]]
    for place, index in zip(sorted(group), order, strict=True):
        item = head[index]
        placed[place] = item if item is newest else item._replace(stands_behind=newest.unit.id)


def _same_thing(better: Ranked, other: Ranked, weights: dict[int, float], rule: Sameness) -> bool:
    if better.unit.owner != other.unit.owner or better.unit.speaker != other.unit.speaker:
        return False
    if other.keyword < rule.strength * better.keyword:
        return False
    whole = sum(weights[word] for word in better.holds)
    return whole > 0 and sum(weights[word] for word in better.holds & other.holds) >= rule.shared * whole


def _later(one: Ranked, other: Ranked) -> Ranked:
    return max(one, other, key=lambda item: (item.unit.at, item.unit.position))
