"""Tests, doubles: a deployment that memories leave and enter: truth, the resolver, and a broker that hands over at once."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import select

from processors.access import OwnerRef
from processors.policy import PolicyGate, PolicySettings
from processors.resolution.similarity import Nearest
from schemas import Candidate, Command, CommandKind, Memory, MemoryUpdated, OwnerKind, Status, new_id
from schemas.portable import COUNTED, LINES, ExportHeader, ExportTrailer
from sinks.truth import Truth, memories
from sinks.truth.outbox import Outgoing
from sinks.truth.tables import metadata
from streams.delivery import Delivered, Message
from streams.metrics import Metrics
from streams.portability.importing import Import
from streams.portability.signing import Signer
from streams.portability.writing import export_lines, sealed
from streams.stages.resolve import ResolveStage

ANN = OwnerRef(OwnerKind.USER, "ann")
KEY = "a key for tests, 32 bytes of it.."
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class Traveller:
    """One deployment. `secret` is its hash key."""

    def __init__(self, truth: Truth, secret: str = KEY) -> None:
        self.truth = truth
        self.signer = Signer(secret)
        self.gate = PolicyGate(PolicySettings(), secret.encode())
        self.events: list[MemoryUpdated] = []
        self.letters: list[Outgoing] = []
        self.turns: list[Outgoing] = []
        nearest = Nearest(lambda text, others: [float(text[:12] == other[:12]) for other in others])
        self._stages = {name: ResolveStage(name, nearest, Metrics(), behind=1) for name in ("candidates", "commands")}
        self._offset = itertools.count()
        self._now = NOON

    def hear(self, *claims: Candidate) -> None:
        """The pipeline made these."""
        self.take(Outgoing("candidates", item.owner_key, item.owner_key, item.to_bytes()) for item in claims)

    def order(self, kind: CommandKind, memory: Memory | None = None, **fields: Any) -> Command:
        """Somebody ordered this; returns the command."""
        number = next(self._offset)
        given: dict[str, Any] = {
            "command_id": new_id("order", str(number)),
            "kind": kind,
            "tenant": "acme",
            "owner": "ann",
            "issued_by": "person:ann",
            "issued_at": NOON + timedelta(minutes=number),
            "memory_id": memory.id if memory is not None else None,
        }
        command = Command.model_validate(given | fields)
        self.take([Outgoing("commands", command.owner_key, command.owner_key, command.to_bytes())])
        return command

    def take(self, messages: Iterable[Outgoing]) -> None:
        """Everything goes through the resolver, in groups as they come."""
        for topic, group in itertools.groupby(messages, lambda message: message.topic):
            rows = list(group)
            if topic == "turns":
                self.turns += rows
                continue
            stage = self._stages[topic]
            delivered = []
            for row in rows:
                message = Message(topic, 0, next(self._offset), row.key.encode(), row.payload, 0.0)
                delivered.append(Delivered(message, stage.prepare(message)))
            self._now += timedelta(seconds=1)
            now = self._now

            def work(connection: Any, stage: Any = stage, delivered: Any = delivered, now: Any = now) -> list[Outgoing]:
                found: list[Outgoing] = stage.commit(connection, delivered, now)
                return found

            out = self.truth.run(work)
            self.letters += [item for item in out if item.topic == "deadletters"]
            self.events += [
                MemoryUpdated.from_bytes(item.payload)
                for item in out
                if item.topic == "memory_updated" and item.payload is not None
            ]

    def export(self, path: Path, owner: OwnerRef = ANN, *, tenant: str = "acme", with_turns: bool = False) -> Path:
        """To a file."""
        lines = export_lines(self.truth, tenant, owner, with_turns=with_turns, signer=self.signer, now=NOON)
        path.write_bytes(b"".join(lines))
        return path

    def importing(self, path: Path, **given: Any) -> Import:
        """Looked at, not sent."""
        options: dict[str, Any] = {"tenant": "acme", "as_owner": None, "origin": None, "now": NOON, "by": "operator"}
        return Import(path, gate=self.gate, signer=self.signer, **(options | given))

    def adopt(self, path: Path, **given: Any) -> Import:
        """Imported."""
        done = self.importing(path, **given)
        self.take(done.messages())
        return done

    def held(self, owner: str = "ann", status: Status | None = None) -> list[Memory]:
        """What truth has of somebody."""
        with self.truth.reading() as connection:
            return memories.listing(connection, owner=owner, status=status)

    def everything(self) -> dict[str, list[str]]:
        """Every row of every table but the inbox, which grows by what was found to be known."""
        with self.truth.reading() as connection:
            return {
                table.name: sorted(map(repr, connection.execute(select(table)).all()))
                for table in metadata.sorted_tables
                if table.name != "inbox"
            }


def content(path: Path) -> list[bytes]:
    """The lines between header and trailer."""
    return path.read_bytes().splitlines()[1:-1]


def forged(path: Path, change: Callable[[list[dict[str, Any]]], None], signer: Signer | None = None) -> Path:
    """The export after `change`, with every checksum made anew; signed by `signer`, or by nobody."""
    rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    change(rows)
    body = [row for row in rows if row["kind"] not in ("header", "trailer")]
    counts = {kind: sum(row["kind"] == kind for row in body) for kind in COUNTED}
    header = ExportHeader.from_dict(rows[0] | {"counts": counts})
    raw = [sealed(header), *(sealed(LINES[row["kind"]].from_dict(row)) for row in body)]
    sha256 = hashlib.sha256(b"".join(raw)).hexdigest()
    signed = {"key_id": signer.key_id, "signature": signer.sign(sha256)} if signer is not None else {}
    made = path.with_name(f"forged-{path.name}")
    made.write_bytes(b"".join([*raw, sealed(ExportTrailer(counts=counts, sha256=sha256, **signed))]))
    return made
