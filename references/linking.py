"""A link at work: asks W&B what it has, once for each phase, and logs what it lacks, one version after the other."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from mirror.config import MirrorConfig
from mirror.errors import ConfigError, MirrorError
from mirror.location import Location
from mirror.redact import redact_text
from references.artifact_name import artifact_name, step_alias
from references.attempt import Job, attempt
from references.errors import LinkError
from references.helper_run import RunId, declare_output, helper_run
from references.landing import land, main_mirror, mirrored_ids
from references.link_plan import LinkedStep, Verdict, judge
from references.mirror_access import MirrorAccess
from references.outage import MirrorOutages
from references.outcome import Next, Outcome, Result, backoff_s, decide
from references.run_index import Phase, StepIndex
from references.seams import PublishSettings
from references.spool import content_hash
from references.waiting_steps import WaitingStep
from references.wandb_client import LATEST, Found, Run, find, find_all, give_latest, in_words, is_running

logger = logging.getLogger(__name__)
T = TypeVar("T")


class StepMirrors:
    """Where the receipts of a step are: in the mirror that was given, else in the one that its rows name."""

    def __init__(self, config: MirrorConfig, given: MirrorAccess | None) -> None:
        """Open nothing yet."""
        self._config = config
        self._given = given
        self._named: dict[Location, MirrorAccess | None] = {}

    def of(self, index: StepIndex) -> MirrorAccess | None:
        """Return a step's mirror; None where there is none, or nothing installed can open it."""
        location = main_mirror(index)
        if self._given is not None or location is None:
            return self._given
        if location not in self._named:
            self._named[location] = self._open(location)
        return self._named[location]

    def _open(self, location: Location) -> MirrorAccess | None:
        try:
            return MirrorAccess(location.base, self._config)
        except ConfigError as error:
            logger.warning("steps are linked without references: %s", error)
            return None


