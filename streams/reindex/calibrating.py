"""Re-embedding, calibrating: what a model's cosines mean among the sentences of this deployment."""

from __future__ import annotations

import logging
import uuid
from random import Random

from processors.ports import Embedder
from schemas import Status
from sinks.embedders.calibration import Calibration
from sinks.embedders.exceptions import RefusedTexts
from sinks.embedders.measuring import Said, measure
from sinks.truth import Truth, scanning
from sinks.truth.scanning import Entry

log = logging.getLogger("memriver.reindex")

_PLACES = 30
_RUN = 10
_LONGEST = 400
"""Characters of a memory that is measured with; a pasted document is not how people speak."""


def calibrate(truth: Truth, embedder: Embedder, rng: Random) -> Calibration:
    """Measured on up to 300 active memories from all over truth, and on the shipped sentences.

    Raises:
        TransientError: truth or the embedder is away.
    """
    own = [
        Said(entry.text, entry.language, entry.owner_key, entry.attribute)
        for entry in sample(truth, rng, _PLACES, _RUN)
        if entry.text and len(entry.text) <= _LONGEST
    ]
    try:
        return measure(embedder, own)
    except RefusedTexts:
        log.warning("the embedder refuses one of the sentences to be measured with; the shipped ones will do")
        return measure(embedder)


def sample(truth: Truth, rng: Random, places: int, run: int) -> list[Entry]:
    """Active memories from `places` random places in the order of ids, `run` neighbours each; none twice.

    Ids are digests, so neighbours have nothing in common.
    """
    found: dict[str, Entry] = {}
    for _ in range(places):
        place = str(uuid.UUID(int=rng.getrandbits(128)))
        with truth.reading() as connection:
            page = scanning.entries_after(connection, place, run) or scanning.entries_after(connection, "", run)
        found |= {entry.id: entry for entry in page if entry.status == Status.ACTIVE.value}
    return list(found.values())
