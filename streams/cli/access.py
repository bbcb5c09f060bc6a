"""Command line, access: keys, reviews, and the verbs that change memories.

With `--key` a command acts as that key's principal and reaches what it was granted. Without, it is an operator at the
deployment's own machine, and reaches exactly the owner that is named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any, TypeVar

import typer
from pydantic import ValidationError

from processors.access import Grant, OwnerRef, Principal, PrincipalKind, Scope, parse_namespace
from processors.exceptions import PoisonError
from recall.access import Keyring, ReadLog
from recall.looking import Looking
from recall.ordering import Ordering, Publish
from recall.requests import Asked, DecideAsked, ForgetAsked, RememberAsked
from recall.views import review_view
from schemas import OwnerKind, Sensitivity, SourceKind
from sinks.truth import Truth, memories, reviews
from streams.access import make_keyring, make_writer
from streams.cli.embedded import quiet_logs
from streams.cli.erase import keys_rotate_master
from streams.cli.output import as_json, console, table
from streams.producer import EventProducer
from streams.runtime import open_truth, wall_clock
from streams.settings import Settings

A = TypeVar("A", bound=Asked)
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Key = Annotated[
    str | None, typer.Option("--key", envvar="MEMRIVER_KEY", help="act as this key's principal", show_envvar=True)
]
Tenant = Annotated[str, typer.Option(help="tenant; with --key it is the key's")]
Owner = Annotated[str, typer.Option(help="whose memory (required: nobody's is never everybody's)")]
Kind = Annotated[OwnerKind, typer.Option("--owner-kind", help="what the owner is")]
Reason = Annotated[str, typer.Option(help="why, for the history")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Keys of agents and people.", no_args_is_help=True)
    group.command("create")(keys_create)
    group.command("revoke")(keys_revoke)
    group.command("list")(keys_list)
    group.command("rotate-master")(keys_rotate_master)
    app.add_typer(group, name="keys")
    group = typer.Typer(help="Questions for a person: conflicts, quarantines, stale writes.", no_args_is_help=True)
    group.command("list")(review_list)
    for name, function in (
        ("approve", review_approve),
        ("reject", review_reject),
        ("merge", review_merge),
        ("undo", review_undo),
    ):
        group.command(name)(function)
    app.add_typer(group, name="review")
    app.command()(remember)
    app.command()(forget)
    app.command()(history)


def keys_create(
    name: Annotated[str, typer.Argument(help="id of the agent or person; a person is the user of the same id")],
    kind: Annotated[PrincipalKind, typer.Option(help="who holds the key")] = PrincipalKind.AGENT,
    tenant: Annotated[str, typer.Option(help="the one tenant that it belongs to")] = "default",
    scope: Annotated[list[Scope] | None, typer.Option(help="what it may do; again for more; read if left out")] = None,
    grant: Annotated[
        list[str] | None, typer.Option(help="namespace that it may reach: user/ann, user/ann/profile, org/acme, user/*")
    ] = None,
    sensitivity: Annotated[Sensitivity, typer.Option(help="the grants reach nothing above this")] = (
        Sensitivity.CONFIDENTIAL
    ),
    days: Annotated[int | None, typer.Option(min=1, help="days until it expires; never if left out")] = None,
    label: Annotated[str, typer.Option(help="what it is for")] = "",
    json: Json = False,
) -> None:
    """Make a key and show it, this once. What it may reach belongs to its principal and outlives the key."""
    scopes = frozenset(scope or [Scope.READ])
    if not name.strip() or len(name) > 255 or not name.isprintable():
        raise PoisonError("invalid_option", "a principal's id has 1 to 255 printable characters")
    try:
        grants = [Grant(*parse_namespace(text), scopes, sensitivity) for text in grant or []]
    except ValueError as error:
        raise PoisonError("invalid_option", str(error)) from error
    expires_at = wall_clock() + timedelta(days=days) if days is not None else None
    with _keyring() as keyring:
        made = keyring.create(tenant, kind, name, scopes, label=label, expires_at=expires_at, grants=grants)
    if json:
        as_json({"key": made.secret, "prefix": made.stored.prefix, "expires_at": expires_at})
    else:
        console.print(made.secret, markup=False, highlight=False, soft_wrap=True)


def keys_revoke(prefix: Annotated[str, typer.Argument(help="the part of the key between the underscores")]) -> None:
    """Make a key worthless; running servers notice within two seconds (intake: after its next turn)."""
    with _keyring() as keyring:
        if not keyring.revoke(prefix):
            raise PoisonError("not_found", "there is no such key that is still good")
    console.print(f"revoked {prefix}", markup=False)


def keys_list(
    tenant: Annotated[str | None, typer.Option(help="only this tenant's")] = None, json: Json = False
) -> None:
    """Every key, without its secret."""
    with _keyring() as keyring:
        found = keyring.keys(tenant)
    rows: list[dict[str, Any]] = [
        {
            "prefix": key.prefix,
            "tenant": key.tenant,
            "principal": f"{key.principal_kind}:{key.principal}",
            "label": key.label,
            "scopes": sorted(scope.value for scope in key.scopes),
            "created_at": key.created_at,
            "expires_at": key.expires_at,
            "revoked_at": key.revoked_at,
        }
        for key in found
    ]
    if json:
        as_json(rows)
        return
    columns = ("prefix", "tenant", "principal", "label", "scopes", "created_at", "expires_at", "revoked_at")
    shown = [[" ".join(map(str, row[name])) if name == "scopes" else row[name] for name in columns] for row in rows]
    table("Keys", columns, shown)


def review_list(
    owner: Annotated[str | None, typer.Option(help="only about this owner")] = None,
    owner_kind: Kind = OwnerKind.USER,
    tenant: Tenant = "default",
    status: Annotated[str, typer.Option(help="open, approved, rejected or merged")] = "open",
    limit: Annotated[int, typer.Option(min=1)] = 100,
    json: Json = False,
) -> None:
    """Questions that wait for an answer. For operators: without --owner it shows every owner's."""
    keys = [OwnerRef(owner_kind, owner).key(tenant)] if owner is not None else None
    with _truth() as truth, truth.reading() as connection:
        found = reviews.listing(connection, keys, status=status, limit=limit)
        held = reviews.memories_of(connection, found)
    views = [review_view(review, held) for review in found]
    if json:
        as_json(views)
        return
    rows = [
        (row["id"], row["kind"], row["owner"], (row["memory"] or {}).get("text"), row["detail"], row["opened_at"])
        for row in views
    ]
    table("Reviews", ("id", "kind", "owner", "memory", "detail", "opened"), rows)


