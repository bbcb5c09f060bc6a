"""The garbage collector, set for a process that lives long: what was loaded at start stays, and is not walked through again."""

from __future__ import annotations

import gc

_YOUNG = 20_000
"""Objects between two looks at the young ones. A group of turns makes tens of thousands, nearly all of them freed by their
counts alone; the default of 700 looked thirty times per group, a sixth of a judge's work."""


def settle() -> None:
    """To be called once, when everything that stays has been loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 10, 10)
