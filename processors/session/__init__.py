"""Session room: what one conversation holds in mind (SPEC W13): digests, key points, open loops, the rolling summary.

All of it is judged from turns that still stand: what was retracted or deleted is not here, what the noise filter took out
is read but never summarised and never shown to a model.
"""

from processors.session.digests import TurnDigest, digest_of, recent_digests
from processors.session.due import Due, SummaryLimits, due_by
from processors.session.loops import Loop, LoopKind, follow
from processors.session.notes import Note, NoteKind, Source, Summary
from processors.session.said import Mask, Said, Suspect

__all__ = [
    "Due",
    "Loop",
    "LoopKind",
    "Mask",
    "Note",
    "NoteKind",
    "Said",
    "Source",
    "Summary",
    "SummaryLimits",
    "Suspect",
    "TurnDigest",
    "digest_of",
    "due_by",
    "follow",
    "recent_digests",
]
