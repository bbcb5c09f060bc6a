"""Command line, looking: memories, turns, doctor."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated

import typer

from processors.exceptions import MemriverError, PoisonError
from schemas import Status
from sinks.truth import Truth, batches, deadletters, erasure, memories, turns
from sinks.truth.migrate import check as check_schema
from sinks.truth.migrate import current, head
from streams.cli.embedded import quiet_logs
from streams.cli.output import as_json, memory_view, table, turn_view
from streams.producer import EventProducer
from streams.runtime import open_truth, settings_url, wall_clock
from streams.sealing import has_own_master_key
from streams.settings import Settings
from streams.vectors import open_collections, open_embedder, settle_live

Json = Annotated[bool, typer.Option("--json", help="print JSON")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="What is remembered.", no_args_is_help=True)
    group.command("list")(memories_list)
    group.command("show")(memories_show)
    group.command("history")(memories_history)
    app.add_typer(group, name="memories")
    group = typer.Typer(help="What became of a turn.", no_args_is_help=True)
    group.command("status")(turns_status)
    app.add_typer(group, name="turns")
    app.command()(doctor)


def _truth() -> Truth:
    settings = Settings()
    check_schema(settings_url(settings))
    return open_truth(settings)


def memories_list(
    owner: Annotated[str | None, typer.Option(help="only this person's")] = None,
    tenant: Annotated[str | None, typer.Option(help="only this tenant's")] = None,
    status: Annotated[Status | None, typer.Option(help="only this status")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 200,
    json: Json = False,
) -> None:
    """List memories, superseded and quarantined ones included. For operators: it sees every owner."""
    with _truth().reading() as connection:
        found = memories.listing(connection, tenant=tenant, owner=owner, status=status, limit=limit)
    if json:
        as_json([memory_view(memory) for memory in found])
        return
    rows = [(m.id, m.owner, m.status, m.attribute, m.value, m.version, m.valid_from, m.valid_to) for m in found]
    table("Memories", ("id", "owner", "status", "attribute", "value", "v", "from", "until"), rows)


def memories_show(memory_id: str, json: Json = False) -> None:
    """One memory with its evidence and provenance."""
    with _truth().reading() as connection:
        memory = memories.get(connection, memory_id)
    if memory is None:
        raise PoisonError("not_found", "there is no memory with this id")
    if json:
        as_json(memory_view(memory))
        return
    view = memory_view(memory)
    table("Memory", ("field", "value"), [(key, value) for key, value in view.items()])


def memories_history(memory_id: str, json: Json = False) -> None:
    """Every version of a memory, and what caused it."""
    with _truth().reading() as connection:
        rows = memories.history(connection, memory_id)
    if not rows:
        raise PoisonError("not_found", "there is no memory with this id")
    if json:
        as_json([row | {"memory": memory_view(row["memory"])} for row in rows])
        return
    columns = ("version", "change", "status", "text", "cause", "recorded")
    found = [
        (r["version"], r["change"], r["memory"].status, r["memory"].text, r["cause"], r["recorded_at"]) for r in rows
    ]
    table("History", columns, found)


def turns_status(
    turn_id: str,
    tenant: Annotated[str | None, typer.Option(help="only in this tenant")] = None,
    json: Json = False,
) -> None:
    """What became of a turn: stored, filtered and why, batched, extracted, remembered or dead-lettered."""
    with _truth().reading() as connection:
        rows = [turn_view(row) for row in turns.status(connection, turn_id, tenant=tenant)]
    if not rows:
        raise PoisonError("not_found", "no turn with this id has arrived; if it was broken, see `memriver dlq list`")
    if json:
        as_json(rows)
        return
    columns = ("tenant", "conversation_id", "turn_id", "role", "sent_at", "outcome", "reason")
    table("Turns", columns, [[row[name] for name in columns] for row in rows])


def doctor(json: Json = False) -> None:
    """Check every part of this deployment and say what is wrong, in words; exit code 1 if something is."""
    settings = Settings()
    quiet_logs("CRITICAL")
    report = asyncio.run(_examine(settings))
    if json:
        as_json(report)
    else:
        table("Doctor", ("part", "state", "what"), [(r["part"], r["state"], r["what"]) for r in report])
    if any(row["state"] == "wrong" for row in report):
        raise typer.Exit(1)


async def _examine(settings: Settings) -> list[dict[str, str]]:
    report: list[dict[str, str]] = []

    def say(part: str, state: str, what: str) -> None:
        report.append({"part": part, "state": state, "what": what})

    truth = open_truth(settings)
    try:
        at, newest = current(settings_url(settings)), head()
        if at == newest:
            say("database", "ok", f"schema {at}")
        else:
            say("database", "wrong", f"schema {at or 'none'}, needs {newest}: memriver db upgrade")
        if at == newest:
            with truth.reading() as connection:
                waiting = batches.count_by_status(connection).get("waiting", 0)
                letters = deadletters.count(connection)
                asked = erasure.oldest_open(connection)
            if asked is not None:
                late = wall_clock() - asked > timedelta(hours=settings.erasure_sla_hours)
                say(
                    "erasures",
                    "wrong" if late else "note",
                    f"one is open since {asked:%Y-%m-%d %H:%M}: memriver erase status",
                )
            if waiting:
                say("batches", "note", f"{waiting} wait for the model channel: memriver replay batches")
            say(
                "dead letters",
                "note" if letters else "ok",
                f"{letters} waiting" + (": memriver dlq list" if letters else ""),
            )
    except MemriverError as error:
        say("database", "wrong", str(error))
    finally:
        truth.close()
    producer = EventProducer(settings)
    try:
        await producer.start()
        say("kafka", "ok", "answers")
        for name in ("turns", "batches", "candidates", "commands", "memory_updated"):
            await producer.partitions(name)
    except Exception as error:  # noqa: BLE001 - whatever a client raises, a doctor reports it
        say("kafka", "wrong", f"{type(error).__name__}: is the broker up, and did `memriver topics apply` run?")
    finally:
        await producer.stop()
    try:
        embedder = open_embedder(settings)
        say("embedder", "ok", f"{embedder.model}, {embedder.dimension} dimensions")
    except MemriverError as error:
        say("embedder", "wrong", str(error))
    try:
        say("vectors", *_vectors(settings))
    except MemriverError as error:
        say("vectors", "wrong", str(error))
    if settings.model_enabled:
        say("model channel", "ok", f"on: {settings.model_name}")
    else:
        say("model channel", "note", "off: MEMRIVER_MODEL_BASE_URL is not set; batches wait in the database")
    if settings.hash_key.get_secret_value() == Settings.model_fields["hash_key"].default.get_secret_value():
        say(
            "hash key",
            "note",
            "MEMRIVER_HASH_KEY is the development key: identity numbers could be guessed from their hashes",
        )
    if not has_own_master_key(settings):
        say(
            "master key",
            "note",
            "MEMRIVER_MASTER_KEY is not set: everybody has the development key that is used instead",
        )
    return report


def _vectors(settings: Settings) -> tuple[str, str]:
    """State and words; nothing is registered by looking."""
    truth = open_truth(settings)
    opened = open_collections(settings, truth)
    try:
        if not opened.listed():
            return "note", "no collection yet: the first start of a worker makes it"
        settle_live(settings, truth, opened, wall_clock())
        with opened.live() as collection:
            return "ok", f"{collection.name}, {collection.store.total()} points"
    finally:
        opened.close()
        truth.close()
