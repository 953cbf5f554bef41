"""What the publisher's tests share: steps, a mirror's receipts and index store that follow a script, short limits."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from mirror.location import Location
from mirror.receipts.receipt import FileReceipt, Receipt
from references.calls import THREAD_NAME
from references.codec import encode
from references.landing import IndexStore, Receipts
from references.publisher_child import make_worker
from references.publisher_process import PublisherProcess
from references.run_index import Phase, RecordLocation, Row, StepIndex
from references.seams import Patience, Publisher, PublishSettings
from references.spool import Spool, StepKey

if TYPE_CHECKING:
    from references.wandb_client import Run
    from tests.references.wandb_standin.server import WandbServer
    from tests.references.wandb_standin.state import Version

MIRROR = "s3://bucket/run"
SETTINGS = PublishSettings(queue_size=8, timeout_s=30, attempts=3, backoff_s=0.05)
PATIENCE = Patience(receipts_wait_s=0.1, receipts_poll_s=0.02, settle_s=0.5)


def step_index(step: int, *, run: str, phase: Phase = "train", mirrored: int = 2, note: str = "task") -> StepIndex:
    """Return a step with ``mirrored`` records in the mirror and one that is on its node only."""
    rows = [row(f"tr_{step}_{number}", note, f"{MIRROR}/tr_{step}_{number}.json.zst") for number in range(mirrored)]
    return StepIndex(run=run, phase=phase, step=step, rows=(*rows, row(f"tr_{step}_local", note, None)))


def row(name: str, instance_id: str, mirror: str | None) -> Row:
    """Return an attempt whose record is in the mirror, or on its node only."""
    record = RecordLocation(host="10.0.0.5", path=f"/data/{name}.json.zst", mirror=mirror)
    return Row(id=name, instance_id=instance_id, repetition_id=0, attempt=0, superseded=False, record=record)


def receipt_of(name: str) -> Receipt:
    """Return the receipt of a record of two files."""
    files = [f"{name}.tokens.zst", f"{name}.json.zst"]
    listed = tuple(FileReceipt(name=file, size=7, xxh3_128="0" * 32, etag=f"etag-{file}") for file in files)
    return Receipt(id=name, at=1.0, writer="w", host="10.0.0.5", path=f"/data/{name}.json.zst", files=listed)


class MirrorReceipts:
    """Receipts of every record but those in ``missing``; ``error`` is raised instead, while it is set."""

    def __init__(self) -> None:
        """Have all receipts."""
        self.missing: set[str] = set()
        self.error: Exception | None = None

    def covers(self, mirror: Location) -> bool:
        """Cover what ``step_index`` names."""
        return mirror.base == MIRROR

    def find(self, record_ids: Collection[str]) -> Mapping[str, Receipt]:
        """Find what is not missing."""
        if self.error is not None:
            raise self.error
        return {name: receipt_of(name) for name in record_ids if name not in self.missing}


class MirrorIndexes:
    """The mirror's step indexes; ``error`` is raised instead of taking one, while it is set."""

    def __init__(self) -> None:
        """Hold none."""
        self.written: dict[tuple[str, int], bytes] = {}
        self.error: Exception | None = None

    def write(self, phase: Phase, step: int, data: bytes) -> None:
        """Take one."""
        if self.error is not None:
            raise self.error
        self.written[phase, step] = data


class SleepingMirror(MirrorReceipts, MirrorIndexes):
    """A mirror that answers nothing before it is awake."""

    def __init__(self) -> None:
        """Sleep."""
        MirrorReceipts.__init__(self)
        MirrorIndexes.__init__(self)
        self.awake = threading.Event()

    def find(self, record_ids: Collection[str]) -> Mapping[str, Receipt]:
        """Find all, awake."""
        self.awake.wait()
        return super().find(record_ids)

    def write(self, phase: Phase, step: int, data: bytes) -> None:
        """Take it, awake."""
        self.awake.wait()
        super().write(phase, step, data)


