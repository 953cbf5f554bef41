"""What any client costs beside a capture server: bare PUTs, as many and as large as its records, and nothing else.

Its process reads a ``Task`` as JSON from the first line of standard input, with the options ``rate_per_s`` and
``size_bytes``, leaves the CPU to others as ``record-mirror watch`` does, and ends with standard input.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time

from benchmarks.bare_http import Connection, place_of
from benchmarks.measure import Task

CONNECTIONS = 16
NICE = 10  # the default of ``watch``


async def put_at_a_rate(task: Task) -> None:
    """Write objects until cancelled."""
    signer, root = place_of(task)
    data = os.urandom(task.options["size_bytes"])
    numbers = itertools.count()
    begun_s = time.perf_counter()

    async def work() -> None:
        async with Connection.opened(signer) as connection:
            for number in numbers:
                await asyncio.sleep(begun_s + number / task.options["rate_per_s"] - time.perf_counter())
                await connection.put(f"{root}{number:08x}", data)

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))


async def _main() -> None:
    writing = asyncio.create_task(put_at_a_rate(Task(**json.loads(sys.stdin.readline()))))
    await asyncio.to_thread(sys.stdin.read)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


if __name__ == "__main__":
    os.nice(NICE)
    asyncio.run(_main())
