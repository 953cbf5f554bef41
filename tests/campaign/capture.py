"""A capture server of the campaign: writes its records, mirrors them, goes on where its last life ended.

It checks what only it can see: that its books balance at any moment, that a record is located with the files that it
has, that a close leaves neither threads nor descriptors, that a forked child neither hangs nor harms it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import uvloop
import xxhash

from mirror import RecordMirror
from mirror.names import sidecar_name
from mirror.samples import Status, write_record
from mirror.store import WHOLE_BYTES
from references.cli import main as record_mirror
from tests.campaign.inside import RUNTIMES, Stop, open_files, own_threads, settles
from tests.campaign.notes import Notes
from tests.campaign.scenario import Ending, Life, Profile, RecordPlan
from tests.mirror.local_records import replace_file

IDLE_S = 40.0  # until the driver ends a life that waits for it
HEALTHY_S = 60.0  # far more than a healthy store takes
CHILD_S = 25.0  # far more than a forked child may take


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureJob:
    """One life of a capture server; without a ``url`` it writes only, and ``life`` None is the last, healthy one."""

    url: str | None
    options: dict[str, Any]
    record_dir: str
    notes: str
    records: tuple[RecordPlan, ...]
    life: Life | None
    late_s: float  # until what was written is handed over in the last, healthy life


def run(order: dict[str, Any]) -> int:
    """Live one life."""
    return _Server(msgspec.convert(order, CaptureJob)).live()


def command(arguments: list[str]) -> None:
    """Be a command beside a server, one that mirrors or prunes."""
    sys.argv = ["record-mirror", *arguments]
    record_mirror()


def write_generation(directory: Path, record_id: str, profile: Profile, status: Status, generation: int) -> list[str]:
    """Write a record: the same bytes whenever these are the same; return the names, the document last.

    Raises:
        OSError: the directory cannot be written.
    """
    rng = random.Random(f"{record_id}/{generation}")  # noqa: S311 - sample data
    names = []
    if profile == "large":
        replace_file(directory / sidecar_name(record_id, "experts"), rng.randbytes(WHOLE_BYTES + 1))
        names.append(sidecar_name(record_id, "experts"))
        profile = "tiny"
    return [*names, *write_record(directory, record_id, profile=profile, rng=rng, status=status)]


class _Server:
    def __init__(self, job: CaptureJob) -> None:
        self._job = job
        self._life = job.life
        self._directory = Path(job.record_dir)
        self._notes = Notes(job.notes)
        self._stop = Stop()
        uvloop.new_event_loop().close()  # its library opens a pipe with the first loop, and keeps it
        self._files_before = open_files()
        self._mirror = RecordMirror.from_config(job.url, job.options) if job.url else None
        self._children: list[int] = []
        self._kept_back: list[tuple[str, list[str], Status]] = []  # records that are written and not handed over yet

    def live(self) -> int:
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._mirror is not None:
            self._mirror.start()
            threading.Thread(target=self._watch_books, args=(self._mirror,), name="books", daemon=True).start()
        try:
            if self._mirror is not None and self._life is None:
                self._mirror.scan(self._directory)
            self._write_all()
            if self._life is not None and self._life.ending not in {Ending.CLOSE, Ending.LEAVE}:
                self._stop.wait(IDLE_S)
        except KeyboardInterrupt:
            self._notes.add("interrupted")
        if self._life is not None and self._life.ending is Ending.LEAVE and not self._stop.asked:
            return 0
        self._close()
        self._reap()
        return 0

    def _write_all(self) -> None:
        done = {(fact["id"], fact["generation"]) for fact in self._notes.read("wrote")}
        if self._life is None:
            self._write_in_waves(done)
            return
        for number, plan in enumerate(self._job.records):
            for generation in range(len(plan.writes)):
                if (plan.id, generation) not in done and not self._write_once(plan, generation, plan.pause_s):
                    return
            if self._life.fork_at == number:
                self._fork(number)

    def _write_in_waves(self, done: Collection[tuple[str, int]]) -> None:
        """Write a first generation of all that is left, then a second; each is handed over late.

        So the older one of a record is in the mirror, with its receipt, while the newer one is on disk alone.
        """
        for generation in range(max(len(plan.writes) for plan in self._job.records)):
            wave = [
                plan
                for plan in self._job.records
                if generation < len(plan.writes) and (plan.id, generation) not in done
            ]
            written = [plan for plan in wave if self._write_once(plan, generation, 0.0)]
            if self._stop.wait(self._job.late_s if written else 0.0):
                return
            for record_id, names, status in self._kept_back:
                self._hand_over(record_id, names, status)
            self._kept_back.clear()
            if self._mirror is not None:
                self._mirror.flush(HEALTHY_S)

    def _write_once(self, plan: RecordPlan, generation: int, pause_s: float) -> bool:
        """Write a record, however long its disk is full: the server's own trouble; False: it was asked to stop."""
        if self._stop.wait(pause_s):
            return False
        while not self._write(plan.id, plan.profile, plan.writes[generation], generation):
            if self._stop.wait(0.02):
                return False
        return True

    def _write(self, record_id: str, profile: Profile, status: Status, generation: int) -> bool:
        try:
            names = write_generation(self._directory, record_id, profile, status, generation)
        except OSError:
            return False
        hashes = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # it was mirrored and pruned meanwhile
                hashes[name] = xxhash.xxh3_128_hexdigest((self._directory / name).read_bytes())
        self._notes.add("wrote", id=record_id, generation=generation, profile=profile, status=status, files=hashes)
        if self._life is None:
            self._kept_back.append((record_id, names, status))
        else:
            self._hand_over(record_id, names, status)
        return True

    def _hand_over(self, record_id: str, names: list[str], status: Status) -> None:
        if self._mirror is None:
            return
        self._mirror.submit(self._directory, record_id)
        location = self._mirror.locate(self._directory, record_id)
        excluded = {sidecar_name(record_id, kind) for kind in self._mirror.config.exclude}
        is_there = (self._directory / names[-1]).exists()  # it may have been mirrored and pruned meanwhile
        if is_there and (set(location["files"]) != set(names) - excluded or location["files"][-1] != names[-1]):
            self._notes.violation("a record is located with its files", f"{location['files']} for {names}")
        self._notes.add("answered", id=record_id, status=status, record=location)

    def _watch_books(self, mirror: RecordMirror) -> None:
        while True:
            self._check_books(mirror)
            time.sleep(0.005)

    def _check_books(self, mirror: RecordMirror) -> None:
        stats = mirror.stats()
        if stats["submitted"] != stats["mirrored"] + stats["failed"] + stats["late"] + stats["pending"]:
            self._notes.violation("the books balance", stats)
        if min(stats["mirrored"], stats["failed"], stats["late"], stats["pending"]) < 0:
            self._notes.violation("no count is negative", stats)

    def _close(self) -> None:
        mirror = self._mirror
        if mirror is None:
            return
        timeout_s = HEALTHY_S if self._life is None else self._life.close_timeout_s
        if self._life is None and not mirror.flush(HEALTHY_S):
            self._notes.violation("a healthy mirror can be flushed", mirror.stats())
        is_complete = mirror.close(timeout_s)
        stats, left = mirror.stats(), mirror.left()
        self._notes.add("closed", complete=is_complete, stats=stats, left=[one.record_id for one in left])
        self._check_books(mirror)
        if is_complete and (stats["late"] or stats["pending"]):
            self._notes.violation("a complete close leaves nothing", stats)
        if self._life is None and (not is_complete or stats["failed"] or stats["lost"] or left):
            self._notes.violation("a healthy mirror ends complete", stats)
        if not is_complete and stats["late"] and not left:
            self._notes.violation("a close names what is left", stats)
        if not settles(lambda: not own_threads()):
            self._notes.violation("no thread is left after a close", own_threads())
        gc.collect()  # of sockets that still had to send when their loop ended
        if not settles(lambda: not self._new_files()):
            self._notes.violation("no descriptor is left after a close", self._new_files())

    def _new_files(self) -> dict[int, str]:
        new = {number: what for number, what in open_files().items() if number not in self._files_before}
        # An interrupt may have come between the opening of our own notes and the block that closes them.
        return {number: what for number, what in new.items() if what not in {*RUNTIMES, self._job.notes}}

    def _fork(self, number: int) -> None:
        """Have a child that writes a record of its own and mirrors it, or is killed before."""
        assert self._life is not None
        pid = os.fork()
        if pid:
            self._children.append(pid)
            return
        code = 1
        self._files_before = open_files()  # the parent's are left alone
        try:
            self._write(f"tr_child{number}_{self._job.records[0].id}", "tiny", "finished", os.getpid())
            if self._life.fork_ends is Ending.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            if self._life.fork_ends is Ending.CLOSE:
                self._close()
            code = 0
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent's frames are not ours
            self._notes.violation("a forked child's mirror works", repr(error))
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        for pid in self._children:
            deadline = time.monotonic() + CHILD_S
            while os.waitpid(pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > deadline:
                    self._notes.violation("a forked child never hangs", pid)
                    os.kill(pid, signal.SIGUSR1)  # its threads go to the log
                    time.sleep(0.5)
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    break
                time.sleep(0.01)
