"""HTTP API, its pieces: buckets, the change feed, cursors."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.access import Grant, OwnerRef, Principal, PrincipalKind, Scope
from recall.access import BadKey
from recall.api.changes import ChangeHub, stream
from recall.api.limits import TokenBuckets
from recall.views import cursor_from, cursor_of
from schemas import ChangeKind, MemoryUpdated, OwnerKind
from tests.doubles.records import at, memory

ANN = OwnerRef(OwnerKind.USER, "ann")
SCOPES = frozenset({Scope.READ})


def test_a_bucket_lets_a_burst_through_then_the_rate_and_forgets_no_one_else() -> None:
    moment = [0.0]
    buckets = TokenBuckets(2.0, 3, lambda: moment[0])
    assert [buckets.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("b") == 0.0
    moment[0] = 0.5
    assert [buckets.take("a"), buckets.take("a")] == [0.0, 0.5]
    moment[0] = 1e6
    assert [buckets.take("a") for _ in range(4)][-1] == 0.5


def event(name: str = "m", seq: int = 1, **fields: Any) -> MemoryUpdated:
    state = memory(name, **fields)
    return MemoryUpdated(
        event_id=f"{state.id}:{state.version}",
        change=ChangeKind.CREATED,
        memory=state,
        owner_seq=seq,
        cause="test",
        occurred_at=at(1),
    )


def principal(*grants: Grant) -> Principal:
    return Principal("acme", PrincipalKind.AGENT, "crm", "k", SCOPES, grants)


async def heard(hub: ChangeHub, who: Any, *events: MemoryUpdated) -> list[bytes]:
    """What a listener gets of these events, up to the end of the stream."""
    feed = stream(hub, who, (ANN,), (), lambda: at(0))
    assert await anext(feed) == b": listening\n\n"
    for item in events:
        hub.publish(item)
    hub.close()
    return [piece async for piece in feed]


async def test_the_feed_passes_on_what_is_granted_and_nothing_else() -> None:
    held = principal(Grant(OwnerKind.USER, "ann", "profile"))
    pieces = await heard(
        ChangeHub(),
        lambda: held,
        event("mine"),
        event("other owner", owner="bob", namespace="user/bob/profile"),
        event("other tenant", tenant="globex"),
        event("other namespace", namespace="user/ann/health"),
        event("locked up", status="quarantined"),
    )
    assert len(pieces) == 2
    assert pieces[1].startswith(b"event: lost")
    data = orjson.loads(pieces[0].split(b"data: ")[1])
    assert (data["memory"]["id"], data["owner_seq"]) == (memory("mine").id, 1)


async def test_a_grant_that_is_taken_away_ends_the_feed_before_the_next_event() -> None:
    answers = iter([principal(Grant(OwnerKind.USER, "ann")), principal()])
    pieces = await heard(ChangeHub(), lambda: next(answers), event("first"), event("second"))
    assert (len(pieces), pieces[1].startswith(b"event: closed")) == (2, True)


async def test_a_revoked_key_ends_the_feed() -> None:
    def gone() -> Principal:
        raise BadKey("this key is not good")

    hub = ChangeHub()
    pieces = await heard(hub, gone, event("first"))
    assert (len(pieces), pieces[0].startswith(b"event: closed"), hub.listeners) == (1, True, 0)


async def test_who_comes_back_goes_on_after_the_last_event_it_had_and_too_late_is_a_loss() -> None:
    """Scenario: three events, of which the listener had the first, and the log repeats it. We expect the others, judged
    like any; and a loss after an event that is not kept, or after a break in the feed itself."""
    hub = ChangeHub(kept=4)
    held = principal(Grant(OwnerKind.USER, "ann", "profile"))
    first, hidden, second = event("first"), event("hidden", namespace="user/ann/health"), event("second")
    for item in (first, hidden, second, first):
        hub.publish(item)

    async def rest(after: str) -> list[bytes]:
        feed = stream(hub, lambda: held, (ANN,), (), lambda: at(0), after)
        pieces = [await anext(feed)]
        while len(pieces) < 3 and b"lost" not in pieces[-1]:
            pieces.append(await anext(feed))
        await feed.aclose()
        return pieces[1:]

    went_on = await rest(first.event_id)
    assert [piece.split(b"\n")[0] for piece in went_on] == [b"id: " + x.event_id.encode() for x in (second, first)]
    assert (await rest("unknown"))[0].startswith(b"event: lost")
    hub.publish(event("third"))
    assert (await rest(hidden.event_id))[0].startswith(b"id: " + second.event_id.encode())
    hub.close()
    assert (await rest(second.event_id))[0].startswith(b"event: lost")
    assert hub.listeners == 0


async def test_an_event_of_somebody_else_asks_nobody_about_this_listener() -> None:
    def never() -> Principal:
        raise AssertionError("asked")

    pieces = await heard(ChangeHub(), never, event("other owner", owner="bob", namespace="user/bob/profile"))
    assert [piece.split(b"\n")[0] for piece in pieces] == [b"event: lost"]


async def test_who_falls_behind_is_told_so_and_keeps_no_one_waiting() -> None:
    hub = ChangeHub()
    slow, quick = hub.listen(), hub.listen()
    for number in range(1_001):
        hub.publish(event(seq=number + 1))
        quick.get_nowait()
    assert (hub.listeners, slow.qsize()) == (1, 1_001)
    items = [slow.get_nowait() for _ in range(1_001)]
    assert (items[-1], None in items[:-1]) == (None, False)
    with pytest.raises(asyncio.QueueEmpty):
        slow.get_nowait()


@given(st.datetimes(min_value=datetime(1900, 1, 1)), st.text(max_size=36))
def test_a_cursor_comes_back_as_it_was_given_out(moment: datetime, name: str) -> None:
    end = (moment.replace(tzinfo=UTC), name)
    assert cursor_from(cursor_of(end)) == end


@given(st.text())
def test_any_other_word_is_no_cursor(word: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        cursor_from(word)
