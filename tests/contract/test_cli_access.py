"""Command line, access: keys are shown once; a key reaches on the command line what it reaches anywhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from typer.testing import CliRunner, Result

from processors.exceptions import MemriverError
from recall.access import Keyring
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
