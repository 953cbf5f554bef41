"""What generators log, what a step's end publishes and what W&B does with it, in any order, against a simple model."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from references import RecordLog, StepIndexer, decode, encode
from references.agenda import Agenda
from references.artifact_name import step_alias
from references.attempt import Job, attempt
from references.calls import Call
from references.outcome import Outcome, Result
from references.run_index import Phase, StepIndex
from references.seams import Patience, PublishSettings
from references.spool import Spool, StepKey, content_hash
from references.wandb_client import LATEST, Run, find
from tests.campaign.simulated_wandb import SimulatedWandb, Version
from tests.references.test_agenda import NoReceipts

RUN = cast("Run", SimpleNamespace(id="r", entity="e", project="p", offline=False, disabled=False))
SETTINGS = PublishSettings(queue_size=2, timeout_s=100, attempts=2, backoff_s=10)
PATIENCE = Patience(receipts_wait_s=60, receipts_poll_s=5, settle_s=300)
LONG_S = 10_000.0  # longer than any patience
STEPS = st.integers(1, 4)


class Publishing(RuleBasedStateMachine):
    """``published`` has the newest content of each step that ended; W&B or the spool must have each at any moment."""

    @initialize(mirrored=st.booleans())
    def begin(self, mirrored: bool) -> None:  # noqa: FBT001 - drawn
        """Start a training."""
        logging.disable(logging.ERROR)  # thousands of lines that nobody reads
        self.scratch = tempfile.TemporaryDirectory(prefix="publisher-model-")
        self.spool = Spool(Path(self.scratch.name) / "spool")
        self.log = RecordLog()
        self.indexer = StepIndexer(self.log, publisher=self)
        self.logged: list[str] = []  # since the last step began, or ended
        self.names = 0
        self.published: dict[int, bytes] = {}
        self.pending = 0  # records of each step that have not landed
        self.is_over = False
        self.is_closed = False
        self.wandb = SimulatedWandb()
        self.floating: list[Version] = []  # what the client was given and may yet log
        self.calls: list[tuple[Call, Callable[[], object]]] = []
        self.now = 0.0
        self.can_wait = mirrored
        self.agenda = Agenda(
            settings=SETTINGS,
            patience=PATIENCE,
            spool=self.spool,
            receipts=NoReceipts() if mirrored else None,
            index_store=None,
            launch=lambda call, function: self.calls.append((call, function)),
        )

    # The indexer's publisher

    def publish(self, phase: Phase, step: int, build: Callable[[], StepIndex | None], *, run: object | None) -> None:
        """Spool a step and take it over, as the training process and its helper do."""
        index = build()
        if index is None:
            return
        key, data = StepKey("r", phase, step), encode(index)
        self.published[step] = data
        self.spool.put(key, data)
        self.agenda.take(key, data, cast("Run | None", run), self.now)
        self.agenda.advance(self.now)

    def stats(self) -> Mapping[str, int]:
        """Return the agenda's counts."""
        return self.agenda.counts()

    def close(self, timeout_s: float) -> bool:
        """Never called here."""
        raise AssertionError(timeout_s)

    # Training

    @rule(count=st.integers(1, 3))
    def generate(self, count: int) -> None:
        """A generator logs attempts."""
        for _ in range(count):
            self.names += 1
            self.log.add_attempt("train", id=f"tr_{self.names}", instance_id=f"task{self.names}")
            self.logged.append(f"tr_{self.names}")

    @rule()
    def drop(self) -> None:
        """The trainer begins a step: what was logged before belongs to none."""
        self.indexer.step_start()
        self.logged = []

    @precondition(lambda self: not self.is_closed)
    @rule(step=STEPS)
    def end_step(self, step: int) -> None:
        """A step ends, perhaps one that has ended before, as after a resume; its rows are what was logged for it."""
        rows, self.logged = self.logged, []
        before = self.published.get(step)
        self.indexer.step_end(step, run=None if self.is_over else RUN)
        if rows:
            assert [row.id for row in decode(self.published[step]).rows] == rows
        else:
            assert self.published.get(step) == before

    @rule()
    def finish_run(self) -> None:
        """The run is finished under the publisher's hands, or another one begins."""
        self.is_over = not self.is_over

    @rule(pending=st.integers(0, 1))
    def land(self, pending: int) -> None:
        """Records land, or are written that have not landed."""
        self.pending = pending

    # W&B

    @precondition(lambda self: self.calls)
    @rule(pick=st.integers(0, 9), how=st.sampled_from(["right", "lost", "failed", "late", "over"]))
    def answer(self, pick: int, how: str) -> None:
        """A call ends: as it should, with its answer lost, in vain, or too late to say whether it got through."""
        call, function = self.calls.pop(pick % len(self.calls))
        self.agenda.ended(call, self.outcome_of(function, how), self.now)
        self.agenda.advance(self.now)

    def outcome_of(self, function: Any, how: str) -> object:  # noqa: ANN401 - a partial
        """Do what a call was to do, to W&B, and return what it says."""
        if function.func is attempt:
            return self.outcome_of_attempt(function.args[0], how)
        if how != "right":
            return ConnectionError("away")
        if function.func is find:
            return self.wandb.find(function.args[2])
        version = self.wandb.aliases.get(function.args[2])  # ``latest`` is given back to it
        if version is not None:
            self.wandb.aliases[LATEST] = version
        return None

    def outcome_of_attempt(self, job: Job, how: str) -> Result:
        """Log a step, or not."""
        judged = self.wandb.judge(job, self.pending, can_wait=self.can_wait)
        if judged is not None:
            return judged
        if how == "over":
            return Result(outcome=Outcome.RUN_OVER, num_pending=self.pending, index_written=True)
        version = Version(job.key.step, content_hash(job.data), self.pending)
        if how == "failed":
            return Result(outcome=Outcome.FAILED, error="no", num_pending=self.pending, index_written=True)
        if how == "late":
            self.floating.append(version)
            return Result(outcome=Outcome.TIMED_OUT, num_pending=self.pending, index_written=True)
        newest = self.wandb.newest(job)
        self.wandb.commit(version)
        outcome = Outcome.LOGGED if how == "right" else Outcome.FAILED
        return Result(outcome=outcome, num_pending=self.pending, newest_step=newest, index_written=True)

    @precondition(lambda self: self.floating)
    @rule()
    def get_through(self) -> None:
        """What was given up as late is logged after all, by W&B's client."""
        self.wandb.commit(self.floating.pop(0))

    @rule(seconds=st.sampled_from([1.0, 12.0, 101.0]))
    def pass_time(self, seconds: float) -> None:
        """Time goes by: pauses end, deadlines pass."""
        self.now += seconds
        self.agenda.advance(self.now)

    # Laws

    @invariant()
    def every_step_is_somewhere(self) -> None:
        """W&B has the newest content of each step that ended, or it is in the spool."""
        for step, data in self.published.items():
            content = content_hash(data)
            if not any((version.step, version.content) == (step, content) for version in self.wandb.versions):
                assert self.spool.get(StepKey("r", "train", step)) == data, f"step {step} is nowhere"

    @invariant()
    def one_at_a_time(self) -> None:
        """At most one call that is not given up is under way."""
        assert sum(not call.is_abandoned for call, _ in self.calls) <= 1

    @invariant()
    def nothing_is_logged_twice(self) -> None:
        """No content of a step makes a second version unless more of its records had landed."""
        seen: dict[tuple[int, str], int] = {}
        for version in self.wandb.versions:
            key = (version.step, version.content)
            assert version.pending < seen.get(key, 1_000), f"step {version.step} was logged twice"
            seen[key] = version.pending

    @invariant()
    def it_says_what_it_has_logged(self) -> None:
        """It never says that W&B has everything when it does not."""
        if self.agenda.has_logged_all:
            for step, data in self.published.items():
                assert (step, content_hash(data)) in {(one.step, one.content) for one in self.wandb.versions}

    def teardown(self) -> None:
        """Everything gets well: what this process may still log it logs, and then it is done."""
        if not hasattr(self, "agenda"):
            return
        try:
            self._end()
        finally:
            self.scratch.cleanup()
            logging.disable(logging.NOTSET)

    def _end(self) -> None:
        self.pending, self.is_over = 0, False
        self.agenda.close(self.now, self.now + LONG_S)
        for _ in range(300):
            while self.calls:
                self.answer(0, "right")
            self.now += 30
            self.agenda.advance(self.now)
            if self.agenda.is_finished and not self.calls:
                break
        else:
            raise AssertionError("it never came to an end")
        self.every_step_is_somewhere()
        self.nothing_is_logged_twice()
        newest = max((version.step for version in self.wandb.versions), default=None)
        if newest is not None and not self.floating:
            assert step_alias("train", newest) in self.wandb.aliases


TestPublishing = Publishing.TestCase
TestPublishing.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
