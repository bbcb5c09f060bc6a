"""The command line. Commands are thin: parse, build from settings, call, print."""

from __future__ import annotations

import sys

import typer
from pydantic import ValidationError
from rich.console import Console

from processors.exceptions import MemriverError
from streams import allocator
from streams.cli import (
    access,
    admin,
    backup,
    contexting,
    deadletters,
    erase,
    evaluate,
    feedback,
    inspect,
    logs,
    portability,
    process,
    recalling,
    reindex,
    replay,
    services,
    vectors,
)
from streams.settings import Settings

app = typer.Typer(
    name="memriver",
    help="Long-term memory for a fleet of AI agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
services.register(app)
process.register(app)
logs.register(app)
portability.register(app)
backup.register(app)
inspect.register(app)
deadletters.register(app)
contexting.register(app)
feedback.register(app)
recalling.register(app)
evaluate.register(app)
admin.register(app)
replay.register(app)
reindex.register(app)
access.register(app)
erase.register(app)
vectors.register(app)


def main() -> None:
    """Entry point: an expected error is one line on stderr and exit code 2, never a traceback."""
    allocator.settle()
    try:
        app()
    except MemriverError as error:
        _say(str(error))
        sys.exit(2)
    except ValidationError as error:
        if error.title != Settings.__name__:
            raise
        # Name and complaint only: the value may be a password.
        wrong = (f"{_variable(item['loc'])}: {item['msg']}" for item in error.errors(include_input=False))
        _say(f"a setting is wrong: {'; '.join(wrong)}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _say(text: str) -> None:
    Console(stderr=True, soft_wrap=True).print(f"memriver: {text}", style="red", markup=False, highlight=False)


def _variable(location: tuple[int | str, ...]) -> str:
    """The environment variable behind a field of the settings."""
    name = ".".join(str(part) for part in location)
    return name if name.isupper() else f"MEMRIVER_{name.upper()}"
