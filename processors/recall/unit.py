"""Recall, the unit: one sentence that may answer a question, a memory or a turn."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from schemas import Category, MemoryType


class Kind(StrEnum):
    """What a unit is."""

    MEMORY = "memory"
    TURN = "turn"


class Unit(NamedTuple):
    """A sentence with what the ranker needs to know of it. A tuple, since each recall makes hundreds of them.

    `at` is when it was said or last confirmed, in seconds since the epoch. `group` and `position` place a turn in its
    conversation: neighbours differ by one in position; a memory has no group. `slot` is equal for memories that cannot
    both hold; empty where several may. `aside` is what belongs to the sentence without being said, such as the summary of
    an attachment. `subject` is who or what it is about, empty for the owner. `heat` is how often it was used, in [0, 1].
    """

    id: str
    text: str
    kind: Kind = Kind.MEMORY
    at: float = 0.0
    language: str = "en"
    speaker: str = ""
    aside: str = ""
    group: str = ""
    position: int = 0
    owner: str = ""
    shared: bool = False
    slot: str = ""
    attribute: str = ""
    subject: str = ""
    type: MemoryType | None = None
    category: Category | None = None
    confidence: float = 1.0
    heat: float = 0.0

    @property
    def words(self) -> str:
        """What keywords are looked for in: the text, whose words they are, and what belongs to it."""
        return " ".join(part for part in (self.speaker, self.text, self.aside) if part)

    @property
    def passage(self) -> str:
        """What is embedded: a memory's text, as in the vector store; a turn with its speaker and what belongs to it."""
        if self.kind is Kind.MEMORY:
            return self.text
        said = f"{self.speaker}: {self.text}" if self.speaker else self.text
        return f"{said} (photo: {self.aside})" if self.aside else said
