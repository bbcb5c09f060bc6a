"""HTTP API, memories and reviews: versions in, commands out, and a stale write that neither wins nor vanishes (SPEC A2)."""

from __future__ import annotations

from typing import Any

import pytest

from processors.access import PrincipalKind, Scope
from schemas import Command, CommandKind, Memory, Status
from sinks.truth import Truth
from sinks.truth.outbox import Outgoing
from tests.doubles.house import House, said


@pytest.fixture
def house(sqlite_truth: Truth) -> House:
    return House(sqlite_truth)


def lives(number: int, place: str, **fields: Any) -> Any:
    return said(number, "residence", place, f"lives in {place}", **fields)


async def test_a_memory_has_its_version_as_etag_and_is_changed_from_it(house: House) -> None:
    (memory,) = house.learn(lives(1, "Leeds"))
    async with house.client(house.key("ann", kind=PrincipalKind.PERSON)) as client:
        path = f"/v1/memories/{memory.id}"
        read = await client.get(path)
        assert read.headers["etag"] == '"1"'
        body = {"text": "lives in Leeds, England"}
        assert (await client.patch(path, json=body)).status_code == 428
        assert (await client.patch(path, json=body, headers={"If-Match": "*"})).status_code == 428
        assert (await client.patch(path, json=body, headers={"If-Match": "one"})).status_code == 422
        stale = await client.patch(path, json=body, headers={"If-Match": '"7"'})
        assert (stale.status_code, stale.headers["etag"]) == (412, '"1"')
        done = await client.patch(path, json=body, headers={"If-Match": read.headers["etag"]})
        assert done.status_code == 202
        house.settle()
        assert (await client.get(path)).json()["text"] == "lives in Leeds, England"


async def test_a_new_value_supersedes_and_the_old_one_stays_in_the_history(house: House) -> None:
    (memory,) = house.learn(lives(1, "Leeds"))
    async with house.client(house.key("ann", kind=PrincipalKind.PERSON)) as client:
        body = {"text": "lives in York", "value": "York"}
        put = await client.put(f"/v1/memories/{memory.id}", json=body, headers={"If-Match": '"1"'})
        house.settle()
        listed = (await client.get("/v1/memories", params={"owner": "ann"})).json()["memories"]
        assert [row["value"] for row in listed] == ["York"]
        old = (await client.get("/v1/memories", params={"owner": "ann", "status": "superseded"})).json()["memories"]
        assert [row["id"] for row in old] == [memory.id]
        versions = (await client.get(f"/v1/memories/{memory.id}/history")).json()["versions"]
        assert [row["status"] for row in versions] == ["active", "superseded"]
        state = (await client.get(put.json()["commands"][0]["see"])).json()
        assert state["state"] == "applied"


async def test_two_agents_write_from_one_version_and_the_second_goes_to_review(house: House) -> None:
    """Scenario: both read version 1 and write before the resolver has seen either. We expect the first one's text, a review
    with the second one's, and after its approval the second one's."""
    (memory,) = house.learn(lives(1, "Leeds"))
    path, seen = f"/v1/memories/{memory.id}", {"If-Match": '"1"'}
    word = {"source": "user_statement"}
    async with house.client(house.key("crm", "user/ann")) as crm, house.client(house.key("mail", "user/ann")) as mail:
        first = await crm.patch(
            path, json={"text": "lives in Leeds (north)", "quote": "in the north"} | word, headers=seen
        )
        second = await mail.patch(
            path, json={"text": "lives in Leeds (south)", "quote": "in the south"} | word, headers=seen
        )
        assert (first.status_code, second.status_code) == (202, 202)
        house.settle()
        assert house.memory(memory.id).text == "lives in Leeds (north)"
        state = (await mail.get(second.json()["commands"][0]["see"])).json()
        assert state["state"] == "review"
        question = (await crm.get("/v1/reviews", params={"owner": "ann"})).json()["reviews"][0]
        assert (question["kind"], question["held_command"]["text"]) == ("stale_write", "lives in Leeds (south)")
        answer = {"decision": "approve"}
        assert (await crm.post(f"/v1/reviews/{question['id']}/decision", json=answer)).status_code == 202
        house.settle()
        after = house.memory(memory.id)
        assert (after.text, after.audit.writer) == ("lives in Leeds (south)", "agent:mail")
        again = await crm.post(f"/v1/reviews/{question['id']}/decision", json=answer)
        assert again.status_code == 409
        await crm.post(f"/v1/reviews/{question['id']}/decision", json={"decision": "undo"})
        house.settle()
        assert house.memory(memory.id).text == "lives in Leeds (north)"


