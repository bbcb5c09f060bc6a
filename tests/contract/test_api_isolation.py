"""Isolation: random tenants, people, agents and grants, thousands of requests, and nothing gets out that was not granted.

What may get out is worked out here from the grants as they were written, without the code under test. The reader behind
recall is one that finds everything of everybody, so that only the last look keeps it in.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from mcp import Client

from processors.access import PrincipalKind, Scope
from recall.mcp import make_server
from schemas import Command, Memory, OwnerKind
from sinks.truth import Truth
from tests.doubles.house import House, LeakyReader, said

TENANTS = ("acme", "Acme", "globex")
OWNERS = (
    ("user", "ann"),
    ("user", "Ann"),
    ("user", "ann/x"),
    ("user", "an%2Fn"),
    ("user", "*"),
    ("user", "a_n"),
    ("org", "ann"),
)
SEGMENTS = ("profile", "profiles", "preferences")
MARK = re.compile(r"mark-\d+-")


@dataclass(frozen=True)
class Planted:
    """A memory and where it lies."""

    mark: str
    tenant: str
    kind: str
    owner: str
    segment: str
    memory: Memory


@dataclass(frozen=True)
class Holder:
    """A key, with its grants as they were written: (kind, owner or None, segment)."""

    secret: str
    tenant: str
    kind: PrincipalKind
    name: str
    scopes: frozenset[Scope]
    grants: tuple[tuple[str, str | None, str], ...]

    def may(self, scope: Scope, planted: Planted) -> bool:
        """By the book."""
        if scope not in self.scopes or planted.tenant != self.tenant:
            return False
        own = "user" if self.kind is PrincipalKind.PERSON else "agent"
        if (planted.kind, planted.owner) == (own, self.name):
            return True
        return any(
            kind == planted.kind and owner in (None, planted.owner) and (segment == "" or planted.segment == segment)
            for kind, owner, segment in self.grants
        )


class World:
    """Tenants with the same people in them, and keys with random grants."""

    def __init__(self, truth: Truth, seed: int) -> None:
        self.random = random.Random(seed)
        self.house = House(truth, LeakyReader(truth))
        self.planted = self._plant()
        self.holders: list[Holder] = []
        for number in range(14):
            self.holders.append(self._holder(number))

    def _plant(self) -> list[Planted]:
        claims, places = [], []
        for number, (tenant, (kind, owner), segment) in enumerate(
            (tenant, owner, segment) for tenant in TENANTS for owner in OWNERS for segment in SEGMENTS
        ):
            mark = f"mark-{number}-"
            fields: dict[str, Any] = {"tenant": tenant, "owner_kind": OwnerKind(kind), "owner": owner}
            if number % 5 == 0:
                fields |= {"decision": "quarantine", "decision_reasons": (mark,)}
            attribute = f"thing_{number}"
            claims.append(said(number, attribute, mark, f"{mark} lives", segment=segment, **fields))
            places.append((mark, tenant, kind, owner, segment))
        memories = self.house.learn(*claims)
        return [Planted(*place, memory) for place, memory in zip(places, memories, strict=True)]

    def _holder(self, number: int) -> Holder:
        pick = self.random
        scopes = frozenset(scope for scope in Scope if pick.random() < 0.8)
        grants = []
        for _ in range(pick.randrange(1, 6)):
            kind, owner = pick.choice(OWNERS)
            every = pick.random() < 0.2
            segment = "" if every or pick.random() < 0.5 else pick.choice(SEGMENTS)
            grants.append((kind, None if every else owner, segment))
        kind = pick.choice(list(PrincipalKind))
        name = pick.choice(["ann", "Ann", "ann/x", "a_n"]) if kind is PrincipalKind.PERSON else f"agent-{number}"
        tenant = pick.choice(TENANTS)
        # A principal that is there twice would have both keys' grants; the book knows of one.
        if any((held.tenant, held.name) == (tenant, name) for held in self.holders):
            name = f"p{number}"
        spelt = tuple(
            "/".join(
                part
                for part in (k, "*" if o is None else o.replace("%", "%25").replace("/", "%2F").replace("*", "%2A"), s)
                if part
            )
            for k, o, s in grants
        )
        secret = self.house.key(name, *spelt, kind=kind, tenant=tenant, scopes=scopes)
        return Holder(secret, tenant, kind, name, scopes, tuple(grants))

    def check(self, holder: Holder, text: str, what: str) -> None:
        """Everything that shows in `text` was granted, and what waits for a reviewer shows to reviewers only."""
        for mark in set(MARK.findall(text)):
            planted = next(item for item in self.planted if item.mark == mark)
            seen = holder.may(Scope.READ, planted) or holder.may(Scope.REVIEW, planted)
            assert seen, f"{what}: {holder} saw {planted}"
            if planted.memory.status.value == "quarantined":
                assert holder.may(Scope.REVIEW, planted), f"{what}: {holder} saw the quarantined {planted}"

    def check_commands(self, holder: Holder, what: str) -> int:
        """Whatever was ordered was ordered about memories or owners that the holder may change."""
        sent, self.house.sent = self.house.sent, []
        for message in sent:
            if message.topic != "commands":
                continue
            command = Command.from_bytes(message.payload or b"")
            assert command.tenant == holder.tenant, what
            scope = Scope.REVIEW if command.kind.value == "decide_review" else Scope.WRITE
            about = [item for item in self.planted if item.memory.id == command.memory_id]
            if not about:
                about = [
                    item
                    for item in self.planted
                    if (item.tenant, item.kind, item.owner) == (command.tenant, command.owner_kind.value, command.owner)
                ]
            assert any(holder.may(scope, item) for item in about), f"{what}: {holder} ordered {command.kind}"
        return len(sent)


def request(world: World) -> tuple[str, str, dict[str, Any]]:
    """A random request: method, path and what goes with it."""
    pick, planted = world.random, world.random.choice(world.planted)
    owner = {"owner": planted.owner, "owner_kind": planted.kind}
    spaces = pick.sample([*SEGMENTS, f"user/{planted.owner}", "user/ann/profile", "", "%"], pick.randrange(3))
    filtered: dict[str, Any] = owner | ({"namespaces": [s for s in spaces if s]} if spaces else {})
    version = {"If-Match": f'"{planted.memory.version}"'}
    memory = f"/v1/memories/{planted.memory.id}"
    shared = [{"owner": other[1], "owner_kind": other[0]} for other in pick.sample(OWNERS, pick.randrange(3))]
    return pick.choice(
        [
            ("GET", "/v1/memories", {"params": owner}),
            (
                "GET",
                "/v1/memories",
                {"params": owner | {"namespace": [s for s in spaces if s], "status": ["active", "quarantined"]}},
            ),
            ("GET", "/v1/memories", {"params": {"limit": 200}}),
            ("GET", "/v1/memories", {"params": owner | {"owner": ""}}),
            ("GET", memory, {}),
            ("GET", f"{memory}/history", {}),
            ("GET", f"{memory}/explain", {}),
            ("POST", "/v1/recall", {"json": {"query": "who lives where", "limit": 20} | filtered | {"shared": shared}}),
            ("POST", "/v1/recall", {"json": {"query": "who lives where"}}),
            ("POST", "/v1/recall", {"json": {"query": "lives"} | owner | {"tenant": "globex"}}),
            ("POST", "/v1/context", {"json": {"query": "who lives where"} | filtered}),
            ("GET", "/v1/reviews", {"params": owner}),
            ("PATCH", memory, {"json": {"text": "changed"}, "headers": version}),
            ("DELETE", memory, {"headers": version}),
            ("POST", f"{memory}/confirm", {"headers": version}),
            ("POST", f"{memory}/restore", {"json": {"version": 1}, "headers": version}),
            ("POST", "/v1/forget", {"json": owner | {"memory_id": planted.memory.id}}),
            ("POST", "/v1/forget", {"json": owner | {"attribute": planted.memory.attribute}}),
            ("POST", "/v1/remember", {"json": owner | {"text": "likes tea", "source": "tool_result"}}),
            ("POST", "/v1/feedback", {"json": owner | {"kind": "used", "memory_ids": [planted.memory.id]}}),
            ("GET", "/v1/grants", {}),
        ]
    )


@asynccontextmanager
async def clients(world: World) -> AsyncIterator[list[tuple[Holder, httpx.AsyncClient]]]:
    held = [(holder, world.house.client(holder.secret)) for holder in world.holders]
    yield held
    for _holder, client in held:
        await client.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_nothing_leaves_over_http_that_was_not_granted(sqlite_truth: Truth, seed: int) -> None:
    world = World(sqlite_truth, seed)
    answered = dict.fromkeys(("yes", "no"), 0)
    async with clients(world) as held:
        for _ in range(2_200):
            holder, client = world.random.choice(held)
            method, path, rest = request(world)
            answer = await client.request(method, path, **rest)
            what = f"{method} {path} {rest} -> {answer.status_code}"
            assert answer.status_code < 500, what
            world.check(holder, answer.text, what)
            world.check_commands(holder, what)
            if path in ("/v1/memories", "/v1/recall") and not (rest.get("params") or rest.get("json", {})).get("owner"):
                assert answer.status_code in (403, 422), what
            answered["yes" if answer.is_success else "no"] += 1
    # The test is worth something only if some were let in and some were not.
    assert min(answered.values()) > 200


@pytest.mark.slow
async def test_nothing_leaves_over_mcp_that_was_not_granted(sqlite_truth: Truth) -> None:
    world = World(sqlite_truth, 7)
    let_in = 0
    for holder in world.holders:
        async with Client(make_server(world.house.verbs, world.house.keyring, key=holder.secret)) as client:
            for _ in range(90):
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
                        ("recall", {"owner": "", "query": "who lives where"}),
                        ("summarize", {"conversation_id": "c1"}),
                    ]
                )
                answer = await client.call_tool(tool, given)
                world.check(holder, str(answer), f"{tool} {given}")
                world.check_commands(holder, f"{tool} {given}")
                let_in += not answer.is_error
    assert let_in > 100


async def test_nobody_without_a_good_key_gets_anything(sqlite_truth: Truth) -> None:
    world = World(sqlite_truth, 1)
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
