"""The C library's allocator: few arenas for many threads.

glibc gives each thread an arena of its own, up to eight a core, and what one thread frees another does not get. A worker's
transactions wander over the threads of its pool, so the room of the largest one was kept once for each of them: two slots
that came to 7,000 values, resolved in eight threads in turn, left 707 MB, and 382 with two arenas. Most of what a worker
allocates it allocates under the interpreter's lock, one thread at a time.
"""

from __future__ import annotations

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