@pytest.mark.parametrize("answer", ["approve", "reject"])
async def test_two_contents_of_one_version_are_one_question_and_approval_is_a_new_version(
    house: House, answer: str
) -> None:
    """Scenario: two replicas, which may only read, report the same version. We expect one question; approved, a version
    that is newer than both contents; rejected, nothing."""
    (memory,) = house.learn(lives(1, "Leeds"))
    report = {"kind": "conflict", "memory_id": memory.id, "version": 1, "detail": "seen by a replica, call 13812345678"}
    reader = house.key("replica", "user/ann", scopes=[Scope.READ])
    stranger = house.key("other", "user/bea", scopes=[Scope.READ])
    async with (
        house.client(reader) as replica,
        house.client(house.key("crm", "user/ann")) as crm,
        house.client(stranger) as other,
    ):
        first = await replica.post("/v1/reviews", json=report)
        assert first.status_code == 202, first.text
        house.settle()
        second = await crm.post("/v1/reviews", json=report)
        assert second.json() == first.json()
        house.settle()
        assert (await other.post("/v1/reviews", json=report)).status_code == 404
        assert (await replica.post("/v1/reviews", json=report | {"version": 2})).status_code == 409
        state = (await replica.get(first.json()["commands"][0]["see"])).json()
        [question] = (await crm.get("/v1/reviews", params={"owner": "ann"})).json()["reviews"]
        assert (state["state"], state["review_id"]) == ("review", question["id"])
        assert (question["kind"], question["memory"]["id"]) == ("two_contents", memory.id)
        assert "13812345678" not in question["detail"]
        assert house.memory(memory.id).version == 1
        decided = await crm.post(f"/v1/reviews/{question['id']}/decision", json={"decision": answer})
        assert decided.status_code == 202
        house.settle()
        assert (await crm.get("/v1/reviews", params={"owner": "ann"})).json()["reviews"] == []
    after = house.memory(memory.id)
    assert (after.status, after.version) == (Status.ACTIVE, 2 if answer == "approve" else 1)


async def test_a_stale_delete_deletes_nothing(house: House) -> None:
    (memory,) = house.learn(lives(1, "Leeds"))
    async with house.client(house.key("crm", "user/ann")) as client:
        assert (await client.delete(f"/v1/memories/{memory.id}", headers={"If-Match": '"1"'})).status_code == 202
        house.learn(lives(2, "Leeds"))
        house.settle()
        assert house.memory(memory.id).status is Status.ACTIVE
        assert len((await client.get("/v1/reviews", params={"owner": "ann"})).json()["reviews"]) == 1


async def test_what_is_deleted_is_gone_from_every_answer(house: House) -> None:
    (memory,) = house.learn(lives(1, "Leeds"))
    async with house.client(house.key("ann", kind=PrincipalKind.PERSON)) as client:
        path = f"/v1/memories/{memory.id}"
        await client.delete(path, headers={"If-Match": '"1"'})
        house.settle()
        gone = await client.get(path)
        assert gone.status_code == 404
        history = await client.get(f"{path}/history")
        assert ([row["version"] for row in history.json()["versions"]], "Leeds" in history.text) == ([1, 2], False)
        listed = await client.get("/v1/memories", params={"owner": "ann", "status": ["active", "deleted"]})
        assert "Leeds" not in listed.text
        assert (await client.get(f"{path}/explain")).status_code == 404
        body = {"version": 1}
        assert (await client.post(f"{path}/restore", json=body, headers={"If-Match": '"2"'})).status_code == 404


