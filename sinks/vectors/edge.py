"""Sinks, vectors: Qdrant Edge, the same engine inside this process, for the embedded mode (FIELD_REPORTS 45).

A data directory holds one shard directory per collection. Exactly one process owns it: the shard's write-ahead log is
locked. Every write is in that log before the call returns, so a killed process loses nothing; `flush` moves it into the
segments. There is no HNSW graph: a person has hundreds of memories, and the owner index narrows a search to those.

The fence is Edge's conditional upsert, evaluated per point inside the engine. Its log keeps what the condition refuses, so
what is older than what is there is not handed to the engine at all: late words of an erased person leave no byte.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import qdrant_edge as qe

from processors.exceptions import FatalError, Outage, TransientError
from processors.keywords import Sparse
from sinks import outages
from sinks.vectors import payload as p
from sinks.vectors.protocol import (
    REINDEX_COMMAND,
    TOMBSTONE,
    Hit,
    Point,
    Scope,
    StoredPoint,
    Tombstone,
    check_id,
    check_vector,
    collection_name,
    of_same_prefix,
    refuse_beside,
)

# The log makes a write durable; flushing keeps the log, and with it the next start, short. A flush costs tens of
# milliseconds, so not after each write.
FLUSH_EVERY = 4_096
_COPY = 256


_ROOM = 64 * 1024 * 1024
"""Bytes: Edge lays out its log and its pages in files of 32 MiB."""


class EdgeVectors:
    """A `VectorStore` in a local directory.

    Reads run beside each other and beside a write: the engine locks its segments itself. Writes take turns.
    """

    def __init__(self, directory: Path, *, prefix: str, model: str, dimension: int) -> None:
        self._directory = directory
        self._prefix = prefix
        self._dimension = dimension
        self._collection = collection_name(prefix, model, dimension)
        self._path = directory / self._collection
        self._lock = threading.RLock()
        self._shard: Any = None
        self._unflushed = 0
        self._outage: Outage | None = None

    @property
    def collection(self) -> str:
        return self._collection

    def ensure(self, *, beside: bool = False) -> None:
        # Without the lock, since `compact` may hold it for long, and the vector server asks for every client that comes.
        if self._shard is not None:
            return
        with self._lock:
            if self._shard is not None:
                return
            self._directory.mkdir(parents=True, exist_ok=True)
            self._recover()
            if not self._path.exists():
                others = of_same_prefix([entry.name for entry in self._directory.iterdir()], self._prefix)
                if others and not beside:
                    refuse_beside(self._collection, others)
                self._create()
            self._shard = self._load()
            with _fatal("cannot prepare the vector shard"):
                self._index_payload()
                # Edge optimises only when told to: merges segments and drops what was overwritten or deleted.
                self._shard.optimize()

    def upsert(self, points: Sequence[Point]) -> None:
        for version, batch in p.fenced_points(points, self._dimension, self._collection):
            with self._lock:
                newer = self._newer(batch, version)
                if newer:
                    self._write([_edge_point(point) for point in newer], qe.RangeFloat(lt=float(version)))

    def delete(self, tombstones: Sequence[Tombstone]) -> None:
        for version, batch in p.fenced_tombstones(tombstones):
            # No vectors at all, so that nothing of the content can be searched or read back.
            self._write([qe.Point(t.id, {}, p.tombstone_payload(t)) for t in batch], qe.RangeFloat(lte=float(version)))

    def search_dense(self, vector: Sequence[float], scope: Scope, limit: int) -> list[Hit]:
        check_vector(vector, self._dimension, self._collection)
        return self._search(_nearest(vector), _filter(scope), limit)

    def search_sparse(self, query: Sparse, scope: Scope, limit: int) -> list[Hit]:
        return self._search(_matching(query), _filter(scope), limit) if query else []

    def search_hybrid(self, vector: Sequence[float], query: Sparse, scope: Scope, limit: int) -> list[Hit]:
        check_vector(vector, self._dimension, self._collection)
        condition = _filter(scope)
        sources = [_nearest(vector)] + ([_matching(query)] if query else [])
        prefetches = [qe.Prefetch(limit=max(limit, 1), query=source, filter=condition) for source in sources]
        return self._search(qe.Fusion.Rrf(k=p.RRF_K), condition, limit, prefetches)

    def get(self, ids: Sequence[str]) -> list[StoredPoint]:
        shard = self._open()
        wanted: list[Any] = list(p.canonical_ids(ids))
        with _fatal("cannot read points"):
            return [p.stored(r.id, r.payload) for r in shard.retrieve(wanted, with_payload=True, with_vector=False)]

    def count(self, scope: Scope) -> int:
        shard = self._open()
        with _fatal("cannot count points"):
            return int(shard.count(qe.CountRequest(exact=True, filter=_filter(scope))))

    def total(self) -> int:
        shard = self._open()
        living = qe.Filter(must_not=[qe.FieldCondition("status", match=qe.MatchValue(TOMBSTONE))])
        with _fatal("cannot count points"):
            return int(shard.count(qe.CountRequest(exact=True, filter=living)))

    def scroll(self, page: int = 1_000) -> Iterator[StoredPoint]:
        offset: Any = None
        while True:
            shard = self._open()
            with _fatal("cannot scroll"):
                records, offset = shard.scroll(qe.ScrollRequest(offset=offset, limit=page, with_payload=True))
            yield from (p.stored(record.id, record.payload) for record in records)
            if offset is None:
                return

    def compact(self) -> None:
        """Write the collection anew, without what was overwritten or deleted: an erasure means the bytes on the disk.

        Edge itself leaves them in its pages and its log. Writers wait meanwhile; readers go on, on the old files, which are
        gone from the directory at the end and from the disk with the last reader.
        """
        with self._lock:
            old = self._open()
            aside = Path(tempfile.mkdtemp(prefix=".new-", dir=self._directory))
            try:
                with _fatal("cannot write the vector shard anew"):
                    self._copy(old, aside)
                    self._path.rename(self._former)
                    aside.rename(self._path)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
            # Not closed: whoever is reading from it holds it, and lets it go.
            self._shard = self._load()
            with _fatal("cannot prepare the vector shard"):
                self._index_payload()
            shutil.rmtree(self._former)

    def _copy(self, old: Any, aside: Path) -> None:
        fresh = qe.EdgeShard.create(str(aside), self._config())
        offset: Any = None
        while True:
            request = qe.ScrollRequest(offset=offset, limit=_COPY, with_payload=True, with_vector=True)
            records, offset = old.scroll(request)
            points = [qe.Point(record.id, record.vector or {}, record.payload) for record in records]
            if points:
                fresh.update(qe.UpdateOperation.upsert_points(points))
            if offset is None:
                break
        fresh.flush()
        fresh.close()

    @property
    def _former(self) -> Path:
        """Where the old files are while the new ones take their place."""
        return self._directory / f".old-{self._collection}"

    def _recover(self) -> None:
        """A death in `compact`, between its two renames or before its last step."""
        if self._former.exists() and not self._path.exists():
            self._former.rename(self._path)
        shutil.rmtree(self._former, ignore_errors=True)

    def drop(self) -> None:
        with self._lock:
            # Opened first: only the owner of the lock may delete.
            self.ensure(beside=True)
            self.close()
            shutil.rmtree(self._path)

    def close(self) -> None:
        with self._lock:
            if self._shard is None:
                return
            shard, self._shard = self._shard, None
            with _fatal("cannot close the vector shard"):
                shard.flush()
                shard.close()

    def _open(self) -> Any:
        shard = self._shard
        if shard is not None:
            return shard
        if self._outage is not None:
            raise _waiting(self._outage)
        raise FatalError("the vector store is not open; ensure() opens it")

    def _open_again(self) -> None:
        """After a write that found no room: a shard remembers that and takes no more, a new one does. The lock is held.

        Nothing is lost by it: what was written is in its log, and what was not is written again.
        """
        if self._outage is None:
            return
        if self._outage is Outage.FULL and shutil.disk_usage(self._directory).free < _ROOM:
            # The old one can still be read from; it is not given up for a new one that could not be made.
            raise _waiting(self._outage)
        shard, self._shard = self._shard, None
        if shard is not None:
            with contextlib.suppress(Exception):  # flushing fails for the same reason
                shard.close()
        # Its files stay locked until it is gone.
        del shard
        try:
            self._shard = self._load()
        except FatalError as error:
            raise _waiting(self._outage) from error
        self._outage, self._unflushed = None, 0

    def _newer(self, points: list[Point], version: int) -> list[Point]:
        """Those of `points`, all of one version and each id once, that the fence lets in. The lock is held."""
        self._open_again()
        ids: list[Any] = [point.id for point in points]
        with _fatal("cannot read points"):
            held = self._open().retrieve(ids, with_payload=["version"], with_vector=False)
        refused = {str(record.id) for record in held if int((record.payload or {}).get("version", 0)) >= version}
        return [point for point in points if check_id(point.id) not in refused] if refused else points

    def _write(self, points: list[Any], older: Any) -> None:
        condition = qe.Filter(must=[qe.FieldCondition("version", range=older)])
        with self._lock:
            self._open_again()
            shard = self._open()
            try:
                with _fatal("cannot write points"):
                    shard.update(qe.UpdateOperation.upsert_points(points, condition=condition))
                    self._unflushed += len(points)
                    if self._unflushed >= FLUSH_EVERY:
                        shard.flush()
                        self._unflushed = 0
            except TransientError as error:
                self._outage = error.outage
                raise

    def _search(self, query: Any, condition: Any, limit: int, prefetches: list[Any] | None = None) -> list[Hit]:
        if limit < 1:
            return []
        shard = self._open()
        request = qe.QueryRequest(
            limit=limit, query=query, prefetches=prefetches, filter=condition, with_payload=True, with_vector=False
        )
        with _fatal("cannot search"):
            found = shard.query(request)
        hits = [(p.stored(point.id, point.payload), float(point.score)) for point in found]
        return [Hit(id=it.id, score=score, version=it.version, payload=it.payload) for it, score in hits]

    def _config(self) -> Any:
        return qe.EdgeConfig(
            vectors={p.DENSE: qe.EdgeVectorParams(size=self._dimension, distance=qe.Distance.Cosine)},
            sparse_vectors={p.SPARSE: qe.EdgeSparseVectorParams(modifier=qe.Modifier.Idf)},
            # m=0: no graph is ever built.
            hnsw_config=qe.HnswIndexConfig(m=0, ef_construct=16, full_scan_threshold=10_000),
        )

    def _create(self) -> None:
        """Make the shard aside and rename it, so that a death in between leaves no half-made collection."""
        aside = Path(tempfile.mkdtemp(prefix=".new-", dir=self._directory))
        try:
            with _fatal("cannot create the vector shard"):
                qe.EdgeShard.create(str(aside), self._config()).close()
            # Another process may have been faster; then its collection stands, and loading it reports the lock.
            with contextlib.suppress(OSError):
                aside.rename(self._path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _load(self) -> Any:
        try:
            return qe.EdgeShard.load(str(self._path), self._config())
        except Exception as exc:
            if "init WAL" in str(exc):
                raise FatalError(
                    f"another process owns the data directory {self._directory}: the embedded vector store serves one "
                    "process at a time; stop the other one, or use a Qdrant server"
                ) from exc
            if "ncompatible" in str(exc):
                raise FatalError(
                    f"the collection {self._collection} on disk has another shape than the embedder's; "
                    f"run `{REINDEX_COMMAND}` to build a new one from truth"
                ) from exc
            raise FatalError(f"the collection {self._collection} cannot be opened") from exc

    def _index_payload(self) -> None:
        present = self._shard.info().payload_schema
        for field in (p.OWNER, *p.INDEXED):
            if field not in present:
                params = qe.KeywordIndexParams(is_tenant=field == p.OWNER)
                self._shard.update(qe.UpdateOperation.create_field_index(field, params))


def _waiting(outage: Outage) -> TransientError:
    return TransientError(f"the vector store waits: {outage.replace('_', ' ')}", part="vectors", outage=outage)


@contextlib.contextmanager
def _fatal(what: str) -> Iterator[None]:
    """Edge raises bare `Exception`. Vectors, ids and limits are checked before, so what is left is the disk."""
    try:
        yield
    except Exception as exc:
        outage = outages.file_system(str(exc))
        if outage is not None:
            raise TransientError(f"{what}: {outage.replace('_', ' ')}", part="vectors", outage=outage) from exc
        raise FatalError(f"{what}: {exc}") from exc


def _edge_point(point: Point) -> Any:
    vectors: dict[str, Any] = {p.DENSE: list(point.dense)}
    if point.sparse:
        vectors[p.SPARSE] = qe.SparseVector(list(point.sparse.indices), list(point.sparse.values))
    payload: dict[str, Any] = dict(p.payload_of(point))
    return qe.Point(point.id, vectors, payload)


def _nearest(vector: Sequence[float]) -> Any:
    return qe.Query.Nearest(list(vector), using=p.DENSE)


def _matching(query: Sparse) -> Any:
    return qe.Query.Nearest(qe.SparseVector(list(query.indices), list(query.values)), using=p.SPARSE)


def _filter(scope: Scope) -> Any:
    must: list[Any] = [qe.FieldCondition("tenant", match=qe.MatchValue(scope.tenant))]
    must += [qe.FieldCondition(field, match=qe.MatchAny(list(allowed))) for field, allowed in p.keyword_limits(scope)]
    if scope.ids is not None:
        must.append(qe.HasIdCondition(set(p.canonical_ids(scope.ids))))
    must_not: list[Any] = []
    if scope.not_expired_at is not None:
        must_not.append(qe.FieldCondition("expires_at", range=qe.RangeFloat(lte=scope.not_expired_at)))
    return qe.Filter(must=must, must_not=must_not)
