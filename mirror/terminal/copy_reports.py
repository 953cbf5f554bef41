"""What came of a copy, or would: in words, in JSON and as an exit code."""

from __future__ import annotations

from collections.abc import Sequence

from mirror.backlog import Left
from mirror.breaker import BreakerState
from mirror.planning import PlannedRecord, Planner
from mirror.stats import MirrorStats
from mirror.sync import Ended, SyncSummary
from mirror.terminal.asked import Asked
from mirror.terminal.exits import decide
from mirror.terminal.output import Output, format_bytes, name_some, plural


def report_planned(planned: PlannedRecord, output: Output) -> None:
    """Say what a copy would do with one record."""
    files = f"{plural(len(planned.send), 'file')}, {format_bytes(planned.size_bytes)}"
    output.line(
        "plan",
        f"{'refuse' if planned.problem else 'copy'} {planned.record_id}: {planned.problem or files}",
        id=planned.record_id,
        directory=str(planned.directory),
        files=[state.name for state in planned.send],
        bytes=planned.size_bytes,
        problem=planned.problem,
    )


def report_plan(planner: Planner, problems: Sequence[str], asked: Asked, output: Output) -> int:
    """End a dry run."""
    url = asked.url
    for problem in problems:
        output.error(problem)
    unchanged = f"{plural(planner.unchanged_records, 'record')} ({plural(planner.unchanged_files, 'file')})"
    if planner.planned_records:
        text = f"would copy {plural(planner.planned_records, 'record')} ({plural(planner.planned_files, 'file')}, "
        text += f"{format_bytes(planner.planned_bytes)}) to {url}; {unchanged} unchanged, nothing was written"
    else:
        text = asked.nothing_to_do(planner.unchanged_files)
    return output.summary(
        text,
        decide(
            done=planner.planned_files - planner.refused_files + planner.unchanged_files,
            left=planner.refused_files + len(problems),
        ),
        dry_run=True,
        url=url,
        planned=planner.planned_files,
        planned_records=planner.planned_records,
        planned_bytes=planner.planned_bytes,
        unchanged=planner.unchanged_files,
        failed=planner.refused_files,
    )


def report_sync(summary: SyncSummary, asked: Asked, output: Output) -> int:
    """End a copy."""
    url = asked.url
    for problem in summary.problems:
        output.error(problem)
    gave_up = summary.ended in {Ended.REFUSED, Ended.AWAY}
    if gave_up:
        _report_given_up(url, summary.reason, output, refused=summary.ended is Ended.REFUSED)
    report_left(summary.left, output, name_late=summary.ended is not Ended.REFUSED)
    if summary.ended is Ended.DONE and summary.late:
        output.error(f"the last error: {summary.reason}")
    if not (summary.looked_at_everything or gave_up):
        output.remark("ended before everything was looked at: the next run goes on")
    if summary.copied or summary.missing:
        of_records = f" of {plural(summary.records, 'record')}" if summary.copied else ""
        text = f"copied {plural(summary.copied, 'file')}{of_records}, "
        text += f"{format_bytes(summary.size_bytes)}, to {url}; {summary.unchanged:,} unchanged, "
        text += f"{summary.failed:,} failed, {summary.late:,} late"
    else:
        text = asked.nothing_to_do(summary.unchanged)
    return output.summary(
        text,
        decide(
            done=_in_the_mirror(summary.copied, summary.unchanged, gave_up=gave_up),
            left=summary.missing,
            interrupted=summary.ended is Ended.INTERRUPTED,
        ),
        url=url,
        ended=summary.ended.name.lower(),
        copied=summary.copied,
        unchanged=summary.unchanged,
        failed=summary.failed,
        late=summary.late,
        lost=summary.lost,
        bytes=summary.size_bytes,
        records=summary.records,
        retried=summary.retried,
    )


def _report_given_up(url: str, reason: str | None, output: Output, *, refused: bool) -> None:
    output.error(f"{url} {'refuses everything' if refused else 'does not answer'}: {reason}")


def _in_the_mirror(copied: int, unchanged: int, *, gave_up: bool) -> int:
    """Count what a copy can show: of a store that it gave up, only what was copied before that."""
    return copied + (0 if gave_up else unchanged)


def report_left(left: Sequence[Left], output: Output, *, name_late: bool = True) -> None:
    """Name the records that are not in the mirror; the log has named those that failed."""
    for record in left:
        if record.reason is None:
            output.line("late", None, id=record.record_id, directory=str(record.directory))
        else:
            output.line("error", None, message=record.reason, id=record.record_id, directory=str(record.directory))
    late = [record.record_id for record in left if record.reason is None]
    if late and name_late:
        output.remark(f"late, for the next run: {name_some(late)}")


def report_watch(stats: MirrorStats, left: Sequence[Left], output: Output, *, complete: bool, interrupted: bool) -> int:
    """End a daemon."""
    gave_up = not complete and stats["breaker"] != BreakerState.CLOSED
    if gave_up:
        _report_given_up(
            stats["url"], stats["breaker_reason"], output, refused=stats["breaker"] == BreakerState.REFUSED
        )
    report_left(left, output)
    failed = sum(record.reason is not None for record in left)
    if not complete and not left:
        output.remark("ended before everything was looked at: the next start goes on")
    text = f"copied {plural(stats['files'], 'file')}, {format_bytes(stats['bytes'])}, to {stats['url']}; "
    text += f"{plural(len(left), 'record')} left"
    return output.summary(
        text,
        decide(
            done=_in_the_mirror(stats["files"], stats["kept_files"] + stats["unchanged"], gave_up=gave_up),
            left=0 if complete else len(left) or 1,
            interrupted=interrupted,
        ),
        url=stats["url"],
        copied=stats["files"],
        unchanged=stats["kept_files"],
        failed=failed,
        late=len(left) - failed,
        lost=stats["lost"],
        bytes=stats["bytes"],
        retried=stats["retried"],
    )
