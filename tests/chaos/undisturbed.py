"""Tests, chaos: the load of the chaos runs through the stages in this process, undisturbed, and all that it leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from ops.chaos import collect
from ops.chaos.found import Found, Record
from ops.chaos.lines import Line
from ops.chaos.model import likes_found
from ops.chaos.talk import Talk
from processors.intake import Intake
from processors.noise import NoiseFilter
from processors.ports import ChatReply
from processors.resolution.similarity import Nearest
from processors.rules import RuleBook
from schemas import MemoryUpdated
from sinks.truth import Truth
from sinks.truth.outbox import Outgoing
from sinks.vectors import VectorStore
from sinks.vectors.collection import OneCollection
from streams.clock import BatchClock
from streams.delivery import Delivery
from streams.gating import make_gate
from streams.metrics import Metrics
from streams.projection import VectorProjection
from streams.runtime import batch_limits
from streams.sealing import make_sealer
from streams.settings import Settings
from streams.stages.bury import BuryStage
from streams.stages.extract import ExtractStage, ModelChannel
from streams.stages.ingest import IngestStage
from streams.stages.resolve import ResolveStage
from streams.vectors import comparison, open_embedder
from tests.doubles.log import Broker, Stream, message
from tests.doubles.model_replies import answer


class _Outflow:
    """Vectors, then the list that stands for a broker."""

    def __init__(self, broker: Broker, projection: VectorProjection) -> None:
        self._broker = broker
        self._projection = projection

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        events = [item.payload for item in messages if item.topic == "memory_updated" and item.payload is not None]
        self._projection.write([MemoryUpdated.from_bytes(event).memory for event in events])
        await self._broker.publish(messages)


class _Model:
    """Answers as the server of a chaos run does."""

    name = "double-1"

    async def complete(self, system: str, user: str, *, max_tokens: int) -> ChatReply:
        return ChatReply(
            text=answer(likes_found(user)), finish_reason="stop", model=self.name, prompt_tokens=1, completion_tokens=1
        )


class Undisturbed:
    """Runs lines; `run` as often as there are more of them. `found` is all that is left, in the form of a chaos run."""

    def __init__(self, truth: Truth, store: VectorStore, settings: Settings) -> None:
        self.broker = Broker()
        self.lines: list[Line] = []
        self._truth = truth
        self._store = store
        self._settings = settings

    async def run(self, lines: Sequence[Line]) -> None:
        """Produce these and let every stage finish."""
        self.lines += lines
        await self.broker.publish([Outgoing(line.topic, line.key, line.key, line.raw) for line in lines])
        settings, metrics = self._settings, Metrics()

        def fatal(reason: str) -> None:
            raise AssertionError(reason)

        with ThreadPoolExecutor(1) as executor:
            embedder = open_embedder(settings)
            delivery = Delivery(
                self._truth,
                _Outflow(self.broker, VectorProjection(OneCollection(self._store, embedder))),
                executor,
                metrics,
                now=lambda: datetime.now(UTC),
                linger_seconds=0.0,
                on_fatal=fatal,
            )
            gate, limits = make_gate(settings), batch_limits(settings)
            nearest = Nearest(comparison(embedder))
            intake = Intake(RuleBook.load(), NoiseFilter.load(), gate)
            await delivery.run(
                self._stream("ingest", "turns"), IngestStage(intake, limits, metrics, make_sealer(settings))
            )
            while await BatchClock(delivery, limits, metrics).close_due(everything=True):
                continue
            channel = ModelChannel(_Model(), lambda _reply: 0.0)
            extract = ExtractStage(self._truth, delivery, gate, metrics, channel, attempts=5)
            await delivery.run_many(self._stream("extract", "batches"), extract.name, extract.handle, size=16, flying=4)
            for topic in ("candidates", "commands"):
                stage: Any = ResolveStage(topic, nearest, metrics)
                await delivery.run(self._stream("resolve", topic), stage)
            await delivery.run(self._stream("bury", "deadletters"), BuryStage())
            await delivery.settle()

    def found(self) -> Found:
        """What a chaos run would read."""
        found = Found()
        for topic in ("turns", "commands"):
            rows = self.broker.topics[topic]
            placed = [(f"{topic}:0:{offset}", row.payload or b"") for offset, row in enumerate(rows)]
            found.log += [(place, raw) for place, raw in placed if collect.is_ours(raw)]
        turn_keys = {line.turn_key for line in self.lines if line.is_turn}
        commands = {line.command_id for line in self.lines if line.command_id}
        collect.from_truth(found, self._truth, turn_keys=turn_keys, commands=commands)
        copies = [row.payload or b"" for row in self.broker.topics["turns.sealed"]]
        collect.from_sealed(found, copies, self._truth, make_sealer(self._settings).data_keys)
        collect.from_vectors(found, self._store)
        found.events = [
            Record(0, offset, row.key, row.payload) for offset, row in enumerate(self.broker.topics["memory_updated"])
        ]
        held: dict[str, tuple[int, str]] = {}
        for record in found.events:
            if record.raw is None:
                held.pop(record.key, None)
            else:
                memory = MemoryUpdated.from_bytes(record.raw).memory
                held[memory.id] = (memory.version, memory.status.value)
        found.held = held
        found.letters_sent = Counter(row.key for row in self.broker.topics["deadletters"])
        return found

    def _stream(self, group: str, topic: str) -> Stream:
        start = self.broker.committed[group, topic]
        rows = self.broker.topics[topic][start:]

        def acknowledge(item: Any) -> None:
            self.broker.committed[group, topic] = item.offset + 1

        return Stream(
            [message(start + number, row.payload, topic=topic) for number, row in enumerate(rows)], on_ack=acknowledge
        )


def conversation(seed: int, people: int, messages: int) -> list[Line]:
    """A log as the load makes it, with orders about memories as if each were visible at once."""
    talk = Talk(seed, people, visible=lambda _id: True, acknowledged=lambda _line: True)
    lines: list[Line] = []
    while len(lines) < messages:
        lines += talk.next()
    return [*lines, *talk.closing()]
