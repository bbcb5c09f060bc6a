"""The drill: back up, go on, lose database and vectors, restore, read again what came later — and nothing has happened."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from sqlalchemy import insert, select, update
from typer.testing import CliRunner

from processors.exceptions import PoisonError
from schemas import Memory, Status
from sinks.truth import Truth, make_engine, tables, whole
from sinks.truth.migrate import current, upgrade
from sinks.truth.outbox import Outgoing
from streams.backup.file import DamagedBackup, Reader
from streams.backup.republish import Difference, republish
from streams.backup.taking import look, restore, take
from streams.cli import app
from streams.cli.embedded import Embedded
from streams.portability.importing import started
from streams.portability.signing import Signer
from tests.doubles.log import until
from tests.doubles.records import at
from tests.pipeline.conftest import DEMO
from tests.pipeline.river import STAGES, Left, process, settings

SIGNER = Signer.of(settings())
Run = Callable[..., Result]


@dataclass(frozen=True, slots=True)
class Drill:
    """The parts of the log, and the backup that was taken between them."""

    early: Path
    late: Path
    backup: Path
    undisturbed: Left
    restored: Left
    just_restored: dict[str, int]
    counted: dict[str, int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """`run(*arguments, NAME=value)`: the command line in this process, without this machine's settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("MEMRIVER_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MEMRIVER_HASH_KEY", settings().hash_key.get_secret_value())

    def command(*arguments: str, **environment: str) -> Result:
        done = CliRunner().invoke(app, arguments, env=environment)
        if done.exception is not None:
            raise done.exception
        return done

    return command


def url_of(directory: Path) -> str:
    return f"sqlite:///{directory / 'memriver.db'}"


def back_up(directory: Path, path: Path) -> dict[str, int]:
    """A backup of the database in this directory; returns the rows of each table."""
    truth = Truth(make_engine(url_of(directory)))
    try:
        revision = current(url_of(directory))
        return take(truth, path, revision=revision, positions=None, signer=SIGNER, now=at(1)).counts
    finally:
        truth.close()


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Drill:
    base = tmp_path_factory.mktemp("drill")
    lines = (DEMO / "gateway.jsonl").read_bytes().splitlines(keepends=True)
    early, late = base / "early.jsonl", base / "late.jsonl"
    early.write_bytes(b"".join(lines[:60]))
    late.write_bytes(b"".join(lines[60:]))
    undisturbed = process(base / "undisturbed", early, late, tenant="demo")
    process(base / "first", early, tenant="demo")
    counted = back_up(base / "first", base / "truth.backup")
    process(base / "first", late, tenant="demo")
    # The machine is gone: database and vectors with it.
    shutil.rmtree(base / "first")
    look(base / "truth.backup", SIGNER)
    (base / "second").mkdir()
    repaired = restore(url_of(base / "second"), base / "truth.backup")
    assert len(repaired) == 1
    truth = Truth(make_engine(url_of(base / "second")))
    with truth.reading() as connection:
        just_restored = whole.sizes(connection)
    truth.close()
    # Without positions the whole log is read again: what the backup has is known, what came later is done again.
    restored = process(base / "second", early, late, tenant="demo", stages=(*STAGES, "reindex"), then=_vectors_repaired)
    return Drill(early, late, base / "truth.backup", undisturbed, restored, just_restored, counted)


async def _vectors_repaired(embedded: Embedded) -> None:
    """Whoever owns the vectors does what the restored row asks for."""

    def asked() -> bool:
        with embedded.runtime.truth.reading() as connection:
            return connection.execute(select(tables.collections.c.task)).scalars().all() == ["repair"]

    await until(lambda: not asked())


def test_a_restored_database_has_every_row(drill: Drill) -> None:
    assert drill.just_restored == drill.counted
    assert all(drill.counted[name] for name in ("memories", "memory_versions", "claims", "turns", "inbox", "reviews"))


def test_truth_is_that_of_an_undisturbed_run(drill: Drill) -> None:
    """A claim and its retraction come by two topics, so a memory that no longer holds may rest at another version."""
    left, wanted = drill.restored, drill.undisturbed
    assert left.current() == wanted.current()
    assert left.past() == wanted.past()
    assert {item.id: _resting(item) for item in left.memories} == {item.id: _resting(item) for item in wanted.memories}
    assert left.versions == {f"{item.id}:{n}" for item in left.memories for n in range(1, item.version + 1)}
    assert [(row["turn_id"], row["outcome"], row["reason"]) for row in left.turns] == [
        (row["turn_id"], row["outcome"], row["reason"]) for row in wanted.turns
    ]
    assert {row["review_id"] for row in left.reviews} == {row["review_id"] for row in wanted.reviews}
    assert left.unpublished == 0


