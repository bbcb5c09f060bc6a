"""Sinks, embedders: measuring a model's calibration on 32 shipped sentences and on a deployment's own.

Truth knows what was said, not which question it answers, so questions and their answers come from `paraphrases.tsv`: 16
sentences in Chinese and the same 16 in English, each with a paraphrase, a question that it answers, and the same slot with
another value. What is *unrelated* is best measured where the model will work: from 50 own memories of a language on, the
shipped questions are held against these, and the memories against each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from processors.ports import Embedder
from sinks.embedders.calibration import DEFAULT, Calibration, fit_relevance, fit_sameness

ENOUGH = 50
"""Own memories of one language below which the shipped sentences say more."""
MIXED = "mixed"

_Rows = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Said:
    """A memory of the deployment: its text, its language, and what slot of whom it is about."""

    text: str
    language: str
    owner_key: str
    attribute: str


@dataclass(frozen=True, slots=True)
class Example:
    """A line of the shipped file."""

    language: str
    memory: str
    paraphrase: str
    question: str
    other_value: str


@dataclass(slots=True)
class _Pairs:
    """Cosines by language, `mixed`, and `*` for all of one language together."""

    answers: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    unasked: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    other_value: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    unrelated: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def examples() -> list[Example]:
    """The shipped sentences: those in Chinese, then their translations in the same order."""
    lines = files(__package__).joinpath("paraphrases.tsv").read_text("utf-8").splitlines()
    return [Example(*line.split("\t")) for line in lines]


def measure(embedder: Embedder, own: Sequence[Said] = ()) -> Calibration:
    """The calibration of this model, by about 130 texts of ours and those of `own` (some hundreds are enough).

    Raises:
        TransientError: the embedder is away.
        RefusedTexts: it refuses a text.
    """
    shipped = examples()
    pairs = _of_shipped(embedder, shipped)
    if own:
        _of_own(embedder, shipped, own, pairs)
    keys = [key for key in pairs.answers if key != MIXED or _told_apart(pairs)]
    return Calibration(
        {key: fit_relevance(pairs.answers[key], pairs.unasked[key]) for key in keys},
        {key: fit_sameness(pairs.other_value[key], pairs.unrelated[key]) for key in keys},
    )


def _of_shipped(embedder: Embedder, shipped: Sequence[Example]) -> _Pairs:
    questions = _questions(embedder, shipped)
    memories = _rows(embedder.embed_documents([it.memory for it in shipped]))
    said_again = _rows(embedder.embed_documents([it.paraphrase for it in shipped]))
    others = _rows(embedder.embed_documents([it.other_value for it in shipped]))
    asked, again, changed = questions @ memories.T, memories @ said_again.T, memories @ others.T
    half = len(shipped) // 2
    pairs = _Pairs()
    for i, one in enumerate(shipped):
        for j, two in enumerate(shipped):
            keys = (one.language, DEFAULT) if one.language == two.language else (MIXED,)
            # The translation of a sentence stands half the file away.
            same = i % half == j % half
            for key in keys:
                (pairs.answers if same else pairs.unasked)[key].append(float(asked[i, j]))
                if same:
                    pairs.other_value[key].append(float(changed[i, j]))
                else:
                    pairs.unrelated[key].append(float(again[i, j]))
    return pairs


def _of_own(embedder: Embedder, shipped: Sequence[Example], own: Sequence[Said], pairs: _Pairs) -> None:
    """Put the deployment's unrelated pairs in place of the shipped ones, for each language with enough memories."""
    by_language: dict[str, list[Said]] = defaultdict(list)
    for said in own:
        by_language[said.language.split("-")[0].lower()].append(said)
    replaced: dict[str, tuple[list[float], list[float]]] = {}
    for language, held in by_language.items():
        if len(held) < ENOUGH:
            continue
        rows = _rows(embedder.embed_documents([it.text for it in held]))
        unrelated = _apart(rows, held)
        mine = [it for it in shipped if it.language == language]
        unasked: list[float] = []
        if mine:
            near = _quantile(pairs.other_value[language], 0.5)
            answers = _rows(embedder.embed_documents([it.memory for it in mine]))
            # A memory that says about the same as the answer is no unrelated one: "I live in Rome" to "Where do I live?".
            other = (answers @ rows.T) < near
            unasked = [float(it) for it in (_questions(embedder, mine) @ rows.T)[other]]
        if unrelated:
            replaced[language] = unasked or pairs.unasked[DEFAULT], unrelated
    for language, (unasked, unrelated) in replaced.items():
        if language in pairs.answers:
            pairs.unasked[language], pairs.unrelated[language] = unasked, unrelated
    if replaced:
        pairs.unasked[DEFAULT] = [x for unasked, _ in replaced.values() for x in unasked]
        pairs.unrelated[DEFAULT] = [x for _, unrelated in replaced.values() for x in unrelated]


def _apart(rows: _Rows, held: Sequence[Said]) -> list[float]:
    """Cosines of memories of different people about different things, whose words differ."""
    cosines = rows @ rows.T
    return [
        float(cosines[i, j])
        for i in range(len(held))
        for j in range(i)
        if held[i].attribute != held[j].attribute
        and held[i].owner_key != held[j].owner_key
        and held[i].text != held[j].text
    ]


def _told_apart(pairs: _Pairs) -> bool:
    """Whether the model sees a sentence and its translation as nearer than two sentences at all."""
    return _quantile(pairs.answers[MIXED], 0.5) > _quantile(pairs.unasked[MIXED], 0.9)


def _questions(embedder: Embedder, shipped: Sequence[Example]) -> _Rows:
    return _rows([embedder.embed_query(it.question) for it in shipped])


def _rows(vectors: Sequence[Sequence[float]]) -> _Rows:
    return np.asarray(vectors, dtype=np.float64)


def _quantile(values: Sequence[float], share: float) -> float:
    return float(np.quantile(np.asarray(values, dtype=np.float64), share))
