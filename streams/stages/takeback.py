"""Taking back: "scratch that" undoes the same speaker's previous turn, also when turns arrive out of order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from processors.intake import Judged
from processors.resolution import order_key
from schemas import Command, CommandKind, Turn, new_id
from sinks.truth import turns
from sinks.truth.turns import Conversation, Neighbour
from streams.delivery import Delivered


def take_back_targets(
    connection: Connection,
    accepted: Sequence[Delivered[Judged]],
    late: Sequence[Delivered[Judged]],
    conversations: Mapping[str, Conversation],
) -> Iterator[tuple[Delivered[Judged], Command]]:
    """Commands for the retractions in this group, and for those whose target a late turn changes.

    A retraction that came before the turn it means finds an older target or none; when the right turn arrives, the same
    retraction is aimed anew, so that the outcome does not depend on the order of arrival.
    """
    for delivered in accepted:
        if delivered.item.retracts:
            turn = delivered.item.turn
            earlier, _later = turns.user_turns_around(connection, turn)
            yield (
                delivered,
                _aim(connection, _place(turn.sent_at, turn.turn_id), turn.turn_key, turn, earlier, conversations),
            )
    for delivered in late:
        turn = delivered.item.turn
        if delivered.item.retracts:
            continue
        earlier, later = turns.user_turns_around(connection, turn)
        here = _place(turn.sent_at, turn.turn_id)
        following = [item for item in later if not _before(item, here)]
        for item in sorted(following, key=lambda item: _place(item.sent_at, item.turn_id)):
            place = _place(item.sent_at, item.turn_id)
            if not item.retracts:
                break
            beside = [*earlier, _neighbour(turn), *(other for other in later if _before(other, place))]
            yield delivered, _aim(connection, place, item.turn_key, turn, beside, conversations)


def _aim(
    connection: Connection,
    place: str,
    retraction_turn_key: str,
    turn: Turn,
    beside: Sequence[Neighbour],
    conversations: Mapping[str, Conversation],
) -> Command:
    """Aim the retraction at the nearest earlier turn that is not itself a retraction."""
    candidates = [item for item in beside if _before(item, place) and not item.retracts]
    target = max(candidates, key=lambda item: _place(item.sent_at, item.turn_id), default=None)
    if target is not None:
        freed = turns.take_back(connection, target.turn_key)
        if freed >= 0:
            row = conversations[turn.conversation_key]
            row.pending_count -= 1
            row.pending_tokens -= freed
            if row.pending_count == 0:
                row.first_pending_at = None
    target_key = target.turn_key if target is not None else None
    return Command(
        command_id=new_id("retract", retraction_turn_key, target_key or ""),
        kind=CommandKind.RETRACT_TURN,
        tenant=turn.tenant,
        owner=turn.user_id,
        issued_by="ingest",
        issued_at=turn.sent_at,
        reason="taken back by its speaker",
        target_turn_key=target_key,
        retraction_turn_key=retraction_turn_key,
        payload={"order_key": place},
    )


def _place(sent_at: datetime, turn_id: str) -> str:
    return order_key(sent_at, turn_id, 9999, "")


def _before(item: Neighbour, place: str) -> bool:
    return _place(item.sent_at, item.turn_id) < place


def _neighbour(turn: Turn) -> Neighbour:
    return Neighbour(turn.turn_key, turn.turn_id, turn.sent_at, False)
