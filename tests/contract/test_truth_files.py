"""SQLite's files after a deletion: no byte of it, wherever its rows had been before."""

from __future__ import annotations

import random
from pathlib import Path

from sqlalchemy import make_url, text

from sinks.truth import Truth
from sinks.truth.files import forget_bytes


def test_no_byte_of_what_was_deleted_is_left_in_the_files(sqlite_truth: Truth, sqlite_url: str) -> None:
    """Scenario: rows of two people, in random order, so that pages are divided and rows move on while they grow.
    We expect the deleted ones to be gone from every file, and the others to be there."""
    rng = random.Random(1)
    rows = [
        {"k": f"{rng.getrandbits(128):032x}", "body": ("bobnut", "annweed")[number % 2] * rng.randint(20, 80)}
        for number in range(2_000)
    ]
    with sqlite_truth.begin() as connection:
        connection.execute(text("CREATE TABLE told (k VARCHAR PRIMARY KEY, body TEXT)"))
        connection.execute(text("CREATE INDEX ix_told ON told (body)"))
        connection.execute(text("INSERT INTO told VALUES (:k, :body)"), rows)
        connection.execute(text("DELETE FROM told WHERE body LIKE 'annweed%'"))
    forget_bytes(sqlite_truth)
    place = Path(str(make_url(sqlite_url).database))
    left = b"".join(path.read_bytes() for path in place.parent.glob(f"{place.name}*"))
    assert b"annweed" not in left
    with sqlite_truth.reading() as connection:
        assert connection.execute(text("SELECT count(*) FROM told")).scalar_one() == 1_000
