"""Session, timing: when a conversation is to be summarised again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from processors.session.said import Said
from processors.tokens import estimate


class Due(StrEnum):
    """Why a summary is due."""

    TURNS = "turns"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class SummaryLimits:
    """SPEC W13: every 10 turns, or when what is not summarised fills 70 % of the window (in tokens)."""

    turns: int = 10
    window_tokens: int = 4_000
    share: float = 0.7


def due_by(unsummarised: Sequence[Said], limits: SummaryLimits) -> Due | None:
    """Whether these turns, said since the last summary, ask for a new one."""
    if len(unsummarised) >= limits.turns:
        return Due.TURNS
    if sum(estimate(item.turn.text) for item in unsummarised) >= limits.share * limits.window_tokens:
        return Due.WINDOW
    return None
