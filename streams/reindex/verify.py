"""Re-embedding, verification: nothing missing, nothing too much, every version equal, and what was found is found still."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Any

from schemas import Status
from sinks.truth import Truth, scanning
from sinks.truth.scanning import Entry
from sinks.vectors import Scope
from sinks.vectors.collection import Collection
from streams.reindex.calibrating import sample
from streams.reindex.compare import Comparison, Kind
from streams.reindex.lease import Lease

SAMPLED = 100
_TOP = 5
_OVERLAP = 10
WORSE = 0.05
"""How much smaller the share of memories that find themselves may be than in the old collection."""
_NAMED = 20


class Verification:
    """Compares a collection with truth and with the live one; changes nothing."""

    def __init__(
        self, truth: Truth, live: Collection, candidate: Collection, lease: Lease, rng: Random, sampled: int = SAMPLED
    ) -> None:
        self._truth = truth
        self._live = live
        self._candidate = candidate
        self._lease = lease
        self._rng = rng
        self._sampled = sampled

    def run(self, *, now: datetime) -> dict[str, Any]:
        """The report: counts, differences, shares, `ok`, and the reasons if it is not. Owners stand in it as digests.

        Raises:
            TransientError: a server is away.
            Lost, Halted: the work must end here.
        """
        comparison = Comparison(self._truth, self._candidate.store, self._lease)
        kinds = dict.fromkeys(Kind, 0)
        owners: set[str] = set()
        for chunk in comparison.differences():
            for difference in chunk:
                kinds[difference.kind] += 1
                owners.add(difference.owner_key)
        with self._truth.reading() as connection:
            everybody = scanning.owners(connection)
        recall = self._recall()
        reasons = [f"{count} {kind.value}" for kind, count in kinds.items() if count]
        if recall["found_after"] < recall["found_before"] - WORSE:
            reasons.append(
                f"{recall['found_after']:.0%} of the sampled memories find themselves, {recall['found_before']:.0%} did"
            )
        return {
            "at": now,
            "compared_with": self._live.name,
            "memories": dict(sorted(comparison.counts.truth.items())),
            "points": dict(sorted(comparison.counts.points.items())),
            "owners": everybody,
            "owners_differing": len(owners),
            "owners_differing_first": sorted(owners)[:_NAMED],
            **{kind.value: count for kind, count in kinds.items()},
            **recall,
            "ok": not reasons,
            "reasons": reasons,
        }

    def _recall(self) -> dict[str, Any]:
        """Each sampled memory's own words as a question, in both collections, by each one's own model."""
        chosen = sample(self._truth, self._rng, self._sampled, 1)
        before = after = 0
        overlaps: list[float] = []
        for entry in chosen:
            old, new = self._ask(self._live, entry), self._ask(self._candidate, entry)
            before += entry.id in old[:_TOP]
            after += entry.id in new[:_TOP]
            overlaps.append(len(set(old) & set(new)) / max(len(old), len(new), 1))
            self._lease.note()
        count = max(len(chosen), 1)
        return {
            "sampled": len(chosen),
            "found_before": round(before / count, 4),
            "found_after": round(after / count, 4),
            "overlap": round(sum(overlaps) / count, 4),
        }

    def _ask(self, collection: Collection, entry: Entry) -> Sequence[str]:
        scope = Scope(entry.tenant, (entry.owner_key,), statuses=(Status.ACTIVE.value,))
        vector = collection.embedder.embed_query(entry.text)
        return [hit.id for hit in collection.store.search_dense(vector, scope, _OVERLAP)]
