"""Command line, erasing: one memory, one conversation, one person, one tenant; and the receipt, at any later time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from processors.exceptions import FatalError, PoisonError, TransientError
from schemas import OwnerKind
from sinks.truth import Truth, erasure
from sinks.truth.erasure import Erasure, Scope
from streams.cli.embedded import Embedded, quiet_logs
from streams.cli.options import settings_at
from streams.cli.output import as_json, console, table
from streams.erasing.composing import make_opening, verify
from streams.erasing.opening import Wish
from streams.runtime import open_truth, wall_clock
from streams.sealing import rotate_master
from streams.settings import Settings

_POLL_SECONDS = 0.5

Tenant = Annotated[str, typer.Option(help="whose it is; nothing of another tenant is touched")]
Reason = Annotated[str, typer.Option(help="why, for the audit chain; no names")]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask: it cannot be undone")]
Wait = Annotated[float, typer.Option(help="seconds to wait for the receipt; 0: only ask for the erasure")]
Data = Annotated[Path | None, typer.Option(help="directory of `memriver process --data`, while nothing runs on it")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Kind = Annotated[OwnerKind, typer.Option("--owner-kind", help="what the owner is")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Erase, verify, begin anew.", no_args_is_help=True)
    group.command("memory")(erase_memory)
    group.command("conversation")(erase_conversation)
    group.command("owner")(erase_owner)
    group.command("tenant")(erase_tenant)
    group.command("status")(erase_status)
    group.command("verify")(erase_verify)
    group.command("lift")(erase_lift)
    app.add_typer(group, name="erase")


def erase_memory(
    memory_id: str,
    tenant: Tenant = "default",
    reason: Reason = "",
    yes: Yes = False,
    wait: Wait = 300.0,
    data: Data = None,
    json: Json = False,
) -> None:
    """One memory, and the turns that it was made from."""
    _erase(Wish(Scope.MEMORY, tenant, memory_id), reason, yes, wait, data, json)


def erase_conversation(
    conversation_id: str,
    tenant: Tenant = "default",
    reason: Reason = "",
    yes: Yes = False,
    wait: Wait = 300.0,
    data: Data = None,
    json: Json = False,
) -> None:
    """One conversation, everybody's turns in it, and what was learnt from them."""
    _erase(Wish(Scope.CONVERSATION, tenant, conversation_id), reason, yes, wait, data, json)


def erase_owner(
    owner: str,
    owner_kind: Kind = OwnerKind.USER,
    tenant: Tenant = "default",
    reason: Reason = "",
    yes: Yes = False,
    wait: Wait = 300.0,
    data: Data = None,
    json: Json = False,
) -> None:
    """One person: everything said by them or kept about them as owner. What others said about them is the others'."""
    _erase(Wish(Scope.OWNER, tenant, owner, owner_kind), reason, yes, wait, data, json)


def erase_tenant(
    tenant: str,
    reason: Reason = "",
    yes: Yes = False,
    wait: Wait = 300.0,
    data: Data = None,
    json: Json = False,
) -> None:
    """One tenant: everybody in it, and nobody comes in any more."""
    _erase(Wish(Scope.TENANT, tenant), reason, yes, wait, data, json)


def _erase(wish: Wish, reason: str, yes: bool, wait: float, data: Path | None, json: bool) -> None:
    if not yes:
        typer.confirm(f"Erase this {wish.scope.value} for ever?", abort=True)
    settings = settings_at(data)
    quiet_logs("ERROR")
    with _truth(settings) as truth:
        item = make_opening(settings, truth).open(wish, by="operator", reason=reason, now=wall_clock())
    if data is not None:
        asyncio.run(_carry_out(settings, data, item.erasure_id))
    with _truth(settings) as truth:
        item = _followed(truth, item.erasure_id, wait)
    if item.receipt is not None and json:
        as_json(item.receipt)
    elif item.receipt is not None:
        _show(dict(item.receipt))
    elif json:
        as_json(_view(item))
    else:
        console.print(
            f"erasure {item.erasure_id} is under way; `memriver erase status {item.erasure_id}` has the receipt when it "
            "is done",
            markup=False,
        )


async def _carry_out(settings: Settings, data: Path, erasure_id: str) -> None:
    """Nothing runs on this directory, so its stages run here until it is done."""
    embedded = Embedded(settings, data)
    await embedded.start(lambda _event: None)
    try:
        while not await asyncio.to_thread(_is_done, embedded.runtime.truth, erasure_id):
            if embedded.failure is not None:
                raise FatalError(embedded.failure)
            await asyncio.sleep(0.1)
    finally:
        await embedded.stop()


def _is_done(truth: Truth, erasure_id: str) -> bool:
    return _get(truth, erasure_id).status == "done"


