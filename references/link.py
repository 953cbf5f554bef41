"""Log to W&B what the spool or the mirror's ``index/`` holds and W&B does not: each step once, whoever was to do it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mirror.config import MirrorConfig
from references.errors import ConfigError
from references.helper_run import RunId
from references.link_plan import LinkedStep, Verdict
from references.linking import Linker, StepMirrors
from references.mirror_access import MirrorAccess
from references.seams import PublishSettings
from references.spool import Spool
from references.waiting_steps import PassedOver, waiting_steps


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
    dry_run: bool = False,
    tell: Callable[[LinkedStep], object] = lambda _step: None,
) -> LinkSummary:
    """Bring W&B to one version per step of a run, from the steps that wait in the spool and those that a mirror has.

    The run may be going on, over, or not in W&B at all, as one that was only run offline: it is not touched. A short
    run of its own in the same project logs what lacks. References are made from the receipts in the mirror.

    Args:
        run: ``entity/project/run id``, or the address of the run's page.
        url: the run's mirror, whose step indexes are linked too; None: the spool alone, and references from the mirror
            that each step's rows name.
        spool: the spool's directory; None: the user's own.
        config: settings of the mirror.
        settings: how long and how often to try each version.
        adopt: take steps along that were recorded while no run was known.
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
    mirrors = StepMirrors(options, None if url is None else MirrorAccess(url, options))
    waiting = waiting_steps(linked_run.id, disk, url, options, summary.passed_over, adopt=adopt)
    with contextlib.closing(waiting), contextlib.ExitStack() as stack:
        linker = Linker(linked_run, mirrors, settings or PublishSettings(), stack)
        for step in waiting:
            linked = linker.judge(step)
            if not dry_run:
                linked = linker.carry_out(step, linked)
                if step.spooled is not None and _is_done_with(linked):
                    disk.remove(*step.spooled)
            summary.steps.append(linked)
            tell(linked)
        if not dry_run:
            summary.latest_error = linker.settle_latest()
    return summary


def _is_done_with(linked: LinkedStep) -> bool:
    """Whether nobody can add anything to a step any more."""
    return linked.error is None and (linked.verdict is Verdict.OLDER or not linked.num_pending)
