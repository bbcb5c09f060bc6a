"""The C library's allocator: few arenas for many threads, and what they do not need goes back now and then.

glibc gives each thread an arena of its own, up to eight a core, and what one thread frees another does not get. A worker's
transactions wander over the threads of its pool, so the room of the largest one was kept once for each of them: two slots
that came to 7,000 values, resolved in eight threads in turn, left 707 MB, and 382 with two arenas. Most of what a worker
allocates it allocates under the interpreter's lock, one thread at a time.

Nor does it give back what was freed between things that are still there. Of a process that had resolved a long slot's claims
and had 255 MB, all that was more than before (178 MB) went back when it was asked to.
"""

from __future__ import annotations

import asyncio
import ctypes
import os

_M_ARENA_MAX = -8  # malloc.h of glibc
_ARENAS = 2


def share_arenas() -> bool:
    """Have all threads share two arenas; to be called before there are threads.

    Returns whether it was done: not where MALLOC_ARENA_MAX says what the operator wants, nor where the C library has no
    such choice.
    """
    if "MALLOC_ARENA_MAX" in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_ARENA_MAX, _ARENAS))


def give_back() -> bool:
    """Return free memory to the operating system; a matter of milliseconds. False where the C library cannot."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return False
    trim(0)
    return True


async def keep_small(every_seconds: float = 30.0) -> None:
    """`give_back` every so often, until cancelled, or at once over where that cannot be done."""
    while await asyncio.to_thread(give_back):  # noqa: ASYNC110 - a pause that waits for nothing
        await asyncio.sleep(every_seconds)
