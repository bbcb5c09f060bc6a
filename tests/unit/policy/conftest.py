"""Tests, policy room: builders for turns and candidates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from processors.policy import PolicyGate, PolicySettings
from processors.slots import namespace_of, slot_for
from schemas import Candidate, Channel, Evidence, OwnerKind, Role, SourceKind, Turn

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)
KEY = b"a key that only tests know......"


@pytest.fixture(scope="session")
def gate() -> PolicyGate:
    return PolicyGate(PolicySettings(), KEY)


@pytest.fixture(scope="session")
def gate_with() -> Callable[..., PolicyGate]:
    def build(**settings: Any) -> PolicyGate:
        return PolicyGate(PolicySettings(**settings), KEY)

    return build


@pytest.fixture(scope="session")
def turn() -> Callable[..., Turn]:
    def build(text: str = "hello", role: Role = Role.USER, **fields: Any) -> Turn:
        data: dict[str, Any] = {
            "conversation_id": "c1",
            "turn_id": "t1",
            "user_id": "u1",
            "role": role,
            "text": text,
            "sent_at": NOW,
            "timezone": "Asia/Shanghai",
        }
        return Turn(**(data | fields))

    return build


@pytest.fixture(scope="session")
def candidate(turn: Callable[..., Turn]) -> Callable[..., Candidate]:
    def build(
        text: str, attribute: str = "note", value: str | None = None, quote: str | None = None, **fields: Any
    ) -> Candidate:
        slot = slot_for(attribute)
        key = turn().turn_key
        owner_kind = fields.get("owner_kind", OwnerKind.USER)
        data: dict[str, Any] = {
            "candidate_id": "k1",
            "tenant": "default",
            "owner": "u1",
            "namespace": namespace_of(owner_kind, "u1", slot.namespace),
            "conversation_id": "c1",
            "source_turn_ids": ("t1",),
            "turn_key": key,
            "channel": Channel.MODEL,
            "writer": "test",
            "type": slot.type,
            "category": slot.category,
            "attribute": attribute,
            "value": text if value is None else value,
            "text": text,
            "language": "zh" if any("\u4e00" <= c <= "\u9fff" for c in text) else "en",
            "evidence": (Evidence(turn_id="t1", turn_key=key, quote=text if quote is None else quote),),
            "source_kind": SourceKind.USER_STATEMENT,
            "event_time": NOW,
            "stated_at": NOW,
            "timezone": "Asia/Shanghai",
            "confidence": 0.9,
            "sensitivity": slot.sensitivity,
        }
        return Candidate(**(data | fields))

    return build
