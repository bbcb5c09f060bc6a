"""HTTP API, bad input: every field, every kind of nonsense; a 4xx that helps, nothing leaked, nothing personal logged."""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import CHECKS

from recall.api import ApiConfig
from sinks.truth import Truth
from tests.doubles.house import House, said


@pytest.fixture
def house(sqlite_truth: Truth) -> House:
    return House(sqlite_truth)


BAD: dict[str, Any] = {
    "empty": "",
    "blank": " \t\n　",
    "long": "x" * 100_000,
    "nul": "a\x00b",
    "escape": "a\x1b[31mb",
    "surrogate": "a\ud800b",
    "sql": "' OR '1'='1'; DROP TABLE memories; --",
    "filter": '{"must": []}',
    "wildcard": "*",
    "percent": "%",
    "template": "${jndi:ldap://x} {{7*7}}",
    "number": 7,
    "float": 1e400,
    "true": True,
    "null": None,
    "list": ["ann"],
    "object": {"$ne": None},
}
ACCEPTABLE = {("query", name) for name in ("sql", "filter", "wildcard", "percent", "template")}
ACCEPTABLE |= {("text", name) for name in ("sql", "filter", "wildcard", "percent", "template")}
INTERNALS = ("sqlite", "sqlalchemy", "traceback", "select ", "memories.", "pydantic", "/recall/", "site-packages")

RECALL = {
    "query": "where",
    "owner": "ann",
    "owner_kind": "user",
    "namespaces": ["profile"],
    "limit": 5,
    "timezone": "UTC",
}
REMEMBER = {
    "text": "likes tea",
    "owner": "ann",
    "attribute": "likes",
    "source": "tool_result",
    "timezone": "UTC",
    "ttl_days": 3,
}
FORGET = {"owner": "ann", "attribute": "likes", "mode": "forget", "reason": "asked"}
TURN = {
    "conversation_id": "c1",
    "turn_id": "t1",
    "user_id": "ann",
    "role": "user",
    "text": "hello",
    "sent_at": "2026-03-01T09:00:00Z",
    "timezone": "UTC",
}


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/recall", RECALL), ("/v1/context", RECALL), ("/v1/remember", REMEMBER), ("/v1/forget", FORGET)],
)
async def test_nonsense_in_any_field_is_refused_in_words_that_help(
    house: House, caplog: pytest.LogCaptureFixture, path: str, body: dict[str, Any]
) -> None:
    house.learn(
        said(1, "residence", "Leeds", "lives in Leeds"), said(2, "residence", "York", "lives in York", owner="bob")
    )
    caplog.set_level(logging.DEBUG, "memriver")
    async with house.client(house.key("crm", "user/ann")) as client:
        for field in [*body, "unknown_field"]:
            for name, value in BAD.items():
                content = json.dumps(body | {field: value}).encode("ascii")
                answer = await client.post(path, content=content, headers={"Content-Type": "application/json"})
                what = f"{path} {field}={name}: {answer.status_code} {answer.text[:200]}"
                assert answer.status_code < 500, what
                assert not any(word in answer.text.casefold() for word in INTERNALS), what
                assert "York" not in answer.text, what
                if answer.status_code >= 400:
                    assert answer.json()["detail"], what
                    assert len(answer.content) < 2_000, what
                elif (field, name) not in ACCEPTABLE:
                    # Optional fields may be left empty, and words are words; ids and kinds are not.
                    assert value is None or field in ("attribute", "reason", "limit", "ttl_days", "mode"), what
    assert caplog.text == ""


