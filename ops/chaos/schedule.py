"""Chaos, the plan: which fault begins when, drawn from a seed; a deck of all kinds, shuffled, again and again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """What is done, and to whom."""

    KILL = "worker: SIGKILL"
    TERM = "worker: SIGTERM"
    ZOMBIE = "worker: SIGSTOP longer than its session, then SIGCONT"
    ZOMBIE_SENDING = "worker: SIGSTOP between commit and publication, then SIGCONT"
    JOIN = "a fourth worker joins and leaves"
    BROKER_STOP = "broker: stopped and started"
    BROKER_KILL = "broker: SIGKILL and started"
    BROKER_FREEZE = "broker: stands still, as on a slow disk"
    DATABASE_STOP = "database: stopped and started"
    DATABASE_KILL = "database: SIGKILL and started"
    DATABASE_FREEZE = "database: stands still, as on a slow disk"
    DATABASE_SLOW = "database: each answer late"
    DATABASE_CUT = "database: every connection reset"
    DATABASE_LOCK = "database: every owner's row locked by somebody else"
    VECTORS_KILL = "vector server: SIGKILL and started"
    VECTORS_REFUSE = "vector server: refuses connections"
    VECTORS_SLOW = "vector server: each answer late"
    VECTORS_CUT = "vector server: every connection reset"
    MODEL_LIMITS = "model: 429"
    MODEL_FAILS = "model: 500"
    MODEL_HANGS = "model: no answer"
    MODEL_RESETS = "model: connection reset"


DECK: tuple[FaultKind, ...] = (
    *FaultKind,
    *(FaultKind.KILL, FaultKind.KILL, FaultKind.TERM, FaultKind.ZOMBIE, FaultKind.ZOMBIE_SENDING),
)
_SECONDS: dict[FaultKind, tuple[float, float]] = {
    # Longer than the session time-out of the workers, so that their partitions move.
    FaultKind.ZOMBIE: (6.0, 11.0),
    FaultKind.ZOMBIE_SENDING: (6.0, 11.0),
    FaultKind.JOIN: (6.0, 12.0),
    FaultKind.BROKER_STOP: (0.5, 5.0),
    FaultKind.BROKER_KILL: (0.5, 4.0),
    FaultKind.BROKER_FREEZE: (2.0, 6.0),
    FaultKind.DATABASE_STOP: (0.5, 5.0),
    FaultKind.DATABASE_KILL: (0.5, 4.0),
    FaultKind.DATABASE_FREEZE: (2.0, 6.0),
    FaultKind.DATABASE_SLOW: (4.0, 8.0),
    FaultKind.DATABASE_LOCK: (2.0, 6.0),
    FaultKind.VECTORS_KILL: (0.5, 4.0),
    FaultKind.VECTORS_REFUSE: (1.0, 5.0),
    FaultKind.VECTORS_SLOW: (3.0, 8.0),
    FaultKind.MODEL_LIMITS: (3.0, 8.0),
    FaultKind.MODEL_FAILS: (3.0, 8.0),
    FaultKind.MODEL_HANGS: (3.0, 8.0),
    FaultKind.MODEL_RESETS: (3.0, 8.0),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: seconds after the start of the load, how long it lasts, and which of the workers it hits."""

    at: float
    kind: FaultKind
    seconds: float
    worker: int


def schedule(seed: int, seconds: float, workers: int, *, pause: tuple[float, float] = (1.0, 4.0)) -> Iterator[Fault]:
    """Faults of a run, in order. Those that follow each other overlap if they last longer than the pause between them."""
    rng = random.Random(seed)
    deck: list[FaultKind] = []
    at = rng.uniform(*pause)
    while at < seconds:
        if not deck:
            deck = list(DECK)
            rng.shuffle(deck)
        kind = deck.pop()
        yield Fault(round(at, 1), kind, round(rng.uniform(*_SECONDS.get(kind, (0.0, 0.0))), 1), rng.randrange(workers))
        at += rng.uniform(*pause)
