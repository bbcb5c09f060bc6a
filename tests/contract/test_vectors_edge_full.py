"""Qdrant Edge on a disk without room: said by its name, and taken up again where it stopped when there is room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCENARIO = """
import dataclasses, resource, signal, sys
from pathlib import Path
from processors.exceptions import TransientError
from sinks.vectors.edge import EdgeVectors
from tests.contract.test_vectors_edge import point

DIMENSION, BATCH = 4096, 100
UNLIMITED = resource.RLIM_INFINITY
store = EdgeVectors(Path(sys.argv[1]), prefix="memories", model="m", dimension=DIMENSION)
store.ensure()

def write(number):
    first = number * BATCH
    store.upsert([dataclasses.replace(point(first + one), dense=[1.0 + (first + one) / 1e6] + [0.5] * (DIMENSION - 1))
                  for one in range(BATCH)])

write(0)
# As a full disk to every file that would have to grow beyond this; the process goes on after a write that fails.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8_000_000, UNLIMITED))
number, said = 1, []
while not said and number < 200:
    try:
        write(number)
        number += 1
    except TransientError as error:
        said.append((error.part, str(error.outage)))
for _again in range(2):
    try:
        write(number)
        said.append("it was written")
    except TransientError as error:
        said.append((error.part, str(error.outage)))
print(said)
resource.setrlimit(resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))
write(number)
print(store.total() == (number + 1) * BATCH)
store.close()
store = EdgeVectors(Path(sys.argv[1]), prefix="memories", model="m", dimension=DIMENSION)
store.ensure()
print(store.total() == (number + 1) * BATCH)
"""


def test_a_disk_without_room_is_waited_out_and_no_point_is_missing_afterwards(tmp_path: Path) -> None:
    """Scenario: a limit on the size of files, which a file system without room is like. We expect no restart to be needed."""
    done = subprocess.run(
        [sys.executable, "-c", SCENARIO, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [str([("vectors", "disk_full")] * 3), "True", "True"]
