"""A capture server as it may be: each request's trajectory becomes a record, and the answer says where that is.

``python -m benchmarks.capture_server`` reads a ``Serving`` as JSON from the first line of standard input, prints the
port that it listens on, serves until standard input ends, and prints a ``Lag`` as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import zstandard
from aiohttp import web

from mirror import RecordMirror, locate
from mirror.names import document_name

LOOPBACK = "127.0.0.1"
LAG_EVERY_S = 0.005
ZSTD_LEVEL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Where records go."""

    record_dir: str
    url: str | None  # of the mirror that is embedded, if one is
    storage_options: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """By how many seconds timers of the server's event loop were late."""

    p50_s: float
    p99_s: float


class CaptureServer:
    """Answers each POST with where the record is."""

    def __init__(self, directory: Path, mirror: RecordMirror | None) -> None:
        """Serve nothing yet."""
        self._directory = directory
        self._mirror = mirror
        self._numbers = itertools.count()
        self._compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)

    async def finish(self, request: web.Request) -> web.Response:
        """Write a record, hand it over, say where it is."""
        document = self._compressor.compress(await request.read())
        record_id = f"tr_{next(self._numbers):08x}"
        name = document_name(record_id)
        temporary = self._directory / f".{name}.tmp"
        temporary.write_bytes(document)
        temporary.rename(self._directory / name)
        if self._mirror is None:
            return web.json_response(locate(self._directory, record_id))
        self._mirror.submit(self._directory, record_id)
        return web.json_response(self._mirror.locate(self._directory, record_id))


@contextlib.asynccontextmanager
async def measuring_lag(lags_s: list[float]) -> AsyncIterator[None]:
    """Note by how much each of many short sleeps was too long."""

    async def sleep() -> None:
        while True:
            begun_s = time.perf_counter()
            await asyncio.sleep(LAG_EVERY_S)
            lags_s.append(time.perf_counter() - begun_s - LAG_EVERY_S)

    task = asyncio.create_task(sleep())
    try:
        yield
    finally:
        task.cancel()


async def serve(serving: Serving, mirror: RecordMirror | None) -> Lag:
    """Serve until standard input ends."""
    app = web.Application()
    app.router.add_post("/finish", CaptureServer(Path(serving.record_dir), mirror).finish)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, 0)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        lags_s: list[float] = []
        async with measuring_lag(lags_s):
            await asyncio.to_thread(sys.stdin.read)
    finally:
        await runner.cleanup()
    lags_s.sort()
    return Lag(p50_s=lags_s[len(lags_s) // 2], p99_s=lags_s[len(lags_s) * 99 // 100])


def main() -> None:
    """Be the server."""
    serving = Serving(**json.loads(sys.stdin.readline()))
    mirror = None if serving.url is None else RecordMirror(serving.url, storage_options=serving.storage_options)
    with mirror or contextlib.nullcontext():
        lag = asyncio.run(serve(serving, mirror))
    print(json.dumps(asdict(lag)))


if __name__ == "__main__":
    main()
