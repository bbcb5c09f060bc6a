"""Contracts: one turn of a conversation, as a chat gateway publishes it (SPEC W1)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo

from pydantic import Field, StringConstraints, field_validator, model_validator

from schemas.base import Contract, UtcDatetime, digest

MAX_TEXT = 100_000
"""Characters a turn's text may have; a longer one is a file and belongs in an attachment."""

Id = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Role(StrEnum):
    """Who speaks, in the words of the OpenAI chat format."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


class OwnerKind(StrEnum):
    """Whose memory it is; the first segment of a namespace (SPEC G1)."""

    USER = "user"
    ORG = "org"
    PROJECT = "project"
    AGENT = "agent"
    THREAD = "thread"


class Outcome(StrEnum):
    """What became of a turn (SPEC W2); the later ones replace the earlier ones."""

    STORED = "stored"
    FILTERED = "filtered"
    BATCHED = "batched"
    EXTRACTED = "extracted"
    REMEMBERED = "remembered"
    DEAD_LETTERED = "dead_lettered"
    # Its person, conversation or tenant was erased: nothing of it is kept but this count.
    SUPPRESSED = "suppressed"


class Attachment(Contract):
    """A pointer to a file; never its bytes."""

    name: str = Field(default="", max_length=1024)
    mime: str = Field(default="", max_length=255)
    url: str = Field(default="", max_length=8192)
    summary: str | None = None


class Turn(Contract):
    """One message in a conversation.

    `user_id` is who speaks when `role` is user, and who is being served otherwise. `sent_at` is UTC; `timezone` is the
    IANA zone in which the speaker means "yesterday". `revision` grows when the gateway reports an edit of the turn.
    """

    tenant: Id = "default"
    conversation_id: Id
    turn_id: Id
    user_id: Id
    role: Role
    text: str = Field(default="", max_length=MAX_TEXT)
    sent_at: UtcDatetime
    # Nobody said when: a log without times was given its file's. Nothing is reckoned from such a time.
    sent_at_guessed: bool = False
    timezone: str = "UTC"

    speaker_name: str | None = None
    agent_id: str | None = None
    gateway: str | None = None
    trace_id: str | None = None
    tool_name: str | None = None
    consent: bool | None = None
    attachments: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    revision: int = Field(default=0, ge=0)
    edited_at: UtcDatetime | None = None
    deleted: bool = False
    conversation_end: bool = False
    # A group room: other people read along, so statements there need the speaker to be the subject.
    group: bool = False

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError("timezone must be an IANA name such as Asia/Shanghai") from error
        return value

    @field_validator("text")
    @classmethod
    def _encodable(cls, value: str) -> str:
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("text has a lone surrogate and is not Unicode text") from error
        return value

    @model_validator(mode="after")
    def _says_something(self) -> Turn:
        if not self.text and not self.attachments and not self.deleted and not self.conversation_end:
            raise ValueError("a turn needs text, an attachment, deleted or conversation_end")
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's; the keys of a changed copy are computed anew."""
        copy = super().model_copy(update=update, deep=deep)
        for name in ("conversation_key", "turn_key", "owner_key"):
            copy.__dict__.pop(name, None)
        return copy

    @cached_property
    def conversation_key(self) -> str:
        """Digest of tenant and conversation: the Kafka key of the `turns` topic."""
        return digest(self.tenant, self.conversation_id)

    @cached_property
    def turn_key(self) -> str:
        """Digest that identifies the turn everywhere; a `turn_id` is unique only within its conversation."""
        return digest(self.tenant, self.conversation_id, self.turn_id)

    @cached_property
    def owner_key(self) -> str:
        """Digest of the person this turn belongs to."""
        return digest(self.tenant, OwnerKind.USER, self.user_id)