def _resting(memory: Memory) -> Memory:
    return memory if memory.status is Status.ACTIVE else memory.model_copy(update={"version": 0})


def test_the_vectors_are_rebuilt_from_truth(drill: Drill) -> None:
    points = {key: (point.version, point.status) for key, point in drill.restored.points.items()}
    held = [item for item in drill.restored.memories if item.status is not Status.DELETED]
    assert points == {item.id: (item.version, item.status.value) for item in held}
    assert points.keys() == drill.undisturbed.points.keys()
    assert points


def test_recall_works_after_the_drill(drill: Drill, run: Run) -> None:
    directory = drill.backup.parent / "second"
    there = {"MEMRIVER_DATABASE_URL": url_of(directory), "MEMRIVER_DATA_DIR": str(directory)}
    done = run("recall", "我住在哪里？", "--tenant", "demo", "--owner", "lilei", "--json", **there)
    assert "residence" in done.stdout


def _cut(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def _repack(change: Callable[[list[bytes]], None]) -> Callable[[bytes], bytes]:
    def changed(raw: bytes) -> bytes:
        lines = gzip.decompress(raw).splitlines(keepends=True)
        change(lines)
        return gzip.compress(b"".join(lines))

    return changed


def _edit(lines: list[bytes]) -> None:
    number = next(at for at, line in enumerate(lines) if b"residence" in line)
    lines[number] = lines[number].replace(b"residence", b"residenza")


def _older(lines: list[bytes]) -> None:
    lines[0] = lines[0].replace(b'"revision":"', b'"revision":"x')


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_cut, r"line \d+: cut off"),
        (lambda raw: b"not a backup", r"line 1: cut off, or no gzip file"),
        (_repack(lambda lines: lines.pop(5)), r"line \d+: \d+ rows of \w+, the manifest says"),
        (_repack(lambda lines: lines.pop()), r"line \d+: the file ends without a trailer"),
        (_repack(lambda lines: lines.__setitem__(3, b"[[]\n")), r"line 4: not JSON"),
        (_repack(_edit), r"line \d+: the checksum does not fit"),
        (_repack(_older), r"schema revision x"),
    ],
    ids=["cut", "other", "row lost", "no trailer", "not json", "edited", "revision"],
)
def test_a_file_that_is_damaged_or_of_another_schema_is_refused(
    drill: Drill, tmp_path: Path, change: Callable[[bytes], bytes], words: str
) -> None:
    path = tmp_path / "damaged.backup"
    path.write_bytes(change(drill.backup.read_bytes()))
    with pytest.raises(PoisonError, match=words):
        look(path, SIGNER)


def test_what_breaks_while_it_is_loaded_leaves_an_empty_database(drill: Drill, tmp_path: Path) -> None:
    path = tmp_path / "damaged.backup"
    path.write_bytes(_repack(_edit)(drill.backup.read_bytes()))
    url = f"sqlite:///{tmp_path / 'new.db'}"
    with pytest.raises(DamagedBackup):
        restore(url, path)
    truth = Truth(make_engine(url))
    with truth.reading() as connection:
        assert whole.filled(connection) == []
    truth.close()


def test_a_database_with_a_row_or_somebody_elses_table_is_refused_and_untouched(drill: Drill, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'used.db'}"
    upgrade(url)
    truth = Truth(make_engine(url))
    row = {"owner_key": "k", "tenant": "t", "owner_kind": "user", "owner": "o", "seq": 0}
    truth.run(lambda connection: connection.execute(insert(tables.owners), [row]))
    with pytest.raises(PoisonError, match=r"not empty \(owners\)"):
        restore(url, drill.backup)
    with truth.reading() as connection:
        assert whole.filled(connection) == ["owners"]
    truth.close()
    other = Truth(make_engine(f"sqlite:///{tmp_path / 'other.db'}", create=True))
    other.run(lambda connection: connection.exec_driver_sql("CREATE TABLE invoices (id INTEGER)"))
    other.close()
    with pytest.raises(PoisonError, match=r"not empty \(invoices\)"):
        restore(f"sqlite:///{tmp_path / 'other.db'}", drill.backup)


def test_another_hash_key_is_refused_unless_it_is_meant(drill: Drill) -> None:
    with pytest.raises(PoisonError, match="MEMRIVER_HASH_KEY"):
        look(drill.backup, Signer("another key altogether"))
    assert look(drill.backup, Signer("another key altogether"), other_key=True).counts == drill.counted