async def test_confirm_and_restore(house: House) -> None:
    (memory,) = house.learn(lives(1, "Leeds"))
    async with house.client(house.key("ann", kind=PrincipalKind.PERSON)) as client:
        path = f"/v1/memories/{memory.id}"
        assert (await client.post(f"{path}/confirm", headers={"If-Match": '"1"'})).status_code == 202
        house.settle()
        assert house.memory(memory.id).confidence > memory.confidence
        await client.patch(path, json={"text": "Leeds it is"}, headers={"If-Match": '"2"'})
        house.settle()
        back = await client.post(f"{path}/restore", json={"version": 1}, headers={"If-Match": '"3"'})
        assert back.status_code == 202
        house.settle()
        after = house.memory(memory.id)
        assert (after.text, after.version) == ("lives in Leeds", 4)
        never = await client.post(f"{path}/restore", json={"version": 40}, headers={"If-Match": '"4"'})
        assert never.status_code == 404


def quarantined(house: House) -> Memory:
    (memory,) = house.learn(
        lives(1, "Leeds", decision="quarantine", decision_reasons=("override",), policy_version="p")
    )
    return memory


async def test_nobody_but_a_reviewer_sees_or_lets_out_what_is_quarantined(house: House) -> None:
    memory = quarantined(house)
    path = f"/v1/memories/{memory.id}"
    writes = {Scope.READ, Scope.WRITE}
    async with house.client(house.key("crm", "user/ann", scopes=writes)) as client:
        assert (await client.get(path)).status_code == 404
        assert (await client.get(f"{path}/history")).status_code == 404
        assert (await client.post(f"{path}/confirm", headers={"If-Match": '"1"'})).status_code == 404
        assert (await client.patch(path, json={"text": "x"}, headers={"If-Match": '"1"'})).status_code == 404
        listed = await client.get("/v1/memories", params={"owner": "ann", "status": "quarantined"})
        assert listed.status_code == 403
        assert (await client.get("/v1/reviews", params={"owner": "ann"})).status_code == 403
    async with house.client(house.key("reviewer", "user/ann")) as client:
        assert (await client.get(path)).json()["status"] == "quarantined"


async def test_a_version_that_was_never_let_in_cannot_be_restored(house: House) -> None:
    """Scenario: poison was quarantined, a reviewer let in a harmless wording. We expect version 1 to stay out of reach."""
    memory = quarantined(house)
    async with house.client(house.key("reviewer", "user/ann")) as client:
        await client.post(f"/v1/memories/{memory.id}/confirm", headers={"If-Match": '"1"'})
        house.settle()
        version = {"If-Match": f'"{house.memory(memory.id).version}"'}
        back = await client.post(f"/v1/memories/{memory.id}/restore", json={"version": 1}, headers=version)
        assert back.status_code == 404


@pytest.mark.parametrize(("decision", "status"), [("approve", Status.ACTIVE), ("reject", Status.DELETED)])
async def test_an_answer_takes_effect_and_undo_takes_back_exactly_that(
    house: House, decision: str, status: Status
) -> None:
    memory = quarantined(house)
    async with house.client(house.key("reviewer", "user/ann")) as client:
        question = (await client.get("/v1/reviews", params={"owner": "ann"})).json()["reviews"][0]
        path = f"/v1/reviews/{question['id']}/decision"
        assert (await client.post(path, json={"decision": "undo"})).status_code == 409
        await client.post(path, json={"decision": decision, "expected_version": 1})
        house.settle()
        assert house.memory(memory.id).status is status
        assert (await client.get("/v1/reviews", params={"owner": "ann"})).json()["reviews"] == []
        await client.post(path, json={"decision": "undo"})
        house.settle()
        back = house.memory(memory.id)
        assert (back.status, back.text, back.version) == (Status.QUARANTINED, "lives in Leeds", 3)
        assert len((await client.get("/v1/reviews", params={"owner": "ann"})).json()["reviews"]) == 1
        await client.post(path, json={"decision": "approve"})
        house.settle()
        assert house.memory(memory.id).status is Status.ACTIVE


