"""Chaos, the wire: a TCP proxy that delays, holds, refuses or cuts what goes to one server."""

from __future__ import annotations

import asyncio
import contextlib


class Proxy:
    """Forwards a loopback port to another one. All methods belong to the event loop that started it.

    `delay`: seconds that each piece of data is late, in both directions. `refusing`: new connections are closed at once.
    """

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        self.delay = 0.0
        self.refusing = False
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Cut everything and stop listening."""
        if self._server is not None:
            self._server.close()
            self.cut()
            await asyncio.sleep(0)
            self._server = None

    def hold(self) -> None:
        """Nothing gets through, and nothing breaks, until `release`."""
        self._open.clear()

    def release(self) -> None:
        """What was held goes on."""
        self._open.set()

    def cut(self) -> None:
        """Reset every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, up_writer}
        self._writers |= pair
        try:
            await asyncio.gather(self._pump(reader, up_writer), self._pump(up_reader, writer))
        finally:
            self._writers -= pair
            for end in pair:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await self._open.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        # The other direction ends too: half a connection would look like a server that thinks.
        writer.transport.abort()
