"""What was found of a mirror, mended in it, or deleted for being in it: in words, in JSON and as an exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mirror.judging import Finding, FindingKind
from mirror.pruning.judging import Keep, PruneStep
from mirror.pruning.prune import PruneResult
from mirror.repairing.plan import RepairPlan, RepairResult
from mirror.terminal.asked import Asked
from mirror.terminal.exits import decide
from mirror.terminal.output import Output, format_bytes, name_some, plural
from mirror.verify import Verification

_SAID_ALIKE = {Keep.NO_RECEIPT, Keep.WITHDRAWN, Keep.ELSEWHERE}  # of many records in the same words


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
    """Say what a repair would do, and why: files with one and the same reason together."""
    for step in plan.steps:
        source = str(step.directory) if step.directory is not None else source_url
        alike: dict[str, list[str]] = {}
        for finding in step.findings:
            alike.setdefault(f"{finding.kind}: {finding.detail}", []).append(finding.name)
        what = ", ".join(f"{', '.join(names)} ({reason})" for reason, names in alike.items())
        output.line(
            "plan",
            f"restore {what} from {source}",
            id=step.record_id,
            files=list(step.names),
            kinds={finding.name: finding.kind.value for finding in step.findings},
            source=source,
        )


def report_repair(result: RepairResult, url: str, output: Output, *, applied: bool) -> int:
    """End a repair."""
    plan, found = result.plan, result.plan.verification
    report_findings(plan.hopeless, output)
    for record_id, reason in result.failed.items():
        output.error(f"{record_id}: {reason}", id=record_id)
    failed = sum(len(step.names) for step in plan.steps if step.record_id in result.failed)
    others = how_checked([found], output)
    if not found.damage:
        text = f"nothing to do in {url}: {others}"
    elif applied:
        text = f"restored {plural(result.restored_files, 'file')}, {format_bytes(result.restored_bytes)}, in {url}"
        text += f"; {failed:,} failed, {len(plan.hopeless):,} without a source; of the others {others}"
    else:
        restorable = sum(len(step.names) for step in plan.steps)
        text = f"would restore {plural(restorable, 'file')} in {url}; {len(plan.hopeless):,} without a source; "
        text += f"of the others {others}; nothing was changed"
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


class PruneReport:
    """What a prune says of each record, and in the end."""

    def __init__(self, asked: Asked, output: Output) -> None:
        """Say nothing yet."""
        self._asked = asked
        self._output = output
        self._alike: Counter[str] = Counter()  # how many records stay, by what is said of all of them
        self._first: dict[str, str] = {}  # the id of one of these

    def step(self, step: PruneStep) -> None:
        """Say that a record goes, or why it stays where no option says so and no finding names it."""
        if step.keep in {Keep.YOUNG, Keep.NEWEST, Keep.DAMAGED, Keep.UNCHECKED}:
            return
        text: str | None = f"prune {step.record_id}: {plural(len(step.files), 'file')}, {format_bytes(step.size_bytes)}"
        if step.keep in _SAID_ALIKE:
            self._alike[step.detail] += 1
            self._first.setdefault(step.detail, step.record_id)
            text = None
        elif step.keep is not None:
            text = f"keep {name_some([step.record_id])}: {step.detail}"
        self._output.line(
            "plan",
            None if self._output.quiet and step.keep is not Keep.FAILED else text,
            id=step.record_id,
            directory=str(step.directory),
            files=[state.name for state in step.files],
            bytes=step.size_bytes,
            keep=step.keep and step.keep.value,
            detail=step.detail,
        )

    def end(self, result: PruneResult, *, interrupted: bool, said_yes: bool) -> int:
        """Say what came of it; ``said_yes``: the user confirmed, be it that a dry run was asked for too."""
        asked, output = self._asked, self._output
        if not (output.json or output.quiet):
            for detail, count in self._alike.items():
                what = name_some([self._first[detail]]) if count == 1 else plural(count, "record")
                output.line("plan", f"keep {what}: {detail}")
        report_findings(result.findings, output)
        kept = sum(result.kept.values())
        if not result.is_complete:
            output.remark("ended before everything was looked at: the next run goes on")
        reasons = ", ".join(f"{count:,} {keep.replace('_', ' ')}" for keep, count in sorted(result.kept.items()))
        stays = f"kept {plural(kept, 'record')} ({reasons})"
        if result.pruned:
            size = f"{plural(result.files, 'file')}, {format_bytes(result.size_bytes)}"
            text = f"{'deleted' if result.confirmed else 'would delete'} {plural(result.pruned, 'record')} ({size}), "
            text += f"verified in {asked.url}" + (f"; {stays}" if kept else "")
            text += "" if result.confirmed else "; nothing was deleted" + ("" if said_yes else ", --yes does it")
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
