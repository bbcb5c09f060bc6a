"""The C library is asked how many arenas it has made for twelve threads that allocate at the same time."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_COUNT = """
import ctypes, sys, tempfile, threading
from streams.allocator import share_arenas

asked = "ask" in sys.argv and share_arenas()
barrier = threading.Barrier(12)

def work():
    barrier.wait()
    held = [bytes(5_000) for _ in range(100)]
    barrier.wait()

threads = [threading.Thread(target=work) for _ in range(12)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as file:
    stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(asked, file.read().count(b"<heap nr="))
"""

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives each thread an arena")


def count(*arguments: str, **environment: str) -> tuple[bool, int]:
    """Whether the choice was made, and how many arenas there are."""
    surroundings = {key: value for key, value in os.environ.items() if key != "MALLOC_ARENA_MAX"} | environment
    done = subprocess.run(
        [sys.executable, "-c", _COUNT, *arguments], env=surroundings, capture_output=True, text=True, check=True
    )
    asked, arenas = done.stdout.split()
    return asked == "True", int(arenas)


def test_threads_share_two_arenas() -> None:
    assert count("ask") == (True, 2)


def test_without_it_they_would_have_more() -> None:
    assert count()[1] > 2


def test_what_the_operator_wants_comes_first() -> None:
    asked, arenas = count("ask", MALLOC_ARENA_MAX="3")
    assert not asked
    assert arenas == 3
