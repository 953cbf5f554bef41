"""Why a directory is written by the mirror itself: its own store against obstore's, many small files at once.

``python -m benchmarks.directory`` from the repository's root. The own store writes under a hidden name, syncs (or does
not) and renames; obstore writes under a visible name, renames, and cannot sync. Both hash each file by XXH3-128 and
MD5, which receipts and W&B's references to a directory need. They take turns; printed are medians.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence

import obstore
import xxhash
from obstore.store import LocalStore as ObstoreDirectory

from mirror.location import parse_location
from mirror.stores.local import LocalStore

AT_ONCE = 64
Put = Callable[[str, bytes], Awaitable[object]]


async def put_all(put: Put, files: int, data: bytes) -> None:
    """Write so many files of the same bytes."""
    numbers = iter(range(files))

    async def some() -> None:
        for number in numbers:
            await put(f"tr_{number:08x}.json.zst", data)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def own(directory: str, files: int, data: bytes, *, fsync: bool) -> None:
    """Write them by the mirror's own store."""
    store = LocalStore(parse_location(directory), redact=str, threads=AT_ONCE, fsync=fsync)
    await put_all(lambda name, body: store.put(name, body, xxhash.xxh3_128_hexdigest(body)), files, data)
    await store.aclose()


async def by_obstore(directory: str, files: int, data: bytes) -> None:
    """Write them by obstore's."""
    store = ObstoreDirectory(directory)

    async def put(name: str, body: bytes) -> None:
        xxhash.xxh3_128_hexdigest(body)
        hashlib.md5(body, usedforsecurity=False).hexdigest()
        await obstore.put_async(store, name, body, use_multipart=False)

    await put_all(put, files, data)


WAYS: dict[str, Callable[[str, int, bytes], Awaitable[None]]] = {
    "own, synced": lambda directory, files, data: own(directory, files, data, fsync=True),
    "own": lambda directory, files, data: own(directory, files, data, fsync=False),
    "obstore": by_obstore,
}


async def take_time(way: str, files: int, data: bytes) -> tuple[float, float]:
    """Return files per second and CPU seconds per 1,000 files."""
    with tempfile.TemporaryDirectory(prefix="benchmark-directory-") as directory:
        begun_s, cpu_begun_s = time.perf_counter(), time.process_time()
        await WAYS[way](directory, files, data)
        return files / (time.perf_counter() - begun_s), (time.process_time() - cpu_begun_s) / files * 1_000


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.directory", description=__doc__)
    parser.add_argument("--files", type=int, default=4_000)
    parser.add_argument("--size", type=int, default=20_000, help="bytes of each")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args(argv)
    data = os.urandom(arguments.size)
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for repeat in range(arguments.repeats):
        for way in WAYS if repeat % 2 == 0 else reversed(WAYS):
            taken[way].append(asyncio.run(take_time(way, arguments.files, data)))
    print(f"{'':14}{'files/s':>10}{'CPU s/1k files':>16}")
    for way, values in taken.items():
        rate, cpu_s = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"{way:14}{rate:10,.0f}{cpu_s:16.3f}")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # obstore's threads abort an interpreter that ends right after a call
