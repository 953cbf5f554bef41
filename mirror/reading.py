"""A local file's bytes for the event loop: what is in memory is read at once, what a disk has to bring by a thread.

Whoever writes records has just written most of them, and a thread costs more than a small read from the page cache.
Records of before a restart come from the disk, and network disks take their time: many are waited for at once.
"""

from __future__ import annotations

import os

from mirror.errors import RecordChangedError
from mirror.stores.threads import DaemonThreads

THREADS = 16
AT_ONCE_BYTES = 1 << 20  # some tenths of a millisecond; more keeps the loop from its other work
_NOWAIT = getattr(os, "RWF_NOWAIT", None)  # Linux's alone


def reading_threads() -> DaemonThreads:
    """Return threads to read on, none of which has started."""
    return DaemonThreads(THREADS, "record-mirror-read")


async def read_at(threads: DaemonThreads, descriptor: int, size_bytes: int, start: int) -> bytes:
    """Read from a file; a wait that is cancelled may leave a read under way, of which nothing comes.

    Raises:
        RecordChangedError: it is shorter than that.
        OSError: it cannot be read.
    """
    if size_bytes <= AT_ONCE_BYTES and _is_in_memory(descriptor, start + size_bytes - 1):
        return _read(descriptor, size_bytes, start)
    return await threads.run(_read, descriptor, size_bytes, start)


def _is_in_memory(descriptor: int, last: int) -> bool:
    """Whether the page cache has the byte at ``last``, and so most likely those before it."""
    if _NOWAIT is None:
        return True
    try:
        os.preadv(descriptor, [bytearray(1)], max(0, last), _NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # a file system that does not tell, as those in memory
        return True
    return True


def _read(descriptor: int, size_bytes: int, start: int) -> bytes:
    data = os.pread(descriptor, size_bytes, start)
    while len(data) < size_bytes:
        more = os.pread(descriptor, size_bytes - len(data), start + len(data))
        if not more:
            raise RecordChangedError("a file became shorter while it was read")
        data += more
    return data
