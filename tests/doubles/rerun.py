"""Tests, doubles: what a replay needs around it: rules with one rule more, a log that ends in a death, truth as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import select

from processors.rules.loading import packaged_texts
from schemas import Turn
from sinks.truth import Truth, carrying, replays
from sinks.truth.beside import DERIVED
from sinks.truth.replays import Judging, Plan, Progress
from sinks.truth.takeover import take_over
from streams.replay.building import Builder
from streams.replay.judging import chosen
from streams.replay.log import Extent, LoggedTurn, TurnLog
from streams.settings import Settings

START = datetime(2026, 3, 2, 1, tzinfo=UTC)
NOW = START + timedelta(days=1)

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


class ListLog:
    """A log that is a list: two partitions, each turn with the second in which it was published."""

    topic = "turns"

    def __init__(self, turns: Sequence[tuple[float, Turn]]) -> None:
        self.rows: list[LoggedTurn] = []
        offsets = [0, 0]
        for second, turn in turns:
            partition = int(turn.conversation_key[0], 16) % 2
            at = START + timedelta(seconds=second)
            self.rows.append(LoggedTurn(turn.to_bytes(), partition, offsets[partition], at))
            offsets[partition] += 1
        self.ends = dict(enumerate(offsets))

    async def extent(self) -> Extent:
        """`TurnLog`."""
        return Extent({0: 0, 1: 0}, self.ends)

    async def since(self, moment: datetime) -> dict[int, int]:
        """`TurnLog`."""
        before = [row for row in self.rows if row.published_at < moment]
        return {number: sum(row.partition == number for row in before) for number in (0, 1)}

    async def read(self, start: Mapping[int, int], end: Mapping[int, int]) -> AsyncIterator[LoggedTurn]:
        """`TurnLog`."""
        for row in self.rows:
            if start.get(row.partition, 0) <= row.offset < end[row.partition]:
                yield row


def replay(
    given: Settings,
    live: Truth,
    beside: Truth,
    log: ListLog,
    *,
    rules: str | None = None,
    prompt: str | None = None,
    since: datetime | None = None,
) -> Progress:
    """A replay from the beginning of what is given, or since a moment."""
    judging = chosen(rules, prompt)

    async def work() -> Progress:
        positions = await log.since(since) if since is not None else {0: 0, 1: 0}
        with live.reading() as here, beside.begin() as connection:
            if since is not None:
                for carried in take_over(here, connection, since):
                    carrying.stage(connection, carried)
            at = Progress(clock=since or datetime.fromtimestamp(0, UTC))
            replays.begin(connection, Plan(log.topic, since, judging, chosen()), at, positions)
        return await again(given, live, beside, log, judging)

    return asyncio.run(work())


_builders: dict[str, Builder] = {}
"""Compiling the gate's patterns takes longer than a small replay."""


async def again(given: Settings, live: Truth, beside: Truth, log: ListLog, judging: Judging) -> Progress:
    """One run of a replay that is there."""
    with ThreadPoolExecutor(1) as executor:
        same = f"{given.model_base_url} {given.hash_key.get_secret_value()}"
        builder = _builders.setdefault(same, Builder(given, now=lambda: NOW))
        async with builder.replay(live, beside, log, judging, executor) as run:
            return await run.run()


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
