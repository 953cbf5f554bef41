"""A bucket in memory that a forked child shares with its parent: every write goes through one file."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import xxhash

from mirror.errors import TryAgainError
from mirror.store import Data, Stored
from mirror.testing.stores import MemoryStore, Put


class SharedBucket(MemoryStore):
    """What is in the file, in its order, is what the bucket holds; ``catch_up`` reads what others wrote.

    The file's lock is all that there is between threads and processes: one in memory might be held when a child is
    forked, and then stays so in it.
    """

    def __init__(self, path: Path) -> None:
        """Begin empty."""
        super().__init__()
        self.written: list[Put] = []
        self._path = path
        self._read = 0  # bytes
        path.touch()

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:
        """Write an object."""
        await asyncio.sleep(0)
        if xxhash.xxh3_128_hexdigest(data) != xxh3_128:
            raise TryAgainError("put", key, "BadDigest: the checksum did not match what was received")
        with self._locked() as descriptor:
            os.write(descriptor, pickle.dumps((key, bytes(data))))
            self._take_in(descriptor)
        return Stored(etag=_md5(bytes(data)))

    def catch_up(self) -> None:
        """Know what other processes have written."""
        with self._locked() as descriptor:
            self._take_in(descriptor)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child may have been forked with it
            os.close(descriptor)

    def _take_in(self, descriptor: int) -> None:
        with os.fdopen(os.dup(descriptor), "rb") as file:
            file.seek(self._read)
            with contextlib.suppress(EOFError):
                while True:
                    key, data = pickle.load(file)  # noqa: S301 - our own file
                    self._read = file.tell()
                    self.keep(key, data)
                    self.written.append(Put(key=key, data=data, stored=Stored(etag=_md5(bytes(data)))))


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
