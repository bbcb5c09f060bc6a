"""Sinks, embedders: the one error that is theirs."""

from __future__ import annotations

from processors.exceptions import PoisonError


class RefusedTexts(PoisonError):
    """The endpoint will not embed some texts of a batch; the others are done.

    `positions` are the refused ones; `vectors` has one entry per text, None at those positions.
    """

    def __init__(self, positions: tuple[int, ...], vectors: list[list[float] | None]) -> None:
        super().__init__("embedding_refused", f"{len(positions)} of {len(vectors)} texts were refused by the endpoint")
        self.positions = positions
        self.vectors = vectors
