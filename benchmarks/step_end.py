"""What the end of a step costs the training thread: 10,000 trajectories with records of four files, whatever W&B does.

``python -m benchmarks.step_end`` from the repository's root. The real callback and publisher log through W&B's real
client to the test suite's stand-in server, which works, hangs or is down; the references come from receipts in a
mirror, written just before each step ends. While W&B works, a step begins when W&B has committed the one before; in
every other row right after the one before, so that in the row "busy" the helper process is at work on earlier steps.

Printed are the median and the 99th percentile of ``on_step_end`` on the calling thread, how much of that is CPU time of
this thread, and the generator's ``RecordLog.add``. Then, counted from the beginning of ``on_step_end``: when the whole
version (``step.json`` and 40,000 references, made from receipts that were read) is handed to W&B's client, and when W&B
itself is asked to create it; and the CPU time of the helper process for each step, W&B's client's part included. Each
row has a process of its own, in which the stand-in server works too.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from mirror.names import KNOWN_KINDS, document_name, sidecar_name
from mirror.receipts.receipt import FileReceipt, Receipt, encode_line
from mirror.receipts.segments import SEGMENT_RECEIPTS, segment_key
from references import RecordLog, RecordsConfig, SkycapRecordIndex, WandbConfig, make_record_index
from tests.references.publishing import helpers, wait_until
from tests.references.wandb_standin.faults import Hang
from tests.references.wandb_standin.server import WandbServer

KINDS = sorted(KNOWN_KINDS)
SAMPLES_PER_TASK = 8
RETRIED = 0.02  # share of the samples that had to be tried twice
TOKENS = 1024  # of a row's loss mask
WEATHERS = ("works", "busy", "hangs", "down")
DOOR = "CreateArtifact"
DOOR_TIMEOUT_S = 120.0
MILLI, MICRO = 1e3, 1e6


@dataclass(frozen=True)
class TrajectoryID:
    """What a generator calls a sample."""

    instance_id: str
    repetition_id: int


@dataclass(slots=True)
class Taken:
    """Times in seconds."""

    step_end: list[float] = field(default_factory=list)
    step_end_cpu: list[float] = field(default_factory=list)
    add: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    door: list[float] = field(default_factory=list)
    helper_cpu: list[float] = field(default_factory=list)


class Training:
    """A generator and a trainer, reduced to what the callback sees of them."""

    def __init__(self, trajectories: int, mirror: Path) -> None:
        """Prepare what is the same in each step."""
        rng = random.Random(7)  # noqa: S311 - sample data
        samples = round(trajectories / (1 + RETRIED))
        self.ids = [TrajectoryID(f"task-{n // SAMPLES_PER_TASK}", n % SAMPLES_PER_TASK) for n in range(samples)]
        retried = [*self.ids, *rng.sample(self.ids, trajectories - samples)]
        self.attempts = list(zip(retried, [0] * samples + [1] * (trajectories - samples), strict=True))
        self.masks = np.ones((samples, TOKENS), dtype=np.int8)
        self.mirror = mirror

    def trajectories(self, step: int) -> list[Any]:
        """Return the finished trajectories of a step, as a generator's client makes them."""
        made = []
        for number in range(len(self.attempts)):
            name = record_id(step, number)
            document = document_name(name)
            record = {
                "host": "10.0.0.5",
                "path": f"/data/record/{document}",
                "mirror": f"file://{self.mirror}/{document}",
                "files": file_names(name),
            }
            made.append(
                SimpleNamespace(
                    id=name,
                    result=SimpleNamespace(status="finished", record=record),
                    finishing=SimpleNamespace(annotations={"reward": 1.0, "stop_reason": "stop"}),
                )
            )
        return made

    def run_step(self, step: int, log: RecordLog, callback: SkycapRecordIndex, run: object, taken: Taken) -> float:
        """Do one step, and return when its end began."""
        trainer = SimpleNamespace(tracker=SimpleNamespace(backend="wandb", logger=SimpleNamespace(run=run)))
        callback.on_step_start(trainer, None, None)
        finished = self.trajectories(step)
        began = time.perf_counter()
        for (trajectory_id, attempt), trajectory in zip(self.attempts, finished, strict=True):
            log.add("train", trajectory_id, attempt, trajectory)
        taken.add.append((time.perf_counter() - began) / len(finished))
        gc.collect()  # what the generator has left is not the callback's
        step_input = SimpleNamespace(global_step=step, trajectory_ids=self.ids, batch={"loss_mask": self.masks})
        began, cpu_began = time.perf_counter(), time.thread_time()
        callback.on_step_end(trainer, step_input, None)
        taken.step_end.append(time.perf_counter() - began)
        taken.step_end_cpu.append(time.thread_time() - cpu_began)
        return began


