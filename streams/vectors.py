"""Vectors: from settings to embedders, stores and collections; the composition root's part for the searchable side."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from processors.exceptions import FatalError
from processors.language import detect
from processors.ports import Embedder
from processors.resolution.similarity import Compare
from sinks.embedders import make_embedder
from sinks.embedders.calibration import Calibration, calibration_for
from sinks.truth import Truth, collections
from sinks.truth.collections import CollectionRow, State
from sinks.vectors import VectorStore, collection_name, open_vectors
from sinks.vectors.aliases import point_alias
from sinks.vectors.collection import LiveCollection
from sinks.vectors.collections import Collections
from streams.settings import Settings

log = logging.getLogger("memriver.vectors")

PREFIX = "memories"
"""Of every collection's name; and the alias under which a Qdrant server knows the live one."""


def open_embedder(settings: Settings, name: str | None = None) -> Embedder:
    """The embedder of these settings, or another one by its name.

    Raises:
        FatalError: it is not known, or something that it needs is missing.
    """
    wanted = name or settings.embedder
    base_url, api_key = settings.embedder_base_url, settings.embedder_api_key.get_secret_value()
    if wanted != settings.embedder:
        # While two models are in use, the one that is not configured may be somebody else's.
        base_url = settings.embedder_other_base_url or base_url
        api_key = settings.embedder_other_api_key.get_secret_value() or api_key
    return make_embedder(wanted, base_url=base_url or None, api_key=api_key or None)


def vectors_of(settings: Settings, model: str, dimension: int) -> VectorStore:
    """A Qdrant server if its address is set, Qdrant Edge in the data directory otherwise; not opened yet."""
    return open_vectors(
        settings.qdrant_url or f"edge:{settings.data_dir / 'vectors'}",
        prefix=PREFIX,
        model=model,
        dimension=dimension,
        api_key=settings.qdrant_api_key.get_secret_value() or None,
    )


def open_vector_store(settings: Settings, embedder: Embedder) -> VectorStore:
    """The collection of this embedder, opened; for tools that look at one collection, whatever truth says of it."""
    store = vectors_of(settings, embedder.model, embedder.dimension)
    store.ensure(beside=True)
    return store


def open_collections(settings: Settings, truth: Truth) -> Collections:
    """The collections that truth lists; nothing is opened before it is asked for."""
    return Collections(
        truth,
        lambda model, dimension: vectors_of(settings, model, dimension),
        lambda name: open_embedder(settings, name),
    )


def settle_live(settings: Settings, truth: Truth, opened: Collections, now: datetime) -> None:
    """At start-up: open the live collection; the first start of a deployment registers the configured embedder's.

    Raises:
        FatalError: the configured embedder is not the live collection's, or the collection cannot be opened.
        TransientError: a server is away.
    """
    with truth.reading() as connection:
        rows = collections.existing(connection)
    live = next((row for row in rows if row.status is State.LIVE), None)
    if live is None:
        _register(settings, truth, now)
    elif settings.embedder_chosen is not None and settings.embedder_chosen != live.embedder:
        _refuse_another(settings, live, rows)
    opened.refresh()
    with opened.live() as collection:
        # Whoever died between the switch in truth and the server's alias left the alias behind.
        point_alias(collection.store, PREFIX)


def _register(settings: Settings, truth: Truth, now: datetime) -> None:
    embedder = open_embedder(settings)
    store = vectors_of(settings, embedder.model, embedder.dimension)
    # Not beside another model's vectors: a truth that lists no collection does not know what they are.
    store.ensure()
    store.close()

    def work(connection: Connection) -> None:
        if not any(row.status is State.LIVE for row in collections.existing(connection)):
            collections.register_live(
                connection, store.collection, settings.embedder, embedder.model, embedder.dimension, now
            )

    truth.run(work)


def _refuse_another(settings: Settings, live: CollectionRow, rows: Sequence[CollectionRow]) -> None:
    chosen = settings.embedder
    embedder = open_embedder(settings)
    name = collection_name(PREFIX, embedder.model, embedder.dimension)
    if name == live.name:
        return
    command = f"memriver reindex start --embedder {chosen}"
    for row in rows:
        if row.name == name:
            command = {
                State.VERIFIED: "memriver reindex switch",
                State.PREVIOUS: "memriver reindex rollback",
                State.BUILDING: "memriver reindex status",
            }.get(row.status, command)
    raise FatalError(
        f"MEMRIVER_EMBEDDER is {chosen}, but the live collection {live.name} is of {live.embedder}: set "
        f"MEMRIVER_EMBEDDER={live.embedder} or leave it unset; the way to {chosen} is `{command}`"
    )


def comparison(embedder: Embedder, calibration: Calibration | None = None) -> Compare:
    """How alike sentences are, by this embedder's vectors and a calibration (the built-in one if left out).

    A sentence is embedded once for as long as the comparison lives, which is to be one group's time.
    """
    scale = calibration or calibration_for(embedder.model)
    known: dict[str, tuple[NDArray[np.float32], str]] = {}

    def compare(text: str, others: Sequence[str]) -> list[float]:
        missing = [item for item in dict.fromkeys([text, *others]) if item not in known]
        if missing:
            vectors = np.asarray(embedder.embed_documents(missing), dtype=np.float32)
            known.update((item, (vector, detect(item))) for item, vector in zip(missing, vectors, strict=True))
        if not others:
            return []
        vector, language = known[text]
        rows = [known[other] for other in others]
        cosines = np.stack([row for row, _language in rows]) @ vector
        return [
            scale.sameness(float(cosine), language, its_language)
            for cosine, (_row, its_language) in zip(cosines, rows, strict=True)
        ]

    return compare


def live_comparison(opened: LiveCollection) -> Compare:
    """The same by the live collection's model and calibration, whichever it is at the moment; for one group."""
    made: dict[str, Compare] = {}

    def compare(text: str, others: Sequence[str]) -> list[float]:
        with opened.live() as collection:
            if collection.name not in made:
                made[collection.name] = comparison(collection.embedder, collection.calibration)
            return [*made[collection.name](text, others)]

    return compare
