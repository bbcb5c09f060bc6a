"""MCP, with the SDK's own client: in process, over stdio and over HTTP the same tools answer the same."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from processors.access import PrincipalKind
from recall.api.limits import TokenBuckets
from recall.mcp import PATH, http_app, make_server
from sinks.truth import Truth
from tests.doubles.house import House, said
from tests.doubles.log import until

ROOT = Path(__file__).resolve().parents[2]
TOOLS = {"recall", "remember", "forget", "summarize", "build_context", "explain", "history", "feedback"}


@pytest.fixture
def house(sqlite_truth: Truth) -> House:
    return House(sqlite_truth)


@asynccontextmanager
async def served(house: House) -> AsyncIterator[str]:
    """The HTTP endpoint on a free port; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(http_app(make_server(house.verbs, house.keyring)), log_level="warning", lifespan="on")
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}{PATH}"
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def over_http(address: str, key: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        yield client


def content(answer: Any) -> dict[str, Any]:
    assert not answer.is_error, answer.content
    found: dict[str, Any] = answer.structured_content
    return found


async def goes_through_the_verbs(house: House, client: Client, memory_id: str) -> None:
    """What every transport must do alike."""
    assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
    recalled = content(await client.call_tool("recall", {"query": "where lives she", "owner": "ann"}))
    assert [item["memory"]["id"] for item in recalled["results"]] == [memory_id]
    built = content(await client.call_tool("build_context", {"query": "where lives she", "owner": "ann"}))
    assert built["citations"] == [{"number": 1, "id": memory_id, "version": 1}]
    explained = content(await client.call_tool("explain", {"memory_id": memory_id}))
    assert explained["memory"]["evidence"] == [{"turn_id": "t1", "quote": "Leeds"}]
    versions = content(await client.call_tool("history", {"memory_id": memory_id}))["versions"]
    assert [row["version"] for row in versions] == [1]
    kept = content(
        await client.call_tool(
            "remember", {"text": "I like tea", "owner": "ann", "source": "user_statement", "quote": "I like tea"}
        )
    )
    assert kept["commands"][0]["kind"] == "assert"
    opinion = {"kind": "used", "owner": "ann", "memory_ids": [memory_id], "query": "where lives she"}
    assert content(await client.call_tool("feedback", opinion))["feedback_id"]
    gone = content(await client.call_tool("forget", {"owner": "ann", "memory_id": memory_id}))
    assert gone["commands"][0]["memory_id"] == memory_id


async def test_in_process(house: House) -> None:
    (memory,) = house.learn(said(1, "residence", "Leeds", "lives in Leeds"))
    server = make_server(house.verbs, house.keyring, key=house.key("crm", "user/ann"))
    async with Client(server) as client:
        await goes_through_the_verbs(house, client, memory.id)
    house.settle()
    assert house.memory(memory.id).status.value == "superseded"


async def test_over_http(house: House) -> None:
    (memory,) = house.learn(said(1, "residence", "Leeds", "lives in Leeds"))
    async with served(house) as address, over_http(address, house.key("crm", "user/ann")) as client:
        await goes_through_the_verbs(house, client, memory.id)


async def test_over_stdio(house: House, sqlite_url: str) -> None:
    (memory,) = house.learn(said(1, "residence", "Leeds", "lives in Leeds"))
    arguments = ["-m", "tests.doubles.mcp_stdio", sqlite_url, house.key("crm", "user/ann")]
    process = StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT)
    async with Client(stdio_client(process)) as client:
        await goes_through_the_verbs(house, client, memory.id)


async def test_each_http_request_is_answered_for_its_own_key(house: House) -> None:
    (memory,) = house.learn(said(1, "residence", "Leeds", "lives in Leeds"))
    async with served(house) as address:
        async with over_http(address, house.key("ann", kind=PrincipalKind.PERSON)) as ann:
            assert not (await ann.call_tool("history", {"memory_id": memory.id})).is_error
        async with over_http(address, house.key("bob", kind=PrincipalKind.PERSON)) as bob:
            refused = await bob.call_tool("history", {"memory_id": memory.id})
            assert (refused.is_error, "Leeds" in str(refused)) == (True, False)
            other = await bob.call_tool("recall", {"query": "where lives ann", "owner": "ann"})
            assert (other.is_error, "Leeds" in str(other)) == (True, False)
        for key in ("x", "mr_nothing_good"):
            async with over_http(address, key) as stranger:
                answer = await stranger.call_tool("recall", {"query": "where", "owner": "ann"})
                assert answer.is_error


async def test_a_revoked_key_ends_a_running_server(house: House) -> None:
    key = house.key("crm", "user/ann")
    async with Client(make_server(house.verbs, house.keyring, key=key)) as client:
        assert not (await client.call_tool("recall", {"query": "where", "owner": "ann"})).is_error
        house.keyring.revoke(key.split("_")[1])
        assert (await client.call_tool("recall", {"query": "where", "owner": "ann"})).is_error


async def test_a_key_that_calls_too_often_is_told_when_to_come_back(house: House) -> None:
    server = make_server(
        house.verbs, house.keyring, key=house.key("crm", "user/ann"), buckets=TokenBuckets(0.5, 1, lambda: 0.0)
    )
    async with Client(server) as client:
        answers = [await client.call_tool("recall", {"query": "where", "owner": "ann"}) for _ in range(2)]
    assert [answer.is_error for answer in answers] == [False, True]
    assert "try again in 2 s" in str(answers[1].content)


async def test_a_refusal_says_what_is_wrong_and_nothing_of_the_inside(house: House) -> None:
    async with Client(make_server(house.verbs, house.keyring, key=house.key("crm", "user/ann"))) as client:
        for tool, given, word in (
            ("recall", {"query": " ", "owner": "ann"}, "query: must not be blank"),
            ("recall", {"query": "x" * 100_000, "owner": "ann"}, "query"),
            ("recall", {"query": "a\x00b", "owner": "ann"}, "control characters"),
            ("recall", {"query": "where", "owner": ""}, "owner"),
            ("history", {"memory_id": "' OR 1=1 --"}, "memory_id"),
            ("forget", {"owner": "ann"}, "nothing named is never everything"),
            ("remember", {"owner": "ann", "text": "my password is hunter22!", "attribute": "password"}, "secret"),
        ):
            answer = await client.call_tool(tool, given)
            said_back = str(answer.content)
            assert answer.is_error, given
            assert word in said_back, said_back
            assert "sqlite" not in said_back.casefold()
            assert "hunter22" not in said_back
        assert (await client.call_tool("drop_tables", {})).is_error


async def test_a_browser_that_was_led_here_under_another_name_is_turned_away(house: House) -> None:
    async with served(house) as address, httpx2.AsyncClient() as http:
        answer = await http.post(address, json={}, headers={"Host": "evil.example"})
        assert answer.status_code == 421
