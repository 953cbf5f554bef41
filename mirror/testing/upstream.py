"""The proxy's connections to the store behind it, kept open and used again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from types import TracebackType

BUFFER_BYTES: Final = 1 << 18
_HTTP_PORT: Final = 80


class Upstream:
    """A pool of connections to one ``http://`` URL; it belongs to one event loop."""

    def __init__(self, url: str) -> None:
        """Connect to nothing yet.

        Raises:
            ValueError: the URL is not ``http://host[:port]``.
        """
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            msg = f"the proxy forwards to http://host:port only, not to {url}"
            raise ValueError(msg)
        self._host = parts.hostname
        self._port = parts.port or _HTTP_PORT
        self._idle: list[Connection] = []

    async def connect(self) -> Connection:
        """Return an idle connection or a new one.

        Raises:
            OSError: the store does not accept connections.
        """
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_dead:
                return connection
            connection.writer.close()
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=BUFFER_BYTES)
        return Connection(self, reader, writer)

    def keep(self, connection: Connection) -> None:
        """Take a connection back for the next request."""
        self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.writer.close()
        self._idle.clear()


class Connection:
    """One connection, used for one request at a time: closed after ``with`` unless it was declared ``reusable``."""

    def __init__(self, pool: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Wrap the two ends of an open connection."""
        self.reader = reader
        self.writer = writer
        self.reusable = False
        self._pool = pool

    @property
    def is_dead(self) -> bool:
        """Whether the store has closed it meanwhile."""
        return self.reader.at_eof() or self.writer.is_closing()

    def __enter__(self) -> Self:
        """Use it for one request."""
        self.reusable = False
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give it back, or abort it so that the store does not wait for the rest."""
        if self.reusable and exc is None:
            self._pool.keep(self)
        else:
            self.writer.transport.abort()
