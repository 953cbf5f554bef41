"""Stores for tests without a network: one in memory that behaves like S3, and one that follows a script of faults."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import xxhash

from mirror.config import MirrorConfig
from mirror.errors import NotFoundError, StoreError, TryAgainError
from mirror.location import Location
from mirror.store import CHUNK_BYTES, Data, ObjectInfo, Parts, Store, Stored
from mirror.testing.faults import Match, every_request

WAIT_S = 30.0  # for a moment that a test waits for; only a failing test gets there


class Moment:
    """Something that happens once; threads and event loops may wait for it, and any of them may bring it about."""

    def __init__(self) -> None:
        """Wait to happen."""
        self._future: concurrent.futures.Future[None] = concurrent.futures.Future()

    @property
    def happened(self) -> bool:
        """Whether it is past."""
        return self._future.done()

    def happen(self) -> None:
        """Let everybody who waits go on; once is enough."""
        if not self._future.done():
            self._future.set_result(None)

    def wait(self, timeout_s: float = WAIT_S) -> None:
        """Wait on a thread.

        Raises:
            TimeoutError: it did not happen in time.
        """
        self._future.result(timeout_s)

    async def awaited(self) -> None:
        """Wait on an event loop; a cancelled wait leaves it to happen."""
        await asyncio.shield(asyncio.wrap_future(self._future))


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """A write that a store acknowledged to itself, whatever its caller was told."""

    key: str
    data: bytes
    stored: Stored
    parts: int = 0  # of a multipart upload


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a store: the method's name, and the key or prefix it was about."""

    operation: str
    key: str


