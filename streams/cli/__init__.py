"""The command line. Commands are thin: parse, build from settings, call, print."""

from __future__ import annotations

import sys

import typer
from rich.console import Console

from processors.exceptions import MemriverError
from streams.cli import access, admin, contexting, evaluate, feedback, inspect, logs, process, recalling, services

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
inspect.register(app)
contexting.register(app)
feedback.register(app)
recalling.register(app)
evaluate.register(app)
admin.register(app)
access.register(app)


def main() -> None:
    """Entry point: an expected error is one line on stderr and exit code 2, never a traceback."""
    try:
        app()
    except MemriverError as error:
        Console(stderr=True, soft_wrap=True).print(f"memriver: {error}", style="red", markup=False, highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
