"""A mirror in a local or shared directory: written under a temporary name, synced, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from mirror.errors import FileRefusedError
from mirror.location import Location
from mirror.store import ObjectInfo, Parts, Stored
from mirror.stores.threads import DaemonThreads
from mirror.stores.translate import translating

CHUNK_BYTES = 4 << 20
PAGE = 1_000


class LocalStore:
    """A directory. A reader that polls it never sees a short file under its final name.

    Dot-files are never listed: they are copies under way. ``md5`` is computed, for W&B compares a local file by it.
    """

    def __init__(self, location: Location, *, redact: Callable[[str], str], threads: int, fsync: bool = True) -> None:
        """Touch nothing yet; ``fsync`` False trades survival of a power cut for speed."""
        self._root = Path(location.root)
        self._redact = redact
        self._threads = DaemonThreads(threads, "record-mirror-file")
        self._fsync = fsync

    async def put(self, key: str, data: bytes, xxh3_128: str) -> Stored:  # noqa: ARG002 - the file system checks nothing
        """Write one file."""
        with translating("put", key, self._redact):
            return await self._threads.run(self._write, key, data)

    async def put_parts(self, key: str, parts: Parts, size_bytes: int) -> Stored:  # noqa: ARG002 - not needed here
        """Write one file part by part."""
        with translating("put", key, self._redact):
            target = self._path(key)
            temporary, descriptor = await self._threads.run(_create_temporary, target)
            try:
                digest = hashlib.md5(usedforsecurity=False)
                async for part in parts():
                    digest.update(part)
                    await self._threads.run(_write_all, descriptor, part)
                await self._threads.run(self._publish, descriptor, temporary, target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            finally:
                os.close(descriptor)
            return Stored(md5=digest.hexdigest())

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield the file's bytes."""
        with translating("get", key, self._redact):
            descriptor = await self._threads.run(_open_regular, self._path(key))
            try:
                while chunk := await self._threads.run(os.read, descriptor, CHUNK_BYTES):
                    yield chunk
            finally:
                os.close(descriptor)

    async def stat(self, key: str) -> ObjectInfo | None:
        """Describe one file."""
        with translating("stat", key, self._redact):
            status = await self._threads.run(_lstat, self._path(key))
            return ObjectInfo(key=key, size_bytes=status.st_size) if status else None

    async def list_pages(self, prefix: str = "", *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """Yield the files below the directory, sorted by their UTF-8 bytes."""
        with translating("list", prefix, self._redact):
            found = await self._threads.run(self._walk, prefix, after)
        for start in range(0, len(found), PAGE):
            yield [ObjectInfo(key=key, size_bytes=size) for key, size in found[start : start + PAGE]]

    async def refresh(self) -> None:
        """Have no credentials."""

    async def aclose(self) -> None:
        """Let the threads end."""
        self._threads.close()

    def _path(self, key: str) -> Path:
        return self._root.joinpath(*key.split("/"))

    def _write(self, key: str, data: bytes) -> Stored:
        target = self._path(key)
        temporary, descriptor = _create_temporary(target)
        try:
            _write_all(descriptor, data)
            self._publish(descriptor, temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        return Stored(md5=hashlib.md5(data, usedforsecurity=False).hexdigest())

    def _publish(self, descriptor: int, temporary: Path, target: Path) -> None:
        if self._fsync:
            os.fsync(descriptor)
        temporary.replace(target)

    def _walk(self, prefix: str, after: str) -> list[tuple[str, int]]:
        top, _, _ = prefix.rpartition("/")
        found = [
            (key, size)
            for key, size in _files(self._root / top if top else self._root, f"{top}/" if top else "")
            if key.startswith(prefix)
        ]
        found.sort(key=lambda item: os.fsencode(item[0]))
        return [item for item in found if os.fsencode(item[0]) > os.fsencode(after)] if after else found


def _create_temporary(target: Path) -> tuple[Path, int]:
    temporary = target.with_name(f".{secrets.token_hex(12)}.tmp")  # fits wherever the final name does
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        return temporary, os.open(temporary, flags, 0o644)
    except FileNotFoundError:
        target.parent.mkdir(parents=True, exist_ok=True)
        return temporary, os.open(temporary, flags, 0o644)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _open_regular(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileRefusedError("get", path.name, "it is not a regular file")
    return descriptor


def _lstat(path: Path) -> os.stat_result | None:
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _files(directory: Path, above: str) -> Iterator[tuple[str, int]]:
    try:
        entries = os.scandir(directory)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path), f"{above}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):  # replaced or deleted while we looked
                    yield f"{above}{entry.name}", entry.stat(follow_symlinks=False).st_size
