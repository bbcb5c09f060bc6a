"""Truth, values: ids that look alike stay apart, and every character and microsecond comes back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa

from processors.slots import namespace_of
from schemas import OwnerKind, Turn
from sinks.truth import Truth, batches, ledger, memories, turns
from sinks.truth.tables import owners
from sinks.truth.turns import Conversation
from tests.doubles.records import at, batch, claim, memory, turn, turn_row

ALIKE = ["alice", "Alice", "alice ", " alice", "alicé", "alice\u0301", "ａlice", "alice\u200b", "al%ce", "al_ce"]
# Beyond the basic plane: an emoji of several code points, CJK extensions B and G, and a flag.
RARE = "𠮷野家 👩‍👩‍👧 🏴󠁧󠁢󠁥󠁮󠁧󠁿 𰻝𰻝面 🇨🇭 e\u0301 ﷺ"


def store(truth: Truth, *said: Turn) -> None:
    truth.run(lambda connection: turns.insert_turns(connection, [turn_row(item) for item in said]))


def test_ids_that_look_alike_are_different_owners(truth: Truth) -> None:
    wanted = {claim(owner=name).owner_key: ("acme", "user", name) for name in ALIKE}
    assert len(wanted) == len(ALIKE)
    with truth.begin() as connection:
        ledger.lock_owners(connection, wanted)
    with truth.begin() as connection:
        ledger.save_sequences(connection, wanted, {key: number for number, key in enumerate(wanted)})
    with truth.begin() as connection:
        found = ledger.lock_owners(connection, wanted)
        stored = {row.owner_key: row.owner for row in connection.execute(sa.select(owners))}
    assert found == {key: number for number, key in enumerate(wanted)}
    assert stored == {key: name for key, (_tenant, _kind, name) in wanted.items()}


def test_a_listing_shows_the_memories_of_exactly_one_owner(truth: Truth) -> None:
    rows = [(memory(f"of {name}", owner=name, value=name), "slot", "cell") for name in ALIKE]
    rows += [(memory("elsewhere", owner="alice", tenant="Acme"), "slot", "cell")]
    truth.run(lambda connection: memories.save(connection, rows))
    with truth.reading() as connection:
        for name in ALIKE:
            assert [item.value for item in memories.listing(connection, tenant="acme", owner=name)] == [name]
        assert len(memories.listing(connection, tenant="acme")) == len(ALIKE)
        assert len(memories.listing(connection, tenant="ACME")) == 0
        assert len(memories.listing(connection)) == len(rows)


def test_the_status_of_a_turn_is_that_of_exactly_this_id(truth: Truth) -> None:
    store(truth, *(turn(number, turn_id=name, text=name) for number, name in enumerate(ALIKE)))
    with truth.reading() as connection:
        for name in ALIKE:
            assert [row["text"] for row in turns.status(connection, name)] == [name]
            assert [row["text"] for row in turns.status(connection, name, tenant="acme")] == [name]
            assert turns.status(connection, name, tenant="acme ") == []


def test_speakers_that_look_alike_do_not_take_back_each_others_words(truth: Truth) -> None:
    said = [turn(number, user_id=name) for number, name in enumerate(ALIKE, start=1)]
    store(truth, *said)
    with truth.reading() as connection:
        for item in said:
            earlier, later = turns.user_turns_around(connection, turn(99, user_id=item.user_id))
            assert ([row.turn_id for row in earlier], later) == ([item.turn_id], [])


@pytest.mark.parametrize("name", ["x" * 255, "𠮷" * 255, "/" * 255, "%" * 255])
def test_the_longest_ids_fit_everywhere(truth: Truth, name: str) -> None:
    said = turn(tenant=name, conversation_id=name, turn_id=name, user_id=name)
    held = memory(tenant=name, owner=name, namespace=namespace_of(OwnerKind.USER, name, "profile"))
    with truth.begin() as connection:
        turns.insert_turns(connection, [turn_row(said)])
        turns.save_conversations(connection, [Conversation(said.conversation_key, name, name, said.sent_at)])
        ledger.lock_owners(connection, {said.owner_key: (name, "user", name)})
        batches.insert(connection, [batch([said])])
        memories.save(connection, [(held, "slot", "cell")])
    with truth.reading() as connection:
        assert turns.bodies(connection, [said.turn_key]) == {said.turn_key: said}
        assert turns.status(connection, name, tenant=name)[0]["user_id"] == name
        assert memories.listing(connection, tenant=name, owner=name) == [held]


def test_rare_characters_come_back_unchanged(truth: Truth) -> None:
    said = turn(text=RARE, user_id=RARE, conversation_id=RARE, turn_id=RARE, tenant=RARE, speaker_name=RARE)
    held = memory(owner=RARE, tenant=RARE, value=RARE, text=RARE, subject=RARE)
    with truth.begin() as connection:
        turns.insert_turns(connection, [turn_row(said)])
        memories.save(connection, [(held, "slot", "cell")])
        memories.open_reviews(connection, [{"kind": "conflict", "owner_key": held.owner_key, "detail": RARE}], at(1))
    with truth.reading() as connection:
        assert turns.bodies(connection, [said.turn_key])[said.turn_key] == said
        assert turns.status(connection, RARE)[0]["text"] == RARE
        assert memories.get(connection, held.id) == held
        assert memories.listing(connection, tenant=RARE, owner=RARE) == [held]
        assert memories.reviews_open(connection)[0]["detail"] == RARE


@pytest.mark.parametrize(
    "text", ["\x00", "a\x00b", "\\", "'; DROP TABLE turns; --", '"', "%s %(x)s :x", "\u2028", "\r\n\t"]
)
def test_characters_that_mean_something_to_a_database_are_only_text(truth: Truth, text: str) -> None:
    said, held = turn(text=text), memory(value=text, text=text)
    with truth.begin() as connection:
        turns.insert_turns(connection, [turn_row(said)])
        memories.save(connection, [(held, "slot", "cell")])
    with truth.reading() as connection:
        assert turns.bodies(connection, [said.turn_key])[said.turn_key].text == text
        assert memories.get(connection, held.id) == held


def test_a_text_at_its_limit_fits_in_four_byte_characters(truth: Truth) -> None:
    long = "𠮷" * 100_000
    said, held = turn(text=long), memory(value=long, text=long)
    with truth.begin() as connection:
        turns.insert_turns(connection, [turn_row(said)])
        memories.save(connection, [(held, "slot", "cell")])
    with truth.reading() as connection:
        assert turns.bodies(connection, [said.turn_key])[said.turn_key].text == long
        assert memories.get(connection, held.id) == held


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 3, 4, 8, 15, 30, 123456, tzinfo=UTC),
        datetime(2026, 3, 4, 8, 15, 30, 999999, tzinfo=UTC),
        datetime(2026, 3, 4, 8, 15, 30, tzinfo=UTC),
        datetime(2026, 3, 29, 2, 30, tzinfo=timezone(timedelta(hours=1))),
        datetime(2026, 3, 4, 8, 15, 30, 1, tzinfo=timezone(timedelta(hours=8))),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    ids=str,
)
def test_a_moment_comes_back_to_the_microsecond_and_in_utc(truth: Truth, moment: datetime) -> None:
    row = Conversation("key", "acme", "c1", moment, first_pending_at=moment)
    truth.run(lambda connection: turns.save_conversations(connection, [row]))
    with truth.begin() as connection:
        found = turns.lock_conversations(connection, ["key"])["key"]
        oldest = turns.oldest_unextracted(connection)
    assert (found.last_sent_at, found.first_pending_at, oldest) == (moment, moment, moment)
    assert found.last_sent_at.tzinfo is UTC


def test_moments_are_ordered_to_the_microsecond(truth: Truth) -> None:
    base = at(0)
    shuffled = [3, 0, 4, 1, 2]
    store(truth, *(turn(n, turn_id=f"t{n}", sent_at=base + timedelta(microseconds=n)) for n in shuffled))
    with truth.reading() as connection:
        rows = turns.outcomes(connection)
    assert [row["turn_id"] for row in rows] == ["t0", "t1", "t2", "t3", "t4"]
