"""What hashing costs: XXH3-128 over bytes in memory, against a file hashed as checks of a disk hash it.

``python -m benchmarks.hashing`` from the repository's root. The file is in the page cache. Reading it costs more than
hashing it, so that the limit is printed too: the time to read it with the same calls, and to hash in one call bytes
that are in memory already. The three take turns; printed are medians, in 10^9 bytes per second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import xxhash

from mirror.disk_check import hash_file
from mirror.measures import parse_bytes, show_bytes
from mirror.store import CHUNK_BYTES

ROUND_BYTES = 256 << 20  # hashed by each of them in one turn


def read_alone(path: Path) -> None:
    """Read a file as ``hash_file`` does, and look at nothing."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while os.read(descriptor, CHUNK_BYTES):
            pass
    finally:
        os.close(descriptor)


def seconds_each(work: Callable[[], object], times: int) -> float:
    """Return how long one call takes."""
    begun_s = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - begun_s) / times


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hashing", description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=parse_bytes, default=(20_000, 1 << 20, 12 << 20, 256 << 20))
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args(argv)
    print(f"{'file':>10}{'in memory':>12}{'reading':>12}{'hash_file':>12}{'of the limit':>14}")
    for size in arguments.sizes:
        data = os.urandom(size)
        with tempfile.NamedTemporaryFile(prefix="benchmark-hashing-") as file:
            path = Path(file.name)
            path.write_bytes(data)
            works = (lambda: xxhash.xxh3_128_hexdigest(data), lambda: read_alone(path), lambda: hash_file(path))  # noqa: B023 - called in this turn
            turns = [
                [seconds_each(work, max(1, ROUND_BYTES // size)) for work in works] for _ in range(arguments.repeats)
            ]
        rates = "".join(f"{size / statistics.median(taken) / 1e9:12.2f}" for taken in zip(*turns, strict=True))
        share = statistics.median((bare + reading) / whole for bare, reading, whole in turns)
        print(f"{show_bytes(size):>10}{rates}{share:14.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