@pytest.mark.parametrize("field", [*TURN, "attachments", "speaker_name", "tenant"])
async def test_a_turn_that_no_stage_could_read_is_refused_at_the_door(house: House, field: str) -> None:
    async with house.client(house.key("gateway", "user/*")) as client:
        for name, value in BAD.items():
            content = json.dumps(TURN | {field: value}).encode("ascii")
            answer = await client.post("/v1/turns", content=content, headers={"Content-Type": "application/json"})
            assert answer.status_code in (202, 403, 422), f"{field}={name}: {answer.status_code} {answer.text[:200]}"
    assert all(b"\\ud800" not in (item.payload or b"") for item in house.sent)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"a":' * 5_000, b"[" * 100_000, b'{"query": "\xed\xa0\x80"}'],
)
async def test_what_is_no_request_at_all_is_refused(house: House, body: bytes) -> None:
    async with house.client(house.key("crm", "user/ann")) as client:
        for path in ("/v1/recall", "/v1/turns", "/v1/remember"):
            answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code in (400, 422), answer.text[:200]
            assert answer.headers["content-type"] == "application/problem+json"


async def test_a_turn_nested_too_deeply_or_with_hidden_surrogates_is_refused(house: House) -> None:
    deep: Any = "x"
    for _ in range(60):
        deep = [deep]
    async with house.client(house.key("gateway", "user/*")) as client:
        for extra in ({"meta": deep}, {"meta": "a\ud800"}, {"a\ud800": 1}):
            content = json.dumps(TURN | extra).encode("ascii")
            answer = await client.post("/v1/turns", content=content, headers={"Content-Type": "application/json"})
            assert answer.status_code == 422


async def test_what_is_too_large_is_refused_before_it_is_read(sqlite_truth: Truth) -> None:
    house = House(sqlite_truth, config=ApiConfig(max_body=1_000))

    async def parts() -> Any:
        for _ in range(100):
            yield b"x" * 100

    async with house.client(house.key("crm", "user/ann")) as client:
        assert (await client.post("/v1/recall", content=b"x" * 1_001)).status_code == 413
        assert (await client.post("/v1/recall", content=parts())).status_code == 413


@pytest.mark.parametrize("name", sorted(BAD))
async def test_nonsense_in_the_address_finds_nothing(house: House, name: str) -> None:
    house.learn(said(1, "residence", "Leeds", "lives in Leeds", owner="bob"))
    value = str(BAD[name])[:500].encode("utf-8", "replace").decode()
    async with house.client(house.key("crm", "user/ann")) as client:
        for path in (f"/v1/memories/{quote(value, safe='')}", f"/v1/turns/c/{quote(value, safe='')}"):
            assert (await client.get(path)).status_code in (400, 404, 405, 422, 307), path
        for field in ("owner", "owner_kind", "namespace", "status", "attribute", "cursor", "limit"):
            params = {"owner": "ann"} | {field: value}
            answer = await client.get("/v1/memories", params=params)
            assert answer.status_code < 500
            assert "Leeds" not in answer.text


def test_the_description_names_every_answer(sqlite_truth: Truth) -> None:
    """Schemathesis sends what the description allows, and what it does not; no answer may be one that it does not name."""
    house = House(sqlite_truth)
    house.learn(said(1, "residence", "Leeds", "lives in Leeds"))
    headers = {"Authorization": f"Bearer {house.key('crm', 'user/ann', 'user/*')}"}
    schema = schemathesis.openapi.from_asgi("/openapi.json", house.app)
    names = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
    checks = CHECKS.get_by_names(list(names))
    seen = 0
    for result in schema.exclude(path="/v1/changes").get_all_operations():
        operation = result.ok()
        for mode in schemathesis.GenerationMode:

            @settings(
                max_examples=10,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def probe(case: schemathesis.Case) -> None:
                nonlocal seen
                seen += 1
                case.call_and_validate(headers=headers, checks=checks)

            try:
                probe()
            except Unsatisfiable:
                # An operation without parameters cannot be asked wrongly.
                continue
    assert seen > 200


def test_every_route_says_what_it_answers_and_every_error_is_a_problem(house: House) -> None:
    for path, operations in house.app.openapi()["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                kinds = answer.get("content", {})
                where = f"{method} {path} {status}"
                if int(status) >= 400:
                    assert kinds["application/problem+json"]["schema"]["$ref"].endswith("/Problem"), where
                elif status != "204" and path != "/v1/changes":
                    assert kinds["application/json"]["schema"]["$ref"].endswith("Shape"), where
