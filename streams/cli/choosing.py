"""Command line, choosing: which dead letters an order means."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from processors.exceptions import PoisonError
from sinks.truth.deadletters import LetterFilter, LetterStatus
from streams.runtime import wall_clock

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="letters by id; or choose with options")]
Stage = Annotated[str | None, typer.Option(help="only those of this stage")]
Topic = Annotated[str | None, typer.Option(help="only those of this topic, with the deployment's prefix")]
Reason = Annotated[str | None, typer.Option(help="only this kind of error, for example not_json")]
Tenant = Annotated[str | None, typer.Option(help="only this tenant's, as far as the bytes tell")]
Older = Annotated[str | None, typer.Option("--older-than", help="failed longer ago than this: 30m, 2h, 7d")]
Newer = Annotated[str | None, typer.Option("--newer-than", help="failed within this time: 30m, 2h, 7d")]
Everything = Annotated[bool, typer.Option("--all", help="every waiting letter")]


def letter_filter(
    stage: str | None,
    topic: str | None,
    reason: str | None,
    tenant: str | None,
    older_than: str | None,
    newer_than: str | None,
    status: LetterStatus | None = LetterStatus.WAITING,
) -> LetterFilter:
    """Raises PoisonError for an age that is none."""
    older, newer, now = _age(older_than), _age(newer_than), wall_clock()
    return LetterFilter(
        status=status,
        stage=stage,
        topic=topic,
        reason=reason,
        tenant=tenant,
        failed_before=now - older if older is not None else None,
        failed_after=now - newer if newer is not None else None,
    )


def chosen_letters(given: list[str] | None, everything: bool, chosen: LetterFilter) -> list[str]:
    """The ids that were given. An order that names neither ids nor a filter is refused, for it would mean everything.

    Raises:
        PoisonError: nothing in particular is meant, or two things at once.
    """
    filtered = chosen != LetterFilter()
    if not given and not filtered and not everything:
        raise PoisonError("invalid_option", "say which: IDs, or --stage, --topic, --reason, --tenant, an age, or --all")
    if given and (filtered or everything):
        raise PoisonError("invalid_option", "IDs say which; other options choose without them")
    return list(given or ())


def _age(text: str | None) -> timedelta | None:
    if text is None:
        return None
    amount, unit = text[:-1], text[-1:]
    names = {"m": "minutes", "h": "hours", "d": "days"}
    if unit not in names or not (amount.isascii() and amount.isdigit()) or int(amount) > 100_000:
        raise PoisonError("invalid_option", "an age is a number and m, h or d, for example 2h")
    return timedelta(**{names[unit]: int(amount)})
