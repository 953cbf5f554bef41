"""What came of a command, in words, in JSON and as an exit code: one function for each kind of result."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mirror.backlog import Left
from mirror.breaker import BreakerState
from mirror.judging import Finding, FindingKind
from mirror.planning import PlannedRecord, Planner
from mirror.pruning.judging import Keep, PruneStep
from mirror.pruning.prune import PruneResult
from mirror.repairing.plan import RepairPlan, RepairResult
from mirror.stats import MirrorStats
from mirror.status import DirectoryStatus, MirrorStatus
from mirror.sync import Ended, SyncSummary
from mirror.terminal.exits import Exit, decide
from mirror.terminal.output import Output, format_bytes, plural
from mirror.verify import Verification

NAMED = 20  # records named where not all can be


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


@dataclass(frozen=True, slots=True)
class Asked:
    """What a copy was asked for."""

    directories: Sequence[Path]
    include: Sequence[str]  # patterns of record ids; none: all
    url: str  # without credentials

    def nothing_to_do(self, unchanged_files: int) -> str:
        """Say why there was nothing to copy."""
        if unchanged_files == 1:
            return f"nothing to do: by its receipt the 1 file is in {self.url} already; verify asks the store"
        if unchanged_files:
            what = f"by their receipts all {unchanged_files:,} files are in {self.url} already"
            return f"nothing to do: {what}; verify asks the store"
        where = _some(map(str, self.directories))
        if self.include:
            return f"nothing to do: no record in {where} matches {' or '.join(map(repr, self.include))}"
        return f"nothing to do: no finished records in {where}"


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
        text = f"copied {plural(summary.copied, 'file')} of {plural(summary.records, 'record')}, "
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
        if not output.json:
            continue
        if record.reason is None:
            output.line("late", None, id=record.record_id, directory=str(record.directory))
        else:
            output.line("error", None, message=record.reason, id=record.record_id, directory=str(record.directory))
    late = [record.record_id for record in left if record.reason is None]
    if late and name_late:
        output.remark(f"late, for the next run: {_some(late[: NAMED + 1])}")


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


def report_findings(findings: Iterable[Finding], output: Output) -> None:
    """Say what is wrong, file by file; to people in one line what could not be checked for one and the same reason."""
    listed = list(findings)
    alike = Counter(finding.detail for finding in listed if not finding.is_damage)
    for detail, count in alike.items():
        if count > 1 and not output.json:
            output.line("finding", f"{FindingKind.UNCHECKED}  {plural(count, 'file')}  {detail}")
    for finding in listed:
        is_said = not output.json and not finding.is_damage and alike[finding.detail] > 1
        output.line(
            "finding",
            None if is_said else f"{finding.kind}  {finding.name}  {finding.detail}",
            kind=finding.kind.value,
            name=finding.name,
            id=finding.record_id,
            detail=finding.detail,
        )


def how_checked(results: Iterable[Verification], output: Output) -> str:
    """Say how many files were found to be as they should be, and by what; a store without identities tells little."""
    listed = list(results)
    intact, present = sum(result.intact for result in listed), sum(result.present for result in listed)
    by_size_alone = present > 0 and present == sum(result.by_size for result in listed)
    if by_size_alone and not intact:
        output.remark("nothing was hashed: --download does")
    return f"{intact:,} intact by hash, {present:,} present by {'size' if by_size_alone else 'size and identity'}"


def report_verification(result: Verification, url: str, output: Output) -> int:
    """End a check."""
    report_findings(result.findings, output)
    text = f"{url}: {plural(result.records, 'record')}, {plural(result.files, 'file')}, "
    text += f"{format_bytes(result.size_bytes)}: {how_checked([result], output)}, "
    text += f"{plural(result.damage, 'finding')}, {result.unchecked:,} not checked"
    return output.summary(
        text,
        decide(findings=result.damage, unchecked=result.unchecked),
        url=url,
        unchanged=result.present + result.intact,
        findings=result.damage,
        unchecked=result.unchecked,
        bytes=result.size_bytes,
        records=result.records,
        files=result.files,
        present=result.present,
        intact=result.intact,
        foreign=result.foreign,
        kinds={kind.value: count for kind, count in sorted(result.counts.items())},
    )


def report_repair_plan(plan: RepairPlan, output: Output, *, source_url: str | None) -> None:
    """Say what a repair would do."""
    for step in plan.steps:
        source = str(step.directory) if step.directory is not None else source_url
        output.line(
            "plan",
            f"restore {', '.join(step.names)} from {source}",
            id=step.record_id,
            files=list(step.names),
            source=source,
        )


def report_repair(result: RepairResult, url: str, output: Output, *, applied: bool) -> int:
    """End a repair."""
    plan, found = result.plan, result.plan.verification
    report_findings(plan.hopeless, output)
    for record_id, reason in result.failed.items():
        output.error(f"{record_id}: {reason}", id=record_id)
    failed = sum(len(step.names) for step in plan.steps if step.record_id in result.failed)
    if not found.damage:
        text = f"nothing to do: {plural(found.present + found.intact, 'file')} in {url} as they should be"
    elif applied:
        text = f"restored {plural(result.restored_files, 'file')}, {format_bytes(result.restored_bytes)}, in {url}"
        text += f"; {failed:,} failed, {len(plan.hopeless):,} without a source"
    else:
        restorable = sum(len(step.names) for step in plan.steps)
        text = f"would restore {plural(restorable, 'file')} in {url}; {len(plan.hopeless):,} without a source; "
        text += "nothing was changed"
    if found.unchecked:
        text += f"; {found.unchecked:,} not checked"
    return output.summary(
        text,
        decide(
            done=result.restored_files,
            left=failed,
            findings=len(plan.hopeless) if applied else found.damage,
            unchecked=found.unchecked,
        ),
        url=url,
        dry_run=not applied,
        copied=result.restored_files,
        unchanged=found.present + found.intact,
        failed=failed,
        findings=found.damage,
        unchecked=found.unchecked,
        without_source=len(plan.hopeless),
        bytes=result.restored_bytes,
    )


def report_prune_step(step: PruneStep, output: Output) -> None:
    """Say that a record goes, or why it stays where no option says so and no finding names it."""
    if step.keep in {Keep.YOUNG, Keep.NEWEST, Keep.DAMAGED, Keep.UNCHECKED}:
        return
    files = f"{plural(len(step.files), 'file')}, {format_bytes(step.size_bytes)}"
    text = f"prune {step.record_id}: {files}" if step.keep is None else f"keep {_some([step.record_id])}: {step.detail}"
    output.line(
        "plan",
        None if output.quiet and step.keep is not Keep.FAILED else text,
        id=step.record_id,
        directory=str(step.directory),
        files=[state.name for state in step.files],
        bytes=step.size_bytes,
        keep=step.keep and step.keep.value,
        detail=step.detail,
    )


def report_prune(result: PruneResult, asked: Asked, output: Output, *, interrupted: bool) -> int:
    """End a prune."""
    report_findings(result.findings, output)
    kept = sum(result.kept.values())
    if not result.is_complete:
        output.remark("ended before everything was looked at: the next run goes on")
    reasons = ", ".join(f"{count:,} {keep.replace('_', ' ')}" for keep, count in sorted(result.kept.items()))
    stays = f"kept {plural(kept, 'record')} ({reasons})"
    if result.pruned:
        what = f"{plural(result.pruned, 'record')} ({plural(result.files, 'file')}, {format_bytes(result.size_bytes)})"
        done = f"deleted {what}" if result.confirmed else f"would delete {what}"
        text = f"{done}, verified in {asked.url}" + (f"; {stays}" if kept else "")
        text += "" if result.confirmed else "; nothing was deleted, --yes does it"
    else:
        text = f"nothing to do: {stays}" if kept else asked.nothing_to_do(0)
    failed = result.kept[Keep.FAILED]
    return output.summary(
        text,
        decide(
            done=result.pruned,
            left=failed + (not result.is_complete),
            findings=result.damage,
            unchecked=len(result.findings) - result.damage,
            interrupted=interrupted,
        ),
        url=asked.url,
        dry_run=not result.confirmed,
        pruned=result.files,
        pruned_records=result.pruned,
        bytes=result.size_bytes,
        records=result.records,
        kept_records=kept,
        kept={keep.value: count for keep, count in sorted(result.kept.items())},
        failed=failed,
        findings=result.damage,
        unchecked=len(result.findings) - result.damage,
    )


def report_mirror_status(status: MirrorStatus, url: str, output: Output) -> int:
    """Say what a mirror's receipts say."""
    newest = None if status.newest_at is None else _moment(status.newest_at)
    hosts = sorted(status.hosts)
    lines = [
        f"mirror   {url}",
        f"records  {status.records:,}",
        f"files    {status.files:,}",
        f"bytes    {format_bytes(status.size_bytes)}",
        f"writers  {len(status.writers):,}",
        f"hosts    {_some(hosts) or 'none'}",
        f"newest   {newest or 'no receipt yet'}",
    ]
    facts = {"url": url, "records": status.records, "files": status.files, "bytes": status.size_bytes}
    output.line(
        "mirror", "\n".join(lines), **facts, writers=len(status.writers), hosts=hosts, newest_at=status.newest_at
    )
    return output.summary(None, Exit.COMPLETE, **facts, unchanged=status.files)


