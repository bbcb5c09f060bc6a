"""Context room: puts what is known in front of an agent, within a token budget and as data (SPEC R5), and notices what was
not asked for (SPEC R6)."""

from processors.context.assembly import SHRINK_ORDER, assemble
from processors.context.item import Citation, Context, Item, Layer, RefKind
from processors.context.neutral import as_data
from processors.context.scenes import Surfaced, surfaced

__all__ = [
    "SHRINK_ORDER",
    "Citation",
    "Context",
    "Item",
    "Layer",
    "RefKind",
    "Surfaced",
    "as_data",
    "assemble",
    "surfaced",
]
