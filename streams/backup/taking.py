"""Backup, taking and restoring: one snapshot into a file, and a file that was looked at whole into an empty database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from processors.exceptions import PoisonError
from sinks.truth import Truth, make_engine, portable, whole
from sinks.truth.migrate import current, head, upgrade
from streams.backup.file import DamagedBackup, Manifest, Positions, Reader, pack
from streams.portability.importing import write_whole
from streams.portability.signing import Signer

Progress = Callable[[int], None]
"""Told how many more rows have gone by."""


def take(
    truth: Truth,
    path: Path,
    *,
    revision: str | None,
    positions: Positions | None,
    signer: Signer,
    now: datetime,
    progress: Progress = lambda _rows: None,
) -> Manifest:
    """Write all of truth as it is at one moment; nobody is kept from writing. `revision` is the database's.

    Raises:
        PoisonError: the database is not at the revision of this code, so this code does not know all of it.
    """
    if revision != head():
        raise PoisonError(
            "other_revision", f"the database is at revision {revision or 'none'}, this code knows {head()}"
        )
    with portable.snapshot(truth) as connection:
        manifest = Manifest(
            revision=revision,
            created_at=now.isoformat(),
            backend=truth.engine.dialect.name,
            columns={name: whole.columns_of(name) for name in whole.table_names()},
            counts=whole.sizes(connection),
            key_id=signer.key_id,
            positions=positions,
        )
        tables = ((name, _counted(whole.rows_of(connection, name), progress)) for name in whole.table_names())
        write_whole(path, pack(manifest, tables, signer))
    return manifest


def _counted(rows: Iterator[list[Any]], progress: Progress) -> Iterator[list[Any]]:
    for row in rows:
        yield row
        progress(1)


def look(path: Path, signer: Signer, *, other_key: bool = False) -> Manifest:
    """Read all of a file and say whether it can be restored by this code.

    Raises:
        DamagedBackup: with the line.
        PoisonError: another schema revision, or another hash key (`other_key` allows that).
    """
    reader = Reader(path)
    for table, row in reader.tables():
        manifest = reader.manifest
        assert manifest is not None
        if row is None:
            _fits(manifest)
        elif len(row) != len(manifest.columns[table]):
            raise reader.damaged(f"a row of {table} with {len(row)} values")
    manifest = reader.manifest
    assert manifest is not None
    _fits(manifest)
    if manifest.key_id != signer.key_id:
        if not other_key:
            raise PoisonError(
                "wrong_key",
                "made under another MEMRIVER_HASH_KEY: API keys and hashes of identity numbers would not be known again",
            )
    elif not signer.holds(reader.sha256, reader.signature):
        raise DamagedBackup(reader.number, "the signature is wrong: the file was changed after it was made")
    return manifest


def _fits(manifest: Manifest) -> None:
    if manifest.revision != head():
        raise PoisonError(
            "other_revision",
            f"the backup is of schema revision {manifest.revision}, this code has {head()}: restore it with the release "
            "that made it, then run `memriver db upgrade`",
        )
    if manifest.columns != {name: whole.columns_of(name) for name in whole.table_names()}:
        raise PoisonError("other_schema", "the backup has other tables or columns than this code")


def restore(url: str, path: Path, progress: Progress = lambda _rows: None) -> list[str]:
    """Write a file that was looked at into an empty database, in one transaction; returns collections to be repaired.

    Raises:
        PoisonError: the database holds something; nothing is changed.
        TransientError: it is away; nothing is changed but an empty schema.
    """
    truth = Truth(make_engine(url, pool_size=2, create=True))
    try:
        with truth.reading() as connection:
            filled = whole.filled(connection)
        if filled:
            raise PoisonError(
                "not_empty", f"the database is not empty ({', '.join(filled[:5])}): restore into a new one"
            )
        if current(url) != head():
            upgrade(url)
        with truth.begin() as connection:
            # Once more under the transaction: somebody may have started a worker meanwhile.
            if whole.filled(connection):
                raise PoisonError("not_empty", "somebody is writing into the database: stop all workers first")
            _load(connection, path, progress)
            return whole.vectors_are_gone(connection)
    finally:
        truth.close()


def _load(connection: Connection, path: Path, progress: Progress) -> None:
    rows = Reader(path).tables()
    table, pending = "", next(rows, None)
    while pending is not None:
        table = pending[0]
        after: list[tuple[str, list[Any] | None]] = []

        def of_table(name: str = table, after: list[tuple[str, list[Any] | None]] = after) -> Iterator[list[Any]]:
            for item in rows:
                if item[1] is None or item[0] != name:
                    after.append(item)
                    return
                progress(1)
                yield item[1]

        whole.write_rows(connection, table, of_table())
        pending = after[0] if after else None
