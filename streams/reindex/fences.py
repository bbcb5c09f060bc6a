"""Re-embedding, fences: what was erased before a collection began must not come into it by a late hand.

A process that slept writes its points when it wakes up, into every collection there is by then. Those that an erasure saw
have a tombstone at every version that was ever given out; one that was begun after it gets them here, before anything else.
"""

from __future__ import annotations

from sinks.truth import Truth, erasure
from sinks.vectors import Tombstone, VectorStore
from streams.reindex.lease import Lease

_PAGE = 1_000


def fence_erased(truth: Truth, store: VectorStore, lease: Lease) -> int:
    """Write the tombstone of every erased memory, in constant memory; again, it changes nothing. Returns how many.

    Erasures that are carried out from now on reach the collection themselves, since truth lists it.

    Raises:
        TransientError: truth or the store is away.
        Lost, Halted: the work must end here.
    """
    after, count = "", 0
    while True:
        with truth.reading() as connection:
            page = erasure.buried_after(connection, after, _PAGE)
        if not page:
            return count
        store.delete([Tombstone(memory_id, version) for memory_id, version in page])
        after = page[-1][0]
        count += len(page)
        lease.note()
