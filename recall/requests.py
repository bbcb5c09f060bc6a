"""Requests: what can be asked of the read side, the same for HTTP, MCP and the command line; strict, small, explained."""

from __future__ import annotations

from typing import Annotated, Literal
from zoneinfo import ZoneInfo

import regex
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from processors.access import OwnerRef
from processors.slots import known_slots
from recall.request import MAX_LIMIT
from schemas import FeedbackKind, MemoryType, OwnerKind, SourceKind, UtcDatetime

MAX_WORDS = 4_000
"""Characters of a text to remember: an atomic fact, not a document (SPEC W15 keeps those elsewhere)."""
MAX_QUESTION = 2_000

_CONTROL = regex.compile(r"[\p{Cc}\p{Cs}--[\t\n\r]]", regex.V1)


def _readable(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("control characters and lone surrogates are not text")
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError("must be an IANA name such as Asia/Shanghai") from error
    return name


def _known_namespace(text: str) -> str:
    """A misspelt namespace would find nothing and look like an honest nothing."""
    parts = text.strip("/").split("/")
    rest = parts[2:] if parts[0] in set(OwnerKind) else parts
    known = {slot.namespace for slot in known_slots().values()}
    if rest and rest[0] not in known:
        raise ValueError(f"no such namespace; known are {', '.join(sorted(known))}")
    return text


Words = Annotated[str, StringConstraints(min_length=1, max_length=MAX_WORDS), AfterValidator(_readable)]
Question = Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUESTION), AfterValidator(_readable)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(_readable)]
Attribute = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(_readable)]
Namespace = Annotated[str, StringConstraints(min_length=1, max_length=1024), AfterValidator(_readable)]
Within = Annotated[Namespace, AfterValidator(_known_namespace)]
"""A filter: a segment (`profile`) or a whole namespace (`user/ann/profile`)."""
MemoryId = Annotated[str, StringConstraints(min_length=36, max_length=36, pattern=r"^[0-9a-f-]{36}$")]
Zone = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(_readable), AfterValidator(_zone)]


class Asked(BaseModel):
    """Base of all requests: an unknown field is an error, since a misspelt filter must not mean "no filter"."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Owner(Asked):
    """Whose memories are meant."""

    owner: Name = Field(description="id of the person, organisation, project or agent", examples=["ann"])
    owner_kind: OwnerKind = Field(default=OwnerKind.USER, description="what the owner is")

    @property
    def ref(self) -> OwnerRef:
        """The owner within the caller's tenant."""
        return OwnerRef(self.owner_kind, self.owner)


class Filtered(Owner):
    """An owner, what is shared with it, and where to look."""

    shared: tuple[Owner, ...] = Field(default=(), max_length=8, description="organisations or projects to look in too")
    namespaces: tuple[Within, ...] = Field(
        default=(), max_length=16, description="only below these, e.g. `profile` or `user/ann/profile`"
    )

    @property
    def refs(self) -> tuple[OwnerRef, ...]:
        """Everybody who is named."""
        return (self.ref, *(owner.ref for owner in self.shared))


class RecallAsked(Filtered):
    """What should I know about this?"""

    query: Question = Field(examples=["Where does she live now?"])
    types: tuple[MemoryType, ...] = Field(default=(), max_length=3, description="only these types; empty: by question")
    limit: int = Field(default=5, ge=1, le=MAX_LIMIT, description="results at most")
    conversation_id: Name | None = Field(
        default=None, description="recent turns of this conversation are looked at too"
    )
    agent_id: Name | None = Field(
        default=None, description="the agent that is asked for, when one key serves many; noted with who read what"
    )
    timezone: Zone = "UTC"
    explain: bool = Field(default=False, description="scores and their parts")


class ContextAsked(RecallAsked):
    """The same as text for a prompt, within a budget."""

    budget_tokens: int = Field(default=1_500, ge=50, le=100_000, description="tokens at most")
    language: Literal["zh", "en"] | None = Field(default=None, description="of the frame; None: the question's own")


