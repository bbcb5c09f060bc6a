"""The cut, the chain and the receipt: what is refused, and that nothing changes then; on every backend."""

from __future__ import annotations

import orjson
import pytest
from sqlalchemy import Connection, func, select, update

from processors.exceptions import PoisonError
from schemas import Command, OwnerKind
from sinks.sealing import Sealer
from sinks.truth import Truth, erasure, suppression, tables
from sinks.truth.audit import AuditChain
from sinks.truth.erasure import Scope
from sinks.truth.tables import metadata
from streams.erasing.opening import NothingToErase, Opening, Wish
from streams.erasing.receipts import checked, make_receipt
from streams.stages.erasing import erased, order_of
from tests.doubles.records import at, turn
from tests.doubles.sealing import sealer

ANN = Wish(Scope.OWNER, "acme", "ann")
SECRET = b"a secret of this deployment"


def door(truth: Truth) -> tuple[Opening, Sealer]:
    """With ann and bob, who have said something."""
    made = sealer()
    truth.run(lambda connection: made.admit(connection, [turn(1), turn(2, user_id="bob")], at(1)))
    return Opening(truth, made, AuditChain(SECRET)), made


def everything(truth: Truth) -> dict[str, int]:
    with truth.reading() as connection:
        return {
            table.name: int(connection.execute(select(func.count()).select_from(table)).scalar_one())
            for table in metadata.sorted_tables
        }


@pytest.mark.parametrize(
    "wish",
    [
        Wish(Scope.OWNER, "acme", "nobody"),
        Wish(Scope.OWNER, "other", "ann"),
        Wish(Scope.OWNER, "acme", "ann", OwnerKind.ORG),
        Wish(Scope.CONVERSATION, "acme", "c1"),
        Wish(Scope.MEMORY, "acme", "9b2c6d1e-0d6b-5f0e-9a53-0f6a6e1b2c3d"),
        Wish(Scope.TENANT, "other"),
    ],
    ids=["unknown owner", "another tenant's", "another kind", "conversation", "memory", "tenant"],
)
def test_what_is_not_there_is_refused_and_nothing_changes(truth: Truth, wish: Wish) -> None:
    opening, _sealer = door(truth)
    before = everything(truth)
    with pytest.raises(NothingToErase):
        opening.open(wish, by="test", reason="", now=at(2))
    assert everything(truth) == before


def test_from_the_cut_on_nobody_comes_in_and_the_other_does(truth: Truth) -> None:
    opening, made = door(truth)
    opening.open(ANN, by="test", reason="", now=at(2))
    admission = truth.run(lambda connection: made.admit(connection, [turn(3), turn(4, user_id="bob")], at(3)))
    assert admission.refuses(turn(3))
    assert not admission.refuses(turn(4, user_id="bob"))


def test_asking_twice_is_one_erasure(truth: Truth) -> None:
    opening, _sealer = door(truth)
    first = opening.open(ANN, by="test", reason="", now=at(2))
    assert opening.open(ANN, by="test", reason="", now=at(3)).erasure_id == first.erasure_id


def close(truth: Truth, erasure_id: str) -> bytes:
    """What the clock does at the end; returns the receipt as it is handed out."""
    chain = AuditChain(SECRET)

    def work(connection: Connection) -> bytes:
        erasure.step(connection, erasure_id, "verified", {"turns": 0})
        item = erasure.get(connection, erasure_id)
        assert item is not None
        receipt = make_receipt(connection, chain, item, {"turns": 3}, {}, at(5))
        erasure.close(connection, erasure_id, receipt, at(5))
        return orjson.dumps(receipt)

    return truth.run(work)


def test_what_was_erased_is_not_erased_again_and_a_new_beginning_is_on_purpose(truth: Truth) -> None:
    opening, made = door(truth)
    item = opening.open(ANN, by="test", reason="", now=at(2))
    with pytest.raises(PoisonError, match="under way"):
        opening.lift(ANN, by="test", now=at(3))
    close(truth, item.erasure_id)
    with pytest.raises(PoisonError, match=item.erasure_id):
        opening.open(ANN, by="test", reason="", now=at(6))
    opening.lift(ANN, by="test", now=at(7))
    admission = truth.run(lambda connection: made.admit(connection, [turn(3)], at(8)))
    assert not admission.refuses(turn(3))
    with pytest.raises(PoisonError, match="no erased owner"):
        opening.lift(ANN, by="test", now=at(9))


