"""One contender copies one corpus in a process of its own, and what it cost.

A contender is a module that is run as ``python -m benchmarks.NAME``, reads a ``Task`` as JSON from standard input, and
prints a ``Measure`` as JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from mirror.names import DOCUMENT_SUFFIX, KNOWN_KINDS, document_name, sidecar_name
from mirror.samples import write_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEGABYTE = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to copy where."""

    record_dir: str
    url: str  # the mirror, below which nothing is yet
    storage_options: dict[str, Any]
    options: dict[str, Any]  # the contender's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What copying a corpus took: from the first record handed over until the last one had arrived."""

    records: int
    files: int
    content_bytes: int
    elapsed_s: float
    cpu_s: float  # user and system time of the client
    peak_rss_bytes: int  # of the whole process, imports included
    submit_s: float | None  # median time that handing over one record kept the server, where there is such a thing

    @property
    def records_per_s(self) -> float:
        """Records copied per second."""
        return self.records / self.elapsed_s

    @property
    def megabytes_per_s(self) -> float:
        """Megabytes (of 10^6 bytes) copied per second."""
        return self.content_bytes / MEGABYTE / self.elapsed_s

    @property
    def cpu_s_per_1000_files(self) -> float:
        """CPU seconds for each 1,000 files."""
        return self.cpu_s / self.files * 1000


@dataclass(slots=True)
class Stopwatch:
    """Collects what ``Measure`` needs while a contender works."""

    submits_s: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0
    cpu_s: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Take the time of the whole work."""
        begun_s, cpu_begun_s = time.perf_counter(), time.process_time()
        yield
        self.elapsed_s, self.cpu_s = time.perf_counter() - begun_s, time.process_time() - cpu_begun_s

    def submit(self, hand_over: Callable[[str], object], record_id: str) -> None:
        """Hand over one record and take the time of that."""
        begun_s = time.perf_counter()
        hand_over(record_id)
        self.submits_s.append(time.perf_counter() - begun_s)

    def measure(self, record_dir: str, *, peak_bytes: int | None = None) -> Measure:
        """Return the result; ``peak_bytes``: resident memory, if not this process's own."""
        ids = record_ids(record_dir)
        files = [file for record_id in ids for file in record_files(record_dir, record_id)]
        return Measure(
            records=len(ids),
            files=len(files),
            content_bytes=sum(file.stat().st_size for file in files),
            elapsed_s=self.elapsed_s,
            cpu_s=self.cpu_s,
            peak_rss_bytes=peak_rss_bytes() if peak_bytes is None else peak_bytes,
            submit_s=statistics.median(self.submits_s) if self.submits_s else None,
        )


def record_ids(record_dir: str) -> list[str]:
    """Return the ids of the finished records of a directory."""
    return sorted(path.name.removesuffix(DOCUMENT_SUFFIX) for path in Path(record_dir).glob(f"[!.]*{DOCUMENT_SUFFIX}"))


def record_files(record_dir: str, record_id: str) -> list[Path]:
    """Return a record's files, the document last."""
    directory = Path(record_dir)
    sidecars = [directory / sidecar_name(record_id, kind) for kind in sorted(KNOWN_KINDS)]
    return [*(path for path in sidecars if path.exists()), directory / document_name(record_id)]


def peak_rss_bytes() -> int:
    """Return the peak resident memory of this process (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@contextmanager
def warm_up_record() -> Iterator[tuple[str, str]]:
    """Give a directory and the id of one tiny record in it, to be copied before the clock starts."""
    with tempfile.TemporaryDirectory(prefix="benchmark-warm-up-") as directory:
        write_record(directory, "tr_warm", profile="tiny", rng=Random(0))  # noqa: S311 - sample data
        yield directory, "tr_warm"


def run_contender(module: str, task: Task, *, timeout_s: float) -> Measure:
    """Run a contender in a process of its own.

    Raises:
        subprocess.CalledProcessError: it failed; why is on standard error.
        subprocess.TimeoutExpired: it took longer than ``timeout_s`` seconds.
    """
    done = subprocess.run(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", module],
        input=json.dumps(asdict(task)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=timeout_s,
    )
    return Measure(**json.loads(done.stdout))


def contend(run: Callable[[Task], Measure]) -> None:
    """Be a contender: what its module calls when it is run."""
    print(json.dumps(asdict(run(Task(**json.load(sys.stdin))))))