class HelperHere:
    """What a helper process does, in this process, with a mirror that follows a script."""

    def __init__(
        self,
        directory: Path,
        settings: PublishSettings,
        patience: Patience,
        receipts: Receipts | None,
        index_store: IndexStore | None,
    ) -> None:
        """Begin."""
        self._spool = Spool(directory)
        self._worker = make_worker(settings, patience, self._spool, receipts, index_store, trainer=os.getpid())
        self._worker.start()
        self._taken = 0

    def publish(self, index: StepIndex, *, run: object | None) -> None:
        """Spool a step and hand it over, as the training process does; return when it was heard of."""
        key, data = StepKey(index.run, index.phase, index.step), encode(index)
        self._spool.put(key, data)
        self._worker.take(key, data, cast("Run | None", run))
        self._taken += 1
        assert wait_until(lambda: self._worker.report.taken == self._taken)

    def stats(self) -> Mapping[str, int]:
        """Return the counts so far."""
        return self._worker.report.counts

    def close(self, timeout_s: float) -> bool:
        """Finish what can be finished in that time."""
        self._worker.close(timeout_s)
        return self._worker.report.has_logged_all


@contextmanager
def helper_here(
    directory: Path,
    *,
    settings: PublishSettings = SETTINGS,
    patience: Patience = PATIENCE,
    receipts: Receipts | None = None,
    index_store: IndexStore | None = None,
) -> Iterator[HelperHere]:
    """Make a helper in this process that is closed at once in the end, whatever it is doing."""
    made = HelperHere(directory, settings, patience, receipts, index_store)
    try:
        yield made
    finally:
        made.close(0)


class Counting(Protocol):
    """Whoever counts."""

    def stats(self) -> Mapping[str, int]:
        """Return the counts so far."""
        ...


def counts(made: Counting, *names: str) -> tuple[int, ...]:
    """Return some of the publisher's counts."""
    stats = made.stats()
    return tuple(stats[name] for name in names)


def wait_until(condition: Callable[[], Any], timeout_s: float = 30.0) -> bool:
    """Return True as soon as ``condition`` holds, False when the time is over."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def publisher_threads() -> list[str]:
    """Return the names of the publisher's threads that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]


def versions(server: WandbServer, run: str, phase: Phase = "train") -> list[Version]:
    """Return what W&B has of a run."""
    return server.state.versions_of(f"skycap-records-{phase}-{run}")


def helpers(parent: int | None = None) -> list[int]:
    """Return the helper processes that log to W&B for a process, by default for this one."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            command = status.with_name("cmdline").read_bytes()
            owner = int(status.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            if b"publisher_child" in command and owner == (parent or os.getpid()):
                found.append(int(status.parent.name))
    return found


@contextmanager
def publisher_process(
    directory: Path,
    *,
    settings: PublishSettings = SETTINGS,
    patience: Patience = PATIENCE,
    mirror: Path | None = None,
) -> Iterator[PublisherProcess]:
    """Make a publisher with a helper process, which is gone in the end, whatever it is doing."""
    made = PublisherProcess(settings, spool=Spool(directory), mirror=mirror, patience=patience)
    try:
        yield made
    finally:
        made.close(0)


def publish(made: Publisher, index: StepIndex, *, run: object | None) -> None:
    """Publish an index that is built already."""
    made.publish(index.phase, index.step, lambda: index, run=run)


_TRAINER = """
import os, signal, sys
from pathlib import Path
import wandb
from references.publisher_process import PublisherProcess
from references.spool import Spool
from tests.references.publishing import counts, helpers, publish, step_index, wait_until
name, folder = sys.argv[1], Path(sys.argv[2])
made = PublisherProcess(spool=Spool(folder))
"""


def run_trainer(script: str, environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    """Begin a process of its own that publishes; its arguments are the run's id and the spool."""
    unwarned = ("-W", "ignore::DeprecationWarning")  # newer Pythons warn of a fork beside threads: the point
    return subprocess.Popen(  # noqa: S603 - our own interpreter and script
        [sys.executable, *unwarned, "-c", _TRAINER + script, *arguments],
        env={**environment, "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
