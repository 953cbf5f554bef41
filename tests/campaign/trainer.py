"""A trainer of the campaign: indexes what the capture servers answered, step by step, and goes on where it died.

A step counts as ended once it is in the spool: a trainer that dies before resumes from the step before, as from a
checkpoint. It checks that ending a step neither raises nor waits, and that a close leaves no thread of ours.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from mirror import MirrorConfig
from references import RecordLog, RecordsConfig, WandbConfig, link, make_record_index
from references.calls import THREAD_NAME
from references.seams import PublishSettings
from references.spool import Spool, StepKey
from tests.campaign.inside import Stop, settles
from tests.campaign.notes import Notes
from tests.campaign.scenario import Ending, Life

PROJECT = "campaign"
IDLE_S = 40.0  # until the driver ends a life that waits for it
STEP_S = 0.05  # what a step trains
SPOOLED_S = 60.0  # far more than writing a step to the spool takes
FREEZE_S = 3.0  # what ending a step must never take, on the busiest machine
TRAIN_END_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerJob:
    """One life of a trainer; ``life`` None is the last, healthy one."""

    url: str
    options: dict[str, Any]
    record_dir: str
    notes: str
    answers: tuple[str, ...]  # the notes of the capture servers
    spool: str
    run: str | None  # of W&B; None: without W&B
    steps: int
    life: Life | None


def run(order: dict[str, Any]) -> int:
    """Live one life."""
    return _Trainer(msgspec.convert(order, TrainerJob)).live()


def link_all(order: dict[str, Any]) -> int:
    """Bring to W&B what is in the spool, as a user does when all is over."""
    job = msgspec.convert(order, TrainerJob)
    notes = Notes(job.notes)
    summary = link(
        f"team/{PROJECT}/{job.run}",
        job.url,
        spool=job.spool,
        config=MirrorConfig.from_mapping(job.options),
        settings=PublishSettings(timeout_s=30, backoff_s=0.05),
        adopt=True,
    )
    for step in summary.failed:
        notes.violation("what waits in the spool can be linked", f"step {step.step}: {step.error}")
    if summary.latest_error:
        notes.violation("what waits in the spool can be linked", summary.latest_error)
    notes.add("linked", steps=[[step.step, step.verdict.name] for step in summary.steps])
    return 0


class _Trainer:
    def __init__(self, job: TrainerJob) -> None:
        self._job = job
        self._life = job.life
        self._notes = Notes(job.notes)
        self._stop = Stop()
        self._log = RecordLog()
        config = RecordsConfig(
            record_dir=job.record_dir,
            record_mirror=job.url,
            record_mirror_config=job.options,
            wandb=WandbConfig(
                enabled=True,
                spool=job.spool,
                timeout=3 if self._life else 30,
                attempts=2,
                backoff=0.05,
                shutdown_timeout=self._life.close_timeout_s if self._life else TRAIN_END_S,
            ),
        )
        self._indexer = make_record_index(config, self._log)
        self._spool = Spool(job.spool)
        self._run: Any = None
        self._steps = 0  # of this life

    def live(self) -> int:
        try:
            self._begin_run()
            self._train()
            if self._life is not None and self._life.ending not in {Ending.CLOSE, Ending.LEAVE}:
                self._stop.wait(IDLE_S)
        except KeyboardInterrupt:
            self._notes.add("interrupted")
        if self._life is not None and self._life.ending is Ending.LEAVE and not self._stop.asked:
            return 0
        complete = self._indexer.train_end()
        self._notes.add("closed", complete=complete, stats=self._indexer.stats())
        if self._run is not None:
            self._run.finish()
        if self._life is None and not settles(lambda: not _threads()):
            self._notes.violation("no thread is left after a close", _threads())
        return 0

    def _begin_run(self) -> None:
        if self._job.run is None:
            return
        import wandb  # noqa: PLC0415 - only where it is used

        try:
            self._run = wandb.init(project=PROJECT, id=self._job.run, resume="allow")
        except Exception as error:  # noqa: BLE001 - W&B is away: training goes on without
            self._notes.add("without_run", error=repr(error))

    def _train(self) -> None:
        ended = [fact["step"] for fact in self._notes.read("ended")]
        for step in range(max(ended, default=0) + 1, self._job.steps + 1):
            self._indexer.step_start()
            if self._stop.wait(STEP_S if self._life else 0.0):
                return
            self._end(step)

    def _end(self, step: int) -> None:
        known = {name for fact in self._notes.read("ended") for name in fact["ids"]}
        answered = {fact["id"]: fact for fact in self._answers() if fact["id"] not in known}
        ids = list(answered)[: None if step == self._job.steps else max(1, len(answered) // 2)]
        for order, name in enumerate(ids or [f"tr_none_{step}"]):
            fact = answered.get(name, {"status": None, "record": None})
            self._log.add_attempt(
                "train",
                id=name,
                instance_id=f"s{step}",
                repetition_id=order,
                status=fact["status"],
                record=fact["record"],
            )
        self._notes.add("ending", step=step)
        self._steps += 1
        began = time.monotonic()
        self._indexer.step_end(step, run=self._run)
        if time.monotonic() - began > FREEZE_S and self._life is not None and not self._life.stopped_s:
            self._notes.violation("ending a step does not wait", f"{time.monotonic() - began:.1f} s")
        # Without a run its steps are under no run's name.
        key = StepKey(self._indexer_run(), "train", step)
        if settles(lambda: self._is_durable(key, ids) or self._stop.asked, SPOOLED_S):
            if not self._stop.asked:
                self._notes.add("ended", step=step, ids=ids, spooled_s=round(time.monotonic() - began, 3))
        else:
            self._notes.violation("a step that ended is in the spool", key)

    def _is_durable(self, key: StepKey, ids: list[str]) -> bool:
        """Whether the spool has this very step, or W&B had it so soon that the spool has let it go."""
        data = self._spool.get(key)
        if data is None:
            return self._indexer.stats()["logged"] >= self._steps
        rows = [row["id"] for row in json.loads(data)["rows"]]
        return rows == (ids or [f"tr_none_{key.step}"])

    def _indexer_run(self) -> str:
        return str(self._run.id) if self._run is not None else ""

    def _answers(self) -> Iterator[dict[str, Any]]:
        for path in self._job.answers:
            yield from Notes(path).read("answered")


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]
