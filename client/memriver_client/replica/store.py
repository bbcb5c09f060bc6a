"""Replica, store: what a replica keeps over a restart, and the two stores that come with it."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from memriver_client.model import Memory, parse_time
from memriver_client.owners import Owner
from memriver_client.replica.state import Entry, Place

Rival = tuple[str, int, str]
"""A conflict that was reported: memory id, version, digest of the content that was not applied."""


@dataclass(frozen=True)
class Kept:
    """A state, or the changes since the last save; an entry of None is to be removed.

    `positions`: the next offset to read, per partition. `saved_at`: when the log was last known to be followed.
    """

    saved_at: datetime
    entries: Mapping[str, Entry | None] = field(default_factory=dict)
    positions: Mapping[int, int] = field(default_factory=dict)
    sequences: Mapping[Owner, int] = field(default_factory=dict)
    reported: frozenset[Rival] = frozenset()


class Store(Protocol):
    """Keeps a replica. Called from one thread at a time, not always the same one."""

    def load(self, fingerprint: str) -> Kept | None:
        """What was saved under this fingerprint. Anything saved under another one is removed, and the answer is None."""
        ...

    def save(self, fingerprint: str, changes: Kept) -> None:
        """Add the changes, all or nothing: a position must never get ahead of the entries it stands for."""
        ...

    def clear(self) -> None:
        """Remove everything."""
        ...

    def close(self) -> None:
        """Release files; the store is not used afterwards."""
        ...


class MemoryStore:
    """Keeps the state in this process: a replica that is stopped and started again goes on where it was."""

    def __init__(self) -> None:
        self._fingerprint: str | None = None
        self._kept: Kept | None = None

    def load(self, fingerprint: str) -> Kept | None:
        """See `Store`."""
        if fingerprint != self._fingerprint:
            self.clear()
        return self._kept

    def save(self, fingerprint: str, changes: Kept) -> None:
        """See `Store`."""
        old = self._kept if self._kept is not None and fingerprint == self._fingerprint else Kept(changes.saved_at)
        entries = {**old.entries, **changes.entries}
        self._fingerprint = fingerprint
        self._kept = Kept(
            saved_at=changes.saved_at,
            entries={memory_id: entry for memory_id, entry in entries.items() if entry is not None},
            positions={**old.positions, **changes.positions},
            sequences={**old.sequences, **changes.sequences},
            reported=old.reported | changes.reported,
        )

    def clear(self) -> None:
        """See `Store`."""
        self._fingerprint = self._kept = None

    def close(self) -> None:
        """Nothing to release."""


_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS entries (
    id TEXT PRIMARY KEY, version INTEGER NOT NULL, as_of TEXT NOT NULL, certain INTEGER NOT NULL, digest TEXT,
    partition INTEGER, "offset" INTEGER, logged INTEGER NOT NULL, logged_end INTEGER NOT NULL,
    owner_kind TEXT, owner TEXT, memory TEXT);
CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, "offset" INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS sequences (kind TEXT, owner TEXT, last INTEGER NOT NULL, PRIMARY KEY (kind, owner));
CREATE TABLE IF NOT EXISTS reported (id TEXT, version INTEGER, digest TEXT, PRIMARY KEY (id, version, digest));
"""
_NAMES = ("meta", "entries", "positions", "sequences", "reported")


class SqliteStore:
    """Keeps the state in one SQLite file. It holds what people told their agents: readable by this user only."""

    def __init__(self, path: str | Path) -> None:
        """Opens or makes the file. Raises sqlite3.Error or OSError where it cannot."""
        file = Path(path)
        file.touch(mode=0o600, exist_ok=True)
        self._lock = threading.Lock()
        self._database = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        # Erased text must leave the file too: overwritten in place, and no write-ahead log that still has it.
        for pragma in ("journal_mode=TRUNCATE", "secure_delete=ON", "synchronous=NORMAL"):
            self._database.execute(f"PRAGMA {pragma}").fetchall()
        self._database.executescript(_TABLES)

    def load(self, fingerprint: str) -> Kept | None:
        """See `Store`."""
        with self._lock:
            meta: dict[str, str] = dict(self._database.execute("SELECT name, value FROM meta"))
            if meta.get("fingerprint") == fingerprint:
                return Kept(
                    saved_at=parse_time(meta["saved_at"]),
                    entries={row[0]: _entry(row[1:]) for row in self._database.execute("SELECT * FROM entries")},
                    positions=dict(self._database.execute('SELECT partition, "offset" FROM positions')),
                    sequences={
                        Owner(kind, owner): last
                        for kind, owner, last in self._database.execute("SELECT kind, owner, last FROM sequences")
                    },
                    reported=frozenset(self._database.execute("SELECT id, version, digest FROM reported")),
                )
        self.clear()
        return None

    def save(self, fingerprint: str, changes: Kept) -> None:
        """See `Store`."""
        meta = [("fingerprint", fingerprint), ("saved_at", changes.saved_at.isoformat())]
        gone = [(memory_id,) for memory_id, entry in changes.entries.items() if entry is None]
        kept = [(memory_id, *_row(entry)) for memory_id, entry in changes.entries.items() if entry is not None]
        with self._lock, self._database as database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("DELETE FROM entries WHERE id = ?", gone)
            database.executemany(f"INSERT OR REPLACE INTO entries VALUES ({','.join('?' * 12)})", kept)
            database.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?)", changes.positions.items())
            database.executemany(
                "INSERT OR REPLACE INTO sequences VALUES (?, ?, ?)",
                [(*owner, last) for owner, last in changes.sequences.items()],
            )
            database.executemany("INSERT OR IGNORE INTO reported VALUES (?, ?, ?)", changes.reported)
            database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta)

    def clear(self) -> None:
        """See `Store`."""
        with self._lock, self._database as database:
            database.execute("BEGIN IMMEDIATE")
            for name in _NAMES:
                database.execute(f"DELETE FROM {name}")

    def close(self) -> None:
        """See `Store`."""
        with self._lock:
            self._database.close()


def _row(entry: Entry) -> tuple[object, ...]:
    place, owner = entry.place or (None, None), entry.owner or (None, None)
    raw = None if entry.memory is None else json.dumps(entry.memory.raw)
    return (
        entry.version,
        entry.as_of.isoformat(),
        entry.certain,
        entry.digest,
        *place,
        entry.logged,
        entry.logged_end,
        *owner,
        raw,
    )


def _entry(row: tuple[object, ...]) -> Entry:
    version, as_of, certain, digest, partition, offset, logged, logged_end, kind, owner, raw = row
    return Entry(
        version=int(str(version)),
        memory=None if raw is None else Memory.from_dict(json.loads(str(raw))),
        as_of=parse_time(str(as_of)),
        digest=None if digest is None else str(digest),
        certain=bool(certain),
        place=None if partition is None else Place(int(str(partition)), int(str(offset))),
        logged=int(str(logged)),
        logged_end=bool(logged_end),
        owner=None if kind is None else Owner(str(kind), str(owner)),
    )
