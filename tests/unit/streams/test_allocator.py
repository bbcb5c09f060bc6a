"""How many arenas the C library makes for twelve threads, where it puts large buffers, and what it keeps of what was freed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_COUNT = """
import ctypes, sys, tempfile, threading
from streams.allocator import settle

asked = "ask" in sys.argv and settle()
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

_APART = """
import ctypes, sys
from streams.allocator import settle

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

if "ask" in sys.argv:
    settle()
mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Info
bytes(3_000_000)  # one that comes and goes
before = mallinfo().hblks
held = [bytes(1_000_000) for _ in range(20)]
print(mallinfo().hblks - before)
"""

_KEEP = """
import asyncio, sys
import psutil
from streams.allocator import keep_small

async def main():
    held = [bytes(5_000) for _ in range(40_000)]
    held[:] = held[::100]
    before = psutil.Process().memory_info().rss
    small = asyncio.create_task(keep_small())
    await asyncio.sleep(0.5)
    print(before // 10**6, psutil.Process().memory_info().rss // 10**6)
    assert not small.done()
    small.cancel()

asyncio.run(main())
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


@pytest.mark.parametrize(("arguments", "apart"), [(["ask"], 20), ([], 0)])
def test_large_buffers_stay_out_of_the_arenas(arguments: list[str], apart: int) -> None:
    """Scenario: a buffer of 3 MB is freed, and then there are twenty of 1 MB. We expect each to be one that goes back when it is
    freed; without our choice the first would have moved the limit, and none of them is."""
    done = subprocess.run([sys.executable, "-c", _APART, *arguments], capture_output=True, text=True, check=True)
    assert int(done.stdout) == apart


def test_what_the_operator_wants_comes_first() -> None:
    asked, arenas = count("ask", MALLOC_ARENA_MAX="3")
    assert not asked
    assert arenas == 3


def test_what_is_free_between_things_that_stay_goes_back() -> None:
    """Scenario: 200 MB are allocated, and of each hundred pieces all but one are freed."""
    done = subprocess.run([sys.executable, "-c", _KEEP], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before > 200
    assert after < before / 2
