"""A bounded load on a capture server: first at a fixed rate, to see how long requests take; then as much as it bears.

At the fixed rate a request's time runs from the moment at which it was due, so that a server that stands still is not
flattered by requests that were not made meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import random
import time
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
CONNECTIONS = 16
BODY_BYTES = 30_000  # of JSON text, a quarter of which compression takes away


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much to ask."""

    rate_per_s: float
    rated_s: float  # how long at that rate
    full_s: float  # how long as fast as possible


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How a server did."""

    p50_s: float
    p99_s: float
    per_s: float  # requests a second, as fast as possible


class _Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def post(self, request: bytes) -> None:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0]:
            msg = f"the capture server answered {head!r}"
            raise RuntimeError(msg)
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await self._reader.readexactly(int(length.partition(b":")[2]))

    def close(self) -> None:
        self._writer.close()


async def put_load_on(port: int, load: Load) -> Served:
    """Ask the server on this port of 127.0.0.1.

    Raises:
        RuntimeError: it refused a request.
        OSError: it cannot be reached.
    """
    clients = [_Client(*await asyncio.open_connection(LOOPBACK, port)) for _ in range(CONNECTIONS)]
    body = b'{"text": "' + base64.b64encode(random.Random(0).randbytes(BODY_BYTES * 3 // 4)) + b'"}'  # noqa: S311 - sample data
    request = f"POST /finish HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    try:
        times_s = await _at_a_rate(clients, request, load)
        count = await _at_full_speed(clients, request, load.full_s)
    finally:
        for client in clients:
            client.close()
    times_s.sort()
    return Served(p50_s=times_s[len(times_s) // 2], p99_s=times_s[len(times_s) * 99 // 100], per_s=count / load.full_s)


async def _at_a_rate(clients: list[_Client], request: bytes, load: Load) -> list[float]:
    times_s: list[float] = []
    due = iter(range(int(load.rate_per_s * load.rated_s)))
    begun_s = time.perf_counter()

    async def work(client: _Client) -> None:
        for number in due:
            due_s = begun_s + number / load.rate_per_s
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            await client.post(request)
            times_s.append(time.perf_counter() - due_s)

    await asyncio.gather(*map(work, clients))
    return times_s


async def _at_full_speed(clients: list[_Client], request: bytes, seconds: float) -> int:
    count = 0
    end_s = time.perf_counter() + seconds

    async def work(client: _Client) -> None:
        nonlocal count
        while time.perf_counter() < end_s:
            await client.post(request)
            count += 1

    await asyncio.gather(*map(work, clients))
    return count
