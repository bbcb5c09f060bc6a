"""A collection's name tells model and dimension, and two models never share one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.vectors.protocol import collection_name, of_same_prefix


def test_a_plain_model_name_is_readable() -> None:
    assert collection_name("memories", "text-embedding-3-small", 1536) == "memories_text-embedding-3-small_1536"


def test_model_dimension_and_prefix_each_make_another_collection() -> None:
    names = [collection_name(*key) for key in (("m", "a", 1), ("m", "a", 2), ("m", "b", 1), ("n", "a", 1))]
    assert len(set(names)) == 4


@pytest.mark.parametrize(("one", "other"), [("a/b", "a-b"), ("A", "a"), ("模型", "型模"), ("a_b", "a-b"), ("a.", "a")])
def test_names_that_look_alike_stay_apart(one: str, other: str) -> None:
    assert collection_name("m", one, 8) != collection_name("m", other, 8)


@given(st.text(min_size=1, max_size=300))
def test_any_model_name_gives_a_safe_name_of_its_prefix(model: str) -> None:
    name = collection_name("memories", model, 384)
    assert re.fullmatch(r"[a-z0-9._-]{1,200}", name)
    assert of_same_prefix([name], "memories") == [name]
    assert of_same_prefix([name], "mem") == []


def test_a_longer_prefix_is_another_family() -> None:
    names = [collection_name("memories", "a", 8), collection_name("memories_docs", "a", 8)]
    assert of_same_prefix(names, "memories") == ["memories_a_8"]
    assert of_same_prefix(names, "memories_docs") == ["memories_docs_a_8"]


@pytest.mark.parametrize("prefix", ["", "Memories", "../x", "1a", "a__b", "a b"])
def test_a_prefix_that_is_no_name_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        collection_name(prefix, "model", 8)


def test_a_model_without_name_or_size_is_refused() -> None:
    for model, dimension in (("", 8), ("m", 0), ("m", -1)):
        with pytest.raises(ValueError, match="model name"):
            collection_name("memories", model, dimension)
