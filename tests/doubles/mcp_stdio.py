"""Tests, doubles: a process that serves MCP on stdin and stdout over a database; arguments: database URL and key."""

from __future__ import annotations

import asyncio
import sys

from recall.mcp import make_server
from sinks.truth import Truth, make_engine
from tests.doubles.house import House

if __name__ == "__main__":
    house = House(Truth(make_engine(sys.argv[1])))
    asyncio.run(make_server(house.verbs, house.keyring, key=sys.argv[2]).run_stdio_async())
