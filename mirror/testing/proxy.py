"""A reverse proxy in front of a store: counts requests, adds latency, and lets scripted faults happen.

It runs an event loop of its own in one thread. Requests go on byte for byte, the Host header included, so that AWS
signatures stay valid; bodies are streamed; connections are kept open on both sides.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, Self

from mirror.testing.connections import Connections, reset, stop_listening
from mirror.testing.exchange import CheckRequest, DroppedError, Exchange, Route, SeenRequest
from mirror.testing.faults import Fault, Script
from mirror.testing.http1 import read_head
from mirror.testing.process import LOOPBACK
from mirror.testing.upstream import BUFFER_BYTES, Upstream

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

_KEPT_REQUESTS: Final = 200_000
_CONTROL_TIMEOUT_S: Final = 10.0


class FaultProxy:
    """A proxy on a free port of 127.0.0.1, running between ``__enter__`` and ``__exit__``.

    Attributes:
        latency_s: seconds added to each round trip; may be set at any time. A request that asks with
            ``Expect: 100-continue`` before it sends its body costs two round trips, as it does on a real network.
    """

    def __init__(self, upstream_url: str, *, latency_s: float = 0.0, check_request: CheckRequest | None = None) -> None:
        """Prepare a proxy; nothing runs before ``__enter__``.

        Args:
            upstream_url: the store's endpoint, ``http://host:port``.
            latency_s: see the attribute.
            check_request: given method, path with query, headers by lower-case name, and the whole body as the store
                would get it; what it returns is answered in the store's place, None lets the request pass.

        Raises:
            ValueError: the URL is not of that form.
        """
        self.latency_s = latency_s
        self._upstream_url = upstream_url.rstrip("/")
        self._upstream = Upstream(upstream_url)
        self._check_request = check_request
        self._script = Script()
        self._requests: deque[SeenRequest] = deque(maxlen=_KEPT_REQUESTS)
        self._counts: Counter[str] = Counter()
        self._port = 0
        # Used by the loop's thread only:
        self._clients = Connections(self._serve)
        self._server: asyncio.Server | None = None
        self._stopping = asyncio.Event()
        # Set before __enter__ returns:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where clients find the proxy, ``http://127.0.0.1:<port>``."""
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def requests(self) -> list[SeenRequest]:
        """The latest requests, oldest first; each is listed before its client gets the end of the answer."""
        return list(self._requests)

    @property
    def counts(self) -> Counter[str]:
        """How many requests there were since the last ``clear``, by method."""
        return self._counts.copy()

    @property
    def remaining_faults(self) -> int:
        """How many requests will still meet a scripted fault."""
        return self._script.remaining

    def script(self, *faults: Fault) -> None:
        """Let these happen, after those that are still to come."""
        self._script.add(*faults)

    def clear(self) -> None:
        """Forget the requests seen so far and the faults still to come."""
        self._script.clear()
        self._requests.clear()
        self._counts.clear()

    def down(self) -> None:
        """Refuse connections from now on and reset those that are open."""
        self._call(self._close_port())

    def up(self) -> None:
        """Accept connections again, on the same port."""
        self._call(self._open_port())

    def __enter__(self) -> Self:
        """Start the thread and listen."""
        started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(started)), name="fault-proxy", daemon=True)
        self._thread.start()
        started.result(_CONTROL_TIMEOUT_S)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Reset whatever is under way and end the thread."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def _call(self, coroutine: Coroutine[None, None, None]) -> None:
        if self._loop is None:
            coroutine.close()
            msg = "the proxy is not running: use it in a with statement"
            raise RuntimeError(msg)
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_CONTROL_TIMEOUT_S)

    async def _run(self, started: concurrent.futures.Future[None]) -> None:
        try:
            self._loop = asyncio.get_running_loop()
            await self._open_port()
        except BaseException as error:
            started.set_exception(error)
            raise
        started.set_result(None)
        await self._stopping.wait()
        await self._close_port()
        await self._clients.end()
        self._upstream.close()

    async def _open_port(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._clients.accept, LOOPBACK, self._port, limit=BUFFER_BYTES)
            self._port = self._server.sockets[0].getsockname()[1]

    async def _close_port(self) -> None:
        if self._server is not None:
            await stop_listening(self._server)
            self._server = None
        self._clients.reset()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client's connection until either side ends it."""
        route = Route(
            upstream=self._upstream,
            round_trip=lambda: self.latency_s,
            check_request=self._check_request,
            note=self._note,
            own_url=self.url,
            upstream_url=self._upstream_url,
        )
        try:
            while (head := await read_head(reader)) is not None:
                method, path, _ = head.start.split(" ", 2)
                exchange = Exchange(route, head, (reader, writer), self._script.take(method, path))
                if not await exchange.run():
                    break
            with contextlib.suppress(OSError):
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (DroppedError, OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            reset(writer)

    def _note(self, request: SeenRequest) -> None:
        self._counts[request.method] += 1
        self._requests.append(request)
