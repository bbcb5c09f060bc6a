"""Truth, access: keys, grants, answers, pages, reviews and the read log, the same on every backend."""

from __future__ import annotations

import pytest

from processors.access import Grant, OwnerRef, PrincipalKind, Scope, authorise
from processors.exceptions import ConflictError
from schemas import OwnerKind, Status
from sinks.truth import Truth, access, reviews
from tests.doubles.house import EVERY, House, said
from tests.doubles.records import at


def test_keys_and_grants_come_back_as_they_were_made(truth: Truth) -> None:
    house = House(truth)
    key = house.key("crm", "user/ann/profile", "user/*", "user/%2A")
    found = house.principal(key)
    assert (found.tenant, found.name, found.scopes) == ("acme", "agent:crm", EVERY)
    assert {grant.namespace for grant in found.grants} == {"user/ann/profile", "user/*", "user/%2A"}
    (stored,) = house.keyring.keys("acme")
    assert house.keyring.keys("acme ") == house.keyring.keys("Acme") == []
    assert stored.hash not in key
    given = house.keyring.grant("acme", PrincipalKind.AGENT, "mail", Grant(OwnerKind.ORG, "acme"))
    assert not house.keyring.revoke_grant("globex", given.grant_id)
    assert house.keyring.revoke_grant("acme", given.grant_id)
    assert not house.keyring.revoke_grant("acme", given.grant_id)


def test_an_answer_is_claimed_once_and_kept_until_it_is_old(truth: Truth) -> None:
    with truth.begin() as connection:
        access.claim_request(connection, "key", "hash", at(0))
    with pytest.raises(ConflictError), truth.begin() as connection:
        access.claim_request(connection, "key", "other", at(1))
    with truth.begin() as connection:
        access.keep_answer(connection, "key", 202, '{"text": "𠮷"}')
        assert access.answered(connection, "key") == access.Answered("hash", 202, '{"text": "𠮷"}', at(0))
        assert access.forget_answers(connection, at(0)) == 0
        assert access.forget_answers(connection, at(1)) == 1
        assert access.answered(connection, "key") is None


def test_a_page_holds_what_is_reached_and_compares_names_exactly(truth: Truth) -> None:
    house = House(truth)
    house.learn(
        said(1, "residence", "Leeds", "in profile"),
        said(2, "thing", "x", "in profiles", segment="profiles"),
        said(3, "thing", "y", "in PROFILE", segment="PROFILE"),
        said(4, "thing", "z", "of Ann", owner="Ann"),
        said(5, "pet", "cat", "in profile too", segment="profile/home"),
    )
    principal = house.principal(house.key("crm", "user/ann/profile"))
    reach = authorise(principal, Scope.READ, OwnerRef(OwnerKind.USER, "ann"), house.now())
    with truth.reading() as connection:
        first, end = access.page(connection, reach, statuses=[Status.ACTIVE], now=house.now(), limit=1)
        rest, last = access.page(connection, reach, statuses=[Status.ACTIVE], now=house.now(), after=end, limit=5)
        assert access.page(connection, reach, statuses=[], now=house.now()) == ([], None)
    assert ([memory.text for memory in first + rest], last) == (["in profile", "in profile too"], None)


def test_reviews_are_found_by_owner_and_an_empty_list_of_owners_has_none(truth: Truth) -> None:
    house = House(truth)
    (memory,) = house.learn(said(1, "residence", "Leeds", "locked up", decision="quarantine"))
    with truth.begin() as connection:
        (found,) = reviews.listing(connection, [memory.owner_key])
        assert reviews.listing(connection, []) == []
        assert (found.tenant, found.owner, found.memory_id) == ("acme", "ann", memory.id)
        assert reviews.is_open(connection, memory.id)
        reviews.decide(connection, found.review_id, "approved", by="agent:crm", at=at(9), decision_id="d")
        assert not reviews.is_open(connection, memory.id)
        assert reviews.listing(connection, [memory.owner_key]) == []
        assert reviews.listing(connection, None, status="approved")[0].decided_by == "agent:crm"
        after = (found.opened_at, found.review_id)
        assert reviews.listing(connection, None, status=None, after=after) == []


def test_who_read_what_is_written_in_batches_and_kept_while_the_database_is_away(truth: Truth) -> None:
    house = House(truth)
    (memory,) = house.learn(said(1, "residence", "Leeds", "lives in Leeds"))
    reader = house.principal(house.key("crm", "user/ann"))
    house.reads.note(reader, "recall", [memory, memory])
    with truth.reading() as connection:
        assert access.reads_of(connection, memory.id) == []
    assert house.reads.flush() == 2
    assert house.reads.flush() == 0
    with truth.reading() as connection:
        rows = access.reads_of(connection, memory.id)
    assert [(row["reader"], row["verb"], row["version"]) for row in rows] == [("agent:crm", "recall", 1)] * 2
