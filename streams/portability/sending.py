"""Portability, sending: what was read and screened becomes commands to the owner's single writer."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from processors.access import OwnerRef
from processors.exceptions import PoisonError
from schemas import Candidate, Command, CommandKind, Outcome, Turn, digest, new_id
from schemas.portable import Bundle, ExportedRetraction, ExportedReview, ExportedTurn, Portion
from sinks.truth.outbox import Outgoing
from streams.portability.reading import Part
from streams.portability.renaming import Renaming
from streams.portability.screening import Screen
from streams.stages.adopting import packed

PORTION = 300_000
"""Bytes of lines that go into one command; a larger single cell goes alone, and packed."""
MAX_COMMAND = 900_000
"""What a message may have, less its envelope."""
_WAITING = (Outcome.STORED, Outcome.BATCHED)


@dataclass(slots=True)
class Report:
    """What was sent, and what was not and why. Nothing in it is content."""

    cells: int = 0
    memories: int = 0
    versions: int = 0
    claims: int = 0
    reviews: int = 0
    retractions: int = 0
    turns: int = 0
    commands: int = 0
    without_history: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    bad_records: list[dict[str, Any]] = field(default_factory=list)

    def view(self) -> dict[str, Any]:
        """For people and programs."""
        names = ("cells", "memories", "versions", "claims", "reviews", "retractions", "turns", "commands")
        return {name: getattr(self, name) for name in names} | {
            "cells_without_history": self.without_history,
            "left_out": dict(sorted(self.left_out.items())),
            "bad_records": self.bad_records,
        }


@dataclass(frozen=True, slots=True)
class Target:
    """Whose memories they will be."""

    tenant: str
    owner: OwnerRef

    @property
    def owner_key(self) -> str:
        """Digest of the owner."""
        return digest(self.tenant, self.owner.kind, self.owner.id)


class Orders:
    """Parts of an export in, messages out, in the same order. `report` grows as they are taken."""

    def __init__(
        self,
        target: Target,
        screen: Screen,
        *,
        by: str,
        now: datetime,
        renaming: Renaming | None = None,
        with_turns: bool = False,
    ) -> None:
        self._target = target
        self._screen = screen
        self._by = by
        self._now = now
        self._renaming = renaming
        self._with_turns = with_turns
        self.report = Report()

    def messages(self, parts: Iterable[Part]) -> Iterator[Outgoing]:
        """Commands, and turns that nobody had judged yet.

        Raises:
            PoisonError: a memory whose history is too long for a message, even packed.
        """
        held, size = _Held(), 0
        for part in parts:
            for item in self._screened(part):
                if isinstance(item, Outgoing):
                    yield item
                    continue
                more = len(item.to_bytes())
                if size and (size + more > PORTION or not held.takes(item)):
                    yield self._order(held.portion(), size)
                    held, size = _Held(), 0
                held.add(item)
                size += more
        if size:
            yield self._order(held.portion(), size)

    def _screened(self, part: Part) -> Iterator[Part | Outgoing]:
        report = self.report
        if isinstance(part, ExportedReview):
            if self._renaming is not None:
                # It names memories by ids that are made anew; what is locked up is asked about here anyway.
                report.left_out["review_of_another_name"] += 1
                return
            report.reviews += 1
            yield self._screen.review(part)
        elif isinstance(part, ExportedRetraction):
            report.retractions += 1
            yield part if self._renaming is None else self._renaming.retraction(part)
        elif isinstance(part, ExportedTurn):
            yield from self._turn(part)
        else:
            yield from self._cell(part)

    def _turn(self, line: ExportedTurn) -> Iterator[Part | Outgoing]:
        if self._renaming is not None:
            self.report.left_out["turn_of_another_name"] += 1
            return
        if line.outcome in _WAITING:
            # The model had not seen it: here it is a turn like any other.
            turn: Turn = line.turn
            self.report.turns += 1
            yield Outgoing("turns", turn.conversation_key, turn.conversation_key, turn.to_bytes())
        elif self._with_turns:
            self.report.turns += 1
            yield line
        else:
            self.report.left_out["turn_judged_elsewhere"] += 1

    def _cell(self, bundle: Bundle) -> Iterator[Part | Outgoing]:
        report = self.report
        if self._renaming is not None:
            bundle = self._renaming.bundle(bundle)
        screened = self._screen.cell(bundle)
        report.cells += 1
        report.claims += len(screened.claims)
        for _claim_id, reasons in screened.refused:
            report.left_out[reasons[0] if reasons else "policy"] += 1
        if screened.intact:
            report.memories += len(bundle.memories)
            report.versions += len(bundle.versions)
            yield bundle
            return
        if screened.claims:
            # What is different now makes other memories; a history of what may not be said has no place here.
            report.without_history += 1
        for claim in screened.claims:
            yield claim_message(claim, report)

    def _order(self, portion: Portion, size: int) -> Outgoing:
        raw = portion.to_bytes()
        payload = portion.model_dump(mode="json") if size <= MAX_COMMAND // 2 else packed(portion)
        command = Command(
            command_id=new_id("adopt", self._target.owner_key, digest(raw.hex()), str(zlib.crc32(raw))),
            kind=CommandKind.ADOPT,
            tenant=self._target.tenant,
            owner_kind=self._target.owner.kind,
            owner=self._target.owner.id,
            issued_by=self._by,
            issued_at=self._now,
            reason="import",
            payload=payload,
        )
        message = command.to_bytes()
        if len(message) > MAX_COMMAND:
            raise PoisonError("too_large", "a memory's history is too long for a message; nothing after it was sent")
        self.report.commands += 1
        return Outgoing("commands", command.owner_key, command.owner_key, message)


class _Held:
    """What goes into the next command: one kind of part, so that their order is kept."""

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def takes(self, part: Part) -> bool:
        return not self._parts or type(self._parts[0]) is type(part)

    def add(self, part: Part) -> None:
        self._parts.append(part)

    def portion(self) -> Portion:
        return Portion(
            reviews=tuple(part for part in self._parts if isinstance(part, ExportedReview)),
            retractions=tuple(part for part in self._parts if isinstance(part, ExportedRetraction)),
            cells=tuple(part for part in self._parts if isinstance(part, Bundle)),
            turns=tuple(part for part in self._parts if isinstance(part, ExportedTurn)),
        )


def claim_message(claim: Candidate, report: Report) -> Outgoing:
    """A claim on its way to the resolver, as ingest and extract send theirs."""
    report.commands += 1
    return Outgoing("candidates", claim.owner_key, claim.owner_key, claim.to_bytes())
