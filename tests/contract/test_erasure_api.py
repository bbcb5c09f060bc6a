"""Erasing over HTTP: administrators, within their own tenant; what is refused says so, and nothing of it is said to strangers."""

from __future__ import annotations

import pytest

from processors.access import Scope as Allowed
from recall.api import ApiConfig, create_app
from sinks.sealing import Sealer
from sinks.truth import Truth
from streams.erasing.composing import AskedHere
from streams.sealing import make_sealer
from streams.settings import Settings
from tests.doubles.house import House
from tests.doubles.records import at, turn

SETTINGS = Settings(_env_file=None)


@pytest.fixture
def house(sqlite_truth: Truth) -> House:
    """With erasures behind it; ann of acme has said something."""
    made = House(sqlite_truth)
    made.app = create_app(
        sqlite_truth,
        made.verbs,
        made.keyring,
        made.reads,
        made.changes,
        made.now,
        config=ApiConfig(rate=1e9, burst=10**9, stranger_rate=1e9, stranger_burst=10**9),
        erasures=AskedHere(SETTINGS, sqlite_truth, made.now),
    )
    door: Sealer = make_sealer(SETTINGS)
    sqlite_truth.run(lambda connection: door.admit(connection, [turn(1)], at(1)))
    return made


ANN = {"scope": "owner", "name": "ann", "reason": "a letter"}


async def test_an_administrator_asks_once_and_sees_how_far_it_is(house: House) -> None:
    async with house.client(house.key("boss")) as client:
        asked = await client.post("/v1/erasures", json=ANN)
        assert asked.status_code == 202
        body = asked.json()
        assert (body["scope"], body["status"], body["receipt"]) == ("owner", "open", None)
        assert "ann" not in asked.text
        again = await client.post("/v1/erasures", json=ANN)
        assert again.json()["id"] == body["id"]
        seen = await client.get(f"/v1/erasures/{body['id']}")
        assert seen.json() == body


async def test_another_tenant_s_administrator_reaches_neither_the_person_nor_the_erasure(house: House) -> None:
    async with house.client(house.key("boss")) as client:
        erasure_id = (await client.post("/v1/erasures", json=ANN)).json()["id"]
    async with house.client(house.key("boss", tenant="other")) as client:
        assert (await client.post("/v1/erasures", json=ANN)).status_code == 404
        assert (await client.get(f"/v1/erasures/{erasure_id}")).status_code == 404


async def test_without_the_right_to_administer_nothing_is_erased(house: House) -> None:
    key = house.key("crm", "user/ann", scopes=set(Allowed) - {Allowed.ADMIN})
    async with house.client(key) as client:
        assert (await client.post("/v1/erasures", json=ANN)).status_code == 403
    async with house.client() as client:
        assert (await client.post("/v1/erasures", json=ANN)).status_code == 401


@pytest.mark.parametrize(
    "body",
    [{"scope": "owner"}, {"scope": "tenant", "name": "acme"}, {"scope": "world", "name": "x"}, {"name": "ann"}, {}],
    ids=["no name", "a named tenant", "no such scope", "no scope", "nothing"],
)
async def test_what_cannot_be_meant_is_refused(house: House, body: dict[str, str]) -> None:
    async with house.client(house.key("boss")) as client:
        assert (await client.post("/v1/erasures", json=body)).status_code == 422
        assert (await client.post("/v1/erasures", json=ANN | {"name": "nobody"})).status_code == 404
