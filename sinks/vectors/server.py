"""Sinks, vectors: a Qdrant server, version 1.16 or newer.

The fence is the server's conditional upsert (`update_filter`, new in 1.16; an older server would silently ignore it,
so it is refused). It is evaluated per point on each replica, and its outcome does not depend on the order of writes, so
any number of workers may write and the default write ordering will do.
https://qdrant.tech/documentation/concepts/points/#conditional-updates
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

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
    check_vector,
    collection_name,
    of_same_prefix,
    refuse_beside,
)

OLDEST_SERVER = (1, 16)

_KEYWORD_FIELDS = (*p.INDEXED, p.SPACES, "type", "category", "attribute")


class QdrantVectors:
    """A `VectorStore` on a Qdrant server. A client handed in may be shared, and `close` leaves it open."""

    def __init__(
        self, client: QdrantClient, *, prefix: str, model: str, dimension: int, owns_client: bool = False
    ) -> None:
        self._client = client
        self._owns_client = owns_client
        self._prefix = prefix
        self._dimension = dimension
        self._collection = collection_name(prefix, model, dimension)
        self._ready = False

    @classmethod
    def connect(
        cls, url: str, *, api_key: str | None, timeout_s: int, prefix: str, model: str, dimension: int
    ) -> QdrantVectors:
        """A store at `url`; `timeout_s` bounds each request. Nothing is sent before `ensure`."""
        client = QdrantClient(url=url, api_key=api_key, timeout=timeout_s, check_compatibility=False)
        return cls(client, prefix=prefix, model=model, dimension=dimension, owns_client=True)

    @property
    def collection(self) -> str:
        return self._collection

    def ensure(self, *, beside: bool = False) -> None:
        with _errors("prepare the collection"):
            self._refuse_old_server()
            names = [found.name for found in self._client.get_collections().collections]
            if self._collection not in names:
                others = of_same_prefix(names, self._prefix)
                if others and not beside:
                    refuse_beside(self._collection, others)
                self._create()
            self._check_shape()
            self._index_payload()
        self._ready = True

    def upsert(self, points: Sequence[Point]) -> None:
        for version, batch in p.fenced_points(points, self._dimension, self._collection):
            self._write([_struct(point) for point in batch], models.Range(lt=version))

    def delete(self, tombstones: Sequence[Tombstone]) -> None:
        for version, batch in p.fenced_tombstones(tombstones):
            # No vectors at all, so that nothing of the content can be searched or read back.
            structs = [models.PointStruct(id=t.id, vector={}, payload=dict(p.tombstone_payload(t))) for t in batch]
            self._write(structs, models.Range(lte=version))

    def search_dense(self, vector: Sequence[float], scope: Scope, limit: int) -> list[Hit]:
        check_vector(vector, self._dimension, self._collection)
        return self._search(scope, limit, query=list(vector), using=p.DENSE)

    def search_sparse(self, query: Sparse, scope: Scope, limit: int) -> list[Hit]:
        return self._search(scope, limit, query=_sparse(query), using=p.SPARSE) if query else []

    def search_hybrid(self, vector: Sequence[float], query: Sparse, scope: Scope, limit: int) -> list[Hit]:
        check_vector(vector, self._dimension, self._collection)
        condition = _filter(scope)
        sources: list[tuple[str, Any]] = [(p.DENSE, list(vector))]
        if query:
            sources.append((p.SPARSE, _sparse(query)))
        prefetch = [
            models.Prefetch(query=source, using=name, limit=max(limit, 1), filter=condition) for name, source in sources
        ]
        fusion = models.RrfQuery(rrf=models.Rrf(k=p.RRF_K))
        return self._search(scope, limit, query=fusion, prefetch=prefetch)

    def get(self, ids: Sequence[str]) -> list[StoredPoint]:
        self._open()
        with _errors("read points"):
            records = self._client.retrieve(self._collection, list(p.canonical_ids(ids)), with_vectors=False)
        return [p.stored(record.id, record.payload) for record in records]

    def count(self, scope: Scope) -> int:
        self._open()
        with _errors("count points"):
            return int(self._client.count(self._collection, count_filter=_filter(scope), exact=True).count)

    def total(self) -> int:
        self._open()
        dead = models.FieldCondition(key="status", match=models.MatchValue(value=TOMBSTONE))
        with _errors("count points"):
            found = self._client.count(self._collection, count_filter=models.Filter(must_not=[dead]), exact=True)
        return int(found.count)

    def scroll(self, page: int = 1_000) -> Iterator[StoredPoint]:
        offset: Any = None
        while True:
            self._open()
            with _errors("scroll"):
                records, offset = self._client.scroll(self._collection, limit=page, offset=offset, with_vectors=False)
            yield from (p.stored(record.id, record.payload) for record in records)
            if offset is None:
                return

    def drop(self) -> None:
        with _errors("drop the collection"):
            self._client.delete_collection(self._collection)
        self.close()

    def close(self) -> None:
        self._ready = False
        if self._owns_client:
            self._client.close()

    def take_alias(self, alias: str) -> None:
        """Move an alias here, atomically. https://qdrant.tech/documentation/concepts/collections/#switch-collection"""
        with _errors("move the alias"):
            names = {found.alias_name: found.collection_name for found in self._client.get_aliases().aliases}
            if names.get(alias) == self._collection:
                return
            steps: list[Any] = []
            if alias in names:
                steps.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias)))
            create = models.CreateAlias(collection_name=self._collection, alias_name=alias)
            steps.append(models.CreateAliasOperation(create_alias=create))
            self._client.update_collection_aliases(steps)

    def _open(self) -> None:
        if not self._ready:
            raise FatalError("the vector store is not open; ensure() opens it")

    def _write(self, structs: list[models.PointStruct], older: models.Range) -> None:
        self._open()
        fence = models.Filter(must=[models.FieldCondition(key="version", range=older)])
        with _errors("write points"):
            self._client.upsert(self._collection, structs, update_filter=fence, wait=True)

    def _search(self, scope: Scope, limit: int, **query: Any) -> list[Hit]:
        condition = _filter(scope)
        if limit < 1:
            return []
        self._open()
        with _errors("search"):
            found = self._client.query_points(
                self._collection, query_filter=condition, limit=limit, with_payload=True, with_vectors=False, **query
            )
        hits = [(p.stored(point.id, point.payload), float(point.score)) for point in found.points]
        return [Hit(id=it.id, score=score, version=it.version, payload=it.payload) for it, score in hits]

    def _refuse_old_server(self) -> None:
        version = self._client.info().version
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        if numbers < OLDEST_SERVER:
            raise FatalError(f"Qdrant {version} cannot fence writes by version; 1.16 or newer is needed")

    def _create(self) -> None:
        try:
            self._client.create_collection(
                self._collection,
                vectors_config={p.DENSE: models.VectorParams(size=self._dimension, distance=models.Distance.COSINE)},
                sparse_vectors_config={p.SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
                # No graph over everybody: each owner with enough points gets a small one of their own.
                # https://qdrant.tech/documentation/guides/multiple-partitions/
                hnsw_config=models.HnswConfigDiff(m=0, payload_m=16),
            )
        except UnexpectedResponse as exc:
            # Two workers that start together both find it absent; the slower one is told that it exists.
            if exc.status_code not in (400, 409) or not self._client.collection_exists(self._collection):
                raise

    def _check_shape(self) -> None:
        params = self._client.get_collection(self._collection).config.params
        dense = params.vectors.get(p.DENSE) if isinstance(params.vectors, dict) else None
        sparse = (params.sparse_vectors or {}).get(p.SPARSE)
        fits = (
            dense is not None
            and dense.size == self._dimension
            and dense.distance == models.Distance.COSINE
            and sparse is not None
            and sparse.modifier == models.Modifier.IDF
        )
        if not fits:
            raise FatalError(
                f"the collection {self._collection} on the server has another shape than the embedder's; "
                f"run `{REINDEX_COMMAND}` to build a new one from truth"
            )

    def _index_payload(self) -> None:
        present = self._client.get_collection(self._collection).payload_schema
        wanted: dict[str, Any] = {
            # Keeps an owner's points together on disk.
            p.OWNER: models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
            **{field: models.PayloadSchemaType.KEYWORD for field in _KEYWORD_FIELDS},
            # Servers in strict mode refuse to filter by a field without an index.
            "version": models.PayloadSchemaType.INTEGER,
            "expires_at": models.PayloadSchemaType.FLOAT,
        }
        for field, schema in wanted.items():
            if field not in present:
                self._client.create_payload_index(self._collection, field, field_schema=schema, wait=True)


@contextlib.contextmanager
def _errors(what: str) -> Iterator[None]:
    """Qdrant's exceptions as ours. Their texts may quote a request, so only the status code is repeated."""
    try:
        yield
    except ResourceExhaustedResponse as exc:
        raise TransientError(
            f"cannot {what}: Qdrant is limiting requests",
            retry_after=exc.retry_after_s,
            part="vectors",
            outage=Outage.LIMITING,
        ) from exc
    except ResponseHandlingException as exc:
        raise TransientError(
            f"cannot {what}: Qdrant does not answer ({type(exc.source).__name__})", part="vectors"
        ) from exc
    except UnexpectedResponse as exc:
        status = exc.status_code or 0
        # 403: a key that may only read, or a collection that is locked for writing.
        said = exc.content.decode("utf-8", "replace") if exc.content else ""
        outage = Outage.READ_ONLY if status == 403 else outages.http(status, said) if status != 409 else None
        if outage is not None:
            raise TransientError(f"cannot {what}: Qdrant answered {status}", part="vectors", outage=outage) from exc
        raise FatalError(f"cannot {what}: Qdrant answered {status}") from exc


def _struct(point: Point) -> models.PointStruct:
    vector: dict[str, Any] = {p.DENSE: list(point.dense)}
    if point.sparse:
        vector[p.SPARSE] = _sparse(point.sparse)
    return models.PointStruct(id=point.id, vector=vector, payload=dict(p.payload_of(point)))


def _sparse(sparse: Sparse) -> models.SparseVector:
    return models.SparseVector(indices=list(sparse.indices), values=list(sparse.values))


def _filter(scope: Scope) -> models.Filter:
    must: list[models.Condition] = [
        models.FieldCondition(key="tenant", match=models.MatchValue(value=scope.tenant)),
    ]
    must += [
        models.FieldCondition(key=field, match=models.MatchAny(any=list(allowed)))
        for field, allowed in p.keyword_limits(scope)
    ]
    if scope.ids is not None:
        must.append(models.HasIdCondition(has_id=list(p.canonical_ids(scope.ids))))
    must_not: list[models.Condition] = []
    if scope.not_expired_at is not None:
        must_not.append(models.FieldCondition(key="expires_at", range=models.Range(lte=scope.not_expired_at)))
    return models.Filter(must=must, must_not=must_not)
