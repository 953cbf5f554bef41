"""The mirror's commands: parse, call the library, render, return an exit code."""

# ruff: noqa: PLC0415 - a command imports what it needs itself: `record-mirror --help` waits for none of it

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from mirror.config import MirrorConfig
from mirror.errors import ConfigError
from mirror.terminal.commands import EPILOG, Commands, command
from mirror.terminal.exits import Exit
from mirror.terminal.options import COPIES, EVERYTHING, REQUESTS, Name, Seconds, Share, option
from mirror.terminal.output import Output, plural, told_at_the_end

if TYPE_CHECKING:
    from mirror.location import Location
    from mirror.pruning.prune import PruneResult
    from mirror.repairing.plan import RepairPlan
    from mirror.terminal.progress import Tally
    from mirror.verify import Verification, VerifyLevel


@click.group(cls=Commands, epilog=EPILOG)
@click.version_option(package_name="record-mirror")
def commands() -> None:
    """Copy finished record files to an object store, and prove that they arrived."""


dirs_argument = click.argument("dirs", nargs=-1, metavar="DIR...")
url_argument = click.argument("url")
include_option = option(
    "--include", multiple=True, type=Name(), metavar="PATTERN", help="Only records whose id matches, e.g. 'tr_a*'."
)
download_option = option("--download", is_flag=True, help="Read every file back and hash it.")
sample_option = option("--sample", type=Share(), default=0.0, help="Read this share of the files back, e.g. 5%.")
ask_store_option = option("--ask-store", is_flag=True, help="Ask the store for the hashes that it keeps.")


@command(commands, *COPIES, "queue_size", "shutdown_timeout_s")
@dirs_argument
@url_argument
@option("--dry-run", is_flag=True, help="Say what would be copied, and write nothing.")
@include_option
@option("--give-up-after", type=Seconds(), default="60s", show_default=True, help="End when the store is away so long.")
@option("--max-duration", type=Seconds(), default=None, help="End after this time; the next run goes on.")
def sync(
    *,
    dirs: tuple[str, ...],
    url: str,
    dry_run: bool,
    include: tuple[str, ...],
    give_up_after: float,
    max_duration: float | None,
    config: MirrorConfig,
    output: Output,
) -> int:
    """Copy what is missing, then exit.

    Every finished record of the DIRs that the mirror at URL does not have yet is copied.
    """
    from mirror.location import parse_location
    from mirror.stores.opening import check_settings
    from mirror.sync import Limits, check_directories
    from mirror.sync import sync as run_sync
    from mirror.terminal.asked import Asked
    from mirror.terminal.copy_reports import report_sync
    from mirror.terminal.excluding import tell_slips
    from mirror.terminal.progress import make_progress
    from mirror.terminal.stopping import Stopping

    location = parse_location(url)
    directories = check_directories(named(dirs, url), location, must_exist=True)
    check_settings(location, config)
    tell_slips(config.exclude, directories, "--exclude", output)
    if dry_run:
        return _plan(directories, location, config, include, output)
    limits = Limits(give_up_after_s=give_up_after, max_duration_s=max_duration)
    with Stopping() as stopping, told_at_the_end("mirror.breaker", "mirror.background"):
        with make_progress("copied", quiet=output.quiet) as progress:
            summary = run_sync(
                directories, url, config, stopping=stopping, include=include, limits=limits, tell=progress.update
            )
        return report_sync(summary, Asked(directories, include, location.shown), output)


def _plan(
    directories: list[Path], location: Location, config: MirrorConfig, include: tuple[str, ...], output: Output
) -> int:
    from mirror.planning import Planner
    from mirror.terminal.asked import Asked
    from mirror.terminal.copy_reports import report_plan, report_planned

    planner = Planner(location, config, include)
    problems = []
    for directory in directories:
        try:
            for planned in planner.plan(directory):
                report_planned(planned, output)
        except BrokenPipeError:
            raise  # by what reads our own words
        except OSError as error:
            problems.append(f"{directory} cannot be read: {error.strerror or error}")
    return report_plan(planner, problems, Asked(directories, include, location.shown), output)


