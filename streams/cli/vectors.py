"""Command line, vectors: `vectors serve`, the process that owns a Qdrant Edge directory for all the others."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

import typer
import uvicorn

from processors.exceptions import FatalError, PoisonError
from streams.cli.embedded import quiet_logs
from streams.cli.output import console
from streams.settings import Settings
from streams.vector_server import Collections, vector_app

vectors = typer.Typer(help="The vector store as a process of its own.", no_args_is_help=True, rich_markup_mode=None)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(vectors, name="vectors")


@vectors.callback()
def _group() -> None:
    """Keeps `serve` a word of its own while it is the only command."""


@vectors.command()
def serve(
    data: Annotated[Path | None, typer.Option(help="directory of the vectors; DATA_DIR/vectors if left out")] = None,
    host: Annotated[str, typer.Option(help="address to listen on; other than loopback only with a key")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one")] = 6340,
) -> None:
    """Own the vectors and serve them: several workers share them with MEMRIVER_QDRANT_URL=edge+http://HOST:PORT.

    For one machine without a Qdrant server. MEMRIVER_QDRANT_API_KEY, if set, is asked of every client.
    """
    settings = Settings()
    quiet_logs(settings.log_level)
    key = settings.qdrant_api_key.get_secret_value() or None
    if key is None and not _loopback(host):
        raise PoisonError("invalid_option", "--host reaches beyond this machine: set MEMRIVER_QDRANT_API_KEY first")
    collections = Collections(data or settings.data_dir / "vectors")
    config = uvicorn.Config(
        vector_app(collections, api_key=key),
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    console.print(f"Vectors   edge+http://{host}:{port}", markup=False)
    try:
        server.run()
        if not server.started:
            raise FatalError("the vector server did not start: its port is taken")
    except SystemExit as error:
        raise FatalError("the vector server did not start: its port is taken") from error
    finally:
        collections.close()


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
