"""Traces: what of somebody is found and goes, table by table, and what of the others stays; on every backend."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from sqlalchemy import Connection, select

from processors.resolution import Entry
from schemas import ChangeKind, Turn, digest
from sinks.sealing import Identities
from sinks.sealing.mentions import Mentions
from sinks.truth import Truth, batches, deadletters, ledger, memories, outbox, tables, turns
from sinks.truth.erasure import Scope
from sinks.truth.outbox import Outgoing
from sinks.truth.traces import Traces
from sinks.truth.turns import Conversation
from tests.doubles.records import at, batch, cell_of, change, claim, letter, memory, turn, turn_row

OF = Identities(b"a key for tests only")


def people() -> list[Turn]:
    """Ann and bob each alone, and both in a group."""
    return [
        turn(1, conversation_id="anns"),
        turn(2, conversation_id="bobs", user_id="bob"),
        turn(3, conversation_id="group"),
        turn(4, conversation_id="group", user_id="bob"),
    ]


def fill(connection: Connection) -> None:
    said = people()
    turns.insert_turns(connection, [turn_row(item) for item in said])
    for name in ("anns", "bobs", "group"):
        key = digest("acme", name)
        mine = [item for item in said if item.conversation_id == name]
        waits = Conversation(key, "acme", name, at(4), len(mine), len(mine), 3 * len(mine), at(1), False, ("digest",))
        turns.save_conversations(connection, [waits])
        made = batch(mine)
        batches.insert(connection, [made])
        reply: dict[str, Any] = {"batch_id": made.batch_id, "part": 0, "prompt_version": "1", "model": "m"}
        reply |= {"finish_reason": "stop", "outcome": "ok", "prompt_tokens": 1, "completion_tokens": 1, "cost_usd": 0.0}
        batches.keep_replies(connection, [reply | {"reply": f"about {name}", "created_at": at(5)}])
    for owner, number in (("ann", 1), ("bob", 2)):
        stated = claim(number, owner=owner, namespace=f"user/{owner}/profile", turn_key=said[number - 1].turn_key)
        ledger.lock_owners(connection, {stated.owner_key: ("acme", "user", owner)})
        ledger.insert_claims(connection, [(Entry.of(stated), f"slot {owner}", f"cell {owner}")])
        ledger.save_cells(connection, [(f"cell {owner}", stated.owner_key, f"slot {owner}", cell_of(stated))])
        held = memory(owner, owner=owner, namespace=f"user/{owner}/profile")
        memories.save(connection, [(held, f"slot {owner}", f"cell {owner}")])
        memories.append_versions(connection, [change(held, ChangeKind.CREATED)], at(5))
    for item in (said[0], said[1]):
        raw = base64.b64encode(item.to_bytes()).decode()
        deadletters.put(connection, [letter(item.user_id, where=f"turns:0:{item.turn_id}", raw=raw)])
        outbox.put(connection, "ingest", [Outgoing("turns", "k", "k", item.to_bytes())], at(5))


def traces(scope: Scope, *subjects: str) -> Traces:
    return Traces(scope, Mentions(OF, subjects))


ANN = digest("acme", "user", "ann")
BOB = digest("acme", "user", "bob")
WHOLE = ("turns", "claims", "cells", "memories", "memory_versions", "owners", "dead_letters", "outbox")


def rows(truth: Truth, table: Any) -> int:
    with truth.reading() as connection:
        return len(connection.execute(select(table)).all())


def test_of_one_person_everything_is_found_and_goes_and_the_other_stays(truth: Truth) -> None:
    truth.run(fill)
    ann, bob = traces(Scope.OWNER, OF.owner(ANN)), traces(Scope.OWNER, OF.owner(BOB))
    with truth.reading() as connection:
        found, others = ann.look(connection), bob.look(connection)
    assert all(found[store] for store in WHOLE)
    assert found["model_replies"] == 2  # of her own conversation and of the group's batch, which mixes both
    gone = truth.run(ann.erase_ledger)
    for store, number in truth.run(ann.erase).items():
        gone[store] = gone.get(store, 0) + number
    assert {store: gone[store] for store in WHOLE} == {store: found[store] for store in WHOLE}
    with truth.reading() as connection:
        assert sum(ann.look(connection).values()) == 0
        after = bob.look(connection)
    # The reply to the group's batch went with her words; the raw words of bob in it are in his turn.
    assert after == others | {"model_replies": others["model_replies"] - 1}


def test_the_counters_of_a_group_that_goes_on_are_those_of_the_turns_that_are_left(truth: Truth) -> None:
    truth.run(fill)
    truth.run(traces(Scope.OWNER, OF.owner(ANN)).erase)
    with truth.begin() as connection:
        left = turns.lock_conversations(connection, [digest("acme", "group"), digest("acme", "anns")])
    [group] = left.values()
    assert (group.turn_count, group.pending_count, group.pending_tokens, group.recent) == (1, 1, 3, ())


def test_of_a_tenant_nothing_is_left_in_any_table(truth: Truth) -> None:
    truth.run(fill)
    everybody = traces(Scope.TENANT, OF.tenant("acme"), OF.owner(ANN), OF.owner(BOB))
    truth.run(everybody.erase_ledger)
    truth.run(everybody.erase)
    for table in (
        tables.turns,
        tables.conversations,
        tables.batches,
        tables.model_replies,
        tables.memories,
        tables.claims,
    ):
        assert rows(truth, table) == 0, table.name


@pytest.mark.parametrize(
    ("raw", "about"),
    [
        (b'{"tenant":"acme","user_id":"ann"}', True),
        (b'{"tenant":"other","user_id":"ann"}', False),
        (b'{"turns":[{"tenant":"acme","user_id":"bob"},{"tenant":"acme","user_id":"ann"}]}', True),
        (b'{"tenant":"acme","memory":{"owner":"ann","owner_kind":"user"}}', True),
        (b'{"tenant":"acme","owner":"ann","owner_kind":"org"}', False),
        (b'{"user_id":"ann"}', False),
        (b"[1,2,null]", False),
        (b"not json, said ann", True),
        (b"not json", False),
    ],
    ids=str,
)
def test_a_message_is_about_somebody_by_what_it_names(raw: bytes, about: bool) -> None:
    assert Mentions(OF, [OF.owner(ANN)], needles=[b"ann"]).in_bytes(raw) is about
