"""Recall, what can be wrong with a request; see `processors.exceptions` for the tree and `processors.access` for Denied."""

from __future__ import annotations

from processors.exceptions import PoisonError


class BadRequest(PoisonError):
    """The request cannot be meant. The text names the field and never repeats its content."""

    def __init__(self, detail: str) -> None:
        super().__init__("invalid_request", detail)
