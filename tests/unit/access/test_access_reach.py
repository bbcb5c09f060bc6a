"""Access, pure: a principal reaches what it was granted, as far as it was granted, and nothing by default."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.access import (
    Denied,
    Grant,
    OwnerRef,
    Principal,
    PrincipalKind,
    Scope,
    authorise,
    authorise_all,
    needs_promotion,
    parse_namespace,
)
from schemas import OwnerKind, Status
from tests.doubles.records import at, memory

ANN = OwnerRef(OwnerKind.USER, "ann")
READS = frozenset({Scope.READ})
EVERY = frozenset(Scope)


def agent(*grants: Grant, scopes: frozenset[Scope] = READS, **fields: Any) -> Principal:
    given: dict[str, Any] = {"tenant": "acme", "kind": PrincipalKind.AGENT, "id": "crm", "key_id": "k"}
    return Principal(**(given | fields), scopes=scopes, grants=grants)


def grant(text: str, *scopes: Scope, **fields: Any) -> Grant:
    return Grant(*parse_namespace(text), frozenset(scopes or {Scope.READ}), **fields)


def test_a_request_that_names_no_owner_is_refused() -> None:
    everything = agent(grant("user/*"))
    for owner in (None, OwnerRef(OwnerKind.USER, "")):
        with pytest.raises(Denied, match="name an owner"):
            authorise(everything, Scope.READ, owner, at(0))
    with pytest.raises(Denied, match="name an owner"):
        authorise_all(everything, Scope.READ, [], at(0))


def test_an_agent_reaches_nobody_without_a_grant() -> None:
    with pytest.raises(Denied) as caught:
        authorise(agent(), Scope.READ, ANN, at(0))
    assert caught.value.reason == "owner_not_granted"


def test_a_person_reaches_its_own_memories_and_an_agent_its_own() -> None:
    ann = agent(kind=PrincipalKind.PERSON, id="ann")
    assert authorise(ann, Scope.READ, ANN, at(0)).covers(memory(sensitivity="restricted"))
    with pytest.raises(Denied):
        authorise(ann, Scope.READ, OwnerRef(OwnerKind.AGENT, "ann"), at(0))
    assert authorise(agent(), Scope.READ, OwnerRef(OwnerKind.AGENT, "crm"), at(0))


def test_the_keys_scopes_bound_what_a_grant_gives() -> None:
    reads = agent(grant("user/ann", *EVERY))
    with pytest.raises(Denied) as caught:
        authorise(reads, Scope.WRITE, ANN, at(0))
    assert caught.value.reason == "scope_missing"
    writes = agent(grant("user/ann", Scope.READ), scopes=EVERY)
    with pytest.raises(Denied) as caught:
        authorise(writes, Scope.WRITE, ANN, at(0))
    assert caught.value.reason == "owner_not_granted"


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": "Acme"},
        {"owner": "Ann"},
        {"owner": "ann "},
        {"owner_kind": "org"},
        {"namespace": "user/ann/profiles"},
        {"namespace": "user/ann"},
        {"namespace": "user/annex/profile"},
        {"sensitivity": "restricted"},
        {"status": "quarantined"},
        {"status": "pending"},
    ],
)
def test_a_grant_to_a_namespace_reaches_nothing_beside_it(fields: dict[str, Any]) -> None:
    reach = authorise(agent(grant("user/ann/profile")), Scope.READ, ANN, at(0))
    assert reach.covers(memory())
    assert reach.covers(memory(namespace="user/ann/profile/work"))
    assert not reach.covers(memory(**fields))


def test_only_who_may_review_sees_what_waits_for_a_decision() -> None:
    waiting = memory(status=Status.QUARANTINED)
    half = agent(grant("user/ann", Scope.READ), scopes=EVERY)
    assert not authorise(half, Scope.READ, ANN, at(0)).covers(waiting)
    full = agent(grant("user/ann", *EVERY), scopes=EVERY)
    assert authorise(full, Scope.READ, ANN, at(0)).covers(waiting)


def test_a_grant_ends_when_it_expires() -> None:
    held = agent(grant("user/ann", expires_at=at(5)))
    assert authorise(held, Scope.READ, ANN, at(5) - timedelta(microseconds=1))
    with pytest.raises(Denied):
        authorise(held, Scope.READ, ANN, at(5))


def test_narrowing_gives_less_and_never_more() -> None:
    held = agent(grant("user/ann/profile"))
    for name in ("profile", "user/ann/profile", "/profile/"):
        assert authorise(held, Scope.READ, ANN, at(0), [name]).covers(memory())
    assert not authorise(held, Scope.READ, ANN, at(0), ["profile/work"]).covers(memory())
    for name in ("health", "user/ann", "user/bob/profile", "profiles", "*"):
        with pytest.raises(Denied) as caught:
            authorise(held, Scope.READ, ANN, at(0), [name])
        assert caught.value.reason == "namespace_not_granted"


def test_of_several_owners_one_that_is_refused_refuses_all_and_private_ones_come_first() -> None:
    org = OwnerRef(OwnerKind.ORG, "acme")
    held = agent(grant("user/ann"), grant("org/acme"))
    reaches = authorise_all(held, Scope.READ, [org, ANN, ANN], at(0))
    assert [reach.owner for reach in reaches] == [ANN, org]
    with pytest.raises(Denied):
        authorise_all(held, Scope.READ, [ANN, OwnerRef(OwnerKind.USER, "bob")], at(0))


def test_shared_scopes_need_promotion_unless_one_may_review_them() -> None:
    org = OwnerRef(OwnerKind.ORG, "acme")
    writer = agent(grant("org/acme", Scope.WRITE), scopes=EVERY)
    reviewer = agent(grant("org/acme", Scope.WRITE, Scope.REVIEW), scopes=EVERY)
    assert needs_promotion(writer, org, at(0))
    assert not needs_promotion(reviewer, org, at(0))
    assert not needs_promotion(writer, ANN, at(0))


@given(st.sampled_from(OwnerKind), st.text(min_size=1).filter(str.isprintable), st.sampled_from(["", "profile"]))
def test_a_grant_says_its_namespace_so_that_it_can_be_given_again(kind: OwnerKind, owner: str, segment: str) -> None:
    """No id, not even `*`, can be read back as another owner or as every owner."""
    said = Grant(kind, owner, segment)
    assert parse_namespace(said.namespace) == (kind, owner, segment)


def test_every_owner_is_granted_only_in_so_many_words() -> None:
    assert parse_namespace("user/*") == (OwnerKind.USER, None, "")
    assert parse_namespace("user/%2A") == (OwnerKind.USER, "*", "")
    for text in ("", "*", "*/*", "user", "user/", "user//profile", "person/ann", "user/*/profile"):
        with pytest.raises(ValueError, match="KIND"):
            parse_namespace(text)