def _followed(truth: Truth, erasure_id: str, wait: float) -> Erasure:
    deadline = time.monotonic() + wait
    while True:
        item = _get(truth, erasure_id)
        if item.status == "done" or time.monotonic() >= deadline:
            return item
        time.sleep(_POLL_SECONDS)


def erase_status(
    erasure_id: Annotated[str | None, typer.Argument(help="all of them if left out")] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """How far an erasure is, and its receipt when it is done."""
    with _truth(settings_at(data)) as truth:
        if erasure_id is not None:
            item = _get(truth, erasure_id)
            if item.receipt is not None and not json:
                _show(dict(item.receipt))
            else:
                as_json(dict(item.receipt) if item.receipt is not None else _view(item))
            return
        with truth.reading() as connection:
            found = [_view(item) for item in erasure.listing(connection)]
    if json:
        as_json(found)
    else:
        columns = ("erasure_id", "scope", "status", "steps", "asked_at", "done_at")
        table("Erasures", columns, [[row[name] for name in columns] for row in found])


def erase_verify(
    receipt: Annotated[Path, typer.Argument(help="the file with the receipt, as --json printed it")],
    topics: Annotated[bool, typer.Option("--topics", help="read the transit topics too, message by message")] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Check the receipt and the audit chain, and look everywhere again. Exit code 1: something is not as it says."""
    try:
        raw = receipt.read_bytes()
    except OSError as error:
        raise PoisonError("no_receipt", "the file with the receipt cannot be read") from error
    quiet_logs("ERROR")
    settings = settings_at(data)
    found = asyncio.run(_verified(settings, data, raw, topics))
    if json:
        as_json(found)
    else:
        rows = [(store, number) for store, number in found["remaining"].items() if number]
        table("Still there", ("store", "count"), rows or [("nothing, anywhere", 0)])
        for fault in found["faults"]:
            console.print(fault, style="red", markup=False)
    if found["faults"] or any(found["remaining"].values()):
        raise typer.Exit(1)


async def _verified(settings: Settings, data: Path | None, raw: bytes, topics: bool) -> dict[str, Any]:
    if data is None:
        return await verify(settings, raw, topics=topics, broker=True)
    # Nothing runs on the directory, and so there is no broker that would hold anything.
    return await verify(settings, raw, topics=False, broker=False)


def erase_lift(
    owner: Annotated[str | None, typer.Option(help="this person may come back")] = None,
    conversation: Annotated[str | None, typer.Option(help="this conversation may go on")] = None,
    owner_kind: Kind = OwnerKind.USER,
    tenant: Tenant = "default",
    data: Data = None,
) -> None:
    """A new beginning, with a new key. What was erased stays erased."""
    if (owner is None) == (conversation is None):
        raise PoisonError("invalid_option", "name --owner or --conversation")
    wish = (
        Wish(Scope.OWNER, tenant, owner, owner_kind)
        if owner is not None
        else Wish(Scope.CONVERSATION, tenant, conversation or "")
    )
    settings = settings_at(data)
    with _truth(settings) as truth:
        make_opening(settings, truth).lift(wish, by="operator", now=wall_clock())
    console.print("a new beginning")


def keys_rotate_master(json: Json = False) -> None:
    """Wrap every data key with the present master key; the former one is MEMRIVER_MASTER_KEY_PREVIOUS meanwhile."""
    settings = Settings()
    with _truth(settings) as truth:
        found = rotate_master(settings, truth, wall_clock())
    if json:
        as_json(found)
    else:
        console.print(f"{found['rewrapped']} data keys are wrapped by {found['master']} now", markup=False)


def _show(receipt: dict[str, Any]) -> None:
    rows = [(store, number, receipt["remaining"].get(store, 0)) for store, number in receipt["erased"].items()]
    table(f"Erased: {receipt['scope']} ({receipt['erasure_id']})", ("store", "erased", "still there"), rows)
    for topic, at in receipt["ages_out"].items():
        console.print(f"{topic}: plain text ages out by {at}", markup=False)
    console.print(orjson.dumps(receipt).decode(), markup=False, highlight=False)


def _view(item: Erasure) -> dict[str, Any]:
    return {
        "erasure_id": item.erasure_id,
        "scope": item.scope.value,
        "status": item.status,
        "steps": ", ".join(item.steps),
        "asked_at": item.opened_at,
        "done_at": item.done_at,
    }


def _get(truth: Truth, erasure_id: str) -> Erasure:
    with truth.reading() as connection:
        item = erasure.get(connection, erasure_id)
    if item is None:
        raise PoisonError("not_found", "there is no such erasure")
    return item


@contextmanager
def _truth(settings: Settings) -> Iterator[Truth]:
    truth = open_truth(settings)
    try:
        yield truth
    except TransientError as error:
        raise FatalError(str(error)) from error
    finally:
        truth.close()
