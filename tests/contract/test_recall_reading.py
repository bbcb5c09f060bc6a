"""Contract: the real read side behind the verbs — what a context cites, and a summary that is up to date when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from processors.policy import PolicyGate, PolicySettings
from recall.context import ContextBuilder
from recall.reading import MemoryReader
from recall.request import MAX_LIMIT
from recall.screening import TurnScreen
from recall.service import RecallService
from recall.session import SessionMemory
from sinks.embedders import make_embedder
from sinks.truth import Truth, turns
from sinks.truth.turns import Conversation
from sinks.vectors import open_vectors
from sinks.vectors.collection import OneCollection
from tests.doubles.house import MORNING, House, said
from tests.doubles.records import turn, turn_row


def _say(truth: Truth, *texts: str) -> None:
    """Turns of ann as ingest stores them."""
    made = [turn(number, text=text) for number, text in enumerate(texts, 1)]
    first = made[0]

    def work(connection: Any) -> None:
        row = Conversation(first.conversation_key, first.tenant, first.conversation_id, made[-1].sent_at)
        row.turn_count = len(made)
        turns.save_conversations(connection, [row])
        turns.insert_turns(connection, [turn_row(item) for item in made])

    truth.run(work)


@pytest.fixture
def house(sqlite_truth: Truth, tmp_path: Path) -> Iterator[House]:
    embedder = make_embedder("hashing")
    store = open_vectors(f"edge:{tmp_path}", prefix="memories", model=embedder.model, dimension=embedder.dimension)
    store.ensure()
    gate = PolicyGate(PolicySettings(), b"a key for the tests")

    def mask(text: str) -> str:
        return gate.mask_text(text).text

    session = SessionMemory(sqlite_truth, mask=mask, now=lambda: MORNING)
    service = RecallService(sqlite_truth, OneCollection(store, embedder), screen=TurnScreen(gate))
    builder = ContextBuilder(session, mask, lambda: MORNING)
    yield House(sqlite_truth, MemoryReader(sqlite_truth, service, builder, session))
    store.close()


async def test_a_citation_has_the_number_in_the_text_also_where_turns_are_numbered_too(house: House) -> None:
    """Scenario: the session's turns come first in the text. We expect a memory's own number, and only memories noted as read."""
    (memory,) = house.learn(said(1, "residence", "Leeds", "lives in Leeds"))
    _say(house.truth, "We decided to use the blue paint.", "Can you book the hall for Friday?")
    asked = {"query": "Where do I live?", "owner": "ann", "conversation_id": "c1", "timezone": "UTC"}
    async with house.client(house.key("crm", "user/ann")) as client:
        answer = (await client.post("/v1/context", json=asked)).json()
        (cited,) = answer["citations"]
        assert (cited["id"], cited["version"]) == (memory.id, 1)
        (line,) = [line for line in answer["text"].splitlines() if "lives in Leeds" in line]
        assert f"[{cited['number']}]" in line
        assert any(f"[{number}]" in answer["text"] for number in (1, 2, 3) if number != cited["number"])
        house.reads.flush()
        explained = (await client.get(f"/v1/memories/{memory.id}/explain")).json()
        assert [(row["reader"], row["verb"]) for row in explained["reads"]] == [("agent:crm", "context")]


async def test_a_summary_that_is_asked_for_is_made_then_and_there(house: House) -> None:
    """Scenario: too few turns for a summary of their own. We expect one all the same, with nothing left out of it."""
    _say(house.truth, "We decided to use the blue paint.", "Can you book the hall for Friday?")
    async with house.client(house.key("crm", "user/ann")) as client:
        made = (await client.post("/v1/summarize", json={"conversation_id": "c1"})).json()
        assert (made["method"], made["turns"], made["unsummarised"]) == ("extractive", 2, 0)
        assert made["decisions"] == ["We decided to use the blue paint."]


@pytest.mark.parametrize("path", ["/v1/recall", "/v1/context"])
async def test_more_results_than_a_recall_gives_are_refused_by_name(house: House, path: str) -> None:
    asked = {"query": "Where do I live?", "owner": "ann"}
    async with house.client(house.key("crm", "user/ann")) as client:
        assert (await client.post(path, json=asked | {"limit": MAX_LIMIT})).status_code == 200
        refused = await client.post(path, json=asked | {"limit": MAX_LIMIT + 1})
        assert (refused.status_code, "limit" in refused.text, str(MAX_LIMIT) in refused.text) == (422, True, True)