class RememberAsked(Owner):
    """Keep this."""

    text: Words = Field(examples=["I live in Hamburg."])
    attribute: Attribute | None = Field(default=None, examples=["residence"], description="None: read from the text")
    value: Words | None = Field(default=None, description="None: the text")
    source: SourceKind | None = Field(
        default=None,
        description="where it comes from; None: the owner's own words if the owner asks, else the agent's (reviewed)",
    )
    quote: Words | None = Field(default=None, description="what was said, word for word")
    event_time: UtcDatetime | None = Field(default=None, description="since when it holds; None: now")
    ttl_days: int | None = Field(
        default=None,
        ge=1,
        le=3_650,
        description="from now, or from `event_time` if that is later; None: as the attribute has it",
    )
    timezone: Zone = "UTC"
    memory_id: MemoryId | None = Field(default=None, description="the memory that this replaces")
    expected_version: int | None = Field(default=None, ge=1, description="its version when last seen")

    @model_validator(mode="after")
    def _together(self) -> RememberAsked:
        if (self.memory_id is None) != (self.expected_version is None):
            raise ValueError("memory_id and expected_version go together")
        if self.value is not None and self.attribute is None:
            raise ValueError("a value needs its attribute")
        return self


class ForgetAsked(Owner):
    """Forget one memory, or everything under an attribute."""

    memory_id: MemoryId | None = None
    attribute: Attribute | None = Field(default=None, examples=["likes"])
    mode: Literal["forget", "delete"] = Field(
        default="forget", description="forget: no longer recalled, still traceable; delete: the content goes"
    )
    reason: Question = "asked to be forgotten"

    @model_validator(mode="after")
    def _one(self) -> ForgetAsked:
        if (self.memory_id is None) == (self.attribute is None):
            raise ValueError("name either memory_id or attribute; nothing named is never everything")
        return self


class EditAsked(Asked):
    """New wording, new value, or both."""

    text: Words | None = Field(default=None, examples=["lives in Hamburg"])
    value: Words | None = Field(default=None, examples=["Hamburg"])
    source: SourceKind | None = None
    quote: Words | None = None
    reason: Question = "corrected"

    @model_validator(mode="after")
    def _something(self) -> EditAsked:
        if self.text is None and self.value is None:
            raise ValueError("nothing to change: give text or value")
        return self


class ReplaceAsked(EditAsked):
    """The whole content anew."""

    text: Words
    value: Words


class RestoreAsked(Asked):
    """Back to an earlier version."""

    version: int = Field(ge=1)
    reason: Question = "restored"


class SummarizeAsked(Asked):
    """The summary of a conversation."""

    conversation_id: Name


class FeedbackAsked(Owner):
    """What became of recalled memories."""

    kind: FeedbackKind
    memory_ids: tuple[MemoryId, ...] = Field(default=(), max_length=50)
    query: Question | None = None
    correction: Words | None = None
    agent_id: Name | None = None

    @model_validator(mode="after")
    def _about_something(self) -> FeedbackAsked:
        if not self.memory_ids and self.query is None and self.correction is None:
            raise ValueError("say what it is about: memory_ids, query or correction")
        return self


class ReportAsked(Asked):
    """Something is wrong with a memory: two contents were seen under one version of it."""

    kind: Literal["conflict"] = "conflict"
    memory_id: MemoryId
    version: int = Field(ge=1, le=1_000_000_000, description="the version of which two contents were seen")
    detail: Question = Field(default="two contents were seen", description="how it came to be seen; no content, please")


class DecideAsked(Asked):
    """A reviewer's answer."""

    decision: Literal["approve", "reject", "merge", "undo"]
    into: MemoryId | None = Field(default=None, description="merge: the memory that stays")
    expected_version: int | None = Field(default=None, ge=1, description="the memory's version that was looked at")
    reason: Question = "reviewed"

    @model_validator(mode="after")
    def _merge(self) -> DecideAsked:
        if self.into is not None and self.decision != "merge":
            raise ValueError("into belongs to merge")
        return self
