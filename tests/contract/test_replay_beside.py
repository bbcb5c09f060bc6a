"""Replay, beside: a second schema next to the live one on each database, exchanged with it at once and back again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from sqlalchemy import make_url

from processors.exceptions import FatalError
from schemas import digest
from sinks.truth import Truth, make_engine, replays, tables
from sinks.truth.beside import DERIVED, Beside
from sinks.truth.replays import Judging, Plan, Progress

NOW = datetime(2026, 3, 2, 1, tzinfo=UTC)
JUDGING = Judging({"en": "", "zh": ""}, "r1", "p1")


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=pytest.mark.services)])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of an empty live schema, beside which there is nothing."""
    address: str = request.getfixturevalue(f"{request.param}_url")
    if request.param == "sqlite":
        yield address
        return
    server = request.getfixturevalue("mariadb")
    name = f"{make_url(address).database}_replay"
    # The account of the tests may use what it is given, and create a database of this name once it was there.
    server.create_database(name)
    server.drop_database(name)
    yield address
    server.drop_database(name)


def owner(name: str) -> dict[str, object]:
    return {"owner_key": digest(name), "tenant": "acme", "owner_kind": "user", "owner": name, "seq": 1}


def owners(truth: Truth) -> set[str]:
    with truth.reading() as connection:
        return set(connection.execute(tables.owners.select().with_only_columns(tables.owners.c.owner)).scalars())


def begun(url: str) -> tuple[Beside, Truth, Truth]:
    """A replay that knows ann, beside a live schema that knows bob."""
    place, live = Beside(url), Truth(make_engine(url))
    place.create()
    beside = place.open()
    plan = Plan("turns", None, JUDGING, JUDGING)
    beside.run(lambda connection: replays.begin(connection, plan, Progress(clock=NOW), {0: 7}))
    beside.run(lambda connection: connection.execute(tables.owners.insert(), [owner("ann")]))
    live.run(lambda connection: connection.execute(tables.owners.insert(), [owner("bob")]))
    key: dict[str, object] = {
        "prefix": "k",
        "hash": "h",
        "tenant": "acme",
        "principal_key": digest("p"),
        "principal_kind": "agent",
    }
    key |= {"principal": "p", "label": "", "scopes": "read", "created_at": NOW, "created_by": "p"}
    live.run(lambda connection: connection.execute(tables.api_keys.insert(), [key]))
    return place, live, beside


def test_what_is_derived_changes_places_and_what_is_not_stays(url: str) -> None:
    place, live, beside = begun(url)
    try:
        for there, here in ((True, "ann"), (False, "bob"), (True, "ann")):
            place.exchange(live)
            with live.reading() as connection:
                assert replays.switched(connection) is there
                assert connection.execute(tables.api_keys.select()).all()
                assert replays.plan(connection) is None
            assert owners(live) == {here}
            assert owners(beside) == {"ann", "bob"} - {here}
        with beside.reading() as connection:
            assert replays.plan(connection) == Plan("turns", None, JUDGING, JUDGING)
            assert replays.positions(connection) == {0: 7}
    finally:
        beside.close()
        live.close()
        place.drop()
    assert not place.exists()


def test_every_table_that_a_replay_makes_is_exchanged_and_no_other() -> None:
    """A table that holds what turns came to must be thought of here, and keys, grants and logs must not move."""
    names = {table.name for table in DERIVED}
    assert {"memories", "memory_versions", "claims", "cells", "turns", "outbox", "replay_mark"} <= names
    assert not names & {"api_keys", "grants", "inbox", "feedback", "subjects", "data_keys", "replays", "session_states"}


def test_one_at_a_time_and_a_connection_that_ends_lets_go(url: str) -> None:
    with Beside(url).alone(), pytest.raises(FatalError, match="at work"), Beside(url).alone():
        pass
    with Beside(url).alone():
        pass


def test_creating_twice_is_creating_once(url: str) -> None:
    place = Beside(url)
    assert not place.exists()
    place.create()
    place.create()
    assert place.exists()
    place.drop()


@pytest.mark.parametrize("address", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_has_nothing_beside_it(address: str) -> None:
    with pytest.raises(FatalError, match="in memory"):
        Beside(address)


@pytest.mark.services
def test_a_database_of_that_name_that_is_somebody_elses_is_left_alone(
    mariadb_url: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("mariadb")
    name = f"{make_url(mariadb_url).database}_replay"
    server.create_database(name)
    try:
        server.execute(f"CREATE TABLE `{name}`.theirs (id INT)")
        with pytest.raises(FatalError, match="left alone"):
            Beside(mariadb_url).create()
        assert server.execute(f"SHOW TABLES FROM `{name}`") == [("theirs",)]
    finally:
        server.drop_database(name)
