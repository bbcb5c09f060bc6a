"""Resolution: from a ledger of claims to the present memories, the same whatever order the claims arrived in (SPEC W9)."""

from processors.resolution.cell import Cell, Checkpoint, Memories, cell_key_of, slot_key_of
from processors.resolution.entry import Entry, Retraction, order_key
from processors.resolution.fold import simulate
from processors.resolution.reconcile import Change, advance, change_kind, reconcile

__all__ = [
    "Cell",
    "Change",
    "Checkpoint",
    "Entry",
    "Memories",
    "Retraction",
    "advance",
    "cell_key_of",
    "change_kind",
    "order_key",
    "reconcile",
    "simulate",
    "slot_key_of",
]