def report_directory_status(status: DirectoryStatus, output: Output) -> int:
    """Say what a record directory's receipts say."""
    output.line(
        "directory",
        f"{status.directory}: {plural(status.records, 'finished record')}",
        directory=str(status.directory),
        records=status.records,
    )
    alike = Counter(place.words for place in status.places)
    for place in status.places:
        words = place.words if alike[place.words] == 1 else f"{place.words} ({place.place})"  # no endpoint kept
        output.line(
            "place",
            f"{words}: {plural(place.receipted, 'record')} receipted, {place.uncopied:,} uncopied",
            url=place.url,
            where=place.where,
            place=place.place,
            receipted=place.receipted,
            uncopied=place.uncopied,
        )
    if not status.places and status.can_keep:
        output.remark("it was never copied to a mirror")
    elif not status.places:
        how = f"`record-mirror verify URL {status.directory}` tells"
        output.remark(f"no receipts are there, and none can be kept there: what of it a mirror has, {how}")
    return output.summary(None, Exit.COMPLETE, directory=str(status.directory), records=status.records)


def _moment(unix_s: float) -> str:
    try:
        return dt.datetime.fromtimestamp(unix_s, dt.UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # whoever can write to the mirror can claim any time
        return str(unix_s)


def _some(names: Iterable[str]) -> str:
    listed = [name if name.isprintable() else ascii(name)[1:-1] for name in names]  # one line, whatever a disk holds
    return ", ".join(listed[:NAMED]) + (", ..." if len(listed) > NAMED else "")
