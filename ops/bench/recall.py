"""Bench, recall: percentiles without embedding, at growing numbers of memories, on SQLite and Qdrant Edge.

The questions' vectors are made before the clock starts, and each question is about another owner than the one before.
"""

from __future__ import annotations

import random
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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
from sinks.vectors.collections import OneCollection
from streams.projection import VectorProjection

_NOW = datetime(2026, 6, 1, tzinfo=UTC)
_CHUNK = 2_000
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


def recall(
    sizes: Sequence[int] = (1_000, 10_000, 100_000), *, per_owner: int = 100, questions: int = 1_000
) -> dict[str, Any]:
    """Milliseconds at p50, p95 and p99 per number of memories; resident memory of this process in MB, at its highest."""
    return {str(size): _at(size, per_owner, questions) for size in sizes}


def _at(size: int, per_owner: int, questions: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="memriver-bench-") as scratch:
        url = f"sqlite:///{Path(scratch) / 'truth.db'}"
        upgrade(url)
        truth = Truth(make_engine(url))
        embedder = CachedEmbedder(make_embedder("hashing"), questions + 50)
        store = open_vectors(
            f"edge:{Path(scratch) / 'vectors'}", prefix="memories", model=embedder.model, dimension=embedder.dimension
        )
        store.ensure()
        try:
            collection = OneCollection(store, embedder)
            owners = [f"person-{number}" for number in range(max(1, size // per_owner))]
            _fill(truth, VectorProjection(collection), owners, size)
            # What a restart does: segments merged, the log short.
            store.close()
            store.ensure()
            gate = PolicyGate(PolicySettings(), b"bench-of-recall!")
            service = RecallService(truth, collection, screen=TurnScreen(gate))
            rng = random.Random(size)
            asked = [
                (rng.choice(owners), rng.choice(_ASKED).format(thing=rng.choice(_THINGS), place=rng.choice(_PLACES)))
                for _ in range(questions + 50)
            ]
            for _, query in asked:
                embedder.embed_query(query)  # from the cache later: the model is not what is measured
            spent: list[float] = []
            worked: list[float] = []
            answered: list[bool] = []
            for owner, query in asked:
                request = RecallRequest(_reach(owner), query, _NOW)
                start, worked_before = time.perf_counter(), time.thread_time()
                result = service.recall(request)
                spent.append((time.perf_counter() - start) * 1_000)
                worked.append((time.thread_time() - worked_before) * 1_000)
                answered.append(bool(result.items))
            # The first fifty load dictionaries and open files, as a service does before it says that it is ready.
            counted = np.asarray(spent[50:])
            p50, p95, p99 = (round(float(value), 2) for value in np.percentile(counted, [50, 95, 99]))
            return {
                "memories": size,
                "owners": len(owners),
                "questions": questions,
                "answered": sum(answered[50:]),
                "p50_ms": p50,
                "p95_ms": p95,
                "p99_ms": p99,
                # Without waiting for a core that other programs have, and without the engine's own threads.
                "cpu_p99_ms": round(float(np.percentile(worked[50:], 99)), 2),
                "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024,
            }
        finally:
            store.close()
            truth.close()


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