class MemoryStore:
    """A bucket in memory. An object appears whole or not at all, and what a checksum contradicts is refused.

    One loop at a time may call it; its books may be read from any thread. It can be closed and used again, as a bucket
    outlives the process that writes it.
    """

    lists_by_range = True

    def __init__(self, *, page_size: int = 1_000, is_versioned: bool = False, checks_uploads: bool = True) -> None:
        """Begin empty; ``checks_uploads`` False stores what a bad wire made of an upload."""
        self.objects: dict[str, bytes] = {}
        self.puts: list[Put] = []
        self.calls: list[Call] = []
        self.refreshes = 0
        self.closes = 0
        self._infos: dict[str, ObjectInfo] = {}
        self._page_size = page_size
        self._is_versioned = is_versioned
        self._checks_uploads = checks_uploads
        self._versions = itertools.count(1)

    @property
    def keys_put(self) -> list[str]:
        """The key of each write, in order."""
        return [put.key for put in self.puts]

    @property
    def records(self) -> dict[str, bytes]:
        """What is stored besides receipts."""
        return {key: data for key, data in dict(self.objects).items() if not key.startswith("_receipts/")}

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:
        """Write an object; another hash than the one given is answered like a wrong checksum."""
        await self._called("put", key)
        if self._checks_uploads and xxhash.xxh3_128_hexdigest(data) != xxh3_128:
            raise TryAgainError("put", key, "BadDigest: the checksum did not match what was received")
        return self._keep(key, data, _md5(data))

    async def put_parts(self, key: str, parts: Parts, size_bytes: int) -> Stored:
        """Write an object from its parts; its ETag is, like S3's, no MD5 of the whole."""
        await self._called("put_parts", key)
        received = [part async for part in parts()]
        data = b"".join(received)
        if len(data) != size_bytes:
            raise TryAgainError("put", key, f"{len(data)} bytes came instead of {size_bytes}")
        etag = _md5(b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in received))
        return self._keep(key, data, f"{etag}-{len(received)}", parts=len(received))

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield an object's bytes in at least two chunks, so that it can break between them."""
        await self._called("read", key)
        if key not in self.objects:
            raise NotFoundError("get", key, "NoSuchKey")
        data = self.objects[key]
        step = min((len(data) + 1) // 2, CHUNK_BYTES) or 1
        for start in range(0, len(data), step):
            yield data[start : start + step]
            await asyncio.sleep(0)

    async def stat(self, key: str) -> ObjectInfo | None:
        """Describe one object."""
        await self._called("stat", key)
        return self._infos.get(key)

    async def list_pages(self, prefix: str = "", *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """Yield pages in the order of the keys' UTF-8 bytes; each page is what is there when it is asked for."""
        last = after.encode()
        while True:
            await self._called("list_pages", prefix)
            keys = sorted(key.encode() for key in self.objects if key.startswith(prefix))
            behind = [key for key in keys if key > last]
            yield [self._infos[key.decode()] for key in behind[: self._page_size]]
            if len(behind) <= self._page_size:
                return
            last = behind[self._page_size - 1]

    async def refresh(self) -> None:
        """Count it."""
        self.refreshes += 1

    async def aclose(self) -> None:
        """Count it."""
        self.closes += 1

    def opened(self, _location: Location, _config: MirrorConfig) -> Store:
        """Return this very store, as what a mirror opens."""
        return self

    def keep(self, key: str, data: bytes) -> None:
        """Have an object that somebody else wrote."""
        self._keep(key, data, _md5(data))
        self.puts.pop()

    async def _called(self, operation: str, key: str) -> None:
        self.calls.append(Call(operation=operation, key=key))
        await asyncio.sleep(0)  # no store answers without letting others run

    def _keep(self, key: str, data: Data, etag: str, *, parts: int = 0) -> Stored:
        version = f"v{next(self._versions)}" if self._is_versioned else None
        self.objects[key] = bytes(data)
        self._infos[key] = ObjectInfo(key=key, size_bytes=len(data), etag=etag, version_id=version)
        stored = Stored(etag=etag, version_id=version)
        self.puts.append(Put(key=key, data=bytes(data), stored=stored, parts=parts))
        return stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """Fail before anything is done: an error, or what makes one of the operation and the key."""

    error: BaseException | Callable[[str, str], BaseException]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreThenRaise:
    """Do it, and tell the caller otherwise: the answer was lost."""

    error: StoreError


@dataclass(frozen=True, slots=True)
class FlipBit:
    """Flip the lowest bit of the first byte that is sent or read, as a bad wire would."""


@dataclass(frozen=True, slots=True)
class ShortRead:
    """End a read after its first chunk, and say that it broke."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Do nothing until released, then what was asked. Whoever never releases it has a call that hangs."""

    reached: Moment = field(default_factory=Moment)  # a call has come this far
    released: Moment = field(default_factory=Moment)
    cancelled: Moment = field(default_factory=Moment)  # its caller gave up

    async def hold(self) -> None:
        """Be the call that is held."""
        self.reached.happen()
        try:
            await self.released.awaited()
        except asyncio.CancelledError:
            self.cancelled.happen()
            raise


Action = Raise | StoreThenRaise | FlipBit | ShortRead | Stall


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFault:
    """What happens to the next ``times`` calls that match: by the method's name, and the key or prefix."""

    action: Action
    match: Match = every_request
    times: int = 1


class FaultyStore:
    """Applies a script of faults to the calls of another store, and is as healthy as that once the script has ended."""

    def __init__(self, store: Store, *faults: StoreFault) -> None:
        """Wrap ``store``; a call takes the first fault that matches it."""
        self._store = store
        self._script: list[tuple[StoreFault, int]] = []
        self.add(*faults)

    @property
    def lists_by_range(self) -> bool:
        """As the store that it wraps."""
        return self._store.lists_by_range

    def add(self, *faults: StoreFault) -> None:
        """Append to what is still to come; any thread may."""
        self._script += [(fault, fault.times) for fault in faults]

    def heal(self) -> None:
        """Forget what is still to come."""
        self._script.clear()

    @property
    def remaining(self) -> int:
        """How many calls will still meet a fault."""
        return sum(left for _, left in self._script)

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:
        """Write, if the script lets it."""
        action = await self._meet("put", key)
        if isinstance(action, FlipBit):
            data = _flipped(data)
        stored = await self._store.put(key, data, xxh3_128)
        if isinstance(action, StoreThenRaise):
            raise action.error
        return stored

    async def put_parts(self, key: str, parts: Parts, size_bytes: int) -> Stored:
        """Write in parts, if the script lets it."""
        action = await self._meet("put_parts", key)
        stored = await self._store.put_parts(key, parts, size_bytes)
        if isinstance(action, StoreThenRaise):
            raise action.error
        return stored

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Read, if the script lets it."""
        action = await self._meet("read", key)
        async for chunk in self._store.read(key):
            yield _flipped(chunk) if isinstance(action, FlipBit) else chunk
            if isinstance(action, ShortRead):
                raise TryAgainError("get", key, "the answer ended early")
            action = None

    async def stat(self, key: str) -> ObjectInfo | None:
        """Describe, if the script lets it."""
        await self._meet("stat", key)
        return await self._store.stat(key)

    async def list_pages(self, prefix: str = "", *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """List, if the script lets it; a fault may hit any page."""
        pages = self._store.list_pages(prefix, after=after)
        while True:
            await self._meet("list_pages", prefix)
            page = await anext(pages, None)
            if page is None:
                return
            yield page

    async def refresh(self) -> None:
        """Refresh, if the script lets it."""
        await self._meet("refresh", "")
        await self._store.refresh()

    async def aclose(self) -> None:
        """Close."""
        await self._store.aclose()

    def opened(self, _location: Location, _config: MirrorConfig) -> Store:
        """Return this very store, as what a mirror opens."""
        return self

    async def _meet(self, operation: str, key: str) -> Action | None:
        action = self._take(operation, key)
        if isinstance(action, Raise):
            await asyncio.sleep(0)
            raise action.error if isinstance(action.error, BaseException) else action.error(operation, key)
        if isinstance(action, Stall):
            await action.hold()
        return action

    def _take(self, operation: str, key: str) -> Action | None:
        for index, (fault, left) in enumerate(self._script):
            if fault.match(operation, key):
                self._script[index : index + 1] = [(fault, left - 1)] if left > 1 else []
                return fault.action
        return None


def _md5(data: Data) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _flipped(data: Data) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:] if data else b""
