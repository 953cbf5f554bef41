"""Reading a record's file for the event loop, wherever its bytes are just now."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from mirror.errors import RecordChangedError
from mirror.reading import AT_ONCE_BYTES, read_at, reading_threads


@pytest.fixture(params=[0, 1, 20_000, AT_ONCE_BYTES, AT_ONCE_BYTES + 1])
def content(request: pytest.FixtureRequest) -> bytes:
    return Random(0).randbytes(request.param)  # noqa: S311 - sample data


@pytest.fixture(params=["in memory", "on disk alone"])
def descriptor(request: pytest.FixtureRequest, tmp_path: Path, content: bytes) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(content)
    opened = os.open(path, os.O_RDWR)
    if request.param == "on disk alone":
        os.fsync(opened)
        os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
    yield opened
    os.close(opened)


def read(descriptor: int, size_bytes: int, start: int = 0) -> memoryview:
    threads = reading_threads()
    try:
        return asyncio.run(read_at(threads, descriptor, size_bytes, start))
    finally:
        threads.close()


def test_all_bytes_come(descriptor: int, content: bytes) -> None:
    """From the page cache and from the disk, of small files and large ones."""
    assert read(descriptor, len(content)) == content
    half = len(content) // 2
    assert read(descriptor, len(content) - half, half) == content[half:]


def test_a_file_that_became_shorter_is_no_file_of_its_size(descriptor: int, content: bytes) -> None:
    """It is being written again: what is there is not sent under the old size."""
    with pytest.raises(RecordChangedError):
        read(descriptor, len(content) + 1)
