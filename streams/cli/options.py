"""Command line, the options that commands share."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from processors.exceptions import PoisonError
from streams.importers import FORMATS, DateOrder, ImportOptions
from streams.runtime import wall_clock
from streams.settings import Settings

Format = Annotated[
    str | None, typer.Option("--format", help=f"one of {', '.join(FORMATS)}; recognised by itself if left out")
]
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
Tenant = Annotated[str, typer.Option(help="tenant of turns that name none")]
Timezone = Annotated[str, typer.Option(help="IANA zone of times that name none, and of speakers that name none")]
UserId = Annotated[str | None, typer.Option("--user-id", help="who is served, for formats that do not say")]
Me = Annotated[str | None, typer.Option(help="name or id of the person whose export this is")]
Mapping = Annotated[
    list[str] | None,
    typer.Option("--map", help="turn field=column (several with commas or again), for other people's CSV and JSONL"),
]
Dates = Annotated[DateOrder, typer.Option("--date-order", help="how a text export writes days: auto, dmy, mdy or ymd")]
SentAt = Annotated[
    str | None,
    typer.Option(
        "--sent-at",
        help="when the talk took place, for formats without times: ISO 8601 with a zone, or a day in --timezone",
    ),
]
Encoding = Annotated[str | None, typer.Option(help="encoding of text formats, if it is not UTF-8")]


def settings_at(data: Path | None) -> Settings:
    """The configured deployment, or the embedded one that left its files in this directory.

    Raises:
        PoisonError: none did.
    """
    settings = Settings()
    if data is None:
        return settings
    if not (data / "memriver.db").is_file():
        raise PoisonError("invalid_option", "--data is no directory of `memriver up` or `memriver process --data`")
    place = {"database_url": SecretStr(f"sqlite:///{data / 'memriver.db'}"), "qdrant_url": "", "data_dir": data}
    return settings.model_copy(update=place)


def import_options(
    tenant: str,
    timezone: str,
    user_id: str | None,
    me: str | None,
    mapping: list[str] | None,
    encoding: str | None,
    date_order: DateOrder,
    sent_at: str | None = None,
) -> ImportOptions:
    """Raises PoisonError for options that cannot be meant."""
    now = wall_clock()
    pairs: dict[str, str] = {}
    for item in (part for option in mapping or [] for part in option.split(",")):
        field, separator, column = item.partition("=")
        if not separator or not field or not column:
            raise PoisonError("invalid_option", f"--map takes FIELD=COLUMN, not {item!r}")
        pairs[field] = column
    try:
        options = ImportOptions(
            tenant=tenant,
            timezone=timezone,
            user_id=user_id,
            me=me,
            mapping=pairs or None,
            encoding=encoding,
            date_order=date_order,
            now=now,
        )
    except ValueError as error:
        raise PoisonError("invalid_option", str(error)) from error
    if sent_at is None:
        return options
    moment = _moment(sent_at, options)
    if moment > now + timedelta(days=1):
        raise PoisonError("invalid_option", "--sent-at lies ahead: it is when the talk took place")
    return replace(options, sent_at=moment)


def _moment(text: str, options: ImportOptions) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        if _DAY.fullmatch(text):
            moment = moment.replace(tzinfo=options.zone)
        if moment.tzinfo is None:
            raise ValueError("whose clock?")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise PoisonError(
            "invalid_option",
            "--sent-at takes a time with its zone (2024-05-01T18:30+08:00, 2024-05-01T10:30Z) or a day (2024-05-01)",
        ) from error
