"""As much of HTTP/1.1 as a proxy needs: heads, kept byte for byte, and bodies with their three kinds of framing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping

END_OF_HEAD: Final = b"\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
_NO_BODY: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_FIRST_FINAL_STATUS: Final = 200


@dataclass(frozen=True, slots=True)
class Head:
    """The start line and the headers of a request or a reply."""

    start: str
    lines: tuple[bytes, ...]
    headers: Mapping[str, str]  # by lower-case name

    def encode(self, *, without: Collection[str] = (), extra: tuple[bytes, ...] = ()) -> bytes:
        """Return the head as it came, except for the headers named in ``without``, and with ``extra`` lines added."""
        kept = (line for line in self.lines if line.partition(b":")[0].decode("latin-1").lower() not in without)
        return b"\r\n".join((self.start.encode("latin-1"), *kept, *extra)) + END_OF_HEAD

    @property
    def wants_close(self) -> bool:
        """Whether the sender closes the connection after this message."""
        return self.headers.get("connection", "").lower() == "close" or self.start.endswith("HTTP/1.0")


@dataclass(frozen=True, slots=True)
class Framing:
    """How a body ends: after ``length`` bytes, or with a last chunk, or (neither) with the connection."""

    length: int | None
    chunked: bool = False

    @property
    def until_close(self) -> bool:
        """Whether only the end of the connection ends the body."""
        return self.length is None and not self.chunked

    def wrap(self, piece: bytes) -> bytes:
        """Return a piece of body as it goes over the wire."""
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self.chunked else piece


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """Return the next head, or None when the connection ended in front of it.

    Raises:
        OSError: the connection broke.
    """
    try:
        raw = await reader.readuntil(END_OF_HEAD)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    start, *lines = raw[: -len(END_OF_HEAD)].split(b"\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return Head(start.decode("latin-1"), tuple(lines), headers)


async def read_reply_head(reader: asyncio.StreamReader) -> tuple[Head, int] | None:
    """Return the head and status of the next final reply, past any 1xx, or None when the connection ended first.

    Raises:
        OSError: the connection broke.
    """
    while (head := await read_head(reader)) is not None:
        status = int(head.start.split(" ", 2)[1])
        if status >= _FIRST_FINAL_STATUS:
            return head, status
    return None


def request_framing(head: Head) -> Framing:
    """Return how the body of a request ends."""
    if head.headers.get("transfer-encoding", "").lower() == "chunked":
        return Framing(None, chunked=True)
    return Framing(int(head.headers.get("content-length", "0")))


def reply_framing(head: Head, status: int, method: str) -> Framing:
    """Return how the body of a reply to ``method`` ends."""
    if method == "HEAD" or status in _NO_BODY:
        return Framing(0)
    if head.headers.get("transfer-encoding", "").lower() == "chunked":
        return Framing(None, chunked=True)
    length = head.headers.get("content-length")
    return Framing(None if length is None else int(length))


async def read_pieces(reader: asyncio.StreamReader, framing: Framing, piece_bytes: int) -> AsyncIterator[bytes]:
    """Yield the body without its framing, in pieces of at most ``piece_bytes`` bytes.

    Raises:
        OSError: the connection broke.
        asyncio.IncompleteReadError: it ended inside the body.
    """
    if framing.chunked:
        while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            async for piece in _read_exactly(reader, size, piece_bytes):
                yield piece
            await reader.readexactly(2)
        while await reader.readuntil(b"\r\n") != b"\r\n":  # trailers: nobody here sends any that matter
            pass
    elif framing.length is None:
        while piece := await reader.read(piece_bytes):
            yield piece
    else:
        async for piece in _read_exactly(reader, framing.length, piece_bytes):
            yield piece


async def _read_exactly(reader: asyncio.StreamReader, size: int, piece_bytes: int) -> AsyncIterator[bytes]:
    while size > 0:
        piece = await reader.read(min(size, piece_bytes))
        if not piece:
            raise asyncio.IncompleteReadError(b"", size)
        size -= len(piece)
        yield piece
