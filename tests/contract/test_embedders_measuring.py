"""Calibration that is measured: on the shipped sentences as the built-in one was, and on own ones where there are enough."""

from __future__ import annotations

import pytest

from sinks.embedders.calibration import DEFAULT, Calibration, calibration_for
from sinks.embedders.hashing import HashingEmbedder
from sinks.embedders.measuring import ENOUGH, MIXED, Said, examples, measure
from tests.doubles.spaces import Marked


def own(count: int, language: str = "en") -> list[Said]:
    """Memories of many people in one house style, which makes unrelated ones look alike."""
    return [
        Said(
            f"The customer record says in field {number}: value {number * 7}", language, f"p{number}", f"slot-{number}"
        )
        for number in range(count)
    ]


def test_the_shipped_sentences_come_in_two_languages_in_the_same_order() -> None:
    found = examples()
    assert [it.language for it in found] == ["zh"] * 16 + ["en"] * 16
    assert ("peanuts" in found[16].memory, "花生" in found[0].memory) == (True, True)


@pytest.mark.parametrize("language", ["zh", "en", DEFAULT])
def test_without_own_sentences_it_is_what_the_built_in_one_is(language: str) -> None:
    measured, built_in = measure(HashingEmbedder()), calibration_for("hashing-1")
    for one, other in (
        (measured.relevance_knots, built_in.relevance_knots),
        (measured.sameness_knots, built_in.sameness_knots),
    ):
        assert [x for x, _ in one[language]] == pytest.approx([x for x, _ in other[language]], abs=0.002)
        assert [y for _, y in one[language]] == [y for _, y in other[language]]


def test_a_model_that_knows_no_translations_gets_no_map_for_them() -> None:
    assert MIXED not in measure(HashingEmbedder()).relevance_knots


def test_few_own_sentences_change_nothing() -> None:
    assert measure(HashingEmbedder(), own(ENOUGH - 1)) == measure(HashingEmbedder())


def test_own_sentences_say_what_unrelated_means_here() -> None:
    """Scenario: everything in a deployment is worded alike. We expect two of its memories that have nothing to do with
    each other to count as unrelated, which the shipped sentences alone would call nearly the same."""
    embedder = HashingEmbedder()
    one, other = embedder.embed_documents([own(9)[3].text, own(9)[8].text])
    cosine = sum(x * y for x, y in zip(one, other, strict=True))
    shipped, measured = measure(embedder), measure(embedder, own(120))
    assert shipped.sameness(cosine, "en", "en") > 0.8
    assert measured.sameness(cosine, "en", "en") < 0.5
    assert measured.relevance_knots["zh"] == shipped.relevance_knots["zh"]


def test_a_language_that_the_shipped_sentences_do_not_know_is_measured_by_its_own() -> None:
    measured = measure(HashingEmbedder(), own(60, "de"))
    assert "de" not in measured.relevance_knots
    assert measured.sameness_knots[DEFAULT] != measure(HashingEmbedder()).sameness_knots[DEFAULT]


def test_a_models_own_offset_is_taken_out() -> None:
    """Every vector of this model shares a coordinate, so no two are orthogonal; unrelated still comes out as 0."""
    measured = measure(Marked("marked-a:384"))
    assert measured.relevance_knots[DEFAULT][0][0] == pytest.approx(0.09, abs=0.01)
    assert measured.relevance(0.09, "zh", "zh") < 0.1


def test_it_comes_back_from_the_database_as_it_was() -> None:
    measured = measure(HashingEmbedder())
    assert Calibration.from_json(measured.to_json()) == measured
    for broken in ("{", "[]", '{"relevance": {}, "sameness": {}}'):
        with pytest.raises((ValueError, TypeError)):
            Calibration.from_json(broken)
