"""The C library's allocator: few arenas for many threads, large buffers apart, and what is not needed goes back now and then.

glibc gives each thread an arena of its own, up to eight a core, and what one thread frees another does not get. A worker's
transactions wander over the threads of its pool, so the room of the largest one was kept once for each of them: two slots
that came to 7,000 values, resolved in eight threads in turn, left 707 MB, and 382 with two arenas. Most of what a worker
allocates it allocates under the interpreter's lock, one thread at a time.

It takes large buffers from the operating system one by one and gives them back when they are freed; but once one of them was
freed, it takes all up to that size, and in the end 32 MB, from among the small ones. A group's statements and answers are
such buffers, and small things settle in the gaps that they leave.

Nor does it give back what was freed between things that are still there. Of a process that had resolved a long slot's claims
and had 255 MB, all that was more than before (178 MB) went back when it was asked to.
"""

from __future__ import annotations

import asyncio
import ctypes
import os

# malloc.h of glibc: the option's number, its value and the environment's name for it.
_ARENAS = (-8, 2, "MALLOC_ARENA_MAX")
_LARGE = (-3, 128 * 1024, "MALLOC_MMAP_THRESHOLD_")
_SPARE = (-1, 4 * 1024 * 1024, "MALLOC_TRIM_THRESHOLD_")
_OPTIONS = (_ARENAS, _LARGE, _SPARE)


def settle() -> bool:
    """Have all threads share two arenas, and keep buffers from 128 KB on out of them; to be called before there are threads.

    Returns whether all of it was done: not what the environment says that the operator wants otherwise, nor where the C
    library has no such choice.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all([name not in os.environ and bool(mallopt(option, value)) for option, value, name in _OPTIONS])


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
