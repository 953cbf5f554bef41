"""Latency in front of a server, as cheap as Python can add it: bytes are passed on unread, and answers come later.

What the server sends reaches the client so many seconds after it was sent, so each round trip takes that much longer,
also the one that ``Expect: 100-continue`` adds. A client's connection has one of its own to the server. The test
suite's proxy reads every request; at some thousand requests a second that is what would be measured.
"""

from __future__ import annotations

import asyncio
from typing import cast

LOOPBACK = "127.0.0.1"
HELD_BYTES = 1 << 20  # written and not yet taken, before the other side is no longer read


class _End(asyncio.Protocol):
    """One end of a connection through the proxy; what it receives goes to its peer after ``delay_s`` seconds."""

    def __init__(self, delay_s: float) -> None:
        self.peer: _End | None = None
        self.transport: asyncio.Transport | None = None
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=HELD_BYTES)

    def data_received(self, data: bytes) -> None:
        if self._delay_s:
            self._loop.call_later(self._delay_s, self._pass_on, data)
        else:
            self._pass_on(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter here
        if self._delay_s:
            self._loop.call_later(self._delay_s, self._close_peer)
        else:
            self._close_peer()

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def _pass_on(self, data: bytes) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)

    def _close_peer(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()


class _Client(_End):
    """The client's end: connects to the server first."""

    def __init__(self, server: tuple[str, int], latency_s: float) -> None:
        super().__init__(0.0)
        self._server = server
        self._latency_s = latency_s
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.transport is not None:
            self.transport.pause_reading()  # until there is somebody to pass it on to
        self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        server_end = _End(self._latency_s)
        server_end.peer = self
        try:
            await self._loop.create_connection(lambda: server_end, *self._server)
        except OSError:
            self.transport.abort()  # type: ignore[union-attr] # it is connected
            return
        self.peer = server_end
        self.transport.resume_reading()  # type: ignore[union-attr] # likewise


async def start_latency_proxy(port: int, latency_s: float) -> tuple[asyncio.Server, int]:
    """Listen on a free port in front of ``port`` of this machine.

    Returns:
        The server, and its port.

    Raises:
        OSError: there is no port to be had.
    """
    server = await asyncio.get_running_loop().create_server(
        lambda: _Client((LOOPBACK, port), latency_s), LOOPBACK, 0, backlog=1_024
    )
    return server, int(server.sockets[0].getsockname()[1])
