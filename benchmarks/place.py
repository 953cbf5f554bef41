"""A store with a latency in front of it, in a process of its own, for one contender to copy to.

It keeps its objects in memory where the machine has a file system for that: a server's disk on the client's own machine
slows every contender, and the fastest most.

``python -m benchmarks.place rclone --latency-ms 20`` prints one line of JSON once all is ready and serves until its
standard input ends. ``standing`` is the same for Python.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from benchmarks.latency_proxy import LOOPBACK, start_latency_proxy
from mirror.testing.process import ServerError
from mirror.testing.servers import RcloneS3, SeaweedS3

PlaceName = Literal["rclone", "seaweed"]  # one checks no checksum, the other CRC64-NVME too

BUCKET = "bench"
MEMORY = "/dev/shm"  # noqa: S108 - each server makes a directory of its own in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """How to reach the bucket."""

    bucket_url: str  # s3://bucket
    endpoint_url: str  # of the proxy
    storage_options: dict[str, Any]  # for s3fs


@contextmanager
def standing(name: PlaceName, latency_s: float, *, aside: bool = False) -> Iterator[Endpoint]:
    """Have a server with one empty bucket, whose answers take ``latency_s`` seconds longer.

    ``aside``: it runs when nobody else wants the CPU, as a machine elsewhere would not need it at all.

    Raises:
        ServerError: it did not come up; why is on standard error.
    """
    command = [sys.executable, "-m", "benchmarks.place", name, "--latency-ms", str(latency_s * 1000)]
    command += ["--aside"] if aside else []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own interpreter and module
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            msg = f"the server process ended with exit code {process.wait()} before it was ready"
            raise ServerError(msg)
        yield Endpoint(**json.loads(line))


async def serve(server: RcloneS3 | SeaweedS3, latency_s: float) -> None:
    """Say where the server is to be found, and serve until standard input ends."""
    proxy, port = await start_latency_proxy(urlsplit(server.url).port or 0, latency_s)
    url = f"http://{LOOPBACK}:{port}"
    endpoint = Endpoint(bucket_url=f"s3://{BUCKET}", endpoint_url=url, storage_options=server.storage_options(url=url))
    print(json.dumps(asdict(endpoint)), flush=True)
    async with proxy:
        await asyncio.to_thread(sys.stdin.read)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.place", description=__doc__)
    parser.add_argument("name", choices=get_args(PlaceName))
    parser.add_argument("--latency-ms", type=float, default=0.0, help="added to each round trip")
    parser.add_argument("--aside", action="store_true", help="step back for whoever wants the CPU")
    arguments = parser.parse_args(argv)
    if arguments.aside:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if os.access(MEMORY, os.W_OK):
        tempfile.tempdir = MEMORY
    with SeaweedS3() if arguments.name == "seaweed" else RcloneS3() as server:
        server.make_bucket(BUCKET)
        asyncio.run(serve(server, arguments.latency_ms / 1000))
    return 0


if __name__ == "__main__":
    sys.exit(main())
