"""A mirror in a local or shared directory: written under a temporary name, synced, then renamed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from mirror.errors import FileRefusedError
from mirror.location import Location
from mirror.store import CHUNK_BYTES, PAGE, Data, ObjectInfo, Parts, Stored
from mirror.stores.leftovers import Leftovers
from mirror.stores.new_file import NewFile
from mirror.stores.threads import DaemonThreads
from mirror.stores.translate import translating


class LocalStore:
    """A directory. A reader that polls it never sees a short file under its final name.

    Dot-files are never listed: they are copies under way, or were when their process was killed; whoever writes removes
    those. ``md5`` is computed, for W&B compares a local file by it.
    """

    lists_by_range = False

    def __init__(self, location: Location, *, redact: Callable[[str], str], threads: int, fsync: bool = True) -> None:
        """Touch nothing yet; ``fsync`` False trades survival of a power cut for speed."""
        self._root = Path(location.root)
        self._redact = redact
        self._threads = DaemonThreads(threads, "record-mirror-file")
        self._fsync = fsync
        self._leftovers = Leftovers(self._root)

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:  # noqa: ARG002 - the file system checks nothing
        """Write one file."""
        with translating("put", key, self._redact):
            async with self._new_file(key) as file:
                return await self._threads.run(_write_whole, file, data)

    async def put_parts(self, key: str, parts: Parts, size_bytes: int) -> Stored:  # noqa: ARG002 - not needed here
        """Write one file part by part."""
        with translating("put", key, self._redact):
            async with self._new_file(key) as file:
                digest = hashlib.md5(usedforsecurity=False)
                async for part in parts():
                    digest.update(part)
                    await self._threads.run(file.write, part)
                await self._threads.run(file.publish)
            return Stored(md5=digest.hexdigest())

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield the file's bytes."""
        with translating("get", key, self._redact):
            descriptor = await self._threads.run(_open_regular, self._path(key))
            try:
                start = 0
                while chunk := await self._threads.run(os.pread, descriptor, CHUNK_BYTES, start):
                    start += len(chunk)
                    yield chunk
            finally:
                self._threads.later(lambda: os.close(descriptor))  # closing may block too

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
        await self._leftovers.aclose()

    def _path(self, key: str) -> Path:
        return self._root.joinpath(*key.split("/"))

    @contextlib.asynccontextmanager
    async def _new_file(self, key: str) -> AsyncIterator[NewFile]:
        if "/" in key:
            await self._threads.run(self._refuse_links_on_the_way, key)
        file = NewFile(self._path(key), fsync=self._fsync)
        try:
            yield file
        except BaseException:
            file.give_up()
            self._threads.later(file.discard)
            raise
        self._leftovers.wrote(self._path(key))

    def _refuse_links_on_the_way(self, key: str) -> None:
        """Let nobody who may write to the mirror lead us elsewhere; the mirror itself may be reached through links."""
        folder = self._root
        for name in key.split("/")[:-1]:
            folder /= name
            if folder.is_symlink():
                raise FileRefusedError("put", key, f"{folder} is a symbolic link, which is not followed: remove it")

    def _walk(self, prefix: str, after: str) -> list[tuple[str, int]]:
        top, _, _ = prefix.rpartition("/")
        found = [
            (key, size)
            for key, size in _files(self._root / top if top else self._root, f"{top}/" if top else "")
            if key.startswith(prefix)
        ]
        found.sort(key=lambda item: os.fsencode(item[0]))
        return [item for item in found if os.fsencode(item[0]) > os.fsencode(after)] if after else found


def _write_whole(file: NewFile, data: Data) -> Stored:
    file.write(data)
    file.publish()
    return Stored(md5=hashlib.md5(data, usedforsecurity=False).hexdigest())


def _open_regular(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileRefusedError("get", path.name, "it is a symbolic link") from None
        raise
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