@command(commands, *EVERYTHING)
@dirs_argument
@url_argument
@include_option
@option("--poll", is_flag=True, help="Look every few seconds instead of waiting for file-system events.")
@option("--listen", default="127.0.0.1:9119", show_default=True, help="Where /healthz and /metrics are; or 'off'.")
@option("--max-lag", type=Seconds(), default=None, help="Unhealthy when the oldest uncopied record is older.")
@option("--nice", type=click.IntRange(0, 19), default=10, show_default=True, help="Leave the CPU to others, so far.")
def watch(
    *,
    dirs: tuple[str, ...],
    url: str,
    include: tuple[str, ...],
    poll: bool,
    listen: str,
    max_lag: float | None,
    nice: int,
    config: MirrorConfig,
    output: Output,
) -> int:
    """Copy records as they appear, until told to stop.

    Runs beside servers that do not embed the library: every finished record of the DIRs goes to the mirror at URL.
    SIGTERM or SIGINT copies what is left and ends; a second SIGINT ends at once.
    """
    from mirror.health import parse_listen, serving
    from mirror.location import parse_location
    from mirror.sync import check_directories
    from mirror.terminal.copy_reports import report_watch
    from mirror.terminal.excluding import tell_slips
    from mirror.terminal.stopping import Stopping
    from mirror.watch import Watch

    location = parse_location(url)
    directories = check_directories(named(dirs, url), location, must_exist=False)
    tell_slips(config.exclude, directories, "--exclude", output)
    daemon = Watch(directories, url, config, include=include, poll=poll)
    with (
        Stopping() as stopping,
        told_at_the_end("mirror.background"),
        serving(parse_listen(listen), daemon.stats, max_lag_s=max_lag) as server,
    ):
        if server is not None:
            output.remark(f"health and metrics: {server.url}/healthz and /metrics")
        output.remark(f"watching {plural(len(directories), 'directory')} for {location.shown}")
        os.nice(nice)
        complete = daemon.run(stopping)
        return report_watch(daemon.stats(), daemon.left(), output, complete=complete, interrupted=stopping.interrupted)


@command(commands, *REQUESTS, failure=Exit.UNCHECKED)
@click.argument("url", metavar="URL|DIR")
def status(*, url: str, config: MirrorConfig, output: Output) -> int:
    """Count what is in a mirror, by its receipts.

    For a record DIR: what of it is in each mirror that it was ever copied to.
    """
    from mirror.location import parse_location
    from mirror.status import is_record_directory, read_directory, read_mirror
    from mirror.sync import check_directories
    from mirror.terminal.status_reports import report_directory_status, report_mirror_status

    if is_record_directory(url):
        directory = read_directory(Path(url).absolute())
        if directory.records or directory.places:
            return report_directory_status(directory, output)
    location = parse_location(url)
    check_directories((), location, must_exist=True)
    return report_mirror_status(read_mirror(url, config), location.shown, output)


@command(commands, *REQUESTS, "max_bytes_in_flight", failure=Exit.UNCHECKED)
@click.argument("url")
@click.argument("dirs", nargs=-1, metavar="[DIR]...")
@download_option
@sample_option
@ask_store_option
def verify(
    *,
    url: str,
    dirs: tuple[str, ...],
    download: bool,
    sample: float,
    ask_store: bool,
    config: MirrorConfig,
    output: Output,
) -> int:
    """Check that a mirror is whole; change nothing.

    The mirror at URL is compared with its receipts, and with the finished records of the DIRs. By default a listing
    tells sizes and identities; hashes are compared as far as asked for.
    """
    from mirror.location import parse_location
    from mirror.sync import check_directories
    from mirror.terminal.progress import make_progress
    from mirror.terminal.proof_reports import report_verification
    from mirror.verify import verify as run_verify

    location = parse_location(url)
    directories = check_directories(dirs, location, must_exist=True, url_first=True)
    with make_progress("checked", quiet=output.quiet) as progress:
        result = run_verify(
            url,
            directories,
            config=config,
            level=level_of(download=download, sample=sample, ask_store=ask_store),
            progress=lambda so_far: progress.update(tally_of(so_far)),
        )
    return report_verification(result, location.shown, output)


@command(commands, *COPIES)
@click.argument("url")
@click.argument("dirs", nargs=-1, metavar="[DIR]...")
@option("--from", "source_url", metavar="URL", default=None, help="Take what no DIR has from this second mirror.")
@download_option
@sample_option
@ask_store_option
@option("--dry-run", is_flag=True, help="Say what would be restored, and change nothing.")
@option("--yes", "-y", is_flag=True, help="Do not ask. Nothing is asked where there is no terminal.")
def repair(
    *,
    url: str,
    dirs: tuple[str, ...],
    source_url: str | None,
    download: bool,
    sample: float,
    ask_store: bool,
    dry_run: bool,
    yes: bool,
    config: MirrorConfig,
    output: Output,
) -> int:
    """Put back what is damaged in a mirror.

    The mirror at URL is verified; what is missing or damaged is copied again from the records in the DIRs.
    """
    from mirror.location import parse_location
    from mirror.redact import redact_url
    from mirror.repairing.repair import repair as run_repair
    from mirror.sync import check_directories
    from mirror.terminal.progress import make_progress
    from mirror.terminal.proof_reports import report_repair, report_repair_plan

    location = parse_location(url)
    directories = check_directories(dirs, location, must_exist=True, url_first=True)
    progress = make_progress("checked", quiet=output.quiet)
    applied = not dry_run

    def confirm(plan: RepairPlan) -> bool:
        nonlocal applied
        progress.stop()
        report_repair_plan(plan, output, source_url=source_url and redact_url(source_url))
        if applied and not yes and sys.stdin.isatty() and sys.stderr.isatty():
            applied = click.confirm(f"restore {plural(len(plan.steps), 'record')} in {location.shown}?", err=True)
        return applied

    with progress:
        result = run_repair(
            url,
            directories,
            source_url=source_url,
            config=config,
            level=level_of(download=download, sample=sample, ask_store=ask_store),
            confirm=confirm,
            progress=lambda so_far: progress.update(tally_of(so_far)),
        )
    return report_repair(result, location.shown, output, applied=applied)


