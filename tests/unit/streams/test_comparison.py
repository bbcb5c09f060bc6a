"""Comparing sentences: however many claims of one slot come together, each sentence is embedded once, and kept no longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from processors.resolution.similarity import Nearest
from schemas import Memory
from sinks.embedders.hashing import HashingEmbedder
from streams.vectors import comparison
from tests.doubles.records import claim, memory


class Counting(HashingEmbedder):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.update(texts)
        return super().embed_documents(texts)


def test_a_hot_slot_is_not_embedded_anew_for_each_claim() -> None:
    embedder = Counting()
    renew = partial(comparison, embedder)
    nearest = Nearest(renew(), renew=renew)
    stored: list[tuple[str, Memory]] = []
    for number in range(60):
        said = claim(text=f"Remember that my desk number is {number}", value=str(number), category="note")
        found = nearest.find(said, stored)
        assert found is None or not found.same
        stored.append((f"cell-{number}", memory(text=said.text, value=said.value)))
    again = nearest.find(claim(text="Remember that my desk number is 7", value="7", category="note"), stored)
    assert again is not None
    assert (again.cell_key, again.same) == ("cell-7", True)
    assert set(embedder.asked.values()) == {1}
    assert len(embedder.asked) == 60


def test_what_was_learned_of_a_group_goes_with_it() -> None:
    embedder = Counting()
    renew = partial(comparison, embedder)
    nearest = Nearest(renew(), renew=renew)
    held = [("cell", memory(text="The dog is called Rex", value="Rex"))]
    said = claim(text="The dog is called Max", value="Max", category="note")
    first = nearest.find(said, held)
    second = nearest.afresh().find(said, held)
    assert first == second
    assert set(embedder.asked.values()) == {2}
