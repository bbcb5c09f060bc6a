"""Contracts: every message and record that crosses a process boundary; imports nothing else of memriver."""

from schemas.base import Contract, Digest, MessageId, UtcDatetime, digest, new_id
from schemas.candidate import (
    Candidate,
    Cardinality,
    Category,
    Channel,
    Evidence,
    MemoryType,
    Operation,
    Provenance,
    Sensitivity,
    SourceKind,
)
from schemas.command import Command, CommandKind
from schemas.deadletter import DeadLetter
from schemas.event import ChangeKind, MemoryUpdated
from schemas.extraction import ExtractionBatch
from schemas.feedback import Feedback, FeedbackKind
from schemas.memory import Audit, Interval, Memory, Status
from schemas.turn import Attachment, Outcome, OwnerKind, Role, Turn

__all__ = [
    "Attachment",
    "Audit",
    "Candidate",
    "Cardinality",
    "Category",
    "ChangeKind",
    "Channel",
    "Command",
    "CommandKind",
    "Contract",
    "DeadLetter",
    "Digest",
    "Evidence",
    "ExtractionBatch",
    "Feedback",
    "FeedbackKind",
    "Interval",
    "Memory",
    "MemoryType",
    "MemoryUpdated",
    "MessageId",
    "Operation",
    "Outcome",
    "OwnerKind",
    "Provenance",
    "Role",
    "Sensitivity",
    "SourceKind",
    "Status",
    "Turn",
    "UtcDatetime",
    "digest",
    "new_id",
]
