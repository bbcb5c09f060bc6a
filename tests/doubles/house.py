"""Tests, doubles: the read side on a real database, with the real resolver behind it and a broker that is a list."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from fastapi import FastAPI
from sqlalchemy import select

from processors.access import Grant, OwnerRef, Principal, PrincipalKind, Reach, Scope, parse_namespace
from processors.exceptions import TransientError
from processors.policy import Decision, PolicyGate, PolicySettings
from processors.resolution.similarity import Nearest
from processors.rules import RuleBook
from recall.access import Keyring, ReadLog
from recall.api import ApiConfig, ChangeHub, create_app
from recall.requests import ContextAsked, RecallAsked
from recall.screening import TurnScreen
from recall.verbs import Context, Found, Reader, Recalled, Verbs
from recall.writing import Writer
from schemas import Candidate, Memory, MemoryUpdated, Sensitivity, Status, new_id
from sinks.truth import Truth, access, memories
from sinks.truth.outbox import Outgoing
from sinks.truth.tables import memories as memory_table
from streams.delivery import Delivered, Message
from streams.metrics import Metrics
from streams.stages.resolve import ResolveStage
from tests.doubles.described import Described
from tests.doubles.records import claim

PEPPER = b"a pepper for tests, 32 bytes long"
EVERY = frozenset(Scope)
MORNING = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


class Clock:
    """A clock that moves a second with every look, so that what comes later is later."""

    def __init__(self) -> None:
        self.at = MORNING

    def __call__(self) -> datetime:
        self.at += timedelta(seconds=1)
        return self.at


class PlainReader:
    """Finds memories whose text shares a word with the question."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def recall(self, reaches: Sequence[Reach], asked: RecallAsked, now: datetime) -> Recalled:
        words = set(asked.query.casefold().split())
        found = []
        with self._truth.reading() as connection:
            for reach in reaches:
                kept, _end = access.page(connection, reach, statuses=(Status.ACTIVE,), now=now, limit=200)
                found += [memory for memory in kept if words & set(memory.text.casefold().split())]
        return Recalled(tuple(Found(0.9, memory, parts={"similarity": 0.9}) for memory in found[: asked.limit]))

    def context(self, reaches: Sequence[Reach], asked: ContextAsked, now: datetime) -> Context:
        found = [item.memory for item in self.recall(reaches, asked, now).found if item.memory is not None]
        text = "\n".join(f"{number}. {memory.text}" for number, memory in enumerate(found, 1))
        return Context(text, len(text), dict(enumerate(found, 1)))

    async def summarize(self, tenant: str, conversation_id: str, owner: str, now: datetime) -> Mapping[str, Any]:
        notes: dict[str, list[str]] = {
            name: [] for name in ("facts", "decisions", "open_loops", "key_points", "digests")
        }
        return {"method": "extractive", "turns": 1, "unsummarised": 0} | notes | {"facts": [f"about {conversation_id}"]}


class LeakyReader(PlainReader):
    """Finds everything of everybody: what a broken filter would do. Nothing of it may get out."""

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._read: dict[str, Memory] = {}

    def recall(self, reaches: Sequence[Reach], asked: RecallAsked, now: datetime) -> Recalled:
        with self._truth.reading() as connection:
            bodies = connection.execute(select(memory_table.c.body)).scalars().all()
        self._read = {body: self._read.get(body) or Memory.from_bytes(body.encode()) for body in bodies}
        return Recalled(tuple(Found(1.0, memory) for memory in self._read.values()))


