"""Sinks, vectors: the searchable side of memory; one Protocol, Qdrant Edge in process, Qdrant as a server."""

from __future__ import annotations

from pathlib import Path

from processors.exceptions import FatalError
from sinks.vectors.protocol import Hit, Point, Scope, StoredPoint, Tombstone, VectorStore, collection_name

__all__ = ["Hit", "Point", "Scope", "StoredPoint", "Tombstone", "VectorStore", "collection_name", "open_vectors"]


def open_vectors(
    url: str, *, prefix: str, model: str, dimension: int, api_key: str | None = None, timeout_s: int = 10
) -> VectorStore:
    """The store that `url` names: `edge:DIRECTORY`, `edge+http://HOST:PORT` of `memriver vectors serve`, or
    `http(s)://HOST:PORT` of a Qdrant server.

    Call `ensure` before anything else. `timeout_s` bounds each request to a server.

    Raises:
        FatalError: the URL is of neither kind.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "edge" and rest:
        from sinks.vectors.edge import EdgeVectors

        return EdgeVectors(Path(rest).expanduser(), prefix=prefix, model=model, dimension=dimension)
    if url.startswith("edge+http://"):
        from sinks.vectors.remote import RemoteVectors

        return RemoteVectors(
            url.removeprefix("edge+"),
            api_key=api_key,
            timeout_s=timeout_s,
            prefix=prefix,
            model=model,
            dimension=dimension,
        )
    if scheme in ("http", "https") and rest:
        from sinks.vectors.server import QdrantVectors

        return QdrantVectors.connect(
            url, api_key=api_key, timeout_s=timeout_s, prefix=prefix, model=model, dimension=dimension
        )
    raise FatalError("the vector store must be edge:DIRECTORY or the http(s) address of a Qdrant server")