class Linker:
    """One link of one run. Used by one thread, which may have to wait for W&B's client."""

    def __init__(
        self, run: RunId, mirrors: StepMirrors, settings: PublishSettings, stack: contextlib.ExitStack
    ) -> None:
        """Ask nothing yet; what is begun ends with ``stack``."""
        self._run = run
        self._mirrors = mirrors
        self._outages = MirrorOutages()
        self._settings = settings
        self._stack = stack
        self._helper: Run | None = None
        self._histories: dict[Phase, dict[int, list[Found]]] = {}
        self._newest: dict[Phase, int] = {}
        self._is_running: bool | None = None  # the linked run, as W&B says; None: nobody asked yet
        self._unsettled: set[Phase] = set()  # with a version that W&B has not committed in time

    def judge(self, step: WaitingStep) -> LinkedStep:
        """Say what a step needs.

        Raises:
            LinkError: W&B cannot be asked.
        """
        key = step.key
        history = self._history(key.phase).get(key.step, [])
        verdict, num_pending = judge(history, content_hash(step.data), step.written_at_s), 0
        if verdict is Verdict.THERE and history[-1].num_pending:
            num_pending = self._count_pending(step, otherwise=history[-1].num_pending)
            verdict = Verdict.COMPLETE if num_pending < history[-1].num_pending else verdict
        return LinkedStep(phase=key.phase, step=key.step, verdict=verdict, num_pending=num_pending)

    def is_running(self) -> bool:
        """Say whether the run is going on, as far as W&B knows.

        Raises:
            LinkError: W&B cannot be asked.
        """
        if self._is_running is None:
            self._is_running = _asked(self._run, lambda: is_running(self._run))
        return self._is_running

    def carry_out(self, step: WaitingStep, judged: LinkedStep) -> LinkedStep:
        """Give a step what it needs, and say what came of it.

        Raises:
            LinkError: nothing can be logged to the run's project.
        """
        match judged.verdict:
            case Verdict.LOG | Verdict.COMPLETE:
                return self._log(step, judged)
            case Verdict.THERE if step.spooled is not None:
                return self._write_index(step, judged)
            case _:
                return judged

    def settle_latest(self) -> str | None:
        """Let ``latest`` name the newest step of each phase; return why one may not, or None."""
        reasons = []
        for phase, newest in self._newest.items():
            name = artifact_name(phase, self._run.id)
            try:
                latest = find(self._run, name, LATEST)
                if latest is None or latest.step is None or latest.step < newest:
                    give_latest(self._run, name, step_alias(phase, newest))
            except Exception as error:  # noqa: BLE001 - W&B's client has no common base for its errors
                reasons.append(f"`latest` of {name} may name an older step: {redact_text(str(error))}")
        return "; ".join(reasons) or None

    def _history(self, phase: Phase) -> dict[int, list[Found]]:
        """Return W&B's versions of each step of a phase, oldest first."""
        if phase not in self._histories:
            history: dict[int, list[Found]] = {}
            for found in _asked(self._run, lambda: find_all(self._run, artifact_name(phase, self._run.id))):
                if found.step is not None:
                    history.setdefault(found.step, []).append(found)
            self._histories[phase] = history
            if history:
                self._newest[phase] = max(history)
        return self._histories[phase]

    def _count_pending(self, step: WaitingStep, *, otherwise: int) -> int:
        mirror = self._mirrors.of(step.index)
        if mirror is None:
            return otherwise
        try:
            found = mirror.find(mirrored_ids(step.index, mirror.covers))
        except MirrorError as error:
            logger.warning("the receipts of %s step %d could not be read: %s", step.key.phase, step.key.step, error)
            return otherwise
        return len(land(step.index, found, mirror.covers).pending)

    def _log(self, step: WaitingStep, judged: LinkedStep) -> LinkedStep:
        key, mirror = step.key, self._mirrors.of(step.index)
        if key.phase in self._unsettled:
            return dataclasses.replace(judged, error="not tried, since an earlier step was not committed in time")
        if self._helper is None:
            self._helper = self._stack.enter_context(helper_run(self._run))
        job = Job(
            key=key,
            data=step.data,
            run=self._helper,
            newest_step=self._newest.get(key.phase, -1),
            uncertain=True,  # somebody else may have logged it since the versions were listed
            may_wait=False,
            logged_pending=None,
            index_written=step.spooled is None,
            timeout_s=self._settings.timeout_s,
        )
        result = self._repeat(job, mirror)
        judged = dataclasses.replace(judged, num_pending=result.num_pending)
        if result.outcome is Outcome.TIMED_OUT:
            self._unsettled.add(key.phase)
        if result.outcome not in {Outcome.LOGGED, Outcome.THERE}:
            return dataclasses.replace(judged, error=_say(result))
        self._newest[key.phase] = max(key.step, self._newest.get(key.phase, -1))
        declare_output(self._run, artifact_name(key.phase, self._run.id), step_alias(key.phase, key.step))
        if not result.index_written:
            return dataclasses.replace(judged, error="W&B has it, and the mirror did not take its index")
        return judged

    def _repeat(self, job: Job, mirror: MirrorAccess | None) -> Result:
        tries = 0
        while True:
            result = attempt(job, mirror, mirror, self._outages)
            tries += 1
            if decide(result.outcome, tries=tries, attempts=self._settings.attempts) is not Next.RETRY:
                return result
            pause_s = backoff_s(tries, self._settings.backoff_s)
            logger.warning("trying %s step %d again in %.1f s: %s", job.key.phase, job.key.step, pause_s, result.error)
            time.sleep(pause_s)

    def _write_index(self, step: WaitingStep, judged: LinkedStep) -> LinkedStep:
        """Give the mirror the index that the spool has kept for it."""
        mirror = self._mirrors.of(step.index)
        if mirror is not None:
            try:
                mirror.write(step.key.phase, step.key.step, step.data)
            except MirrorError as error:
                return dataclasses.replace(judged, error=f"W&B has it, and the mirror did not take its index: {error}")
        return judged


def _say(result: Result) -> str:
    match result.outcome:
        case Outcome.TIMED_OUT:
            return "W&B did not commit it in time: link again to see whether it did"
        case Outcome.OFFLINE | Outcome.DISABLED:
            return f"W&B's client is {result.outcome.name.lower()} here: link where it is online"
        case _:
            return result.error or f"it was not logged ({result.outcome.name.lower()})"


def _asked(run: RunId, question: Callable[[], T]) -> T:
    """Ask W&B's client, whose errors have no common base."""
    try:
        return question()
    except ImportError as error:
        raise LinkError(f"W&B's client is not installed: pip install 'record-mirror[wandb]' ({error})") from error
    except Exception as error:
        raise LinkError(
            f"W&B does not say what it has of {run} ({in_words(error)}): check the name, and that you are logged in"
        ) from error
