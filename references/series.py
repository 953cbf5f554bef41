"""The versions of one artifact on their way: its steps to log, those to complete, and what is uncertain about it.

Only facts and what may be begun next; whoever owns a series begins it. Times are of one monotonic clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from references.artifact_name import artifact_name, step_alias
from references.outcome import backoff_s
from references.run_index import Phase
from references.spool import StepKey
from references.wandb_client import Run

MAX_PAUSE_S = 300.0


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """One content of one step.

    Attributes:
        content: its hash.
        data: its bytes; None: they are in the spool.
        wait_until: until then it waits for receipts that are missing.
        not_before: when it may be tried next.
        tries: how many tries have failed.
        looks: how often its receipts were looked for in vain since it was logged.
        uncertain: one of them may have got through.
        had_second_chance: it was given up, or dropped, once already.
        index_written: the mirror has it.
        num_pending: how many of its records had no receipt when somebody last looked.
        logged_pending: how many the version that is logged lacks; None: none is logged.
    """

    key: StepKey
    content: str
    data: bytes | None
    wait_until: float
    not_before: float = 0.0
    tries: int = 0
    looks: int = 0
    uncertain: bool = False
    had_second_chance: bool = False
    index_written: bool = False
    num_pending: int = 0
    logged_pending: int | None = None

    @property
    def is_logged(self) -> bool:
        """Whether a version of it is in W&B."""
        return self.logged_pending is not None

    def fail(self, now: float, first_pause_s: float) -> float:
        """Count a failed try and return the pause after it, in seconds."""
        self.tries += 1
        self.uncertain = True
        pause_s = backoff_s(self.tries, first_pause_s)
        self.not_before = now + pause_s
        return pause_s

    def pause(self, now: float, first_pause_s: float, patience_ends: float | None) -> None:
        """Look again later: twice as late each time, and once when the patience ends."""
        self.looks += 1
        self.not_before = now + min(first_pause_s * 2.0 ** min(self.looks, 16), MAX_PAUSE_S)
        if patience_ends is not None:
            self.not_before = min(now + first_pause_s, max(now, patience_ends))

    @property
    def alias(self) -> str:
        """The alias of its step."""
        return step_alias(self.key.phase, self.key.step)


@dataclass(slots=True, kw_only=True, eq=False)
class Unsettled:
    """A version that this process no longer waits for; the client may still log it."""

    work: Work
    run: Run
    since: float
    check_at: float
    checks: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Series:
    """All versions of one artifact.

    Attributes:
        queue: what is to be logged, by step.
        late: what is logged and lacks references, by step.
        newest_step: the newest step that W&B has; None: nobody asked yet.
        unsettled: at most one version is unacknowledged; nothing is logged before it is settled.
        is_hanging: a call about it was abandoned and has not ended.
        restore_latest_at: when to put ``latest`` back on the newest step; None: it is there.
        restore_tries: how often that has failed.
    """

    run_id: str
    phase: Phase
    queue: dict[int, Work] = field(default_factory=dict)
    late: dict[int, Work] = field(default_factory=dict)
    newest_step: int | None = None
    unsettled: Unsettled | None = None
    is_hanging: bool = False
    restore_latest_at: float | None = None
    restore_tries: int = 0

    @property
    def name(self) -> str:
        """The artifact's name."""
        return artifact_name(self.phase, self.run_id)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to be done for it."""
        return not (self.queue or self.late or self.unsettled or self.restore_latest_at is not None)

    def todo(self, *, is_closing: bool) -> Iterator[tuple[float, Work | None]]:
        """Yield what may be begun and when, the most urgent first; oldest steps first, since ``latest`` follows.

        None: a look at what is unsettled or, where nothing is, putting ``latest`` back.
        """
        if self.is_hanging:
            return
        if self.unsettled is not None:
            if self.queue or is_closing:
                yield self.unsettled.check_at, None
            return
        if self.queue:
            oldest = self.queue[min(self.queue)]
            yield oldest.not_before, oldest
        elif self.restore_latest_at is not None:
            yield self.restore_latest_at, None
        for work in self.late.values():
            yield work.not_before, work

    def learn_newest(self, step: int) -> None:
        """Hear that W&B has this step, -1 for none."""
        self.newest_step = max(step, -1 if self.newest_step is None else self.newest_step)

    def note_logged(self, work: Work, now: float) -> None:
        """Hear that a version of this work is in W&B, which may have given it ``latest``."""
        if self.unsettled is not None and self.unsettled.work is work:
            self.unsettled = None
        step = work.key.step
        if self.newest_step is not None and step < self.newest_step:
            self.restore_latest_at = now
        else:
            self.restore_latest_at = None
        self.learn_newest(step)
        self.drop(work)
        work.logged_pending = work.num_pending
        work.tries = 0

    def abandon(self, work: Work, run: Run, now: float) -> None:
        """Stop waiting for a version: nothing else is logged before it is settled."""
        self.queue = {step: queued for step, queued in self.queue.items() if queued is not work}
        self.unsettled = Unsettled(work=work, run=run, since=now, check_at=now)

    def discard(self, step: int, *, being_logged: Work | None) -> int:
        """Drop an older content of a step, and return how many there were that nobody is logging."""
        self.late.pop(step, None)
        older = self.queue.pop(step, None)
        return int(older is not None and older is not being_logged)

    def drop(self, work: Work) -> None:
        """Take a work off both lists, unless a newer content of its step has taken its place."""
        for held in (self.queue, self.late):
            if held.get(work.key.step) is work:
                del held[work.key.step]