async def test_a_conflict_is_merged_into_what_is_known(house: House) -> None:
    known, weaker = house.learn(lives(1, "Leeds"), lives(2, "York", source_kind="assistant", confidence=0.6))
    assert weaker.status is Status.PENDING
    async with house.client(house.key("reviewer", "user/ann")) as client:
        question = (await client.get("/v1/reviews", params={"owner": "ann"})).json()["reviews"][0]
        path = f"/v1/reviews/{question['id']}/decision"
        await client.post(path, json={"decision": "merge", "into": known.id})
        house.settle()
        assert (house.memory(known.id).status, house.memory(weaker.id).status) == (Status.ACTIVE, Status.DELETED)
        assert house.memory(known.id).evidence_count == 2
        await client.post(path, json={"decision": "undo"})
        house.settle()
        assert (house.memory(known.id).evidence_count, house.memory(weaker.id).status) == (1, Status.PENDING)


async def test_an_approved_conflict_supersedes_and_undo_brings_the_old_value_back(house: House) -> None:
    known, weaker = house.learn(lives(1, "Leeds"), lives(2, "York", source_kind="assistant", confidence=0.6))
    async with house.client(house.key("reviewer", "user/ann")) as client:
        question = (await client.get("/v1/reviews", params={"owner": "ann"})).json()["reviews"][0]
        path = f"/v1/reviews/{question['id']}/decision"
        await client.post(path, json={"decision": "approve"})
        house.settle()
        assert (house.memory(known.id).status, house.memory(weaker.id).status) == (Status.SUPERSEDED, Status.ACTIVE)
        await client.post(path, json={"decision": "undo"})
        house.settle()
        assert (house.memory(known.id).status, house.memory(weaker.id).status) == (Status.ACTIVE, Status.PENDING)


async def test_an_edit_that_the_policy_holds_waits_for_a_reviewer(house: House) -> None:
    (memory,) = house.learn(lives(1, "Leeds"))
    async with house.client(house.key("crm", "user/ann")) as client:
        body = {"text": "lives in York", "value": "York"}
        sent = await client.put(f"/v1/memories/{memory.id}", json=body, headers={"If-Match": '"1"'})
        assert sent.json()["commands"][0]["decision"] == "review"
        house.settle()
        assert house.memory(memory.id).version == 1
        question = (await client.get("/v1/reviews", params={"owner": "ann"})).json()["reviews"][0]
        await client.post(f"/v1/reviews/{question['id']}/decision", json={"decision": "approve"})
        house.settle()
        listed = (await client.get("/v1/memories", params={"owner": "ann"})).json()["memories"]
        assert [row["value"] for row in listed] == ["York"]


async def test_pages_hold_everything_once(house: House) -> None:
    claims = [said(n, f"thing_{n}", f"v{n}", f"thing {n}") for n in range(1, 8)]
    house.learn(*claims)
    async with house.client(house.key("ann", kind=PrincipalKind.PERSON)) as client:
        seen, cursor = list[str](), None
        while True:
            params: dict[str, Any] = {"owner": "ann", "limit": 3} | ({"cursor": cursor} if cursor else {})
            page = (await client.get("/v1/memories", params=params)).json()
            seen += [row["text"] for row in page["memories"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert seen == [f"thing {n}" for n in range(1, 8)]
        assert (await client.get("/v1/memories", params={"owner": "ann", "cursor": "bm8"})).status_code == 422


async def test_a_command_for_a_claim_about_another_owner_is_a_dead_letter_and_stops_nothing(house: House) -> None:
    """Scenario: a crafted ASSERT of ann's queue speaks about bob. We expect bob untouched and the next command done."""
    (memory,) = house.learn(lives(1, "Leeds"))
    foreign = lives(2, "York", owner="bob").model_dump(mode="json")
    crafted = Command.model_validate(
        {
            "command_id": "crafted",
            "kind": "assert",
            "tenant": "acme",
            "owner": "ann",
            "issued_by": "agent:evil",
            "issued_at": "2026-03-01T10:00:00Z",
            "payload": foreign,
        }
    )
    nonsense = crafted.model_copy(update={"command_id": "nonsense", "kind": CommandKind.EDIT, "memory_id": memory.id})
    nonsense = nonsense.model_copy(update={"payload": {"text": 5, "decision_reasons": 7, "decision": "review"}})
    house.sent += [Outgoing("commands", "k", "k", item.to_bytes()) for item in (crafted, nonsense)]
    assert house.settle() == []
    assert len(house.letters) == 1
