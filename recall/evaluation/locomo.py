"""Recall, evaluation: how much of the evidence for LoCoMo's questions is found (Maharana et al., ACL 2024).

recall@k is the mean over questions of |evidence ∩ first k| / |evidence|, over turns, and over the data set's own
observations taken as memories, where a memory stands for the turns that it cites. Questions are about the past of a
whole conversation and carry no time of their own, so the ranker weighs similarity alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from processors.exceptions import PoisonError
from processors.recall import Kind, Mixing, Question, Scales, Unit, newest_first, rank
from processors.recall.ranking import SIMILARITY_ONLY
from recall.evaluation.vectors import KeptVectors, Rows
from recall.scales import scales_for

CUTS = (5, 10, 25)

_TURN_ID = re.compile(r"D\s*:?\s*(\d+)\s*:\s*(\d+)")
_SESSION = re.compile(r"session_(\d+)")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, the turns that answer it, and the data set's category (1 multi-hop … 5 adversarial)."""

    text: str
    evidence: frozenset[str]
    category: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns and observations of two people; `cites` gives the turns that each observation stands for."""

    name: str
    turns: tuple[Unit, ...]
    observations: tuple[Unit, ...]
    cites: Mapping[str, frozenset[str]]
    questions: tuple[Asked, ...]


def load(path: Path, wanted: Sequence[int] | None = None) -> list[Conversation]:
    """Read the data set's JSON; `wanted` picks conversations by place, from 0.

    Raises:
        PoisonError: not that file, or no such conversation.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        places = range(len(data)) if wanted is None else wanted
        return [_conversation(data[place], place) for place in places]
    except OSError as error:
        raise PoisonError("unreadable", "the file cannot be read") from error
    except IndexError as error:
        raise PoisonError("invalid_option", f"there are {len(data)} conversations, counted from 0") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PoisonError("not_locomo", "this is not LoCoMo's JSON: a list with qa and conversation") from error


def evaluate(conversations: Sequence[Conversation], vectors: KeptVectors) -> dict[str, Any]:
    """recall@5/10/25 in per cent for turns and for memories, overall, by conversation and by category."""
    scales = scales_for(vectors.embedder.model)
    rows: list[tuple[str, int, list[float], list[float]]] = []
    for conversation in conversations:
        asked = vectors.questions([question.text for question in conversation.questions])
        of_turns = _Index(conversation.turns, vectors, scales)
        of_memories = _Index(conversation.observations, vectors, scales)
        for place, question in enumerate(conversation.questions):
            turns = [frozenset({unit}) for unit in of_turns.best(question.text, asked[place])]
            memories = [conversation.cites[unit] for unit in of_memories.best(question.text, asked[place])]
            found = (_recall(turns, question.evidence), _recall(memories, question.evidence))
            rows.append((conversation.name, question.category, *found))
    return {
        "embedder": vectors.embedder.model,
        "questions": len(rows),
        "turns": _means(row[2] for row in rows),
        "memories": _means(row[3] for row in rows),
        "by_conversation": {
            name: {
                "turns": _means(r[2] for r in rows if r[0] == name),
                "memories": _means(r[3] for r in rows if r[0] == name),
            }
            for name in dict.fromkeys(row[0] for row in rows)
        },
        "by_category": {
            str(category): _means(row[2] for row in rows if row[1] == category)
            for category in sorted({row[1] for row in rows})
        },
    }


class _Index:
    def __init__(self, units: Sequence[Unit], vectors: KeptVectors, scales: Scales) -> None:
        self._units = units
        self._rows: Rows = vectors.documents([unit.passage for unit in units])
        self._scales = scales
        self._now = max((unit.at for unit in units), default=0.0)

    def best(self, text: str, vector: Rows) -> list[str]:
        """Unit ids, best first, as far as the deepest cut."""
        question = Question.of(text)
        cosines: list[float | None] = [float(cosine) for cosine in self._rows @ vector]
        ranking = rank(
            question, self._units, cosines, self._scales, now=self._now, weights=SIMILARITY_ONLY, mixing=Mixing()
        )
        return [item.unit.id for item in newest_first(question, ranking, window=CUTS[0])[: CUTS[-1]]]


def _recall(found: Sequence[frozenset[str]], evidence: frozenset[str]) -> list[float]:
    return [len(evidence & frozenset().union(*found[:cut])) / len(evidence) for cut in CUTS]


def _means(rows: Iterable[Sequence[float]]) -> dict[str, float]:
    table = np.asarray(list(rows), dtype=np.float64)
    means = table.mean(axis=0) * 100 if len(table) else np.zeros(len(CUTS))
    return {f"recall@{cut}": round(float(mean), 2) for cut, mean in zip(CUTS, means, strict=True)}


def _conversation(data: Mapping[str, Any], place: int) -> Conversation:
    told = data["conversation"]
    sessions = sorted(
        (int(match.group(1)) for match in map(_SESSION.fullmatch, told) if match is not None),
    )
    turns = [unit for number in sessions for unit in _session(told, number)]
    known = {unit.id for unit in turns}
    times = {unit.group: unit.at for unit in turns}
    observations, cites = _observations(data.get("observation", {}), times)
    asked = [
        Asked(str(row["question"]), evidence, int(row["category"]))
        for row in data["qa"]
        if (evidence := _turn_ids(row.get("evidence", ())) & known)
    ]
    return Conversation(str(data.get("sample_id", place)), tuple(turns), tuple(observations), cites, tuple(asked))


def _session(told: Mapping[str, Any], number: int) -> Iterable[Unit]:
    at = _time(str(told.get(f"session_{number}_date_time", "")), number)
    for position, row in enumerate(told[f"session_{number}"]):
        yield Unit(
            id=str(row["dia_id"]),
            text=str(row["text"]),
            kind=Kind.TURN,
            at=at,
            speaker=str(row["speaker"]),
            aside=str(row.get("blip_caption") or ""),
            group=f"session_{number}",
            position=position,
        )


def _observations(data: Mapping[str, Any], times: Mapping[str, float]) -> tuple[list[Unit], dict[str, frozenset[str]]]:
    units: list[Unit] = []
    cites: dict[str, frozenset[str]] = {}
    for name, by_speaker in data.items():
        session = name.removesuffix("_observation")
        for speaker, rows in by_speaker.items():
            for text, cited in rows:
                unit = Unit(id=f"o{len(units):05d}", text=str(text), at=times.get(session, 0.0), owner=str(speaker))
                units.append(unit)
                cites[unit.id] = _turn_ids([cited])
    return units, cites


def _turn_ids(evidence: Iterable[Any]) -> frozenset[str]:
    """Ids such as D1:3, also out of "D8:6; D9:17", "D:11:26" and lists in lists."""
    return frozenset(f"D{int(a)}:{int(b)}" for item in evidence for a, b in _TURN_ID.findall(str(item)))


def _time(text: str, session: int) -> float:
    try:
        return datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC).timestamp()
    except ValueError:
        # Only the order of sessions matters then.
        return float(session)
