"""Where copies live: the seam to every store.

Keys are relative to the mirror's URL, "/"-separated and never empty. One attempt per call: no method retries, waits for
its turn or logs; those are wrappers of the same shape. Each error that leaves a store is a StoreError that says what to
do next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mirror.errors import FileRefusedError

PART_BYTES = 32 << 20  # a part of a large object; at most this much of it is held at once
WHOLE_BYTES = 64 << 20  # up to here an object is one request
CHUNK_BYTES = 4 << 20  # read at once
PAGE = 1_000  # objects that a store lists in one answer
CONNECT_TIMEOUT_S = 10  # to a store's endpoint
USER_AGENT = "record-mirror"  # what a store's own logs call us

Data = bytes | memoryview  # of contiguous bytes, which nobody changes any more
Parts = Callable[[], AsyncIterator[Data]]  # reads a large file from its start, PART_BYTES at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The identity that the store gave to a write, from its answer."""

    etag: str | None = None  # without quotes
    version_id: str | None = None  # S3 version id, GCS generation
    md5: str | None = None  # 32 lowercase hex digits, of the bytes sent, when somebody had to compute it
    may_be_overtaken: bool = False  # an earlier try may still arrive, and then replaces this and what came since


class ObjectInfo(NamedTuple):  # a dataclass takes several times as long to make, for each object of a listing
    """One object as the store lists it."""

    key: str
    size_bytes: int
    etag: str | None = None
    version_id: str | None = None
    xxh3_128: str | None = None  # only from stat(), where the store keeps our hash


class Store(Protocol):
    """Where copies live. An object appears whole or not at all.

    All methods run on one event loop and may be cancelled at any await: a cancelled put has either happened or not.
    """

    @property
    def lists_by_range(self) -> bool:
        """Whether keys ascend, and a listing that begins behind a key costs nothing for what lies before it."""
        ...

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:
        """Write an object of up to WHOLE_BYTES in one request that the store checks wherever it can.

        Raises:
            StoreError: by what to do next; a checksum that does not match is a TryAgainError.
        """
        ...

    async def put_parts(self, key: str, parts: Parts, size_bytes: int) -> Stored:
        """Write a larger object from parts of PART_BYTES (the last may be shorter); a failure leaves no object.

        Raises:
            StoreError: as for put.
        """
        ...

    def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield the object's bytes in bounded chunks.

        Raises:
            NotFoundError: there is no such object.
            StoreError: the object could not be read to its end.
        """
        ...

    async def stat(self, key: str) -> ObjectInfo | None:
        """Describe one object, with the store's own xxh3_128 where it keeps one; None: no such object."""
        ...

    def list_pages(self, prefix: str = "", *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """Yield pages of the objects whose key begins with ``prefix`` and sorts behind ``after``.

        Keys ascend by their UTF-8 bytes over all pages.
        """
        ...

    async def refresh(self) -> None:
        """Read the credentials again from where they came from."""
        ...

    async def aclose(self) -> None:
        """Let connections go. Never raises."""
        ...


async def read_whole(store: Store, key: str, *, max_bytes: int) -> bytes:
    """Read one small object.

    Raises:
        FileRefusedError: it is larger than ``max_bytes``.
        StoreError: as ``Store.read``.
    """
    data = bytearray()
    async for chunk in store.read(key):
        data += chunk
        if len(data) > max_bytes:
            raise FileRefusedError("get", key, f"the object is larger than the {max_bytes} bytes expected here")
    return bytes(data)