def test_what_is_kept_of_an_erased_person_names_nobody(truth: Truth) -> None:
    opening, _sealer = door(truth)
    item = opening.open(Wish(Scope.OWNER, "acme", "ann"), by="ann", reason="asked by letter", now=at(2))
    close(truth, item.erasure_id)
    with truth.reading() as connection:
        kept = b"".join(
            orjson.dumps([tuple(row) for row in connection.execute(select(table))], default=str)
            for table in (tables.subjects, tables.erasures, tables.audit_chain, tables.erasure_counts)
        )
    assert b"ann" not in kept
    assert turn(1).owner_key.encode() not in kept


def test_an_order_without_its_erasure_erases_nothing(truth: Truth) -> None:
    opening, _sealer = door(truth)
    item = opening.open(ANN, by="test", reason="", now=at(2))
    foreign = order_of(item, "acme", "user", "bob", at(2))
    invented = order_of(item, "acme", "user", "ann", at(2)).model_copy(update={"payload": {"erasure_id": "no"}})
    for order in (foreign, invented):
        with pytest.raises(PoisonError, match="no erasure under way"), truth.begin() as connection:
            erased(connection, Command.from_bytes(order.to_bytes()))


def test_a_receipt_is_the_deployment_s_own_and_unchanged(truth: Truth) -> None:
    opening, _sealer = door(truth)
    raw = close(truth, opening.open(ANN, by="test", reason="", now=at(2)).erasure_id)
    chain = AuditChain(SECRET)
    receipt, link = checked(chain, raw)
    assert receipt["erased"] == {"turns": 3}
    with truth.reading() as connection:
        assert chain.holds(connection, link)
        assert list(chain.faults(connection)) == []
    with pytest.raises(PoisonError, match="changed"):
        checked(chain, raw.replace(b'"turns":3', b'"turns":2'))
    with pytest.raises(PoisonError, match="changed"):
        checked(AuditChain(b"another deployment"), raw)
    for junk in (b"", b"[]", b"{}", b'{"signature":1}', b'{"signature":"x","chain":{}}'):
        with pytest.raises(PoisonError, match="not a receipt"):
            checked(chain, junk)


@pytest.mark.parametrize("damage", ["entry", "deleted", "end", "signature"])
def test_a_change_in_the_past_shows(truth: Truth, damage: str) -> None:
    opening, _sealer = door(truth)
    raw = close(truth, opening.open(ANN, by="test", reason="", now=at(2)).erasure_id)
    close(truth, opening.open(Wish(Scope.OWNER, "acme", "bob"), by="test", reason="", now=at(2)).erasure_id)
    chain, table = AuditChain(SECRET), tables.audit_chain
    _receipt, link = checked(chain, raw)
    with truth.begin() as connection:
        if damage == "entry":
            connection.execute(update(table).where(table.c.seq == 1).values(entry="{}"))
        elif damage == "signature":
            connection.execute(update(table).where(table.c.seq == 1).values(signature="0" * 64))
        else:
            connection.execute(
                table.delete().where(table.c.seq == 1 if damage == "deleted" else table.c.seq >= link.seq)
            )
    with truth.reading() as connection:
        faults = list(chain.faults(connection))
        assert faults or not chain.holds(connection, link)


def test_the_suppression_list_has_hashes_only(truth: Truth) -> None:
    opening, made = door(truth)
    opening.open(ANN, by="test", reason="", now=at(2))
    with truth.reading() as connection:
        rows = suppression.look(connection, connection.execute(select(tables.subjects.c.subject_key)).scalars())
    assert {row.subject_key for row in rows.values() if row.suppressed} == {made.identities.owner(turn(1).owner_key)}
