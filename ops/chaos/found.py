"""Chaos, the evidence: everything that a run left, as plain data; the verifier reads this and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A memory in truth."""

    status: str
    version: int
    value: str
    evidence: int


@dataclass(frozen=True, slots=True)
class Record:
    """A message of the event topic; `raw` None is a tombstone."""

    partition: int
    offset: int
    key: str
    raw: bytes | None


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter in truth."""

    identity: str
    stage: str
    reason: str
    place: str


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: its status and the turns it holds."""

    identity: str
    status: str
    turn_keys: tuple[str, ...]


@dataclass(slots=True)
class Found:
    """What is left.

    `log`: (place, bytes) of every message on `turns` and `commands`. `outcomes`: rows of truth by turn key; `looked_up` is what
    the look-up answers. `sealed`: the turns on the sealed log, opened. `points`, `held`: (version, status) in the vector store
    and in a client's replica. `letters_sent`: ids on the dead-letter topic, as often as they are there. `sessions`: (turn id,
    text) by conversation, as said; `turn_counts` and `pending` are the conversations' own counters. `claims`: how many the
    ledger holds by turn key.
    """

    log: list[tuple[str, bytes]] = field(default_factory=list)
    outcomes: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    looked_up: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    sealed: list[bytes] = field(default_factory=list)
    commands: dict[str, str] = field(default_factory=dict)
    memories: dict[str, MemoryRow] = field(default_factory=dict)
    versions: dict[str, list[int]] = field(default_factory=dict)
    points: dict[str, tuple[int, str]] = field(default_factory=dict)
    events: list[Record] = field(default_factory=list)
    held: dict[str, tuple[int, str]] = field(default_factory=dict)
    conflicts: int = 0
    letters: list[Letter] = field(default_factory=list)
    letters_sent: Counter[str] = field(default_factory=Counter)
    sessions: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    turn_counts: dict[str, int] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    claims: Counter[str] = field(default_factory=Counter)
    outbox: int = 0
