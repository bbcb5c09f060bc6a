"""Tests, doubles: one turn as the rules hear it, at noon of a Wednesday where it is spoken."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from processors.rules import RuleBook, RuleHit
from schemas import Role, Turn

LONDON = {"sent_at": datetime(2025, 6, 11, 11, 0, tzinfo=UTC), "timezone": "Europe/London"}
SHANGHAI = {"sent_at": datetime(2025, 6, 11, 4, 0, tzinfo=UTC), "timezone": "Asia/Shanghai"}


def heard(text: str, **fields: Any) -> tuple[RuleHit, ...]:
    """What the rules find in a turn of these words; `fields` are the turn's, its place and time among them."""
    given = {"conversation_id": "c1", "turn_id": "t1", "user_id": "u1", "role": Role.USER, "text": text}
    return RuleBook.load().match(Turn.model_validate(given | fields))