def test_a_backup_says_what_it_holds(drill: Drill) -> None:
    reader = Reader(drill.backup)
    rows = sum(row is not None for _table, row in reader.tables())
    assert reader.manifest is not None
    assert rows == sum(reader.manifest.counts.values())
    assert drill.backup.stat().st_mode & 0o077 == 0


def test_the_commands_do_what_the_drill_does(drill: Drill, tmp_path: Path, run: Run) -> None:
    there = {"MEMRIVER_DATABASE_URL": f"sqlite:///{tmp_path / 'new.db'}"}
    run("restore", str(drill.backup), "--dry-run", **there)
    assert not (tmp_path / "new.db").exists()
    run("restore", str(drill.backup), **there)
    with pytest.raises(PoisonError, match="not empty"):
        run("restore", str(drill.backup), **there)
    told = json.loads(run("backup", str(tmp_path / "again.backup"), "--without-positions", "--json", **there).stdout)
    assert told["manifest"]["counts"] == drill.counted
    with pytest.raises(PoisonError, match="no positions"):
        run("restore", str(tmp_path / "again.backup"), "--reset-groups", **there)


async def _told(embedded: Embedded) -> Difference:
    """What differs when the resolver has done what it was ordered."""
    async with asyncio.timeout(60):
        while True:
            found = await republish(embedded.settings, embedded.runtime.truth, now=at(2), dry_run=True)
            if not found.commands:
                return found


def test_events_that_differ_from_truth_are_told_again_and_then_nothing_differs(drill: Drill, tmp_path: Path) -> None:
    """Scenario: a topic that has never heard of some memories (a new broker), is ahead of truth in one, and holds one that
    truth does not know. We expect that afterwards its last events are truth, at versions that no replica has seen."""
    directory = tmp_path / "data"
    shutil.copytree(drill.backup.parent / "second", directory)
    found: list[Difference] = []
    before: dict[str, int] = {}

    async def then(embedded: Embedded) -> None:
        runtime = embedded.runtime
        found.append(await republish(embedded.settings, runtime.truth, now=at(1)))
        found.append(await _told(embedded))
        with runtime.truth.reading() as connection:
            rows = connection.execute(select(tables.memories.c.id, tables.memories.c.version))
            before.update({row.id: row.version for row in rows})
        await until(lambda: any(event.memory.status.value == "active" for event in embedded.events))
        one = next(event for event in embedded.events if event.memory.status.value == "active")
        ahead = one.memory.model_copy(update={"version": one.memory.version + 3, "text": "something else"})
        orphan = one.memory.model_copy(update={"id": "00000000-0000-5000-8000-00000000abcd"})
        for memory in (ahead, orphan):
            event = one.model_copy(update={"memory": memory, "owner_seq": one.owner_seq + 500})
            key, raw = memory.owner_key, event.to_bytes()
            async with started(embedded.settings) as producer:
                await producer.publish([Outgoing("memory_updated", memory.id, key, raw)])
        found.append(await republish(embedded.settings, runtime.truth, now=at(3)))
        found.append(await _told(embedded))

    left = process(directory, then=then, tenant="demo")
    first, second, third, fourth = (item.view() for item in found)
    assert first["missing"] == first["compared"] == len(left.memories)
    assert second == fourth == {**first, "missing": 0, "commands": 0}
    assert (third["ahead"], third["orphans"], third["missing"], third["behind"]) == (1, 1, 0, 0)
    lifted = {item.id: item.version - before[item.id] for item in left.memories if item.version != before[item.id]}
    assert list(lifted.values()) == [4]


def test_a_collection_beside_the_live_one_is_built_anew_after_a_restore(drill: Drill, tmp_path: Path) -> None:
    directory = tmp_path / "first"
    shutil.copytree(drill.backup.parent / "second", directory)
    truth = Truth(make_engine(url_of(directory)))

    def beside(connection: Any) -> None:
        row = dict(connection.execute(select(tables.collections)).one()._mapping)
        values = {"name": "other", "status": "building", "place": "other", "task": "build", "holder": "somebody"}
        connection.execute(insert(tables.collections), [row | values])
        connection.execute(update(tables.turns).values(reason=None))

    truth.run(beside)
    truth.close()
    back_up(directory, tmp_path / "again.backup")
    assert len(restore(url_of(tmp_path), tmp_path / "again.backup")) == 1
    truth = Truth(make_engine(url_of(tmp_path)))
    with truth.reading() as connection:
        rows: Sequence[Any] = connection.execute(select(tables.collections)).all()
    truth.close()
    assert {(row.status, row.task, row.holder) for row in rows} == {
        ("live", "repair", None),
        ("dropping", "drop", None),
    }