@command(commands, *REQUESTS, "max_bytes_in_flight", failure=Exit.UNCHECKED)
@dirs_argument
@url_argument
@include_option
@option("--older-than", type=Seconds(), default="10m", show_default=True, help="Keep records written since.")
@option("--keep-newest", type=click.IntRange(min=0), default=0, metavar="N", help="Keep the newest N of each DIR.")
@option(
    "--discard",
    multiple=True,
    type=Name(),
    metavar="KIND",
    help="Let sidecars of this kind go where the mirror leaves them out: they exist nowhere else.",
)
@option(
    "--dry-run", is_flag=True, help="Verify, say what would be deleted, and delete nothing; so it is without --yes."
)
@click.option("--yes", "-y", is_flag=True, help="Delete. Only counts on the command line.")
def prune(
    *,
    dirs: tuple[str, ...],
    url: str,
    include: tuple[str, ...],
    older_than: float,
    keep_newest: int,
    discard: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    config: MirrorConfig,
    output: Output,
) -> int:
    """Delete records that are safe in a mirror from this disk.

    A finished record of the DIRs goes once every file of it was hashed here, and read back and hashed from the mirror
    at URL, or is vouched for by a store that keeps its hash. Without --yes nothing is deleted.
    """
    from mirror.location import parse_location
    from mirror.pruning.judging import PruneRules
    from mirror.pruning.prune import prune as run_prune
    from mirror.sync import check_directories
    from mirror.terminal.asked import Asked
    from mirror.terminal.excluding import tell_slips
    from mirror.terminal.progress import make_progress
    from mirror.terminal.proof_reports import PruneReport
    from mirror.terminal.stopping import Stopping

    location = parse_location(url)
    directories = check_directories(named(dirs, url), location, must_exist=True)
    kinds = tuple(kind.strip() for text in discard for kind in text.split(","))
    tell_slips(kinds, directories, "--discard", output)
    yes = yes and click.get_current_context().get_parameter_source("yes") is ParameterSource.COMMANDLINE
    report = PruneReport(Asked(directories, include, location.shown), output)
    with Stopping() as stopping:
        with make_progress("checked", quiet=output.quiet) as progress:
            result = run_prune(
                directories,
                url,
                confirmed=yes and not dry_run,
                rules=PruneRules(older_than_s=older_than, keep_newest=keep_newest, include=include, discard=kinds),
                config=config,
                each=report.step,
                progress=lambda so_far: progress.update(tally_of_prune(so_far)),
                stop=lambda: stopping.asked,
            )
        return report.end(result, interrupted=stopping.interrupted, said_yes=yes)


def named(dirs: tuple[str, ...], url: str) -> tuple[str, ...]:
    """Return the record directories of a command that takes the mirror's URL last.

    Raises:
        ConfigError: only one thing was named.
    """
    if dirs:
        return dirs
    if "://" in url:
        raise ConfigError(f"{url} is the mirror's URL, and no record directory is named: put DIR before it")
    raise ConfigError(f"the mirror's URL is missing: put it behind {url}")


def level_of(*, download: bool, sample: float, ask_store: bool) -> VerifyLevel:
    """Return how closely to look, as the options of a check say it.

    Raises:
        ConfigError: they contradict each other.
    """
    from mirror.verify import VerifyLevel

    if ask_store and (download or sample):
        raise ConfigError("--ask-store and reading back are two ways to get a hash: give one of them")
    return VerifyLevel(read_back=1.0 if download else sample, ask_store=ask_store)


def tally_of(result: Verification) -> Tally:
    """Return how far a check is, for progress."""
    from mirror.terminal.progress import Tally

    found = len(result.findings)
    return Tally(
        done=result.present + result.intact + found,
        total=None,  # known only when the listing has ended
        unit="files",
        size_bytes=result.size_bytes,
        note=plural(found, "finding") if found else "",
    )


def tally_of_prune(result: PruneResult) -> Tally:
    """Return how far a prune is, for progress."""
    from mirror.terminal.progress import Tally

    kept = sum(result.kept.values())
    return Tally(
        done=result.records,
        total=None,
        unit="records",
        size_bytes=result.size_bytes,
        note=f"{kept:,} kept" if kept else "",
    )
