"""A local file's bytes for the event loop: what is in memory is read at once, what a disk has to bring by a thread.

Whoever writes records has just written most of them, and a thread costs more than a small read from the page cache.
Records of before a restart come from the disk, and network disks take their time: many are waited for at once.
"""

from __future__ import annotations

import mmap
import os

from mirror.errors import RecordChangedError
from mirror.stores.threads import DaemonThreads

THREADS = 16
AT_ONCE_BYTES = 1 << 20  # some tenths of a millisecond; more keeps the loop from its other work
_NOWAIT = getattr(os, "RWF_NOWAIT", None)  # Linux's alone


def reading_threads() -> DaemonThreads:
    """Return threads to read on, none of which has started."""
    return DaemonThreads(THREADS, "record-mirror-read")


async def read_at(threads: DaemonThreads, descriptor: int, size_bytes: int, start: int) -> memoryview:
    """Read from a file; a wait that is cancelled may leave a read under way, of which nothing comes.

    Raises:
        RecordChangedError: it is shorter than that.
        OSError: it cannot be read.
    """
    data = _read_from_memory(descriptor, size_bytes, start) if size_bytes <= AT_ONCE_BYTES else None
    return data if data is not None else await threads.run(_read, descriptor, size_bytes, start)


def _read_from_memory(descriptor: int, size_bytes: int, start: int) -> memoryview | None:
    """Return what the page cache holds; None where that is not all, or the file system cannot tell."""
    if _NOWAIT is None:
        return None
    buffer = bytearray(size_bytes)
    try:
        return memoryview(buffer) if os.preadv(descriptor, [buffer], start, _NOWAIT) == size_bytes else None
    except OSError:
        return None


def _read(descriptor: int, size_bytes: int, start: int) -> memoryview:
    view = memoryview(_pages(size_bytes) if size_bytes > AT_ONCE_BYTES else bytearray(size_bytes))
    done = 0
    while done < size_bytes:
        count = os.preadv(descriptor, [view[done:]], start + done)
        if not count:
            raise RecordChangedError("a file became shorter while it was read")
        done += count
    return view


def _pages(size_bytes: int) -> mmap.mmap:
    """Return memory that the system has back at once: an allocator would keep what each thread gave back, for each."""
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
