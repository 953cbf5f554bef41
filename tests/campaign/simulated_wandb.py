"""W&B as the publisher's model sees it: versions with a content, and the aliases that name them."""

from __future__ import annotations

from dataclasses import dataclass, field

from references.artifact_name import step_alias
from references.attempt import Job
from references.outcome import Outcome, Result, must_ask
from references.run_index import Phase
from references.spool import content_hash
from references.wandb_client import LATEST, Found


@dataclass(frozen=True, slots=True)
class Version:
    """One version of the only artifact."""

    step: int
    content: str  # hash of the step's index
    pending: int  # records that it has no reference to


@dataclass(slots=True)
class SimulatedWandb:
    """One artifact of one phase."""

    phase: Phase = "train"
    versions: list[Version] = field(default_factory=list)
    aliases: dict[str, Version] = field(default_factory=dict)

    def commit(self, version: Version) -> None:
        """Take a version, and move its aliases and ``latest``, which the client asks for each time."""
        if not self.versions or self.versions[-1] != version:  # the same content again is no new version
            self.versions.append(version)
        self.aliases[step_alias(self.phase, version.step)] = version
        self.aliases[LATEST] = version

    def find(self, alias: str) -> Found | None:
        """Answer what an alias names."""
        version = self.aliases.get(alias)
        if version is None:
            return None
        return Found(
            version="v0",
            step=version.step,
            index_hash=version.content,
            num_referenced=1,
            num_pending=version.pending,
        )

    def judge(self, job: Job, pending: int, *, can_wait: bool) -> Result | None:
        """Return how a try ends that hands nothing to the client; None: it does hand it over."""
        if job.run is None:
            return Result(outcome=Outcome.RUN_OVER, index_written=True)
        if pending and job.may_wait and can_wait:
            return Result(outcome=Outcome.WAITING, num_pending=pending, index_written=True)
        if job.logged_pending is not None and pending >= job.logged_pending:
            return Result(outcome=Outcome.NOTHING_NEW, num_pending=pending, index_written=True)
        newest = self.newest(job)
        found = self.find(step_alias(self.phase, job.key.step))
        if (
            must_ask(job.key.step, newest, uncertain=job.uncertain)
            and found is not None
            and found.index_hash == content_hash(job.data)
            and found.num_pending <= pending
        ):
            return Result(outcome=Outcome.THERE, num_pending=pending, newest_step=newest, index_written=True)
        return None

    def newest(self, job: Job) -> int:
        """Return the newest step that is known, as a try learns it."""
        latest = self.aliases.get(LATEST)
        return job.newest_step if job.newest_step is not None else latest.step if latest is not None else -1
