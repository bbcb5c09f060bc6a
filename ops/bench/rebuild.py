"""Benchmarks, rebuild: a collection from truth, as `memriver reindex start` does it, without what a model takes (SPEC L5).

Vectors are taken from a small stock by the text's checksum. Truth is SQLite, the store Qdrant Edge, in this process or,
`apart`, behind `memriver vectors serve`: then the memory is the builder's own, and the store grows elsewhere. The clock includes
the reading, the cutting into words, the writing, and the comparison with truth at the end.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ops.dev.services import VectorServer
from processors.keywords import sparse
from schemas import Status, digest, new_id
from sinks.truth import Truth, collections, make_engine, tables
from sinks.truth.collections import CollectionRow, Source
from sinks.truth.migrate import upgrade
from sinks.truth.sql import insert_rows
from sinks.vectors import collection_name, open_vectors
from sinks.vectors.collections import Collections
from streams.reindex.work import Reindexer
from streams.runtime import wall_clock
from streams.settings import Settings

DIMENSION = 384
_STOCK = 997
_CHUNK = 5_000
_START = datetime(2026, 1, 5, tzinfo=UTC)
_SAYINGS = (
    ("residence", "en", "I live near the {a} in {b} and walk to work"),
    ("allergy", "zh", "我对{a}过敏，在{b}吃饭的时候要特别小心"),
    ("preference", "zh", "周末我喜欢和朋友去{b}看{a}"),
    ("event", "en", "Last spring we went to {b} for the {a} and stayed a week"),
    ("note", "en", "The {a} is kept in the cupboard next to the {b} tickets"),
    ("project", "zh", "这个季度的{a}项目由{b}的同事负责，每周五开会"),
)
_WORDS = (
    "chess",
    "围棋",
    "opera",
    "摄影",
    "sailing",
    "书法",
    "garden",
    "机场",
    "kayak",
    "花生",
    "Leeds",
    "杭州",
    "Oslo",
)


class _Stock:
    """An embedder that has its vectors already."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.dimension = DIMENSION
        rows = np.random.default_rng(7).standard_normal((_STOCK, DIMENSION))
        self._vectors: list[list[float]] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).tolist()

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self._vectors[zlib.crc32(text.encode()) % _STOCK]


class _Tenths:
    """Resident memory of this process whenever another tenth of the build is done."""

    def __init__(self, truth: Truth, name: str, size: int) -> None:
        self._truth, self._name, self._size = truth, name, size
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._process = psutil.Process()
        self.own_mb: list[int] = []
        self.resident_mb: list[int] = []
        self.scanned_at: float | None = None

    def __enter__(self) -> _Tenths:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            row = self._row()
            if row.done >= len(self.own_mb) * self._size / 10:
                memory = self._process.memory_full_info()
                # What is mapped from the store's files is the kernel's to take back; what is our own is not.
                self.own_mb.append((memory.rss - memory.shared) // 2**20)
                self.resident_mb.append(memory.rss // 2**20)
            if self.scanned_at is None and row.done >= self._size:
                self.scanned_at = time.perf_counter()

    def _row(self) -> CollectionRow:
        with self._truth.reading() as connection:
            row = collections.get(connection, self._name)
        assert row is not None
        return row


def rebuild(size: int = 100_000, *, apart: bool = False) -> dict[str, Any]:
    """Memories a second, on the clock and of this process's processor time, and memory in MB at each tenth."""
    # A worker has the segmenter's dictionary loaded long before.
    sparse("预热")
    with (
        tempfile.TemporaryDirectory(prefix="memriver-bench-") as scratch,
        VectorServer() if apart else nullcontext() as server,
    ):
        store = server.url if server else f"edge:{Path(scratch) / 'vectors'}"
        url = f"sqlite:///{Path(scratch) / 'truth.db'}"
        upgrade(url)
        truth = Truth(make_engine(url))
        embedders = {name: _Stock(name) for name in ("old", "new")}
        opened = Collections(
            truth,
            lambda model, dimension: open_vectors(store, prefix="memories", model=model, dimension=dimension),
            embedders.__getitem__,
        )
        try:
            _fill(truth, size)
            return _measured(truth, opened, size)
        finally:
            opened.close()
            truth.close()


def _measured(truth: Truth, opened: Collections, size: int) -> dict[str, Any]:
    now = wall_clock()
    old, new = (collection_name("memories", model, DIMENSION) for model in ("old", "new"))
    truth.run(lambda connection: collections.register_live(connection, old, "old", "old", DIMENSION, now))
    truth.run(
        lambda connection: collections.request_build(
            connection, new, "new", "new", DIMENSION, source=Source.TRUTH, rate=None, now=now
        )
    )
    work = Reindexer(Settings(_env_file=None), truth, opened, now=wall_clock, halt=threading.Event())
    started, worked = time.perf_counter(), time.process_time()
    with _Tenths(truth, new, size) as tenths:
        work.step()
    seconds, worked = time.perf_counter() - started, time.process_time() - worked
    with opened.every() as every:
        points = next(it.store.total() for it in every if it.name == new)
    scanned = (tenths.scanned_at or time.perf_counter()) - started
    return {
        "memories": size,
        "points": points,
        "seconds": round(seconds, 1),
        "per_second": round(size / seconds),
        "per_second_without_the_comparison": round(size / scanned),
        # What it would be if no other program wanted this process's core.
        "per_second_of_processor_time": round(size / worked),
        "own_mb_at_tenths": tenths.own_mb,
        "resident_mb_at_tenths": tenths.resident_mb,
        "load": [round(value, 1) for value in os.getloadavg()],
    }


def _fill(truth: Truth, size: int) -> None:
    rows = _rows(size)
    while chunk := list(islice(rows, _CHUNK)):
        truth.run(lambda connection, chunk=chunk: insert_rows(connection, tables.memories, chunk))


def _rows(size: int) -> Iterator[dict[str, Any]]:
    """Rows as they are in truth, but without the whole contract in `body`, which a rebuild does not read."""
    rng = random.Random(7)
    statuses = (Status.ACTIVE,) * 7 + (Status.SUPERSEDED, Status.ARCHIVED, Status.EXPIRED)
    for number in range(size):
        owner = f"person-{number // 100}"
        attribute, language, saying = _SAYINGS[number % len(_SAYINGS)]
        value = rng.choice(_WORDS)
        said = _START + timedelta(minutes=number % 500_000)
        key = digest("bench", "user", owner)
        yield {
            "id": new_id("rebuild", str(number)),
            "owner_key": key,
            "slot_key": key,
            "cell_key": key,
            "tenant": "bench",
            "owner_kind": "user",
            "owner": owner,
            "namespace": f"user/{owner}/profile",
            "type": "semantic",
            "category": "fact",
            "subject": "user",
            "attribute": attribute,
            "value": value,
            "text": saying.format(a=value, b=rng.choice(_WORDS)) + f" ({number})",
            "language": language,
            "status": rng.choice(statuses).value,
            "version": rng.choice((1, 1, 1, 2, 3)),
            "confidence": 0.9,
            "sensitivity": "normal",
            "valid_from": said,
            "valid_to": None,
            "first_stated_at": said,
            "last_stated_at": said,
            "timezone": "UTC",
            "expires_at": None,
            "superseded_by": None,
            "evidence_count": 1,
            "body": "{}",
        }
