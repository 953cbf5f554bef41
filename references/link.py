"""Log to W&B what the spool or the mirror's ``index/`` holds and W&B does not: each step once, whoever was to do it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from mirror.config import MirrorConfig
from references.claims import By, Claim, Claims
from references.errors import ConfigError
from references.helper_run import RunId
from references.link_plan import LinkedStep, Verdict
from references.linking import Linker, StepMirrors
from references.mirror_access import MirrorAccess
from references.outcome import MAX_BACKOFF_S
from references.seams import PublishSettings
from references.spool import Spool
from references.waiting_steps import PassedOver, WaitingStep, waiting_steps


@dataclass(slots=True, kw_only=True)
class LinkSummary:
    """What came of a link.

    Attributes:
        steps: every step of the run that waits somewhere.
        passed_over: what waits there besides.
        latest_error: why ``latest`` may name an older step than the newest; None when it does not.
    """

    is_dry_run: bool
    steps: list[LinkedStep] = field(default_factory=list)
    passed_over: PassedOver = field(default_factory=PassedOver)
    latest_error: str | None = None

    @property
    def failed(self) -> list[LinkedStep]:
        """The steps that are not done."""
        return [step for step in self.steps if step.error is not None]

    def count(self, *verdicts: Verdict) -> int:
        """Count the steps with one of these verdicts that are done."""
        return sum(step.verdict in verdicts and step.error is None for step in self.steps)


def link(
    run: str,
    url: str | os.PathLike[str] | None = None,
    *,
    spool: str | os.PathLike[str] | None = None,
    config: MirrorConfig | None = None,
    settings: PublishSettings | None = None,
    adopt: bool = False,
    force: bool = False,
    dry_run: bool = False,
    tell: Callable[[LinkedStep], object] = lambda _step: None,
) -> LinkSummary:
    """Bring W&B to one version per step of a run, from the steps that wait in the spool and those that a mirror has.

    The run may be going on, over, or not in W&B at all, as one that was only run offline: it is not touched. A short
    run of its own in the same project logs what lacks. References are made from the receipts in the mirror. A step that
    the training, or another link, may be logging at this moment is left to it.

    Args:
        run: ``entity/project/run id``, or the address of the run's page.
        url: the run's mirror, whose step indexes are linked too; None: the spool alone, and references from the mirror
            that each step's rows name.
        spool: the spool's directory; None: the user's own.
        config: settings of the mirror.
        settings: how long and how often to try each version.
        adopt: take steps along that were recorded while no run was known.
        force: log also what somebody else may be logging; it may then be in W&B twice.
        dry_run: decide, and change nothing.
        tell: called after each step.

    Raises:
        LinkError: W&B cannot be asked, or nothing can be logged to the run's project.
        SourceError: the mirror's step indexes cannot be listed.
        StoreError: likewise.
        ConfigError: a setting is wrong; of this package or of ``mirror``.
    """
    linked_run = RunId.parse(run)
    if url is None and spool is not None and not Path(spool).is_dir():
        raise ConfigError(f"there is no spool at {os.fspath(spool)!r}: name the directory in which the steps wait")
    options = config or MirrorConfig()
    disk = Spool(spool)
    summary = LinkSummary(is_dry_run=dry_run)
    claims = Claims(disk, By.LINK)
    chosen = settings or PublishSettings()
    mirrors = StepMirrors(options, None if url is None else MirrorAccess(url, options))
    waiting = waiting_steps(linked_run.id, disk, url, options, summary.passed_over, adopt=adopt)
    with contextlib.closing(waiting), contextlib.ExitStack() as stack:
        linker = Linker(linked_run, mirrors, chosen, stack)
        for step in waiting:
            linked = linker.judge(step)
            claim = None if force or linked.verdict in {Verdict.THERE, Verdict.OLDER} else _claim(claims, step, linker)
            if claim is not None:
                linked = dataclasses.replace(linked, error=_say(claim))
            elif not dry_run:
                linked = _carry_out(claims, linker, step, linked, chosen)
                if step.spooled is not None and _is_done_with(linked):
                    disk.remove(*step.spooled)
            summary.steps.append(linked)
            tell(linked)
        if not dry_run:
            summary.latest_error = linker.settle_latest()
    return summary


def _claim(claims: Claims, step: WaitingStep, linker: Linker) -> Claim | None:
    """Return the claim of somebody else who may be logging a step at this moment."""
    keys = [step.key] if step.spooled is None else [step.key, step.spooled[0]]
    claim = next(filter(None, map(claims.other, keys)), None)
    if claim is not None and claim.by is By.TRAINING and not linker.is_running():
        return None  # what W&B's client had of the run is in W&B, or never will be
    return claim


def _say(claim: Claim) -> str:
    until = datetime.fromtimestamp(claim.until_s, tz=UTC).astimezone()
    return (
        f"the {claim.by} in process {claim.process} on {claim.host} may be logging it: link again when that has ended, "
        f"after {until:%H:%M} in any case, or with --force"
    )


def _carry_out(
    claims: Claims, linker: Linker, step: WaitingStep, linked: LinkedStep, settings: PublishSettings
) -> LinkedStep:
    """Carry out what a step needs, and keep other links from it meanwhile."""
    claims.hold(step.key, settings.attempts * (settings.timeout_s + MAX_BACKOFF_S))
    try:
        return linker.carry_out(step, linked)
    finally:
        claims.release(step.key)


def _is_done_with(linked: LinkedStep) -> bool:
    """Whether nobody can add anything to a step any more."""
    return linked.error is None and (linked.verdict is Verdict.OLDER or not linked.num_pending)
