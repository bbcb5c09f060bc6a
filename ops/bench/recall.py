"""Bench, recall: percentiles without embedding, at growing numbers of memories, on SQLite and Qdrant Edge.

The questions' vectors are made before the clock starts, and each question is about another owner than the one before.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from processors.access import Grant, OwnerRef, Principal, PrincipalKind, Reach, Scope, authorise_all
from processors.policy import PolicyGate, PolicySettings
from recall.request import RecallRequest
from recall.screening import TurnScreen
from recall.service import RecallService
from schemas import (
    Audit,
    Cardinality,
    Category,
    Interval,
    Memory,
    MemoryType,
    OwnerKind,
    Sensitivity,
    SourceKind,
    Status,
    new_id,
)
from sinks.embedders import CachedEmbedder, make_embedder
from sinks.truth import Truth, make_engine, memories
from sinks.truth.migrate import upgrade
from sinks.vectors import open_vectors
from sinks.vectors.collection import OneCollection
from streams.projection import VectorProjection

_NOW = datetime(2026, 6, 1, tzinfo=UTC)
_CHUNK = 2_000
_WARMING = 50
"""Questions that are not counted: the first ones load dictionaries and open files."""
R = TypeVar("R")
_SAYINGS = (
    ("likes", "preference", "I like {thing} very much", "en"),
    ("dislikes", "preference", "I cannot stand {thing}", "en"),
    ("event", "event", "I went to {place} to see {thing}", "en"),
    ("event", "event", "我上周去{place}看了{thing}", "zh"),
    ("residence", "fact", "I live in {place}", "en"),
    ("skill", "fact", "我会{thing}", "zh"),
    ("note", "note", "the {thing} is kept in {place}", "en"),
    ("plan", "event", "我打算明年去{place}学{thing}", "zh"),
)
_THINGS = (
    "tennis",
    "jazz",
    "陶艺",
    "chess",
    "hiking",
    "摄影",
    "opera",
    "书法",
    "sailing",
    "cooking",
    "围棋",
    "gardening",
)
_PLACES = ("Leeds", "成都", "Lisbon", "杭州", "Oslo", "厦门", "Kyoto", "Turin", "青岛", "Quito")
_WITH = (
    "Ann",
    "Bo",
    "小李",
    "my sister",
    "the team",
    "王芳",
    "Carla",
    "nobody",
    "我妈妈",
    "Dmitri",
    "the neighbours",
    "老张",
)
_WHY = (
    "for fun",
    "since spring",
    "on Sundays",
    "每周",
    "again",
    "at last",
    "因为朋友",
    "as always",
    "with care",
    "去年",
)
_ASKED = (
    "Where do I live?",
    "what do I like",
    "我上次去哪里看了{thing}？",
    "tell me about {thing}",
    "Where is the {thing} kept?",
    "我打算去{place}做什么",
)


SIZES = (1_000, 10_000, 100_000)


def recall(sizes: Sequence[int] = SIZES, *, per_owner: int = 100, questions: int = 1_000) -> dict[str, Any]:
    """Milliseconds at p50, p95 and p99 per number of memories, and the resident memory of the process that answers, in MB.

    Each size is filled by one process and asked by another, as a service is that was just started; so its memory is its own.
    """
    found = {}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="memriver-bench-") as scratch:
            _apart(_filled, Path(scratch), size, per_owner)
            found[str(size)] = _apart(_asked, Path(scratch), size, per_owner, questions)
    return found


def _apart(work: Callable[..., R], *arguments: Any) -> R:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


@contextmanager
def _opened(scratch: Path, cached: int = 1) -> Iterator[tuple[Truth, OneCollection]]:
    embedder = CachedEmbedder(make_embedder("hashing"), cached)
    truth = Truth(make_engine(f"sqlite:///{scratch / 'truth.db'}"))
    store = open_vectors(
        f"edge:{scratch / 'vectors'}", prefix="memories", model=embedder.model, dimension=embedder.dimension
    )
    store.ensure()
    try:
        yield truth, OneCollection(store, embedder)
    finally:
        store.close()
        truth.close()


def _filled(scratch: Path, size: int, per_owner: int) -> None:
    upgrade(f"sqlite:///{scratch / 'truth.db'}")
    with _opened(scratch) as (truth, collection):
        _fill(truth, VectorProjection(collection), _owners(size, per_owner), size)


def _owners(size: int, per_owner: int) -> list[str]:
    return [f"person-{number}" for number in range(max(1, size // per_owner))]


def _asked(scratch: Path, size: int, per_owner: int, questions: int) -> dict[str, Any]:
    owners, rng = _owners(size, per_owner), random.Random(size)
    asked = [
        (rng.choice(owners), rng.choice(_ASKED).format(thing=rng.choice(_THINGS), place=rng.choice(_PLACES)))
        for _ in range(questions + _WARMING)
    ]
    with _opened(scratch, len(asked)) as (truth, collection):
        service = RecallService(truth, collection, screen=TurnScreen(PolicyGate(PolicySettings(), b"bench-of-recall!")))
        with collection.live() as live:
            for _, query in asked:
                live.embedder.embed_query(query)  # from the cache later: the model is not what is measured
        spent: list[float] = []
        worked: list[float] = []
        answered: list[bool] = []
        for number, (owner, query) in enumerate(asked):
            if number == _WARMING:
                # As the service does before it says that it is ready (`streams.serving`).
                gc.collect()
                gc.freeze()
            request = RecallRequest(_reach(owner), query, _NOW)
            start, worked_before = time.perf_counter(), time.thread_time()
            result = service.recall(request)
            spent.append((time.perf_counter() - start) * 1_000)
            worked.append((time.thread_time() - worked_before) * 1_000)
            answered.append(bool(result.items))
        p50, p95, p99 = (round(float(value), 2) for value in np.percentile(spent[_WARMING:], [50, 95, 99]))
        return {
            "memories": size,
            "owners": len(owners),
            "questions": questions,
            "answered": sum(answered[_WARMING:]),
            "p50_ms": p50,
            "p95_ms": p95,
            "p99_ms": p99,
            # Without waiting for a core that other programs have, and without the engine's own threads.
            "cpu_p50_ms": round(float(np.percentile(worked[_WARMING:], 50)), 2),
            "cpu_p99_ms": round(float(np.percentile(worked[_WARMING:], 99)), 2),
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024,
        }


def _fill(truth: Truth, projection: VectorProjection, owners: Sequence[str], size: int) -> None:
    chunk: list[Memory] = []
    for memory in _memories(owners, size):
        chunk.append(memory)
        if len(chunk) == _CHUNK:
            _write(truth, projection, chunk)
            chunk = []
    if chunk:
        _write(truth, projection, chunk)


def _write(truth: Truth, projection: VectorProjection, chunk: list[Memory]) -> None:
    rows = [(memory, memory.id[:32], memory.id[:32]) for memory in chunk]
    truth.run(lambda connection: memories.save(connection, rows))
    projection.write(chunk)


def _memories(owners: Sequence[str], size: int) -> Iterator[Memory]:
    rng = random.Random(7)
    for number in range(size):
        owner = owners[number % len(owners)]
        attribute, category, saying, language = rng.choice(_SAYINGS)
        # Words come again from sentence to sentence, as they do in speech; whole sentences seldom.
        text = f"{saying.format(thing=rng.choice(_THINGS), place=rng.choice(_PLACES))} {rng.choice(_WITH)} {rng.choice(_WHY)}"
        said = _NOW - timedelta(days=rng.random() * 300)
        yield Memory(
            id=new_id("bench", str(number)),
            tenant="bench",
            owner=owner,
            namespace=f"user/{owner}/profile",
            type=MemoryType.EPISODIC if category == "event" else MemoryType.SEMANTIC,
            category=Category(category),
            subject="user",
            attribute=attribute,
            value=text,
            cardinality=Cardinality.MULTI,
            text=text,
            language=language,
            status=Status.ACTIVE,
            version=1,
            confidence=0.9,
            sensitivity=Sensitivity.NORMAL,
            source_kind=SourceKind.USER_STATEMENT,
            intervals=(Interval(start=said),),
            first_stated_at=said,
            last_stated_at=said,
            audit=Audit(writer="bench", decision="accept", policy_version="1"),
        )


def _reach(owner: str) -> tuple[Reach, ...]:
    ref = OwnerRef(OwnerKind.USER, owner)
    principal = Principal(
        "bench", PrincipalKind.AGENT, "bench", "", frozenset({Scope.READ}), (Grant(OwnerKind.USER, owner),)
    )
    return authorise_all(principal, Scope.READ, [ref], _NOW)
