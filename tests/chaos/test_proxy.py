"""The proxy of the chaos runs forwards, holds without breaking, cuts, and refuses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from ops.chaos.proxy import Proxy


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """Before a server that sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        await close(writer)

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    proxy = Proxy(server.sockets[0].getsockname()[1])
    await proxy.start()
    yield proxy
    await proxy.stop()
    server.close()
    await server.wait_closed()
    # What was cut says so to both ends once more.
    await asyncio.sleep(0.05)


async def ask(proxy: Proxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"hello")
    return reader, writer


async def close(writer: asyncio.StreamWriter) -> None:
    """To the end: a connection must not outlive its loop."""
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_it_forwards_both_ways(proxy: Proxy) -> None:
    reader, writer = await ask(proxy)
    assert await reader.readexactly(5) == b"hello"
    await close(writer)


async def test_what_is_held_goes_on_when_it_is_let_go(proxy: Proxy) -> None:
    proxy.hold()
    reader, writer = await ask(proxy)
    answer = asyncio.create_task(reader.readexactly(5))
    done, _ = await asyncio.wait({answer}, timeout=0.1)
    assert not done
    proxy.release()
    assert await answer == b"hello"
    await close(writer)


async def test_a_late_answer_is_the_whole_answer(proxy: Proxy) -> None:
    proxy.delay = 0.01
    reader, writer = await ask(proxy)
    assert await reader.readexactly(5) == b"hello"
    await close(writer)


async def test_a_cut_ends_what_is_open_and_nothing_later(proxy: Proxy) -> None:
    reader, writer = await ask(proxy)
    await reader.readexactly(5)
    proxy.cut()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    await close(writer)
    again, other = await ask(proxy)
    assert await again.readexactly(5) == b"hello"
    await close(other)


async def test_refused_is_refused(proxy: Proxy) -> None:
    proxy.refusing = True
    reader, writer = await ask(proxy)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    await close(writer)