ReviewId = Annotated[str, typer.Argument(help="as `memriver review list` shows it")]


def review_approve(review_id: ReviewId, key: Key = None, reason: Reason = "reviewed", json: Json = False) -> None:
    """Let it hold, or carry out the command that was held."""
    _decide(review_id, {"decision": "approve", "reason": reason}, key, json)


def review_reject(review_id: ReviewId, key: Key = None, reason: Reason = "reviewed", json: Json = False) -> None:
    """Close the memory, or drop the command that was held."""
    _decide(review_id, {"decision": "reject", "reason": reason}, key, json)


def review_merge(
    review_id: ReviewId,
    into: Annotated[str | None, typer.Option(help="id of the memory that stays")] = None,
    key: Key = None,
    reason: Reason = "reviewed",
    json: Json = False,
) -> None:
    """Both say one thing: one stays, with the other's evidence."""
    fields = {"decision": "merge", "reason": reason} | ({"into": into} if into is not None else {})
    _decide(review_id, fields, key, json)


def review_undo(review_id: ReviewId, key: Key = None, reason: Reason = "undone", json: Json = False) -> None:
    """Take an answer back: exactly what it did is undone, and the question is open again."""
    _decide(review_id, {"decision": "undo", "reason": reason}, key, json)


def _decide(review_id: str, fields: dict[str, str], key: str | None, json: bool) -> None:
    asked = _asked(DecideAsked, fields)
    settings, principal = Settings(), None
    with _truth(settings) as truth:
        with truth.reading() as connection:
            review = reviews.get(connection, review_id)
        if key is None and review is not None:
            owner = OwnerRef(OwnerKind(review.owner_kind), review.owner)
            principal = operator(review.tenant, owner)
        elif key is not None:
            principal = make_keyring(settings, truth).principal(key)
        if principal is None:
            raise PoisonError("not_found", "there is no such review")
        who = principal
        _send(settings, truth, lambda ordering: ordering.decide(who, review_id, asked), json)