class House:
    """Everything of the read side; `settle` lets the resolver do what was ordered."""

    def __init__(self, truth: Truth, reader: Reader | None = None, config: ApiConfig | None = None) -> None:
        self.truth = truth
        self.now = Clock()
        self.sent: list[Outgoing] = []
        self.events: list[MemoryUpdated] = []
        self.broker_away = False
        self.keyring = Keyring(truth, PEPPER, self.now)
        self.reads = ReadLog(truth, self.now)
        self.changes = ChangeHub()
        gate = PolicyGate(PolicySettings(unconfirmed=Decision.REVIEW), PEPPER)
        numbers = itertools.count()
        self.writer = Writer(gate, RuleBook.load(), self.now, lambda: new_id("fresh", str(next(numbers))))
        self.verbs = Verbs(
            truth, reader or PlainReader(truth), self.writer, self.publish, self.reads, self.now, TurnScreen(gate)
        )
        self.app: FastAPI = create_app(
            truth,
            self.verbs,
            self.keyring,
            self.reads,
            self.changes,
            self.now,
            config=config or ApiConfig(rate=1e9, burst=10**9, stranger_rate=1e9, stranger_burst=10**9),
        )
        self.described = Described(self.app)
        nearest = Nearest(lambda _text, others: [0.0] * len(others), dedupe=0.92, conflict=0.85)
        self._stages = {name: ResolveStage(name, nearest, Metrics()) for name in ("candidates", "commands")}
        self._offset = itertools.count()

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """The broker has them, or is away."""
        if self.broker_away:
            raise TransientError("broker away or refusing")
        self.sent += messages

    def client(self, key: str | None = None, **headers: str) -> httpx.AsyncClient:
        """An HTTP client in the same process, which holds every answer against the description."""
        given = ({"Authorization": f"Bearer {key}"} if key is not None else {}) | headers
        transport = httpx.ASGITransport(app=self.app)
        hooks = {"response": [self.described.check]}
        return httpx.AsyncClient(transport=transport, base_url="http://memriver", headers=given, event_hooks=hooks)

    def key(
        self,
        name: str = "crm",
        *grants: str,
        kind: PrincipalKind = PrincipalKind.AGENT,
        tenant: str = "acme",
        scopes: Iterable[Scope] = EVERY,
        sensitivity: Sensitivity = Sensitivity.CONFIDENTIAL,
    ) -> str:
        """A key with grants such as `user/ann`, each with the key's own scopes."""
        held = frozenset(scopes)
        made = [Grant(*parse_namespace(text), held, sensitivity) for text in grants]
        return self.keyring.create(tenant, kind, name, held, grants=made).secret

    def principal(self, key: str) -> Principal:
        """Who holds it."""
        return self.keyring.principal(key)

    def learn(self, *claims: Candidate) -> list[Memory]:
        """The pipeline has heard this; returns the memories, in the order of the claims."""
        self._resolve("candidates", [item.to_bytes() for item in claims])
        with self.truth.reading() as connection:
            keys = [(item.owner, item.namespace, item.attribute, item.value) for item in claims]
            bodies = connection.execute(select(memory_table.c.body)).scalars().all()
        held = {}
        for body in bodies:
            memory = Memory.from_bytes(body.encode())
            held[memory.owner, memory.namespace, memory.attribute, memory.value] = memory
        return [held[key] for key in keys]

    def settle(self) -> list[MemoryUpdated]:
        """Everything on `commands` goes through the resolver; returns the events."""
        waiting = [item.payload for item in self.sent if item.topic == "commands"]
        self.sent = [item for item in self.sent if item.topic != "commands"]
        return self._resolve("commands", [payload for payload in waiting if payload is not None])

    def _resolve(self, topic: str, payloads: Sequence[bytes]) -> list[MemoryUpdated]:
        stage = self._stages[topic]
        group = []
        for payload in payloads:
            message = Message(topic, 0, next(self._offset), None, payload, 0.0)
            group.append(Delivered(message, stage.prepare(message)))
        if not group:
            return []
        out = self.truth.run(lambda connection: stage.commit(connection, group, self.now()))
        events = [
            MemoryUpdated.from_bytes(item.payload)
            for item in out
            if item.topic == "memory_updated" and item.payload is not None
        ]
        self.letters = [item for item in out if item.topic == "deadletters"]
        self.events += events
        return events

    def memory(self, memory_id: str) -> Memory:
        """As it stands in truth."""
        with self.truth.reading() as connection:
            found = memories.get(connection, memory_id)
        assert found is not None
        return found


def said(number: int, attribute: str, value: str, text: str, **fields: Any) -> Candidate:
    """A claim about ann (or `owner`), said in minute `number`."""
    owner = OwnerRef(fields.pop("owner_kind", claim().owner_kind), fields.pop("owner", "ann"))
    segment = fields.pop("segment", "profile")
    given = {
        "candidate_id": new_id("said", owner.kind, owner.id, str(fields.get("tenant", "acme")), str(number)),
        "owner_kind": owner.kind,
        "owner": owner.id,
        "namespace": f"{owner.root}{segment}",
        "attribute": attribute,
        "value": value,
        "text": text,
    }
    return claim(number, **(given | fields))