class Ready(logging.Handler):
    """Notes when a version is handed to W&B's client; the helper process says so."""

    def __init__(self) -> None:
        """Have heard nothing."""
        super().__init__()
        self.at: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Hear one line."""
        if "goes to W&B's client" in record.getMessage():
            self.at.append(time.perf_counter())


def helper_cpu_s() -> float:
    """Return the CPU time of the helper process so far."""
    times = [Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split() for pid in helpers()]
    return sum(int(fields[11]) + int(fields[12]) for fields in times) / os.sysconf("SC_CLK_TCK")


def has_logged(callback: SkycapRecordIndex, steps: int) -> bool:
    """Say whether that many steps are in W&B."""
    return callback.stats()["logged"] >= steps


def record_id(step: int, number: int) -> str:
    """Return the id of a step's n-th record."""
    return f"tr_{step:03d}{number:05d}"


def file_names(name: str) -> list[str]:
    """Return a record's files, sidecars then document."""
    return [*(sidecar_name(name, kind) for kind in KINDS), document_name(name)]


def write_receipts(mirror: Path, step: int, count: int) -> None:
    """Write the receipts that the servers' mirrors would have written for a step."""
    receipts = [
        Receipt(
            id=record_id(step, number),
            at=float(step),
            writer=f"server-{step}",
            host="10.0.0.5",
            path=f"/data/record/{document_name(record_id(step, number))}",
            files=tuple(
                FileReceipt(name=name, size=1000, xxh3_128="0" * 32, md5="0" * 32)
                for name in file_names(record_id(step, number))
            ),
        )
        for number in range(count)
    ]
    for sequence, start in enumerate(range(0, count, SEGMENT_RECEIPTS // 4), 1):
        path = mirror / segment_key(f"server-{step}", sequence)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(map(encode_line, receipts[start : start + SEGMENT_RECEIPTS // 4])))


@contextmanager
def wandb_run(scratch: Path) -> Iterator[tuple[WandbServer, Any]]:
    """Start the stand-in server and a run of the real client that knows it alone."""
    server = WandbServer()
    server.start()
    os.environ.update(server.environment(str(scratch)))
    import wandb  # noqa: PLC0415 - after its environment is set

    run = wandb.init(project="benchmark")
    try:
        yield server, run
    finally:
        server.recover()
        run.finish()
        server.stop()


def measure(weather: str, steps: int, trajectories: int) -> Taken:
    """Run a few steps while W&B works, hangs or is down."""
    taken = Taken()
    with tempfile.TemporaryDirectory(prefix="benchmark-step-end-") as folder:
        scratch = Path(folder)
        training = Training(trajectories, scratch / "mirror")
        config = RecordsConfig(
            record_dir="/data/record",
            record_mirror=str(training.mirror),
            wandb=WandbConfig(spool=str(scratch / "spool"), shutdown_timeout=1),
        )
        log = RecordLog()
        ready = Ready()
        logger = logging.getLogger("references")
        logger.addHandler(ready)
        logger.setLevel(logging.DEBUG)
        callback = make_record_index(config, log)
        with wandb_run(scratch / "wandb") as (server, run):
            if weather == "hangs":
                server.faults.plan("*", Hang(), times=None)
            elif weather == "down":
                server.down()
            for step in range(1, steps + 1):
                write_receipts(training.mirror, step, trajectories)
                cpu_before = helper_cpu_s()
                began = training.run_step(step, log, callback, run, taken)
                if weather == "works" and server.wait_for(DOOR, step, timeout_s=DOOR_TIMEOUT_S):
                    taken.door.append(time.perf_counter() - began)
                    taken.ready.append(ready.at[-1] - began)
                    wait_until(partial(has_logged, callback, step))
                    taken.helper_cpu.append(helper_cpu_s() - cpu_before)
            callback.close()
    return taken


def percentile(values: list[float], share: float) -> float:
    """Return the value that this share of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_end", description=__doc__)
    parser.add_argument("--steps", type=int, default=30, help="in each weather; the first is not counted")
    parser.add_argument("--trajectories", type=int, default=10_000)
    parser.add_argument("--only", choices=WEATHERS, help="this weather, in this process; printed is JSON")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(asdict(measure(arguments.only, arguments.steps, arguments.trajectories))))
        return
    print(f"{arguments.trajectories} trajectories with records of {len(KINDS) + 1} files, {arguments.steps} steps each")
    titles = f"{'W&B':8} {'on_step_end median':>19} {'p99':>9} {'CPU':>9} {'add, each':>11}"
    print(titles, f"{'ready':>8} {'W&B asked':>10} {'helper CPU':>11}")
    for weather in WEATHERS:
        command = [sys.executable, "-m", "benchmarks.step_end", *sys.argv[1:], "--only", weather]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own module
        taken = Taken(**json.loads(done.stdout.splitlines()[-1]))
        ends = taken.step_end[1:]
        columns = [
            f"{weather:8}",
            f"{statistics.median(ends) * MILLI:16.1f} ms",
            f"{percentile(ends, 0.99) * MILLI:6.1f} ms",
            f"{statistics.median(taken.step_end_cpu) * MILLI:6.1f} ms",
            f"{statistics.median(taken.add) * MICRO:8.1f} us",
        ]
        for width, values in ((6, taken.ready), (8, taken.door), (9, taken.helper_cpu)):
            columns.append(f"{statistics.median(values[1:]):{width}.2f} s" if values[1:] else f"{'-':>{width + 2}}")
        print(" ".join(columns), flush=True)


if __name__ == "__main__":
    main()
