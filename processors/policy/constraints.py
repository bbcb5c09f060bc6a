"""Policy, business room: pluggable constraints over a candidate and the owner's present memories (SPEC W7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from processors.slots import normal_attribute, value_key
from schemas import Candidate, Memory, Operation, Status


class Constraint(Protocol):
    """One rule of the business. Pure: it sees what it is given and remembers nothing."""

    @property
    def name(self) -> str:
        """Short code for records."""

    def check(self, candidate: Candidate, current: Sequence[Memory]) -> str | None:
        """A short reason when the candidate must not be written beside `current`, else None."""


@dataclass(frozen=True, slots=True)
class OneOpenPerSubject:
    """No subject may have two open items of one attribute: a customer cannot have two open complaints.

    The same complaint told again is not a second one, and an item that is ended or forgotten makes room.
    """

    attribute: str = "open_complaint"
    name: str = "one_open_complaint"

    def check(self, candidate: Candidate, current: Sequence[Memory]) -> str | None:
        """The constraint's name when another item is open for the same tenant, owner and subject."""
        wanted = normal_attribute(self.attribute)
        if candidate.operation is not Operation.ASSERT or normal_attribute(candidate.attribute) != wanted:
            return None
        for memory in current:
            same_subject = (memory.tenant, memory.owner_kind, memory.owner, memory.subject) == (
                candidate.tenant,
                candidate.owner_kind,
                candidate.owner,
                candidate.subject,
            )
            open_item = memory.status is Status.ACTIVE and memory.valid_to is None
            if (
                same_subject
                and open_item
                and normal_attribute(memory.attribute) == wanted
                and value_key(memory.value) != value_key(candidate.value)
            ):
                return self.name
        return None


def first_violation(constraints: Sequence[Constraint], candidate: Candidate, current: Sequence[Memory]) -> str | None:
    """The first constraint's reason, in the order given, or None."""
    return next((reason for c in constraints if (reason := c.check(candidate, current)) is not None), None)
