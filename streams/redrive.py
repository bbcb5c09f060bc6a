"""Redriving: from a dead letter to a message that is sent once more, to the partition its neighbours are in.

The row of the letter is its own outbox: in one transaction it is taken ("redriven", with a digest of what is sent), then
the message goes out, then the row says when the broker had it. A death in between leaves a row without that time, and the
same order given again sends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson
from aiokafka.errors import KafkaError
from sqlalchemy import Connection

from processors.exceptions import PoisonError
from schemas import Candidate, Command, ExtractionBatch, Feedback, Turn, digest
from sinks.truth import Truth, batches, deadletters, turns
from sinks.truth.deadletters import LetterStatus, Redriven
from streams.deadletter import header_of
from streams.producer import MAX_MESSAGE_BYTES, EventProducer, outage
from streams.reasons import reason_of

Message = Turn | ExtractionBatch | Candidate | Command | Feedback

_HOME: dict[str, str] = {
    "import": "turns",
    "ingest": "turns",
    "extract": "batches",
    "resolve": "candidates",
    "feedback": "feedback",
}
"""Where a stage's messages come from. A dead letter that could not itself be read (stage bury) has no way back."""

_CONTRACTS: dict[str, type[Message]] = {
    "turns": Turn,
    "batches": ExtractionBatch,
    "candidates": Candidate,
    "commands": Command,
    "feedback": Feedback,
}

FINAL = frozenset({"no_way_back", "too_large", "cut"})
"""Reasons that no newer worker sees otherwise."""

CHUNK = 200
"""Letters taken in one transaction: a bound on how long their rows stay locked, and on the bytes in hand."""


