"""One request on its way through the proxy, with the fault that the script has for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from mirror.testing.faults import (
    Answer,
    FlipReplyBit,
    FlipRequestBit,
    Hang,
    LoseReply,
    Reply,
    Reset,
    Stall,
    Throttle,
    TruncateReply,
)
from mirror.testing.http1 import LAST_CHUNK, Head, read_pieces, read_reply_head, reply_framing, request_framing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mirror.testing.faults import Action
    from mirror.testing.upstream import Connection, Upstream

CheckRequest = Callable[[str, str, Mapping[str, str], bytes], Reply | None]

_PIECE_BYTES: Final = 1 << 18
_THROTTLE_TICKS_PER_S: Final = 20
_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive"})


class DroppedError(Exception):
    """The client's connection is to be reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """What the proxy saw of one request."""

    method: str
    path: str  # with its query
    status: int | None  # what the client was told; None: nothing
    body_bytes: int  # of the request, as far as it was passed on
    reply_bytes: int | None  # of the reply's body, as announced; None: not announced or no reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What every exchange of a proxy needs."""

    upstream: Upstream
    round_trip: Callable[[], float]  # seconds to add to each round trip, asked anew each time
    check_request: CheckRequest | None
    note: Callable[[SeenRequest], None]
    own_url: str
    upstream_url: str


class Exchange:
    """Passes one request on and its reply back."""

    def __init__(
        self, route: Route, head: Head, client: tuple[asyncio.StreamReader, asyncio.StreamWriter], action: Action | None
    ) -> None:
        """Take up the request that begins with ``head``."""
        self._route = route
        self._head = head
        self._reader, self._writer = client
        self._action = action
        self.method, self.path, _ = head.start.split(" ", 2)
        self._framing = request_framing(head)
        self._expects = head.headers.get("expect", "").lower() == "100-continue"
        self._body_bytes = 0
        self._body_is_read = False

    async def run(self) -> bool:
        """Do it, and return whether the client's connection may be used again.

        Raises:
            DroppedError: the client's connection is to be reset.
            OSError: a connection broke.
            asyncio.IncompleteReadError: a connection ended in the middle of a message.
        """
        await self._round_trip()
        match self._action:
            case Reset(after_bytes=None):
                raise self._dropped()
            case Hang():
                self._note(None)
                while await self._reader.read(_PIECE_BYTES):
                    pass
                raise DroppedError
            case Answer(reply=reply):
                return await self._answer(reply)
        if self._expects:
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._expects = False
            await self._round_trip()
        pieces = self._request_pieces()
        if self._route.check_request is not None:
            body = b"".join([piece async for piece in pieces])
            self._body_is_read = True
            refusal = self._route.check_request(self.method, self.path, self._head.headers, body)
            if refusal is not None:
                return await self._answer(refusal)
            pieces = _once(body)
        with await self._route.upstream.connect() as store:
            await self._forward(pieces, store.writer)
            return await self._pass_back(store)

    async def _round_trip(self) -> None:
        if (delay_s := self._route.round_trip()) > 0:
            await asyncio.sleep(delay_s)

    def _dropped(self) -> DroppedError:
        self._note(None)
        return DroppedError()

    def _note(self, status: int | None, reply_bytes: int | None = None) -> None:
        self._route.note(
            SeenRequest(
                method=self.method,
                path=self.path,
                status=status,
                body_bytes=self._body_bytes,
                reply_bytes=reply_bytes,
            )
        )

    async def _request_pieces(self) -> AsyncIterator[bytes]:
        """Yield the request's body as the store shall get it."""
        async for piece in self._paced(read_pieces(self._reader, self._framing, self._piece_bytes())):
            start = self._body_bytes
            self._body_bytes += len(piece)
            match self._action:
                case Reset(after_bytes=int(limit)) if self._body_bytes >= limit:
                    self._body_bytes = limit
                    yield piece[: limit - start]
                    raise self._dropped()
                case FlipRequestBit(at=at):
                    yield _flip(piece, at - start)
                case _:
                    yield piece

    async def _forward(self, pieces: AsyncIterator[bytes], store: asyncio.StreamWriter) -> None:
        unsent = self._head.encode(without=_HOP_BY_HOP | {"expect"})
        try:
            async for piece in pieces:
                store.write(unsent + self._framing.wrap(piece))
                unsent = b""
                await store.drain()
        except DroppedError:
            await store.drain()
            raise
        store.write(unsent + (LAST_CHUNK if self._framing.chunked else b""))

    async def _pass_back(self, store: Connection) -> bool:
        answered = await read_reply_head(store.reader)
        if answered is None:
            raise self._dropped()
        head, status = answered
        framing = reply_framing(head, status, self.method)
        pieces = read_pieces(store.reader, framing, self._piece_bytes())
        match self._action:
            case LoseReply():
                async for _ in pieces:
                    pass
                raise self._dropped()
            case Stall(seconds=seconds):
                await asyncio.sleep(seconds)
        self._note(status, framing.length)
        keep = not (framing.until_close or self._head.wants_close)
        unsent = self._reply_head(head, keep=keep)
        sent = 0
        async for whole in self._paced(pieces):
            piece = whole
            match self._action:
                case TruncateReply(after_bytes=limit) if sent + len(piece) > limit:
                    self._writer.write(unsent + framing.wrap(piece[: limit - sent]))
                    return False
                case FlipReplyBit(at=at):
                    piece = _flip(piece, at - sent)
            sent += len(piece)
            self._writer.write(unsent + framing.wrap(piece))
            unsent = b""
            await self._writer.drain()
        store.reusable = not (framing.until_close or head.wants_close)
        self._writer.write(unsent + (LAST_CHUNK if framing.chunked else b""))
        return keep

    def _reply_head(self, head: Head, *, keep: bool) -> bytes:
        extra = [] if keep else [b"Connection: close"]
        location = head.headers.get("location", "")
        if not location.startswith(self._route.upstream_url):
            return head.encode(without=_HOP_BY_HOP, extra=tuple(extra))
        # An upload session is to be continued through the proxy too.
        own = self._route.own_url + location.removeprefix(self._route.upstream_url)
        extra.append(f"Location: {own}".encode("latin-1"))
        return head.encode(without=_HOP_BY_HOP | {"location"}, extra=tuple(extra))

    async def _answer(self, reply: Reply) -> bool:
        """Answer in the store's place, after the request's body when the client does not wait for our word."""
        keep = not (self._head.wants_close or self._expects)
        if not (self._expects or self._body_is_read):
            async for piece in read_pieces(self._reader, self._framing, _PIECE_BYTES):
                self._body_bytes += len(piece)
        self._note(reply.status, len(reply.body))
        lines = [f"HTTP/1.1 {reply.status} {_phrase(reply.status)}", f"Content-Length: {len(reply.body)}"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        if not keep:
            lines.append("Connection: close")
        body = b"" if self.method == "HEAD" else reply.body
        self._writer.write("\r\n".join((*lines, "", "")).encode("latin-1") + body)
        return keep

    def _piece_bytes(self) -> int:
        if isinstance(self._action, Throttle):
            return max(1, int(self._action.bytes_per_s / _THROTTLE_TICKS_PER_S))
        return _PIECE_BYTES

    async def _paced(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            if isinstance(self._action, Throttle):
                await asyncio.sleep(len(piece) / self._action.bytes_per_s)
            yield piece


async def _once(body: bytes) -> AsyncIterator[bytes]:
    if body:
        yield body


def _flip(piece: bytes, at: int) -> bytes:
    if not 0 <= at < len(piece):
        return piece
    return piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :]


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Scripted"
