"""Rotating the master key: every data key is wrapped anew, none changes, and nobody has to stand still; on every backend."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from processors.exceptions import FatalError
from schemas import Turn
from sinks.sealing import MasterKeys, Sealer, open_frame, read_frame
from sinks.truth import Truth, keys
from sinks.truth.audit import AuditChain
from streams.sealing import make_sealer, rotate_master
from streams.settings import Settings
from tests.doubles.records import at, turn
from tests.doubles.sealing import master

PEOPLE = [turn(number, user_id=f"person {number}") for number in range(7)]


def settings(letter: str, previous: str | None = None) -> Settings:
    return Settings(
        _env_file=None,
        hash_key=SecretStr("a key for tests only"),
        master_key=SecretStr(master(letter)),
        master_key_previous=SecretStr(master(previous) if previous else ""),
    )


def sealed(truth: Truth, door: Sealer) -> list[bytes]:
    admission = truth.run(lambda connection: door.admit(connection, PEOPLE, at(1)))
    return [admission.seal(said, said.to_bytes()) for said in PEOPLE]


def opened(truth: Truth, door: Sealer, raw: list[bytes]) -> list[Turn]:
    frames = [read_frame(item) for item in raw]
    with truth.reading() as connection:
        found = door.data_keys.fetch(connection, [frame.key_id for frame in frames])
    turns = []
    for frame in frames:
        key = found[frame.key_id]
        assert key is not None
        turns.append(Turn.from_bytes(open_frame(frame, key.cipher)))
    return turns


def masters(truth: Truth) -> dict[str, int]:
    with truth.reading() as connection:
        return keys.count_by_master(connection)


def test_what_was_sealed_before_opens_with_the_new_master_key_alone(truth: Truth) -> None:
    raw = sealed(truth, make_sealer(settings("a")))
    done = rotate_master(settings("b", "a"), truth, at(2))
    assert done["rewrapped"] == len(PEOPLE)
    assert masters(truth) == {MasterKeys(master("b")).current: len(PEOPLE)}
    assert opened(truth, make_sealer(settings("b")), raw) == PEOPLE
    with pytest.raises(FatalError, match="not in the settings"):
        opened(truth, make_sealer(settings("a")), raw)
    with truth.reading() as connection:
        assert list(AuditChain(b"a key for tests only").faults(connection)) == []


def test_rotating_again_finds_nothing_to_do(truth: Truth) -> None:
    sealed(truth, make_sealer(settings("a")))
    rotate_master(settings("b", "a"), truth, at(2))
    assert rotate_master(settings("b", "a"), truth, at(3))["rewrapped"] == 0


def test_while_it_is_rotated_both_kinds_work(truth: Truth) -> None:
    raw = sealed(truth, make_sealer(settings("a")))
    assert opened(truth, make_sealer(settings("b", "a")), raw) == PEOPLE
    assert {read_frame(item).key_id for item in sealed(truth, make_sealer(settings("b", "a")))} == {
        read_frame(item).key_id for item in raw
    }


def test_without_the_former_key_nothing_is_changed(truth: Truth) -> None:
    sealed(truth, make_sealer(settings("a")))
    before = masters(truth)
    with pytest.raises(FatalError, match="not in the settings"):
        rotate_master(settings("b"), truth, at(2))
    assert masters(truth) == before


def test_a_destroyed_key_does_not_come_back(truth: Truth) -> None:
    door = make_sealer(settings("a"))
    raw = sealed(truth, door)
    gone = door.identities.owner(PEOPLE[0].owner_key)
    truth.run(lambda connection: keys.destroy(connection, [gone], at(2)))
    assert rotate_master(settings("b", "a"), truth, at(3))["rewrapped"] == len(PEOPLE) - 1
    with truth.reading() as connection:
        found = make_sealer(settings("b")).data_keys.fetch(connection, [read_frame(raw[0]).key_id])
    assert list(found.values()) == [None]
