"""Intake's door: a key per owner, made once; who was erased does not come in; on every backend."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from processors.exceptions import FatalError
from schemas import Turn
from sinks.sealing import Sealer, open_frame, read_frame
from sinks.truth import Truth, keys, suppression
from sinks.truth.suppression import Subject
from tests.doubles.records import at, turn
from tests.doubles.sealing import sealer

ANN, BOB = turn(1), turn(2, user_id="bob")


def key_of(truth: Truth, door: Sealer, said: Turn = ANN) -> str:
    admission = truth.run(lambda connection: door.admit(connection, [ANN, BOB], at(1)))
    return read_frame(admission.seal(said, said.to_bytes())).key_id


def test_an_owner_has_one_key_whoever_asks_and_how_often(truth: Truth) -> None:
    first, second = sealer(), sealer()
    assert key_of(truth, first) == key_of(truth, first) == key_of(truth, second)
    assert key_of(truth, first, BOB) != key_of(truth, first)


def test_what_one_process_seals_another_opens(truth: Truth) -> None:
    door = sealer()
    admission = truth.run(lambda connection: door.admit(connection, [ANN], at(1)))
    sealed = read_frame(admission.seal(ANN, ANN.to_bytes()))
    with truth.reading() as connection:
        found = sealer().data_keys.fetch(connection, [sealed.key_id])
    key = found[sealed.key_id]
    assert key is not None
    assert open_frame(sealed, key.cipher) == ANN.to_bytes()


def test_a_key_made_in_a_transaction_that_failed_is_not_used_afterwards(truth: Truth) -> None:
    door = sealer()
    with pytest.raises(ZeroDivisionError), truth.begin() as connection:
        door.admit(connection, [ANN], at(1))
        _ = 1 / 0
    with truth.reading() as connection:
        assert keys.by_id(connection, [key_of(truth, door)])


def suppress(truth: Truth, subject_key: str, kind: suppression.Kind, door: Sealer) -> None:
    def work(connection: Connection) -> None:
        before = suppression.take(connection, [subject_key]).get(subject_key)
        after = Subject(subject_key, kind, suppressed=True, erasure_id="e")
        if before is None:
            suppression.add(connection, [after], at(2))
        else:
            suppression.change(connection, after, at(2))
        keys.destroy(connection, [subject_key], at(2))
        tenant = door.identities.tenant("acme")
        if kind in ("conversation", "turn"):
            suppression.change(connection, Subject(tenant, "tenant", partial=True), at(2))

    truth.run(work)


def test_an_erased_owner_is_refused_and_the_other_is_not(truth: Truth) -> None:
    door = sealer()
    key_of(truth, door)
    suppress(truth, door.identities.owner(ANN.owner_key), "owner", door)
    admission = truth.run(lambda connection: door.admit(connection, [ANN, BOB], at(3)))
    assert admission.refuses(ANN)
    assert not admission.refuses(BOB)


@pytest.mark.parametrize("kind", ["conversation", "turn"])
def test_an_erased_conversation_or_turn_is_refused_and_its_owner_is_not(truth: Truth, kind: suppression.Kind) -> None:
    door, elsewhere = sealer(), turn(9, conversation_id="c9")
    key_of(truth, door)
    names = {
        "conversation": door.identities.conversation(ANN.conversation_key),
        "turn": door.identities.turn(ANN.turn_key),
    }
    suppress(truth, names[kind], kind, door)
    admission = truth.run(lambda connection: door.admit(connection, [ANN, BOB, elsewhere], at(3)))
    assert admission.refuses(ANN)
    assert admission.refuses(BOB) is (kind == "conversation")
    assert not admission.refuses(elsewhere)


def test_an_erased_tenant_lets_in_nobody_not_even_somebody_new(truth: Truth) -> None:
    door, stranger, elsewhere = sealer(), turn(8, user_id="new"), turn(9, tenant="other")
    key_of(truth, door)
    suppress(truth, door.identities.tenant("acme"), "tenant", door)
    admission = truth.run(lambda connection: door.admit(connection, [ANN, stranger, elsewhere], at(3)))
    assert admission.refuses(ANN)
    assert admission.refuses(stranger)
    assert not admission.refuses(elsewhere)


def test_a_destroyed_key_is_gone_for_a_reader_that_had_it(truth: Truth) -> None:
    door = sealer()
    key_id = key_of(truth, door)
    with truth.reading() as connection:
        assert door.data_keys.fetch(connection, [key_id])[key_id] is not None
    suppress(truth, door.identities.owner(ANN.owner_key), "owner", door)
    with truth.reading() as connection:
        assert door.data_keys.fetch(connection, [key_id, "never-was"]) == {key_id: None}


def test_a_new_beginning_has_a_new_key(truth: Truth) -> None:
    door = sealer()
    before = key_of(truth, door)
    suppress(truth, door.identities.owner(ANN.owner_key), "owner", door)
    truth.run(lambda connection: door.renew(connection, ANN.owner_key, at(3)))
    after = key_of(truth, door)
    assert after != before
    with truth.reading() as connection:
        assert door.data_keys.fetch(connection, [before]) == {before: None}


def test_a_wrong_master_key_ends_the_process_and_makes_no_new_key(truth: Truth) -> None:
    key_id = key_of(truth, sealer("a"))
    with pytest.raises(FatalError, match="not in the settings"):
        key_of(truth, sealer("b"))
    assert key_of(truth, sealer("b", "a")) == key_id
