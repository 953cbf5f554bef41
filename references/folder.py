"""An open directory: names are looked up in it alone, and no link leads anywhere else."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import xxhash

from references.errors import OutDirectoryError

CHUNK_BYTES = 4 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """Any thread may use it until it is closed. Names are plain file names: whoever passes one has checked it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Own the descriptor; ``path`` is for messages."""
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Open a directory that the user named, through links too.

        Raises:
            OSError: it cannot be opened, or is none.
        """
        return cls(path, os.open(path, _DIRECTORY))

    def enter(self, name: str, *, create: bool) -> Folder | None:
        """Open a directory in this one, made where it is absent if ``create`` is set, else None.

        Raises:
            OutDirectoryError: there is something else of that name, be it a link to a directory.
            OSError: it cannot be made or opened.
        """
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=self.descriptor)
        try:
            return Folder(self.path / name, os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self.descriptor))
        except FileNotFoundError:
            if create:
                raise
            return None
        except OSError as error:
            if error.errno in {errno.ENOTDIR, errno.ELOOP}:
                raise OutDirectoryError(
                    f"{self.path / name} is not a directory (links are not followed): move it away, or pull elsewhere"
                ) from error
            raise

    def has(self, name: str) -> bool:
        """Whether there is anything of that name, be it a link to nowhere."""
        try:
            os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def digest(self, name: str, size_bytes: int) -> str | None:
        """Return the xxh3_128 of a file; None when there is no regular file of that name and size to be read."""
        hasher = xxhash.xxh3_128()
        try:
            for chunk in self._read(name, size_bytes):
                hasher.update(chunk)
        except OSError:
            return None
        return hasher.hexdigest()

    def content(self, name: str, size_bytes: int) -> bytes | None:
        """Return a file's bytes; None when there is no regular file of that name and size to be read."""
        try:
            return b"".join(self._read(name, size_bytes))
        except OSError:
            return None

    def write(self, name: str, data: bytes, *, begin: bool) -> None:
        """Write to a file: the first bytes of a new one with ``begin``, else what follows.

        Raises:
            OSError: it cannot be written.
        """
        descriptor = os.open(name, _WRITE | (os.O_TRUNC if begin else 0), 0o644, dir_fd=self.descriptor)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)

    def move(self, name: str, target: Folder, new_name: str) -> None:
        """Give a file another place, in place of what was there.

        Raises:
            OSError: it cannot be moved, e.g. since a directory is there.
        """
        os.rename(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor)

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def names(self) -> list[str]:
        """Return what is in the directory."""
        return os.listdir(self.descriptor)  # noqa: PTH208 - of a descriptor, which Path does not take

    def close(self) -> None:
        """Let the descriptor go."""
        os.close(self.descriptor)

    def _read(self, name: str, size_bytes: int) -> Iterator[bytes]:
        descriptor = os.open(name, _READ, dir_fd=self.descriptor)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size != size_bytes:
                raise FileNotFoundError(errno.ENOENT, "no regular file of that size", name)
            yield from iter(lambda: os.read(descriptor, CHUNK_BYTES), b"")
        finally:
            os.close(descriptor)
