"""Truth: the relational store (MySQL 8.4, MariaDB 10.11, SQLite) behind one set of functions on SQLAlchemy Core."""

from sinks.truth.engine import Truth, make_engine

__all__ = ["Truth", "make_engine"]
