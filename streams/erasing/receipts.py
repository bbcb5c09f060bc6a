"""Erasing, the receipt: what was erased, from where and how much, signed into the audit chain; checked at any later time."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection

from processors.exceptions import PoisonError
from sinks.truth.audit import AuditChain, Link
from sinks.truth.erasure import Erasure

_SIGNED = "signature"


def make_receipt(
    connection: Connection,
    chain: AuditChain,
    item: Erasure,
    counts: Mapping[str, int],
    ages_out: Mapping[str, str],
    now: datetime,
) -> dict[str, Any]:
    """Put it into the chain and sign it. It names nobody: the subject is a keyed hash."""
    logs = item.steps.get("logs") or {}
    body: dict[str, Any] = {
        "erasure_id": item.erasure_id,
        "scope": item.scope.value,
        "subject": item.subject_key,
        "asked_at": item.opened_at.isoformat(),
        "done_at": now.isoformat(),
        "erased": {store: number for store, number in sorted(counts.items()) if number},
        "remaining": dict(item.steps["verified"]),
        # Plain text on its way; nothing of it comes back, but until then it can be read from the broker.
        "ages_out": {} if logs.get("trimmed") is not None else dict(ages_out),
        "topics_cut": logs.get("trimmed"),
    }
    link = chain.append(connection, "erasure_done", body, now)
    return sealed(chain, body | {"chain": {"seq": link.seq, "hash": link.hash}})


def sealed(chain: AuditChain, body: Mapping[str, Any]) -> dict[str, Any]:
    """With its signature: HMAC-SHA256 over the JSON with sorted keys."""
    return {**body, _SIGNED: chain.sign(_text(body))}


def checked(chain: AuditChain, raw: bytes) -> tuple[dict[str, Any], Link]:
    """The receipt, and its place in the chain.

    Raises:
        PoisonError: no receipt, or changed since it was signed, or signed by another deployment.
    """
    try:
        receipt = orjson.loads(raw)
        given = receipt.pop(_SIGNED)
        link = Link(int(receipt["chain"]["seq"]), str(receipt["chain"]["hash"]), "")
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise PoisonError("no_receipt", "this is not a receipt of an erasure") from error
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), chain.sign(_text(receipt)).encode()):
        raise PoisonError("damaged_receipt", "the receipt was changed, or another deployment signed it")
    return receipt, link


def _text(body: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(body), option=orjson.OPT_SORT_KEYS).decode()