@dataclass(slots=True)
class Report:
    """What became of each letter that was asked for."""

    redriven: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Id to reason: the contract does not take the bytes as they are."""
    left: dict[str, str] = field(default_factory=dict)
    """Id to status: somebody was faster, or it was done before."""


@dataclass(frozen=True, slots=True)
class _Load:
    row: dict[str, Any]
    topic: str
    raw: bytes
    message: Message | None

    @property
    def dead_letter_id(self) -> str:
        return str(self.row["dead_letter_id"])


def home_of(row: dict[str, Any]) -> str:
    """The topic that a letter's message belongs to.

    Raises:
        PoisonError: its stage reads no topic that could be written to.
    """
    topic = _HOME.get(row["stage"])
    if topic is None:
        raise PoisonError("no_way_back", f"stage {row['stage']} reads nothing that could be sent again")
    return "commands" if topic == "candidates" and str(row["topic"]).endswith("commands") else topic


def current(row: dict[str, Any]) -> bytes:
    """The message as it stands: what was mended before, and failed again or was never confirmed, stands for the original.

    Raises:
        PoisonError: only the beginning of it was kept, which must not pass for the message.
    """
    if row["mended"] is not None:
        return bytes(row["mended"])
    if row["original_bytes"] is not None:
        kept = f"only the first {len(row['raw'])} of {row['original_bytes']} bytes were kept"
        raise PoisonError("cut", f"{kept}: give the whole message, `memriver dlq fix ID --file FILE`")
    return bytes(row["raw"])


def check(row: dict[str, Any], raw: bytes) -> Message:
    """The message that `raw` is, by the contract of the letter's topic.

    Raises:
        PoisonError: it is none, or larger than its topic takes; names fields and kinds of error, never a value.
    """
    topic = home_of(row)
    if topic == "turns" and len(raw) > MAX_MESSAGE_BYTES:
        raise PoisonError("too_large", f"{len(raw)} bytes; a message may have {MAX_MESSAGE_BYTES}")
    try:
        return _CONTRACTS[topic].from_bytes(raw)
    except ValueError as error:
        raise PoisonError(*reason_of(error)) from None


def with_changes(raw: bytes, changes: Iterable[str]) -> bytes:
    """The message with `path=value` set; the path has dots, the value is JSON or, if it is none, a string.

    `path=` takes the field away.

    Raises:
        PoisonError: the bytes are no JSON object, or a path leads nowhere.
    """
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise PoisonError("not_json", "no field can be set in what is not JSON: give the whole message") from None
    for change in changes:
        path, separator, value = change.partition("=")
        if not separator or not path:
            raise PoisonError("invalid_option", "a change is PATH=VALUE")
        *parents, last = path.split(".")
        place = data
        for name in parents:
            place = place[int(name)] if isinstance(place, list) and _indexes(place, name) else _child(place, name)
        _set(place, last, value)
    return orjson.dumps(data)


def _set(place: Any, name: str, value: str) -> None:
    if isinstance(place, list) and _indexes(place, name):
        place[int(name)] = _value(value)
    elif not isinstance(place, dict):
        raise PoisonError("invalid_option", f"the path leads to no field named {name!r}")
    elif value == "":
        place.pop(name, None)
    else:
        place[name] = _value(value)


def _indexes(place: list[Any], name: str) -> bool:
    return name.isascii() and name.isdigit() and int(name) < len(place)


def _child(place: Any, name: str) -> Any:
    if not isinstance(place, dict):
        raise PoisonError("invalid_option", f"the path leads to no field named {name!r}")
    return place.setdefault(name, {})


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _key(message: Message) -> str:
    if isinstance(message, Feedback):
        return digest(message.tenant, message.owner_kind, message.owner)
    return message.conversation_key if isinstance(message, Turn | ExtractionBatch) else message.owner_key


class Redriver:
    """Sends letters again. `by` is who ordered it, for the record."""

    def __init__(self, truth: Truth, producer: EventProducer, *, by: str, now: datetime) -> None:
        self._truth = truth
        self._producer = producer
        self._by = by
        self._now = now

    async def redrive(self, ids: Sequence[str], *, anyway: bool = False) -> Report:
        """Each of them once, however often it is asked for.

        `anyway` sends what the contract here does not take: the workers may be newer than this command.

        Raises:
            TransientError: the broker or the database is away. Giving the same order again goes on where it stopped.
        """
        report = Report()
        wanted = list(dict.fromkeys(ids))
        for start in range(0, len(wanted), CHUNK):
            rows = await asyncio.to_thread(self._rows, wanted[start : start + CHUNK])
            loads = [load for row in rows if (load := self._load(row, report, anyway)) is not None]
            await self._send(loads, report, mended=False)
        return report

    async def mend(self, row: dict[str, Any], raw: bytes) -> Report:
        """Send other bytes in the place of a letter's own.

        Raises:
            PoisonError: the contract does not take them; nothing is sent or changed.
        """
        report = Report()
        await self._send([_Load(row, home_of(row), raw, check(row, raw))], report, mended=True)
        return report

    def _rows(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        with self._truth.reading() as connection:
            return deadletters.fetch(connection, ids)

    def _load(self, row: dict[str, Any], report: Report, anyway: bool) -> _Load | None:
        letter = str(row["dead_letter_id"])
        try:
            topic = home_of(row)
            raw = current(row)
            message = check(row, raw)
        except PoisonError as error:
            if not anyway or error.reason in FINAL:
                report.refused[letter] = f"{error.reason}: {error.detail}"
                return None
            message = None
        return _Load(row, topic, raw, message)

    async def _send(self, loads: Sequence[_Load], report: Report, *, mended: bool) -> None:
        taken = await asyncio.to_thread(self._take, loads, mended)
        flying: list[asyncio.Future[Any]] = []
        try:
            for load in loads:
                attempt = taken.get(load.dead_letter_id)
                if attempt is not None:
                    flying.append(await self._out(load, attempt))
            await asyncio.gather(*flying)
        except KafkaError as error:
            raise outage(error) from error
        out = [Redriven(letter, attempt) for letter, attempt in taken.items() if attempt is not None]
        await asyncio.to_thread(self._truth.run, lambda connection: deadletters.sent(connection, out, self._now))
        report.redriven += [item.dead_letter_id for item in out]
        left = [load.dead_letter_id for load in loads if taken[load.dead_letter_id] is None]
        for row in await asyncio.to_thread(self._rows, left):
            report.left[str(row["dead_letter_id"])] = str(row["status"])

    def _take(self, loads: Sequence[_Load], mended: bool) -> dict[str, int | None]:
        def work(connection: Connection) -> dict[str, int | None]:
            taken: dict[str, int | None] = {}
            for load in sorted(loads, key=lambda load: load.dead_letter_id):
                attempt = deadletters.redrive(
                    connection, load.dead_letter_id, load.raw, mended=mended, by=self._by, now=self._now
                )
                taken[load.dead_letter_id] = attempt
                if attempt is not None and isinstance(load.message, ExtractionBatch):
                    # The extract stage leaves alone what it has given up on, until somebody asks for it.
                    batches.ask_again(connection, load.message.batch_id)
                    turns.ask_again(connection, [turn.turn_key for turn in load.message.turns])
            return taken

        return self._truth.run(work)

    async def _out(self, load: _Load, attempt: int) -> asyncio.Future[Any]:
        key = _key(load.message) if load.message is not None else (load.row["message_key"] or load.dead_letter_id)
        return await self._producer.send(
            load.topic,
            key,
            load.raw,
            partition=await self._partition(load),
            headers=[header_of(Redriven(load.dead_letter_id, attempt))],
        )

    async def _partition(self, load: _Load) -> int | None:
        """Where it was before: a gateway may choose partitions in a way of its own, and its conversation is there."""
        topic, _, rest = str(load.row["place"]).partition(":")
        number = rest.partition(":")[0]
        if topic != self._producer.topic(load.topic) or not number.isdigit():
            return None
        try:
            before = check(load.row, load.row["raw"])
        except PoisonError:
            before = None
        if before is not None and load.message is not None and _key(before) != _key(load.message):
            return None
        return int(number) if int(number) < await self._producer.partitions(load.topic) else None


def may_be_sent(row: dict[str, Any]) -> bool:
    """Waiting, or taken by a command that died before the broker had it."""
    return row["status"] == LetterStatus.WAITING or (row["status"] == LetterStatus.REDRIVEN and row["sent_at"] is None)
