"""Contract: a policy hint changes recall once a person has approved it, and no longer when that is taken back (SPEC R10)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from processors.access import PrincipalKind, Scope
from processors.hints import POLICY_OWNER, Hint, HintAction, proposal
from processors.policy import PolicyGate, PolicySettings
from processors.recall.guidance import Guidance
from recall.context import ContextBuilder
from recall.guidance import ApprovedHints
from recall.reading import MemoryReader
from recall.screening import TurnScreen
from recall.service import RecallService
from recall.session import SessionMemory
from schemas import Audit, Memory
from sinks.embedders import make_embedder
from sinks.truth import Truth, feedback
from sinks.vectors import open_vectors
from sinks.vectors.collection import OneCollection
from tests.doubles.house import MORNING, House, said
from tests.doubles.records import memory


@pytest.fixture
def house(sqlite_truth: Truth, tmp_path: Path) -> Iterator[House]:
    embedder = make_embedder("hashing")
    store = open_vectors(f"edge:{tmp_path}", prefix="memories", model=embedder.model, dimension=embedder.dimension)
    store.ensure()
    gate = PolicyGate(PolicySettings(), b"a key for the tests")

    def mask(text: str) -> str:
        return gate.mask_text(text).text

    session = SessionMemory(sqlite_truth, mask=mask, now=lambda: MORNING)
    one, hints = OneCollection(store, embedder), ApprovedHints()
    service = RecallService(sqlite_truth, one, screen=TurnScreen(gate), hints=hints)
    builder = ContextBuilder(session, mask, lambda: MORNING)
    yield House(sqlite_truth, MemoryReader(sqlite_truth, service, builder, session))
    store.close()


def a_while(house: House) -> None:
    """Until recall looks for hints again."""
    house.now.at += timedelta(minutes=1)


async def decide(house: House, key: str, hint: Hint) -> str:
    """The hint is proposed, and approved over the API; returns the review."""
    commands = [proposal(hint, "acme", house.now())]
    assert house.truth.run(lambda connection: feedback.propose(connection, commands, house.now())) == 1
    async with house.client(key) as reviewer:
        params = {"owner": POLICY_OWNER, "owner_kind": "agent"}
        [question] = (await reviewer.get("/v1/reviews", params=params)).json()["reviews"]
        assert question["kind"] == "policy_hint"
        await reviewer.post(f"/v1/reviews/{question['id']}/decision", json={"decision": "approve"})
    house.settle()
    a_while(house)
    return str(question["id"])


async def ask(house: House, key: str, query: str = "the red kayak") -> list[dict[str, Any]]:
    async with house.client(key) as client:
        answer = await client.post("/v1/recall", json={"query": query, "owner": "ann", "limit": 4})
        found: list[dict[str, Any]] = answer.json()["results"]
        return found


@pytest.mark.parametrize(
    "hint",
    [
        Hint(HintAction.LOWER_WEIGHT, "attribute likes", "0.3", "likes was ignored", 40),
        Hint(HintAction.CONFIRM_FIRST, "attribute likes", "true", "likes was corrected", 40),
        Hint(HintAction.SHOW_FEWER, "agent crm", "fewer", "agent crm ignored most", 40),
    ],
    ids=["weight", "confirmation", "quota"],
)
async def test_an_approved_hint_is_followed_until_it_is_taken_back(house: House, hint: Hint) -> None:
    house.learn(
        said(3, "likes", "the red kayak", "I like the red kayak", cardinality="multi"),
        said(1, "note", "a kayak in the shed", "there is a kayak in the shed", cardinality="multi"),
        said(2, "event", "lent the kayak", "lent the old kayak to Bob", cardinality="multi"),
    )
    boss = house.key("boss", "agent/memriver", kind=PrincipalKind.PERSON)
    crm = house.key("crm", "user/ann", scopes=[Scope.READ])

    def shape(found: list[dict[str, Any]]) -> list[tuple[str, bool]]:
        return [(item["memory"]["attribute"], "confirm" in item) for item in found]

    before = shape(await ask(house, crm))
    assert (len(before), any(confirm for _name, confirm in before)) == (3, False)
    review = await decide(house, boss, hint)
    after = shape(await ask(house, crm))
    if hint.action is HintAction.LOWER_WEIGHT:
        assert before[-1][0] != "likes"
        assert after[-1][0] == "likes"
    elif hint.action is HintAction.CONFIRM_FIRST:
        assert after == [(name, name == "likes") for name, _confirm in before]
    else:
        assert len(after) == 2
    async with house.client(boss) as reviewer:
        await reviewer.post(f"/v1/reviews/{review}/decision", json={"decision": "undo"})
    house.settle()
    a_while(house)
    assert shape(await ask(house, crm)) == before


def guide(**fields: Any) -> Memory:
    given = {
        "owner_kind": "agent",
        "owner": POLICY_OWNER,
        "namespace": f"agent/{POLICY_OWNER}/policy",
        "attribute": "recall_weight",
        "subject": "attribute likes",
        "value": "0.5",
        "audit": Audit(writer="feedback:hints", decision="accept", policy_version="1"),
    }
    return memory("hint", **(given | fields))


def test_a_hint_that_nobody_proposed_here_steers_nothing() -> None:
    """Scenario: somebody who may write to the policy's owner writes what looks like a hint."""
    assert Guidance.of([guide()]).weights == {"likes": 0.5}
    foreign = Audit(writer="agent:memriver", decision="accept", policy_version="1")
    for wrong in (
        {"audit": foreign},
        {"status": "superseded"},
        {"value": "heavy"},
        {"subject": "agent likes"},
        {"attribute": "recall_everything"},
        {"subject": "attribute "},
    ):
        assert Guidance.of([guide(**wrong)]) == Guidance(), wrong
    assert Guidance.of([guide(value="0")]).weights == {"likes": 0.25}


def test_a_wider_recall_lowers_the_floor_for_its_agent_only() -> None:
    guidance = Guidance.of([guide(attribute="recall_breadth", subject="agent crm", value="wider")])
    assert (round(guidance.floor("crm", 0.7), 2), guidance.floor("mail", 0.7), guidance.floor(None, 0.05)) == (
        0.6,
        0.7,
        0.05,
    )
    assert (guidance.limit("crm", 5), Guidance(fewer=frozenset({"crm"})).limit("crm", 5)) == (5, 3)
