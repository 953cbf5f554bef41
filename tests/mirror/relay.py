"""A wire that flips a bit, with or without the end of TLS: bytes are passed on as they come."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from mirror.testing.connections import Connections, stop_listening
from tests.mirror.tls import LOOPBACK

CHUNK_BYTES = 1 << 16


@dataclass
class Flip:
    """A bit to flip in each of some connections."""

    behind_bytes: int
    times: int


class Relay:
    """Passes the bytes of each connection on, both ways, between ``__enter__`` and ``__exit__``.

    With a context for TLS it ends that and goes on in plain; without one it knows nothing of what it passes on.
    """

    def __init__(self, upstream_url: str, context: ssl.SSLContext | None = None) -> None:
        """Prepare; nothing runs before ``__enter__``."""
        upstream = urlsplit(upstream_url)
        self._upstream = (upstream.hostname or LOOPBACK, upstream.port or 0)
        self._context = context
        self._scheme = "https" if context is not None else upstream.scheme
        self._port = 0
        self._flip: Flip | None = None
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="relay", daemon=True)

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"{self._scheme}://{LOOPBACK}:{self._port}"

    @property
    def has_flipped(self) -> bool:
        """Whether what ``flip`` asked for has happened."""
        return self._flip is None

    def flip(self, *, behind_bytes: int, times: int = 1) -> None:
        """Flip one bit of the requests of so many connections, behind so many bytes that pass from now on."""
        self._flip = Flip(behind_bytes, times)

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        """Drop all connections and end."""
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        connections = Connections(self._serve)
        server = await asyncio.start_server(connections.accept, LOOPBACK, 0)
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        await stop_listening(server)
        await connections.end()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # both sides were told
            await self._pass_both_ways(reader, writer)

    async def _pass_both_ways(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _ending(writer):
            if self._context is not None:  # not by the server itself, which would leave a handshake open at the end
                await writer.start_tls(self._context)
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
            async with _ending(up_writer):
                ways = [
                    asyncio.create_task(self._pass_on(reader, up_writer, is_request=True)),
                    asyncio.create_task(self._pass_on(up_reader, writer, is_request=False)),
                ]
                try:
                    ended, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    for way in ended:
                        way.result()
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool) -> None:
        flip: Flip | None = None
        left = 0
        while data := await reader.read(CHUNK_BYTES):
            if is_request and self._flip is not None:
                if self._flip is not flip:
                    flip, left = self._flip, self._flip.behind_bytes
                if 0 <= left < len(data):
                    data = flipped(data, left)
                    flip.times -= 1
                    self._flip = flip if flip.times else None
                left -= len(data)  # negative once it has happened
            writer.write(data)
            await writer.drain()


def flipped(data: bytes, at: int) -> bytes:
    """Return other bytes: one bit differs."""
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


@contextlib.asynccontextmanager
async def _ending(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """End a connection as the other side ended its own: in order, or with a reset."""
    try:
        yield
        writer.close()
        await writer.wait_closed()
    except BaseException:
        writer.transport.abort()
        raise
