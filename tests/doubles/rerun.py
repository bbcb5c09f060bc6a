"""Tests, doubles: what a replay needs around it: rules with one rule more, a log that ends in a death, truth as bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import select

from processors.rules.loading import packaged_texts
from sinks.truth import Truth
from sinks.truth.beside import DERIVED
from streams.replay.log import Extent, LoggedTurn, TurnLog

OTTER = """
  - id: mascot
    description: Which animal the speaker chose.
    attribute: "*mascot"
    keywords: [mascot]
    patterns:
      - "i chose (?:an? |the )?(?P<value>[a-z]+) as my mascot"
    examples:
      positive:
        - {text: "I chose an otter as my mascot", attribute: mascot, value: "otter"}
      negative:
        - "Is an otter my mascot?"
"""
"""A rule that the packaged ones do not have."""


def rules_with_otters(directory: Path) -> Path:
    """A folder with the packaged English rules and one more."""
    directory.mkdir(exist_ok=True)
    (directory / "en.yaml").write_text(packaged_texts()["en"].rstrip("\n") + OTTER, encoding="utf-8")
    return directory


class Killed(BaseException):
    """Nothing may catch it."""


class MortalLog:
    """A log whose reader dies after so many turns."""

    def __init__(self, log: TurnLog, turns: int) -> None:
        self._log = log
        self._left = turns
        self.topic = log.topic

    async def extent(self) -> Extent:
        """`TurnLog`."""
        return await self._log.extent()

    async def since(self, moment: datetime) -> dict[int, int]:
        """`TurnLog`."""
        return await self._log.since(moment)

    async def read(self, start: Mapping[int, int], end: Mapping[int, int]) -> AsyncIterator[LoggedTurn]:
        """`TurnLog`, for a while."""
        async for turn in self._log.read(start, end):
            if self._left == 0:
                raise Killed
            self._left -= 1
            yield turn


def dump(truth: Truth) -> dict[str, list[tuple[Any, ...]]]:
    """Every row that a replay makes, in the order of the keys, with all columns; the moments too are the log's."""
    with truth.reading() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
            for table in DERIVED
        }
