"""Resolution, the ledger: claims and retractions in one total order that does not depend on delivery."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import regex

from schemas import Candidate

_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)
_DIGITS = regex.compile(r"\d+")


def order_key(stated_at: datetime, turn_id: str, position: int, claim_id: str) -> str:
    """A string that sorts as the conversation went.

    First when it was said, then the turn's id with its numbers compared as numbers ("t9" before "t10"), then the place
    inside the turn. The claim's own id breaks the last tie, so that no two entries are equal.
    """
    # In whole numbers: a float of seconds gives two turns a microsecond apart the same key.
    micros = (stated_at - _YEAR_ONE) // timedelta(microseconds=1)
    natural = _DIGITS.sub(lambda match: match.group().zfill(12), turn_id)[:128]
    return f"{micros:020d}|{natural}|{position:04d}|{claim_id}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One claim in the ledger of a cell."""

    key: str
    claim: Candidate

    @classmethod
    def of(cls, claim: Candidate) -> Entry:
        """The entry of a claim; `stated_at` orders it, not its arrival."""
        turn_id = claim.source_turn_ids[0] if claim.source_turn_ids else ""
        return cls(order_key(claim.stated_at, turn_id, claim.position, claim.candidate_id), claim)


@dataclass(frozen=True, slots=True)
class Retraction:
    """A turn takes back what another turn caused: every claim of `target_turn_key` below `below_revision` (None: all)."""

    key: str
    target_turn_key: str
    below_revision: int | None

    def voids(self, claim: Candidate) -> bool:
        """Whether the claim falls under this retraction."""
        return claim.turn_key == self.target_turn_key and (
            self.below_revision is None or claim.turn_revision < self.below_revision
        )
