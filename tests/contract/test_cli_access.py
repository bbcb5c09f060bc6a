"""Command line, access: keys are shown once; a key reaches on the command line what it reaches anywhere."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from processors.access import PrincipalKind, Scope
from processors.exceptions import MemriverError
from recall.access import Keyring
from schemas import Command
from sinks.truth import Truth
from sinks.truth.outbox import Outgoing
from streams.cli import access, app
from streams.settings import Settings
from tests.doubles.house import House, said


class Broker:
    """What a command published."""

    sent: list[Outgoing]

    def __init__(self, _settings: Settings) -> None:
        return None

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        Broker.sent += messages


@pytest.fixture
def house(sqlite_truth: Truth, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setenv("MEMRIVER_DATABASE_URL", sqlite_url)
    monkeypatch.setenv("MEMRIVER_HASH_KEY", "a hash key for the tests of keys")
    monkeypatch.delenv("MEMRIVER_KEY", raising=False)
    monkeypatch.setattr(access, "EventProducer", Broker)
    monkeypatch.setattr(access, "quiet_logs", lambda _level: None)
    Broker.sent = []
    made = House(sqlite_truth)
    made.keyring = Keyring(sqlite_truth, b"a hash key for the tests of keys", made.now)
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_key_is_shown_once_and_kept_as_a_hash(house: House) -> None:
    made = run("keys", "create", "crm", "--scope", "read", "--grant", "user/ann", "--label", "mail")
    secret = made.stdout.strip()
    principal = house.keyring.principal(secret)
    assert (principal.name, [grant.namespace for grant in principal.grants]) == ("agent:crm", ["user/ann"])
    listed = run("keys", "list", "--json")
    assert "crm" in listed.stdout
    assert secret.split("_", 2)[2] not in listed.stdout
    with house.truth.reading() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM api_keys").all()
    assert secret.split("_", 2)[2] not in str(rows)
    assert run("keys", "revoke", secret.split("_")[1]).exit_code == 0
    assert isinstance(run("keys", "revoke", secret.split("_")[1]).exception, MemriverError)
    house.keyring = Keyring(house.truth, b"a hash key for the tests of keys", house.now)
    with pytest.raises(MemriverError):
        house.keyring.principal(secret)


@pytest.mark.parametrize("grant", ["", "ann", "user", "user/", "/ann", "people/ann", "user/*/profile", "user/a\x00b"])
def test_a_grant_that_cannot_be_meant_is_refused(house: House, grant: str) -> None:
    assert isinstance(run("keys", "create", "crm", "--grant", grant).exception, MemriverError)


def test_an_operator_names_the_owner(house: House) -> None:
    (memory,) = house.learn(said(1, "residence", "Leeds", "lives in Leeds"))
    assert run("remember", "I live in York").exit_code == 2
    assert run("forget", "--owner", "ann", "--tenant", "acme", "--memory", memory.id).exit_code == 0
    assert "Leeds" in run("history", memory.id, "--json").stdout
    foreign = run("forget", "--owner", "bob", "--tenant", "acme", "--memory", memory.id)
    assert isinstance(foreign.exception, MemriverError)
    assert isinstance(run("forget", "--owner", "ann", "--tenant", "acme").exception, MemriverError)
    assert len(Broker.sent) == 1


def test_reviews_are_listed_decided_and_undone(house: House) -> None:
    (memory,) = house.learn(said(1, "residence", "Leeds", "lives in Leeds", decision="quarantine"))
    with house.truth.reading() as connection:
        review_id = connection.exec_driver_sql("SELECT review_id FROM reviews").scalar_one()
    assert review_id in run("review", "list", "--json").stdout
    for verb, status in (("approve", "active"), ("undo", "quarantined"), ("reject", "deleted")):
        assert run("review", verb, review_id).exit_code == 0
        house.sent, Broker.sent = Broker.sent, []
        house.settle()
        assert house.memory(memory.id).status.value == status
    assert isinstance(run("review", "approve", review_id).exception, MemriverError)


def test_nothing_is_shown_or_ordered_with_a_key_that_was_not_granted(house: House) -> None:
    """Random people, keys and commands; who may is worked out from the grant as it was written."""
    pick = random.Random(5)
    people = ("ann", "bob", "Ann")
    planted = house.learn(
        *(said(n, "residence", f"mark-{n}-", f"mark-{n}- it is", owner=who) for n, who in enumerate(people))
    )
    keys: list[tuple[str, set[str], frozenset[Scope]]] = []
    for number in range(6):
        scopes = frozenset(scope for scope in Scope if pick.random() < 0.7)
        granted = set(pick.sample(people, pick.randrange(3)))
        kind = pick.choice(list(PrincipalKind))
        secret = house.key(f"p{number}", *(f"user/{who}" for who in granted), kind=kind, scopes=scopes)
        keys.append((secret, granted, scopes))
    done = 0
    for _ in range(120):
        secret, granted, scopes = pick.choice(keys)
        number = pick.randrange(len(people))
        memory, owner = planted[number], people[number]
        arguments: Any = pick.choice(
            [
                ("history", memory.id),
                ("forget", "--owner", owner, "--memory", memory.id),
                ("forget", "--owner", pick.choice(people), "--attribute", "residence"),
                ("remember", "likes tea", "--owner", owner, "--source", "tool_result"),
            ]
        )
        Broker.sent = []
        result = run(*arguments, "--key", secret, "--tenant", "globex")
        if "mark-" in result.output:
            assert owner in granted and Scope.READ in scopes
        for message in Broker.sent:
            command = Command.from_bytes(message.payload or b"")
            assert command.owner in granted and Scope.WRITE in scopes and command.tenant == "acme"
        done += result.exit_code == 0
    assert done > 10
