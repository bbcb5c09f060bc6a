"""Pipeline tests, erasing: asking for an erasure, waiting for its receipt, and the bytes that a directory holds."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sinks.truth import erasure
from sinks.truth.erasure import Erasure
from streams.cli.embedded import Embedded
from streams.erasing.composing import make_opening
from streams.erasing.opening import Opening, Wish
from streams.runtime import wall_clock


def opening(embedded: Embedded) -> Opening:
    """Who takes wishes in this deployment."""
    return make_opening(embedded.settings, embedded.runtime.truth)


async def erase(embedded: Embedded, wish: Wish) -> Erasure:
    """Ask, and wait for the receipt."""
    asked = await asyncio.to_thread(opening(embedded).open, wish, by="test", reason="asked", now=wall_clock())
    return await finished(embedded, asked.erasure_id)


async def finished(embedded: Embedded, erasure_id: str, *, seconds: float = 60) -> Erasure:
    """Done, with its receipt."""

    def look() -> Erasure | None:
        with embedded.runtime.truth.reading() as connection:
            return erasure.get(connection, erasure_id)

    async with asyncio.timeout(seconds):
        while True:
            item = await asyncio.to_thread(look)
            assert item is not None
            if item.status == "done":
                return item
            assert embedded.failure is None, embedded.failure
            await asyncio.sleep(0.05)


def bytes_of(directory: Path) -> bytes:
    """Every file, as it is on the disk."""
    return b"\n".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())
