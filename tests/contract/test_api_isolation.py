"""Isolation: random tenants, people, agents and grants, ten thousand requests, and nothing gets out that was not granted.

Most questions go to a reader that finds everything of everybody, so that only the last look keeps it in; the others to the
real one, over a vector store that a writer is at work on all the while with whatever was ever known.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from typer.testing import CliRunner

from processors.access import Reach, Scope
from processors.policy import PolicyGate, PolicySettings
from recall.context import ContextBuilder
from recall.mcp import make_server
from recall.reading import MemoryReader
from recall.requests import ContextAsked, RecallAsked
from recall.screening import TurnScreen
from recall.service import RecallService
from recall.session import SessionMemory
from recall.verbs import Context, Reader, Recalled
from schemas import MemoryUpdated
from sinks.embedders import make_embedder
from sinks.truth import Truth
from sinks.truth.outbox import Outgoing
from sinks.vectors import open_vectors
from sinks.vectors.collection import OneCollection
from streams.cli import access, app
from streams.projection import VectorProjection
from streams.settings import Settings
from tests.doubles.house import MORNING, PEPPER, House, LeakyReader
from tests.doubles.isolation import MARK, OWNERS, SEGMENTS, Holder, World

WORLDS = 4
HTTP, MCP, CLI, FEEDS = 2_150, 24, 15, 25
"""Requests in each world; of MCP for each holder, of the feed with all that ever happened."""
ALL = 10_000


class EitherReader:
    """The leaky reader, and for each third question the real one."""

    def __init__(self, leaky: Reader, real: Reader) -> None:
        self._readers = (leaky, real)
        self._asked = 0

    def _next(self) -> Reader:
        self._asked += 1
        # The real one costs ten times as much.
        return self._readers[self._asked % 3 == 0]

    def recall(self, reaches: Sequence[Reach], asked: RecallAsked, now: datetime) -> Recalled:
        return self._next().recall(reaches, asked, now)

    def context(self, reaches: Sequence[Reach], asked: ContextAsked, now: datetime) -> Context:
        return self._next().context(reaches, asked, now)

    async def summarize(self, tenant: str, conversation_id: str, owner: str, now: datetime) -> Mapping[str, Any]:
        return await self._readers[-1].summarize(tenant, conversation_id, owner, now)


class Broker:
    """What the command line published."""

    sent: list[Outgoing]

    def __init__(self, _settings: Settings) -> None:
        return None

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        Broker.sent += messages


@dataclass
class Asked:
    """How many requests there were, by entrance, and how many were let in."""

    of: Counter[str] = field(default_factory=Counter)
    let_in: Counter[str] = field(default_factory=Counter)

    def count(self, entrance: str, let_in: bool) -> None:
        self.of[entrance] += 1
        self.let_in[entrance] += let_in


@pytest.fixture
def house(sqlite_truth: Truth, tmp_path: Path) -> Iterator[House]:
    embedder = make_embedder("hashing")
    store = open_vectors(f"edge:{tmp_path}", prefix="memories", model=embedder.model, dimension=embedder.dimension)
    store.ensure()
    one = OneCollection(store, embedder)
    gate = PolicyGate(PolicySettings(), PEPPER)

    def mask(text: str) -> str:
        return gate.mask_text(text).text

    session = SessionMemory(sqlite_truth, mask=mask, now=lambda: MORNING)
    service = RecallService(sqlite_truth, one, screen=TurnScreen(gate), floor=0.0)
    real = MemoryReader(sqlite_truth, service, ContextBuilder(session, mask, lambda: MORNING), session)
    made = House(sqlite_truth, EitherReader(LeakyReader(sqlite_truth), real))
    with writing(VectorProjection(one), made):
        yield made
    store.close()


@contextmanager
def writing(projection: VectorProjection, house: House) -> Iterator[None]:
    """A vector write is under way all the while: of anything that was ever known, old versions among it."""
    over, pick = threading.Event(), random.Random(11)

    def write() -> None:
        while not over.wait(0.1):
            if house.events:
                projection.write([event.memory for event in pick.choices(house.events, k=4)])

    thread = threading.Thread(target=write)
    thread.start()
    yield
    over.set()
    thread.join()


def request(world: World) -> tuple[str, str, dict[str, Any]]:
    """A random request: method, path and what goes with it."""
    pick, planted = world.random, world.random.choice(world.planted)
    owner = {"owner": planted.owner, "owner_kind": planted.kind}
    spaces = pick.sample([*SEGMENTS, f"user/{planted.owner}", "user/ann/profile", "", "%"], pick.randrange(3))
    filtered: dict[str, Any] = owner | ({"namespaces": [s for s in spaces if s]} if spaces else {})
    version = {"If-Match": f'"{planted.memory.version}"'}
    memory = f"/v1/memories/{planted.memory.id}"
    shared = [{"owner": other[1], "owner_kind": other[0]} for other in pick.sample(OWNERS, pick.randrange(3))]
    everything = [name for name in ("active", "superseded", "expired", "demoted", "archived", "retracted", "deleted")]
    spoken = pick.choice(world.spoken)
    return pick.choice(
        [
            ("GET", "/v1/memories", {"params": owner}),
            (
                "GET",
                "/v1/memories",
                {"params": owner | {"namespace": [s for s in spaces if s], "status": ["active", "quarantined"]}},
            ),
            # As an export reads: all there ever was.
            ("GET", "/v1/memories", {"params": owner | {"status": everything, "limit": 200}}),
            ("GET", "/v1/memories", {"params": {"limit": 200}}),
            ("GET", "/v1/memories", {"params": owner | {"owner": ""}}),
            ("GET", memory, {}),
            ("GET", f"{memory}/history", {}),
            ("GET", f"{memory}/explain", {}),
            ("POST", "/v1/recall", {"json": {"query": "who lives where", "limit": 20} | filtered | {"shared": shared}}),
            ("POST", "/v1/recall", {"json": {"query": "who lives where", "limit": 20, "explain": True} | owner}),
            ("POST", "/v1/recall", {"json": {"query": "who lives where"}}),
            ("POST", "/v1/recall", {"json": {"query": "lives"} | owner | {"tenant": world.tenants[2]}}),
            ("POST", "/v1/recall", {"json": {"query": "who", "conversation_id": spoken.conversation} | owner}),
            ("POST", "/v1/context", {"json": {"query": "who lives where"} | filtered}),
            ("GET", "/v1/reviews", {"params": owner | {"limit": 200}}),
            ("POST", "/v1/reviews", {"json": {"memory_id": planted.memory.id, "version": planted.memory.version}}),
            (
                "POST",
                f"/v1/reviews/{pick.choice(world.reviews)}/decision",
                {"json": {"decision": pick.choice(["approve", "reject"])}},
            ),
            ("PATCH", memory, {"json": {"text": "changed"}, "headers": version}),
            ("DELETE", memory, {"headers": version}),
            ("POST", f"{memory}/confirm", {"headers": version}),
            ("POST", f"{memory}/restore", {"json": {"version": 1}, "headers": version}),
            ("POST", "/v1/forget", {"json": owner | {"memory_id": planted.memory.id}}),
            ("POST", "/v1/forget", {"json": owner | {"attribute": planted.memory.attribute}}),
            ("POST", "/v1/remember", {"json": owner | {"text": "likes tea", "source": "tool_result"}}),
            ("POST", "/v1/feedback", {"json": owner | {"kind": "used", "memory_ids": [planted.memory.id]}}),
            ("GET", f"/v1/sessions/{spoken.conversation}", {}),
            ("POST", "/v1/summarize", {"json": {"conversation_id": spoken.conversation}}),
            ("GET", "/v1/turns", {"params": {"conversation_id": spoken.conversation, "turn_id": "t1"}}),
            ("GET", "/v1/grants", {}),
            ("GET", "/v1/principal", {}),
        ]
    )


@asynccontextmanager
async def clients(world: World) -> AsyncIterator[list[tuple[Holder, httpx.AsyncClient]]]:
    """Without the check against the description, which the other tests have: this one is about who sees what."""
    transport = httpx.ASGITransport(app=world.house.app)
    held = [
        (
            holder,
            httpx.AsyncClient(
                transport=transport, base_url="http://memriver", headers={"Authorization": f"Bearer {holder.secret}"}
            ),
        )
        for holder in world.holders
    ]
    yield held
    for _holder, client in held:
        await client.aclose()


async def over_http(world: World, asked: Asked) -> None:
    recalling, next_at = ("/v1/recall", "/v1/context"), 0
    async with clients(world) as held:
        for number in range(HTTP):
            holder, client = world.random.choice(held)
            method, path, rest = request(world)
            answer = await client.request(method, path, **rest)
            what = f"{method} {path} {rest} -> {answer.status_code}"
            assert answer.status_code < 500, what
            world.check(holder, answer.text, what, recalled=path in recalling)
            world.check_commands(holder, world.house.sent, what)
            if path in ("/v1/memories", "/v1/recall") and not (rest.get("params") or rest.get("json", {})).get("owner"):
                assert answer.status_code in (403, 422), what
            if answer.is_success and (path.startswith("/v1/sessions") or path == "/v1/summarize"):
                name = path.rpartition("/")[2] if method == "GET" else rest["json"]["conversation_id"]
                people = next(s.people for s in world.spoken if (s.tenant, s.conversation) == (holder.tenant, name))
                assert holder.may_all(people, holder.tenant), what
            asked.count("http", answer.is_success)
            if number >= next_at and any(message.topic == "commands" for message in world.house.sent):
                # The last order is carried out, and what it changed is asked about at once.
                next_at = number + 30
                world.house.settle()
                world.look_again()
            world.house.sent = []


async def over_mcp(world: World, asked: Asked) -> None:
    for holder in world.holders:
        async with Client(make_server(world.house.verbs, world.house.keyring, key=holder.secret)) as client:
            for _ in range(MCP):
                planted = world.random.choice(world.planted)
                owner = {"owner": planted.owner, "owner_kind": planted.kind}
                named = {"memory_id": planted.memory.id}
                tool, given = world.random.choice(
                    [
                        ("recall", owner | {"query": "who lives where", "limit": 20}),
                        ("build_context", owner | {"query": "who lives where"}),
                        ("explain", named),
                        ("history", named),
                        ("forget", owner | named),
                        ("remember", owner | {"text": "likes tea", "source": "tool_result"}),
                        ("feedback", owner | {"kind": "used", "memory_ids": [planted.memory.id]}),
                        ("recall", {"owner": "", "query": "who lives where"}),
                        ("summarize", {"conversation_id": world.random.choice(world.spoken).conversation}),
                    ]
                )
                answer = await client.call_tool(tool, given)
                what = f"{tool} {given}"
                world.check(holder, str(answer), what, recalled=tool in ("recall", "build_context"))
                world.check_commands(holder, world.house.sent, what)
                world.house.sent = []
                asked.count("mcp", not answer.is_error)


def on_the_command_line(world: World, asked: Asked) -> None:
    for _ in range(CLI):
        holder, planted = world.random.choice(world.holders), world.random.choice(world.planted)
        owner = ("--owner", planted.owner, "--owner-kind", planted.kind)
        arguments: Sequence[str] = world.random.choice(
            [
                ("history", planted.memory.id),
                ("forget", *owner, "--memory", planted.memory.id),
                ("forget", *owner, "--attribute", planted.memory.attribute),
                ("remember", "likes tea", *owner, "--source", "tool_result"),
            ]
        )
        Broker.sent = []
        # A tenant that is named beside a key counts for nothing.
        done = CliRunner().invoke(
            app, [*arguments, "--key", holder.secret, "--tenant", world.random.choice(world.tenants)]
        )
        world.check(holder, done.output, str(arguments))
        world.check_commands(holder, Broker.sent, str(arguments))
        asked.count("cli", done.exit_code == 0)


async def until(so: Callable[[], Any]) -> None:
    """Nobody tells when a listener has come."""
    while not so():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def on_the_feed(world: World, asked: Asked, events: Sequence[MemoryUpdated]) -> None:
    hub = world.house.changes
    async with clients(world) as held:
        for _ in range(FEEDS):
            holder, client = world.random.choice(held)
            planted = world.random.choice(world.planted)
            params = {"owner": planted.owner, "owner_kind": planted.kind}
            listening = asyncio.create_task(client.get("/v1/changes", params=params))
            await until(lambda task=listening: hub.listeners or task.done())
            for event in world.random.sample(events, min(60, len(events))):
                hub.publish(event)
            hub.close()
            answer = await listening
            # What was told as it happened may have been deleted since.
            for mark in set(MARK.findall(answer.text)):
                seen = next(item for item in world.planted if item.mark == mark)
                assert holder.may(Scope.READ, seen), f"{holder} heard of {seen}"
            asked.count("feed", answer.is_success)


@pytest.mark.slow
async def test_ten_thousand_requests_over_every_entrance_and_nothing_leaves_that_was_not_granted(
    house: House, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMRIVER_DATABASE_URL", sqlite_url)
    monkeypatch.setenv("MEMRIVER_HASH_KEY", PEPPER.decode())
    monkeypatch.delenv("MEMRIVER_KEY", raising=False)
    monkeypatch.setattr(access, "EventProducer", Broker)
    monkeypatch.setattr(access, "quiet_logs", lambda _level: None)
    asked = Asked()
    worlds = [World(house, seed) for seed in range(1, WORLDS + 1)]
    for world in worlds:
        await over_http(world, asked)
        await over_mcp(world, asked)
        await asyncio.to_thread(on_the_command_line, world, asked)
        await on_the_feed(world, asked, house.events)
    assert sum(asked.of.values()) >= ALL, asked.of
    # The test is worth something only if some were let in and some were not, at every entrance.
    for entrance, count in asked.of.items():
        assert 0.03 * count < asked.let_in[entrance] < 0.9 * count, asked
    # And if much was changed in between.
    assert len({event.change for event in house.events}) >= 5


async def test_nobody_without_a_good_key_gets_anything(house: House) -> None:
    world = World(house, 1)
    good = world.holders[0].secret
    prefix = good.split("_")[1]
    bad = [
        "",
        "x",
        good[:-1],
        good + "x",
        f"mr_{prefix}_",
        f"mr_{prefix}_{'a' * 43}",
        "mr__",
        "mr_ü_ü",
        "' OR 1=1 --",
        "*",
    ]
    for key in bad:
        async with world.house.client(None) as client:
            client.headers["Authorization"] = f"Bearer {key}".encode().decode("latin-1")
            for _ in range(5):
                method, path, rest = request(world)
                answer = await client.request(method, path, **rest)
                assert answer.status_code in (401, 422), f"{key!r} {method} {path}"
                assert not MARK.search(answer.text)
    assert world.house.keyring.revoke(prefix)
    async with world.house.client(good) as client:
        assert (await client.get("/v1/principal")).status_code == 401