def remember(
    text: Annotated[str, typer.Argument(help="what to keep")],
    owner: Owner,
    owner_kind: Kind = OwnerKind.USER,
    attribute: Annotated[str | None, typer.Option(help="read from the text if left out")] = None,
    value: Annotated[str | None, typer.Option(help="the text if left out; needs --attribute")] = None,
    source: Annotated[SourceKind | None, typer.Option(help="where it comes from")] = None,
    timezone: Annotated[str, typer.Option(help="IANA zone of the owner")] = "UTC",
    tenant: Tenant = "default",
    key: Key = None,
    json: Json = False,
) -> None:
    """Keep something, after the policy gate. An operator's word counts as the owner's."""
    said = source or (SourceKind.USER_STATEMENT if key is None else None)
    fields = {"text": text, "owner": owner, "owner_kind": owner_kind, "attribute": attribute, "value": value}
    asked = _asked(RememberAsked, fields | {"source": said, "timezone": timezone})
    settings = Settings()
    with _truth(settings) as truth:
        who = principal_of(settings, truth, key, tenant, asked.ref)
        _send(settings, truth, lambda ordering: ordering.remember(who, asked), json)


def forget(
    owner: Owner,
    owner_kind: Kind = OwnerKind.USER,
    memory: Annotated[str | None, typer.Option(help="id of one memory")] = None,
    attribute: Annotated[str | None, typer.Option(help="everything under this attribute")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="the content goes too")] = False,
    reason: Reason = "asked to be forgotten",
    tenant: Tenant = "default",
    key: Key = None,
    json: Json = False,
) -> None:
    """Forget one memory, or everything of an owner under an attribute."""
    fields = {"owner": owner, "owner_kind": owner_kind, "memory_id": memory, "attribute": attribute, "reason": reason}
    asked = _asked(ForgetAsked, fields | {"mode": "delete" if delete else "forget"})
    settings = Settings()
    with _truth(settings) as truth:
        who = principal_of(settings, truth, key, tenant, asked.ref)
        _send(settings, truth, lambda ordering: ordering.forget(who, asked), json)


def history(memory_id: str, key: Key = None, json: Json = False) -> None:
    """Every version of a memory; of a deleted one only that there were versions."""
    settings = Settings()
    with _truth(settings) as truth:
        with truth.reading() as connection:
            held = memories.get(connection, memory_id)
        if held is None and key is None:
            raise PoisonError("not_found", "there is no memory with this id")
        if key is not None or held is None:
            who = make_keyring(settings, truth).principal(key or "")
        else:
            who = operator(held.tenant, OwnerRef(held.owner_kind, held.owner))
        reads = ReadLog(truth, wall_clock)
        found = asyncio.run(Looking(truth, reads, wall_clock).history(who, memory_id))
        reads.flush()
    if json:
        as_json(found)
        return
    columns = ("version", "change", "status", "text", "writer", "recorded_at")
    table("History", columns, [[row.get(name) for name in columns] for row in found["versions"]])


def operator(tenant: str, owner: OwnerRef) -> Principal:
    """Who sits at the deployment's own machine: everything, of exactly this owner."""
    every = frozenset({Scope.READ, Scope.WRITE, Scope.REVIEW})
    grant = Grant(owner.kind, owner.id, "", every, Sensitivity.RESTRICTED)
    return Principal(tenant, PrincipalKind.PERSON, "operator", "cli", every, (grant,))


def principal_of(settings: Settings, truth: Truth, key: str | None, tenant: str, owner: OwnerRef) -> Principal:
    """The key's principal, or the operator for this owner. Raises BadKey."""
    return operator(tenant, owner) if key is None else make_keyring(settings, truth).principal(key)


def _send(settings: Settings, truth: Truth, work: Callable[[Ordering], Awaitable[dict[str, Any]]], json: bool) -> None:
    quiet_logs("ERROR")
    answer = asyncio.run(_with_producer(settings, truth, work))
    if json:
        as_json(answer)
        return
    for item in answer["commands"]:
        note = f" ({item['decision']}: {' '.join(item['reasons'])})" if item["reasons"] else ""
        console.print(f"{item['kind']} sent as {item['command_id']}{note}", markup=False, highlight=False)


async def _with_producer(
    settings: Settings, truth: Truth, work: Callable[[Ordering], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    producer = EventProducer(settings)
    await producer.start()
    publish: Publish = producer.publish
    try:
        return await work(Ordering(truth, make_writer(settings), publish, wall_clock))
    finally:
        await producer.stop()


def _asked(kind: type[A], fields: dict[str, Any]) -> A:
    try:
        return kind.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        said = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()]
        raise PoisonError("invalid_option", "; ".join(said)) from None


@contextmanager
def _truth(settings: Settings | None = None) -> Iterator[Truth]:
    truth = open_truth(settings or Settings())
    try:
        yield truth
    finally:
        truth.close()


@contextmanager
def _keyring() -> Iterator[Keyring]:
    settings = Settings()
    with _truth(settings) as truth:
        yield make_keyring(settings, truth)
