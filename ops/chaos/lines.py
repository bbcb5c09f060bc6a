"""Chaos, the log: one line for each message that was produced, with what it means; the verifier's only knowledge of the load."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from schemas import digest

TENANT = "chaos"


class Kind(StrEnum):
    """What a message says."""

    STATE = "state"
    RETRACT = "retract"
    UNSAY = "unsay"
    """The gateway reports that the turn was deleted."""
    CHAT = "chat"
    NOISE = "noise"
    CONFIRM = "confirm"
    FORGET = "forget"
    DELETE = "delete"
    JUNK = "junk"
    """No stage can do anything with it: one dead letter."""


@dataclass(frozen=True, slots=True)
class Line:
    """A produced message. `at` counts the seconds of the conversation's own time; `edited_at` is when a revision was made.

    `attribute`, `value`: what is stated, or what a command is about. `channel`: who finds it, the rules or the model.
    `reason`: why a noise turn is filtered. `resent`: the broker's answer was lost, so it may be there twice, and later
    than what was said after it.
    """

    kind: Kind
    topic: str
    key: str
    raw: bytes = field(repr=False)
    owner: str = ""
    conversation: str = ""
    turn_id: str = ""
    revision: int = 0
    role: str = "user"
    at: int = 0
    edited_at: int | None = None
    attribute: str = ""
    value: str = ""
    channel: str = ""
    reason: str = ""
    command_id: str = ""
    text: str = field(default="", repr=False)
    resent: bool = False

    @property
    def turn_key(self) -> str:
        """The turn's identity everywhere in memriver."""
        return digest(TENANT, self.conversation, self.turn_id)

    @property
    def conversation_key(self) -> str:
        """The conversation's."""
        return digest(TENANT, self.conversation)

    @property
    def is_turn(self) -> bool:
        """Whether it is a turn that can be read."""
        return self.topic == "turns" and self.kind is not Kind.JUNK

    def sent_again(self) -> Line:
        """The same message after a lost answer."""
        return replace(self, resent=True)


def write(path: Path, lines: Iterable[Line]) -> None:
    """One JSON object a line."""
    with path.open("wb") as file:
        for line in lines:
            file.write(orjson.dumps(asdict(line) | {"raw": base64.b64encode(line.raw).decode()}) + b"\n")


def read(path: Path) -> Iterator[Line]:
    """Inverse of `write`."""
    with path.open("rb") as file:
        for row in file:
            fields: dict[str, Any] = orjson.loads(row)
            yield Line(**fields | {"kind": Kind(fields["kind"]), "raw": base64.b64decode(fields["raw"])})
