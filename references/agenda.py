"""What the publisher has to do and what is next: which step to log, to complete, to look after.

Used by one thread, which passes the time in; nothing here blocks, except on the local disk. What may hang is started as
a ``Call``, one at a time. A call that passed its deadline is abandoned, and nothing more is logged to the same artifact
before W&B is known to have that version, or its client must have given it up.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

from mirror.redact import redact_text
from references.artifact_name import step_alias
from references.attempt import Job, attempt
from references.calls import Call
from references.claims import By, Claims
from references.landing import IndexStore, Receipts
from references.outage import MirrorOutages
from references.outcome import Next, Outcome, Result, backoff_s, decide, is_there
from references.run_index import Phase
from references.seams import Patience, PublishSettings
from references.series import MAX_PAUSE_S, Series, Work
from references.shelf import Shelf
from references.spool import Spool, StepKey
from references.wandb_client import Found, Run, find, give_latest

logger = logging.getLogger(__name__)

MAX_ABANDONED_CALLS = 4  # hanging threads; with as many, nothing is begun until one of them ends
COUNTERS = ("logged", "completed", "failed", "timed_out", "dropped", "retried", "replaced", "offline", "disabled")
_ANY_NUMBER = 1 << 62


class Agenda:
    """All that is to be done. Times are of one monotonic clock, in seconds."""

    def __init__(
        self,
        *,
        settings: PublishSettings,
        patience: Patience,
        spool: Spool,
        receipts: Receipts | None,
        index_store: IndexStore | None,
        launch: Callable[[Call, Callable[[], object]], None],
        claims: Claims | None = None,
    ) -> None:
        """Begin with nothing to do; ``launch`` runs a call's function elsewhere and has ``ended`` called afterwards."""
        self._settings = settings
        self._patience = patience
        self._shelf = Shelf(spool)
        self._claims = claims or Claims(spool, By.TRAINING)
        self._claim_s = settings.timeout_s + patience.settle_s + MAX_PAUSE_S
        self._receipts = receipts
        self._index_store = index_store
        self._outages = MirrorOutages()
        self._launch = launch
        self._counts: Counter[str] = Counter()
        self._runs: dict[str, Run] = {}
        self._over: dict[str, Run] = {}  # runs that were finished
        self._series: dict[tuple[str, Phase], Series] = {}
        self._active: Call | None = None
        self._abandoned: list[Call] = []
        self._patience_ends: float | None = None  # set by close

    # What the owner tells

    def take(self, key: StepKey, data: bytes, run: Run | None, now: float) -> None:
        """Take over a step, which is in the spool, and log it as soon as there is an active run."""
        series = self._series_of(key)
        being_logged = None if self._active is None else self._active.work
        self._counts["replaced"] += self._shelf.discard(key) + series.discard(key.step, being_logged=being_logged)
        work = self._shelf.keep(key, data, now + self._patience.receipts_wait_s)
        if run is not None and run is not self._over.get(key.run):
            self._runs[key.run] = run
            for waiting in self._shelf.unpark(key.run):
                self._enqueue(waiting)
        if key.run in self._runs or self._index_store is not None:
            self._enqueue(work)
        else:
            self._shelf.park(work)

    def ended(self, call: Call, answer: object, now: float) -> None:
        """Hear that a call has ended, abandoned or not."""
        if call is self._active:
            self._active = None
        else:
            self._abandoned.remove(call)
            call.series.is_hanging = False
        call.ended(call, answer, now)

    def close(self, now: float, deadline: float) -> None:
        """Bring to an end what can be until ``deadline``; half of that time may be spent waiting for receipts."""
        self._patience_ends = now + (deadline - now) / 2
        for series in self._series.values():
            for work in series.queue.values():
                work.wait_until = min(work.wait_until, self._patience_ends)
            for work in series.late.values():
                work.not_before = now

    def leave(self) -> None:
        """Do nothing more: let others log what was not logged, unless the client may still be busy with it."""
        self._shelf.leave_all_to_others()
        self._claims.release_all_but(self._with_the_client())

    # What the owner asks

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return self._active is None and all(series.is_idle for series in self._series.values())

    @property
    def has_logged_all(self) -> bool:
        """Whether W&B, or the client of an offline run, has every step that was taken over."""
        return self._shelf.is_empty

    def counts(self) -> dict[str, int]:
        """Return what happened so far and what is left, by name."""
        queued = [work for series in self._series.values() for work in series.queue.values()]
        late = sum(len(series.late) for series in self._series.values())
        return {
            **{name: self._counts[name] for name in COUNTERS},
            "pending": len(queued),
            "spooled": self._shelf.count_spooled(),
            "waiting_for_receipts": late + sum(work.num_pending > 0 for work in queued),
            "without_run": len(self._shelf.parked),
        }

    def next_due(self) -> float | None:
        """Return when ``advance`` has something to do at the latest, unless an event comes first."""
        if self._active is not None:
            return self._active.deadline
        return min((due for due, *_ in self._todo()), default=None)

    def advance(self, now: float) -> None:
        """Abandon what is overdue, begin what is ready, one call at most, and claim no more than what is under way."""
        if self._active is not None and now >= self._active.deadline:
            call, self._active = self._active, None
            call.is_abandoned = call.series.is_hanging = True
            self._abandoned.append(call)
            call.expired(now)
        while self._active is None:
            ready = next((item for item in self._todo() if item[0] <= now), None)
            if ready is None:
                break
            _, series, work = ready
            self._begin(series, work, now)
        works = (work for series in self._series.values() for work in (*series.queue.values(), *series.late.values()))
        self._claims.release_all_but(self._with_the_client().union(work.key for work in works))

    def _with_the_client(self) -> set[StepKey]:
        """Return the steps that W&B's client may be busy with."""
        calls = self._abandoned if self._active is None else [*self._abandoned, self._active]
        works = [call.work for call in calls]
        works += [series.unsettled.work for series in self._series.values() if series.unsettled is not None]
        return {work.key for work in works if work is not None}

    def _todo(self) -> list[tuple[float, Series, Work | None]]:
        if len(self._abandoned) >= MAX_ABANDONED_CALLS:
            return []
        is_closing = self._patience_ends is not None
        return [(due, s, work) for s in self._series.values() for due, work in s.todo(is_closing=is_closing)]

    @property
    def _has_room(self) -> bool:
        return sum(len(series.queue) for series in self._series.values()) < self._settings.queue_size

    def _series_of(self, key: StepKey) -> Series:
        return self._series.setdefault((key.run, key.phase), Series(run_id=key.run, phase=key.phase))

    def _enqueue(self, work: Work) -> None:
        if self._has_room:
            self._queue(work)
        else:
            self._counts["dropped"] += 1
            logger.warning("%s was dropped from the queue, which is full; the spool keeps it", _say(work))
            self._shelf.postpone(work)

    def _refill(self) -> None:
        """Bring what was set aside back into the queue, as far as there is room, oldest first."""
        for key in sorted(self._shelf.later):
            if self._has_room:
                self._queue(self._shelf.later.pop(key))

    def _queue(self, work: Work) -> None:
        self._series_of(work.key).queue[work.key.step] = work
        self._claim(work)

    def _claim(self, work: Work) -> None:
        """Keep others from logging a step meanwhile; where they may have done so, W&B is to be asked first."""
        if not self._claims.hold(work.key, self._claim_s):
            work.uncertain = True

    # Beginning a call

    def _begin(self, series: Series, work: Work | None, now: float) -> None:
        run, deadline = self._runs.get(series.run_id), now + self._settings.timeout_s
        if work is not None:
            self._begin_attempt(series, work, run, now)
        elif series.unsettled is not None:
            look = partial(find, series.unsettled.run, series.name, series.unsettled.work.alias)
            self._call(Call(series=series, deadline=deadline, ended=self._checked), look)
        elif run is not None and series.newest_step is not None:
            alias = step_alias(series.phase, series.newest_step)
            restore = partial(give_latest, run, series.name, alias)
            self._call(Call(series=series, deadline=deadline, ended=self._restored), restore)
        else:  # the run is over
            series.restore_latest_at = None

    def _begin_attempt(self, series: Series, work: Work, run: Run | None, now: float) -> None:
        data = self._shelf.load(work)
        if data is None:
            series.drop(work)
            self._shelf.logged(work)
            return
        self._claim(work)
        patience_ends = self._patience_ends if work.is_logged else work.wait_until
        job = Job(
            key=work.key,
            data=data,
            run=run,
            newest_step=series.newest_step,
            uncertain=work.uncertain,
            may_wait=patience_ends is None or now < patience_ends,
            logged_pending=work.logged_pending,
            index_written=work.index_written,
            timeout_s=self._settings.timeout_s,
        )
        function = partial(attempt, job, self._receipts, self._index_store, self._outages)
        call = Call(
            series=series,
            work=work,
            deadline=now + self._settings.timeout_s,
            ended=partial(self._attempted, work, run),
            expired=partial(self._timed_out, series, work, run),
        )
        self._call(call, function)

    def _call(self, call: Call, function: Callable[[], object]) -> None:
        self._active = call
        self._launch(call, function)

    # Hearing how it ended

    def _attempted(self, work: Work, run: Run | None, call: Call, answer: object, now: float) -> None:
        result = answer if isinstance(answer, Result) else Result(outcome=Outcome.FAILED, error=repr(answer))
        work.index_written |= result.index_written
        work.num_pending = result.num_pending
        if result.newest_step is not None:
            call.series.learn_newest(result.newest_step)
        following = decide(result.outcome, tries=work.tries + 1, attempts=self._settings.attempts)
        if following is Next.DONE:
            self._logged(call.series, work, now)
        elif call.is_abandoned:
            pass  # whether it got through is looked up before anything else is logged there
        elif work.is_logged:
            self._not_completed(call.series, work, run, result, now)
        else:
            self._not_logged(call.series, work, run, result, following, now)

    def _logged(self, series: Series, work: Work, now: float) -> None:
        self._counts["completed" if work.is_logged else "logged"] += 1
        self._shelf.logged(work)
        series.note_logged(work, now)
        if self._is_complete(work):
            self._shelf.remove(work)
        elif work.key.step not in series.queue:
            work.data = None
            work.not_before = now + self._patience.receipts_poll_s
            series.late[work.key.step] = work
        self._refill()

    def _is_complete(self, work: Work) -> bool:
        """Whether this process can add nothing to a step that is logged."""
        return work.index_written and (not work.num_pending or self._receipts is None)

    def _not_logged(
        self, series: Series, work: Work, run: Run | None, result: Result, following: Next, now: float
    ) -> None:
        match following:
            case Next.WAIT:
                work.not_before = min(now + self._patience.receipts_poll_s, max(now, work.wait_until))
            case Next.RETRY:
                self._counts["retried"] += 1
                pause_s = work.fail(now, self._settings.backoff_s)
                logger.warning("trying %s again in %.1f s: %s", _say(work), pause_s, result.error)
            case Next.KEEP:
                self._counts[result.outcome.name.lower()] += 1
                series.drop(work)
                self._shelf.logged(work)
                self._shelf.leave_to_others(work)
            case Next.PARK:
                if run is not None:
                    self._over[work.key.run] = run
                    self._runs.pop(work.key.run, None)
                series.drop(work)
                self._shelf.park(work)
            case Next.ABANDON:
                self._timed_out(series, work, run, now)
            case Next.GIVE_UP | Next.DONE:
                self._counts["failed"] += not work.had_second_chance
                work.fail(now, 0)
                series.drop(work)
                self._shelf.postpone(work)
                logger.error("gave up logging %s, the spool keeps it: %s", _say(work), result.error)

    def _not_completed(self, series: Series, work: Work, run: Run | None, result: Result, now: float) -> None:
        is_last = self._patience_ends is not None and now >= self._patience_ends
        match result.outcome:
            case Outcome.NOTHING_NEW if self._is_complete(work):
                series.drop(work)
                self._shelf.remove(work)
            case Outcome.TIMED_OUT:
                self._timed_out(series, work, run, now)
            case Outcome.FAILED if work.tries + 1 < self._settings.attempts:
                work.fail(now, self._settings.backoff_s)
            case Outcome.WAITING | Outcome.NOTHING_NEW | Outcome.FAILED if not is_last:
                work.pause(now, self._patience.receipts_poll_s, self._patience_ends)
            case _:  # the run or the time is over: the spool keeps it
                series.drop(work)
                self._shelf.leave_to_others(work)

    def _timed_out(self, series: Series, work: Work, run: Run | None, now: float) -> None:
        if not work.is_logged:
            self._counts["timed_out"] += 1
        logger.error(
            "%s was not logged within %.0f s; this process does not log it again, the spool keeps it",
            _say(work),
            self._settings.timeout_s,
        )
        if run is not None:
            series.abandon(work, run, now)
        else:
            series.drop(work)
            self._shelf.park(work)

    def _checked(self, call: Call, answer: object, now: float) -> None:
        series, unsettled = call.series, call.series.unsettled
        if unsettled is None:
            return
        work = unsettled.work
        lacking = _ANY_NUMBER if work.logged_pending is None else work.logged_pending - 1
        if isinstance(answer, Found) and is_there(
            answer, index_hash=work.content, num_referenced=0, num_pending=lacking
        ):
            work.num_pending = answer.num_pending
            self._logged(series, work, now)
        elif (answer is None or isinstance(answer, Found)) and now - unsettled.since >= self._patience.settle_s:
            series.unsettled = None
            self._shelf.leave_to_others(work)
        else:
            unsettled.checks += 1
            unsettled.check_at = now + backoff_s(unsettled.checks, self._settings.backoff_s)

    def _restored(self, call: Call, answer: object, now: float) -> None:
        series = call.series
        series.restore_tries += 1
        if answer is None or series.restore_tries >= self._settings.attempts:
            series.restore_latest_at, series.restore_tries = None, 0
        else:
            series.restore_latest_at = now + backoff_s(series.restore_tries, self._settings.backoff_s)
        if answer is not None:
            logger.warning("`latest` of %s names an older step: %s", series.name, redact_text(str(answer)))


def _say(work: Work) -> str:
    return f"{work.key.phase} step {work.key.step} of run {work.key.run}"
