"""Recall, evaluation: does the updated statement come before the one it replaces? BEAM's knowledge updates.

The user's messages of each chat are the turns, in their order; no model reads them. A pair whose two statements stand
in the same messages cannot be told apart by any order and is counted aside. recall@5 is over all probing questions that
cite messages of the user, with the stand-in step and without it, so that its price shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processors.exceptions import PoisonError
from processors.recall import Kind, Question, Unit, newest_first, rank
from processors.recall.ranking import SIMILARITY_ONLY
from recall.evaluation.vectors import KeptVectors, Rows
from recall.scales import scales_for

CUT = 5

# The data set's own numbering of its messages, appended to their text.
_MARK = re.compile(r"\s*->->.*$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Probe:
    """A question and the messages that answer it; for an update, which hold the old value and which the new."""

    text: str
    evidence: frozenset[str]
    original: frozenset[str]
    updated: frozenset[str]


@dataclass(frozen=True, slots=True)
class Chat:
    """One chat's user messages, in order, and its questions."""

    name: str
    turns: tuple[Unit, ...]
    probes: tuple[Probe, ...]


def load(path: Path) -> list[Chat]:
    """Read a directory with one directory per chat: `chat.json` and `probing_questions.json`.

    Raises:
        PoisonError: no chat there, or not BEAM's JSON.
    """
    try:
        found = [entry for entry in path.iterdir() if (entry / "chat.json").is_file()]
        found.sort(key=lambda entry: (len(entry.name), entry.name))
        chats = [_chat(entry) for entry in found]
    except OSError as error:
        raise PoisonError("unreadable", "the directory cannot be read") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PoisonError("not_beam", "a chat.json or probing_questions.json is not BEAM's") from error
    if not chats:
        raise PoisonError("not_beam", "there is no chat.json in the directories below this one")
    return chats


def evaluate(chats: Sequence[Chat], vectors: KeptVectors | None) -> dict[str, Any]:
    """Pairs in the right order, and recall@5 in per cent; without vectors by keywords alone."""
    tally = {"stand_in": _Tally(), "similarity_only": _Tally()}
    same = 0
    for chat in chats:
        rows = vectors.documents([unit.passage for unit in chat.turns]) if vectors else None
        asked = vectors.questions([probe.text for probe in chat.probes]) if vectors else None
        for place, probe in enumerate(chat.probes):
            same += bool(probe.updated) and probe.updated == probe.original
            vector = None if asked is None else asked[place]
            for name, order in _orders(chat, probe.text, rows, vector, vectors).items():
                tally[name].add(order, probe)
    return {
        "embedder": vectors.embedder.model if vectors else None,
        "chats": len(chats),
        "pairs": tally["stand_in"].pairs,
        "pairs_in_the_same_messages": same,
        **{name: counted.view() for name, counted in tally.items()},
    }


class _Tally:
    def __init__(self) -> None:
        self.pairs = 0
        self._right = 0
        self._recalls: list[float] = []

    def add(self, order: Sequence[str], probe: Probe) -> None:
        place = {name: index for index, name in enumerate(order)}
        if probe.evidence:
            self._recalls.append(len(probe.evidence & set(order[:CUT])) / len(probe.evidence))
        if probe.updated and probe.original and probe.updated != probe.original:
            self.pairs += 1
            self._right += min(place[name] for name in probe.updated) < min(place[name] for name in probe.original)

    def view(self) -> dict[str, float | int]:
        recall = 100 * sum(self._recalls) / len(self._recalls) if self._recalls else 0.0
        share = 100 * self._right / self.pairs if self.pairs else 0.0
        return {
            "updated_first": self._right,
            "updated_first_percent": round(share, 1),
            f"recall@{CUT}": round(recall, 2),
            "questions": len(self._recalls),
        }


def _orders(
    chat: Chat, text: str, rows: Rows | None, vector: Rows | None, vectors: KeptVectors | None
) -> dict[str, list[str]]:
    question = Question.of(text)
    cosines: list[float | None] = [None] * len(chat.turns)
    if rows is not None and vector is not None:
        cosines = [float(cosine) for cosine in rows @ vector]
    scales = scales_for(vectors.embedder.model if vectors else "")
    ranking = rank(question, chat.turns, cosines, scales, now=0.0, weights=SIMILARITY_ONLY)
    return {
        "stand_in": [item.unit.id for item in newest_first(question, ranking, window=CUT)],
        "similarity_only": [item.unit.id for item in ranking.ranked],
    }


def _chat(directory: Path) -> Chat:
    told = json.loads((directory / "chat.json").read_text(encoding="utf-8"))
    probing = json.loads((directory / "probing_questions.json").read_text(encoding="utf-8"))
    messages = [row for batch in told for turn in batch["turns"] for row in turn]
    turns = [
        Unit(
            id=str(row["id"]),
            text=_MARK.sub("", str(row["content"])),
            kind=Kind.TURN,
            at=float(place),
            group=directory.name,
            position=place,
        )
        # Between two of them stands the assistant's answer.
        for place, row in enumerate(messages)
        if row["role"] == "user"
    ]
    known = frozenset(unit.id for unit in turns)
    probes = [_probe(row, known) for rows in probing.values() for row in rows if row.get("source_chat_ids")]
    return Chat(directory.name, tuple(turns), tuple(probes))


def _probe(row: Mapping[str, Any], known: frozenset[str]) -> Probe:
    cited = row["source_chat_ids"]
    parts: Mapping[str, Any] = cited if isinstance(cited, Mapping) else {}
    return Probe(
        str(row["question"]),
        frozenset(_ids(cited)) & known,
        frozenset(_ids(parts.get("original_info", ()))) & known,
        frozenset(_ids(parts.get("updated_info", ()))) & known,
    )


def _ids(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _ids(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _ids(inner)
    else:
        yield str(value)
