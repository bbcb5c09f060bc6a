"""Alembic's entry: one online migration on the engine that the service itself would use."""

from __future__ import annotations

from alembic import context

from sinks.truth.engine import make_engine
from sinks.truth.tables import metadata


def _run() -> None:
    engine = make_engine(context.config.attributes["url"], pool_size=1, create=True)
    try:
        with engine.connect() as connection:
            context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
            with context.begin_transaction():
                context.run_migrations()
            connection.commit()
    finally:
        engine.dispose()


_run()
