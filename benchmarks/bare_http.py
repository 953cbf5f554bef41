"""The limit: PUTs and nothing else, over 64 connections that stay open, each request signed as S3 wants it.

No retry, no checksum, no receipt, no order of files: what a client written for this alone could reach in Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

from benchmarks.measure import Measure, Stopwatch, Task, contend, record_files, record_ids, warm_up_record

CONNECTIONS = 64
REGION = "us-east-1"
_SIGNED = "host;x-amz-content-sha256;x-amz-date"
_PAYLOAD = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs PUTs by AWS's Signature Version 4 for one day, the payload left out."""

    host: str
    access_key: str
    day: str
    key: bytes

    @classmethod
    def make(cls, host: str, access_key: str, secret_key: str, now: datetime) -> Signer:
        """Derive the day's key."""
        day = f"{now:%Y%m%d}"
        key = f"AWS4{secret_key}".encode()
        for part in (day, REGION, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return cls(host, access_key, day, key)

    def head(self, path: str, size_bytes: int, now: datetime) -> bytes:
        """Return the head of a PUT of ``path``, which is quoted already."""
        at = f"{now:%Y%m%dT%H%M%SZ}"
        named = f"host:{self.host}\nx-amz-content-sha256:{_PAYLOAD}\nx-amz-date:{at}\n"
        request = f"PUT\n{path}\n\n{named}\n{_SIGNED}\n{_PAYLOAD}"
        scope = f"{self.day}/{REGION}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        signature = hmac.digest(self.key, text.encode(), "sha256").hex()
        return (
            f"PUT {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Length: {size_bytes}\r\nx-amz-date: {at}\r\n"
            f"x-amz-content-sha256: {_PAYLOAD}\r\nAuthorization: AWS4-HMAC-SHA256 "
            f"Credential={self.access_key}/{scope}, SignedHeaders={_SIGNED}, Signature={signature}\r\n\r\n"
        ).encode()


class Connection:
    """PUTs objects over one connection, one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, signer: Signer) -> None:
        """Take a connection that is open."""
        self._reader, self._writer, self._signer = reader, writer, signer

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, signer: Signer) -> AsyncIterator[Connection]:
        """Be connected for the length of the block."""
        host, _, port = signer.host.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
        try:
            yield cls(reader, writer, signer)
        finally:
            writer.close()

    async def put(self, path: str, data: bytes) -> None:
        """Write one object; ``path`` is quoted already.

        Raises:
            RuntimeError: the server refused it.
        """
        self._writer.writelines([self._signer.head(path, len(data), datetime.now(UTC)), data])
        answer = await self._reader.readuntil(b"\r\n\r\n")
        status, _, headers = answer.partition(b"\r\n")
        if b" 200 " not in status:
            msg = f"the server refused {path}: {status!r}"
            raise RuntimeError(msg)
        length = next((line for line in headers.lower().split(b"\r\n") if line.startswith(b"content-length:")), b"")
        await self._reader.readexactly(int(length.partition(b":")[2] or 0))


def place_of(task: Task) -> tuple[Signer, str]:
    """Return what signs for a task's server, and the path below which its objects go."""
    place = urlsplit(task.storage_options["client_kwargs"]["endpoint_url"])
    key, secret = task.storage_options["key"], task.storage_options["secret"]
    signer = Signer.make(place.netloc, key, secret, datetime.now(UTC))
    return signer, "/" + task.url.removeprefix("s3://") + "/"


async def _put_all(files: Iterator[Path], root: str, signer: Signer) -> None:
    """Take files from ``files``, which others take from too, and PUT them over one connection."""
    async with Connection.opened(signer) as connection:
        for file in files:
            await connection.put(root + quote(file.name), file.read_bytes())


async def _copy(task: Task) -> Measure:
    signer, root = place_of(task)
    with warm_up_record() as (warm_up_dir, warm_up_id):
        await _put_all(iter(record_files(warm_up_dir, warm_up_id)), root, signer)
    ids = record_ids(task.record_dir)
    watch = Stopwatch()
    with watch.running():
        files = (file for record_id in ids for file in record_files(task.record_dir, record_id))
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(_put_all(files, root, signer))
    return watch.measure(task.record_dir)


def run_bare(task: Task) -> Measure:
    """Copy every record."""
    return asyncio.run(_copy(task))


if __name__ == "__main__":
    contend(run_bare)
