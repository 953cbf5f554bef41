"""The command ``record-mirror``: the mirror's commands, and those about a run's steps."""

# ruff: noqa: PLC0415 - a command imports what it needs itself: `record-mirror --help` waits for none of it

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirror import cli as mirror_cli
from mirror.terminal.commands import EPILOG, Commands, command, run
from mirror.terminal.exits import Exit
from mirror.terminal.options import REQUESTS, Name, option

if TYPE_CHECKING:
    from mirror.config import MirrorConfig
    from mirror.terminal.output import Output
    from references.selection import Selection


@click.group(cls=Commands, epilog=EPILOG, commands=dict(mirror_cli.commands.commands))
@click.version_option(package_name="record-mirror")
def commands() -> None:
    """Mirror the records of RL training runs, index them in W&B by step, and bring them back."""


def _selection_options(*, files: bool) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command the options that choose steps and rows, and ``files``, as its argument ``selection``."""

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def run_selected(**given: Any) -> int:  # noqa: ANN401 - whatever options the command has
            chosen = {name: given.pop(name) for name in _CHOICES if name in given}
            return function(selection=_select(**chosen), **given)

        options = [
            option("--phase", "phases", multiple=True, type=Name(), metavar="PHASE", help="Only train, or only eval."),
            option("--steps", default=None, metavar="STEPS", help="Only these steps, e.g. 3,5-9,100-."),
            option("--only-trained", is_flag=True, help="Only what the step's batch trained on."),
            option("--id", "ids", multiple=True, type=Name(), metavar="ID", help="Only the record of this id."),
            option("--min-reward", type=float, default=None, help="Only records with at least this reward."),
            option("--max-reward", type=float, default=None, help="Only records with at most this reward."),
        ]
        if files:
            text = "Only sidecars of this kind, e.g. tokens; documents always come."
            options.append(option("--kind", "kinds", multiple=True, type=Name(), metavar="KIND", help=text))
        decorated: Any = run_selected
        for add in reversed(options):
            decorated = add(decorated)
        return decorated  # type: ignore[no-any-return] # the function it was, with other arguments

    return decorate


_CHOICES = ("phases", "steps", "only_trained", "ids", "min_reward", "max_reward", "kinds")


def _select(
    *,
    phases: tuple[str, ...],
    steps: str | None,
    only_trained: bool,
    ids: tuple[str, ...],
    min_reward: float | None,
    max_reward: float | None,
    kinds: tuple[str, ...] = (),
) -> Selection:
    from references.phases import check_phases
    from references.selection import Selection, parse_steps

    return Selection(
        phases=check_phases(phases) or None,
        steps=None if steps is None else parse_steps(steps),
        only_trained=only_trained,
        kinds=kinds or None,
        ids=frozenset(ids) or None,
        min_reward=min_reward,
        max_reward=max_reward,
    )


_allow_option = option(
    "--allow-protocol",
    "allow_protocols",
    multiple=True,
    type=Name(),
    metavar="PROTOCOL",
    help="Read mirrors of this protocol, too, that a W&B artifact names, e.g. file.",
)


@command(commands, *REQUESTS, "max_bytes_in_flight")
@click.argument("source", metavar="REF|URL")
@click.argument("out")
@_selection_options(files=True)
@_allow_option
@option("--dry-run", is_flag=True, help="Say what would be pulled, and write nothing.")
def pull(
    *,
    source: str,
    out: str,
    selection: Selection,
    allow_protocols: tuple[str, ...],
    dry_run: bool,
    config: MirrorConfig,
    output: Output,
) -> int:
    """Bring a run's records back.

    From the mirror at URL, or from where the steps of a W&B artifact lead, entity/project/skycap-records-train-RUN
    with or without :train-step-N, to a record directory OUT/PHASE. Each file is checked by its receipt.
    """
    from mirror.redact import redact_url
    from mirror.stores.words import in_words, names_of_errno, of_file_system
    from mirror.terminal.excluding import kind_slips
    from mirror.terminal.progress import make_progress
    from references.pull import pull as run_pull
    from references.reports import report_pull, tally_of_pull

    try:
        with make_progress("pulled", quiet=output.quiet) as progress:
            summary = run_pull(
                source,
                out,
                selection=selection,
                config=config,
                allow_protocols=allow_protocols,
                dry_run=dry_run,
                progress=lambda so_far: progress.update(tally_of_pull(so_far)),
            )
    except OSError as error:
        reason = in_words(of_file_system(error), names_of_errno(error))
        output.error(f"{out} cannot be written: {reason}; a later pull goes on from here")
        return output.summary(None, Exit.FAILED)
    for slip in kind_slips(selection.kinds or (), summary.kinds, "--kind"):
        output.remark(slip)
    return report_pull(summary, redact_url(source), out, output)


@command(commands, *REQUESTS, failure=Exit.UNCHECKED)
@click.argument("source", metavar="REF|URL")
@_selection_options(files=False)
@_allow_option
def ls(
    *, source: str, selection: Selection, allow_protocols: tuple[str, ...], config: MirrorConfig, output: Output
) -> int:
    """List a run's steps.

    From the mirror at URL or a W&B artifact: rows, what trained, what is in the mirror, rewards; steps that are not
    there, that were run again, or were left behind when the run went back.
    """
    from mirror.redact import redact_url
    from references.errors import SourceError
    from references.reports import could_not_check, report_steps
    from references.steps import list_steps

    try:
        facts = list_steps(source, selection=selection, config=config, allow_protocols=allow_protocols)
    except SourceError as error:
        return could_not_check(str(error), output)
    return report_steps(facts, redact_url(source), output)


@command(commands, *REQUESTS, "max_bytes_in_flight", failure=Exit.UNCHECKED)
@click.argument("source", metavar="REF|URL")
@click.argument("dirs", nargs=-1, metavar="[DIR]...")
@_selection_options(files=False)
@_allow_option
@mirror_cli.download_option
@mirror_cli.sample_option
@mirror_cli.ask_store_option
def verify(
    *,
    source: str,
    dirs: tuple[str, ...],
    selection: Selection,
    allow_protocols: tuple[str, ...],
    download: bool,
    sample: float,
    ask_store: bool,
    config: MirrorConfig,
    output: Output,
) -> int:
    """Check that a mirror, or a run in W&B, is whole; change nothing.

    The mirror at URL is compared with its receipts, with the finished records of the DIRs, and with the steps that it
    has an index of. Of a W&B artifact every reference is compared with the receipts. By default a listing tells sizes
    and identities; hashes are compared as far as asked for.
    """
    from mirror.location import Location
    from mirror.redact import redact_url
    from mirror.sync import check_directories
    from mirror.terminal.progress import make_progress
    from references.errors import SourceError
    from references.reports import could_not_check, report_run_verification
    from references.selection import Selection
    from references.source import parse_source
    from references.verify_run import verify_run

    parsed = parse_source(source)
    location = parsed if isinstance(parsed, Location) else None
    level = mirror_cli.level_of(download=download, sample=sample, ask_store=ask_store)
    try:
        with make_progress("checked", quiet=output.quiet) as progress:
            found = verify_run(
                source,
                check_directories(dirs, location, must_exist=True, url_first=True),
                selection=selection,
                config=config,
                allow_protocols=allow_protocols,
                level=level,
                progress=lambda so_far: progress.update(mirror_cli.tally_of(so_far)),
            )
    except SourceError as error:
        return could_not_check(str(error), output)
    whole = location is not None and selection == Selection()
    return report_run_verification(found, redact_url(source), output, whole=whole)


@command(commands, *REQUESTS)
@click.argument("run_path", metavar="RUN")
@click.argument("url", required=False)
@option("--spool", default=None, metavar="DIR", help="Where steps wait; where this machine's user has them by default.")
@option("--adopt", is_flag=True, help="Take steps along that were recorded while no run was known.")
@option("--force", is_flag=True, help="Log also what the training may be logging at this moment.")
@option("--dry-run", is_flag=True, help="Say what would be logged, and change nothing.")
def link(
    *,
    run_path: str,
    url: str | None,
    spool: str | None,
    adopt: bool,
    force: bool,
    dry_run: bool,
    config: MirrorConfig,
    output: Output,
) -> int:
    """Log to W&B the steps that it lacks.

    After an outage, an offline run or a crash, RUN (entity/project/run-id) gets the steps that wait in this machine's
    spool, and those that the mirror at URL has an index of. The run itself is not touched, it may be going on.
    """
    from references.link import link as run_link
    from references.reports import report_link, report_linked

    summary = run_link(
        run_path,
        url,
        spool=spool,
        config=config,
        adopt=adopt,
        force=force,
        dry_run=dry_run,
        tell=lambda linked: report_linked(linked, output, dry_run=dry_run),
    )
    return report_link(summary, run_path, output)


@command(commands)
@option("--keep", type=click.Path(path_type=Path), default=None, metavar="DIR", help="Leave what it makes in DIR.")
def demo(*, keep: Path | None, config: MirrorConfig, output: Output) -> int:  # noqa: ARG001 - every command has settings
    """Show the main job on this machine.

    Records are copied, verified, damaged and repaired; two steps are indexed in an offline run of W&B; everything is
    pulled back and compared.
    """
    from references.demo import run_demo

    def say(text: str) -> None:
        output.line("step", None if output.quiet else text, text=text)

    with tempfile.TemporaryDirectory(prefix="record-mirror-demo-") as scratch:
        found = run_demo(keep or Path(scratch) / "demo", say)
    return output.summary(
        "the demonstration did what it promises",
        Exit.COMPLETE,
        directory=None if keep is None else str(keep),
        records=found.records,
        files=found.files,
        unchanged=found.intact,
        bytes=found.size_bytes,
    )


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(commands))


if __name__ == "__main__":
    main()
