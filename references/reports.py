"""What came of a command about a run's steps, in words, in JSON and as an exit code: one function for each command."""

from __future__ import annotations

from collections.abc import Iterable

from mirror.terminal.exits import Exit, decide
from mirror.terminal.output import Output, format_bytes, name_some, plural
from mirror.terminal.progress import Tally
from mirror.terminal.proof_reports import how_checked, report_findings
from references.link import LinkSummary
from references.link_plan import LinkedStep, Verdict
from references.listed import ListedRecord
from references.pull_plan import PullSummary
from references.source import BadStep
from references.steps import RunFacts, StepFacts
from references.verifying import RunVerification

_LINKED = {
    Verdict.LOG: ("logged", "would log"),
    Verdict.COMPLETE: ("completed", "would complete"),
    Verdict.THERE: ("unchanged", "unchanged"),
    Verdict.OLDER: ("older than what W&B has", "older than what W&B has"),
}


def tally_of_pull(summary: PullSummary) -> Tally:
    """Say how far a pull is."""
    done = summary.copied_records + summary.unchanged_records + len(summary.not_pulled) + len(summary.local_only)
    note = f"{len(summary.not_pulled):,} did not come" if summary.not_pulled else ""
    return Tally(done=done, total=None, unit="records", size_bytes=summary.copied_bytes, note=note)


def report_pull(summary: PullSummary, source: str, out: str, output: Output) -> int:
    """End a pull."""
    _report_bad_steps(summary.bad_steps, output)
    for missing in summary.not_pulled:
        what = f"{_on_one_line(missing.record_id)} of {missing.phase} step {missing.step}"
        output.error(
            f"{what} did not come ({missing.why}): {_on_one_line(missing.detail)}",
            id=missing.record_id,
            phase=missing.phase,
            step=missing.step,
            why=missing.why.value,
        )
    for record_id in summary.unlisted:
        why = f"no record of it is listed in {plural(summary.steps, 'step')}; correct --id, --steps or --phase"
        output.error(f"{_on_one_line(record_id)} did not come: {why}", id=record_id)
    _report_local_only(summary.local_only, output)
    if summary.local_only:
        names = name_some(listed.record_id for listed in summary.local_only)
        output.error(
            f"in no mirror, only on the disk of the server that wrote it: {plural(len(summary.local_only), 'record')} "
            f"({names}); sync it there, or copy it from the place listed"
        )
    if summary.left_out:
        output.remark(f"the mirror leaves out, on purpose: {name_some(sorted(summary.left_out))}")
    failed = len(summary.not_pulled) + len(summary.unlisted)
    copied = f"{plural(summary.copied_records, 'record')} ({plural(summary.copied_files, 'file')}, "
    copied += f"{format_bytes(summary.copied_bytes)})"
    if summary.copied_records or not summary.is_complete:
        text = (
            f"{'would pull' if summary.is_dry_run else 'pulled'} {copied} of {plural(summary.steps, 'step')} to {out}; "
        )
        text += (
            f"{summary.unchanged_records:,} unchanged, {failed:,} did not come, {len(summary.local_only):,} local only"
        )
    else:
        text = (
            f"nothing to do: {plural(summary.unchanged_records, 'record')} of {plural(summary.steps, 'step')} in {out}"
        )
    return output.summary(
        text,
        decide(done=summary.copied_records + summary.unchanged_records, left=summary.left),
        dry_run=summary.is_dry_run,
        source=source,
        out=out,
        copied=summary.copied_files,
        unchanged=summary.unchanged_files,
        failed=failed,
        bytes=summary.copied_bytes,
        steps=summary.steps,
        bad_steps=len(summary.bad_steps),
        records=summary.records,
        copied_records=summary.copied_records,
        unchanged_records=summary.unchanged_records,
        local_only=len(summary.local_only),
    )


def report_steps(facts: RunFacts, source: str, output: Output) -> int:
    """List the steps of a run."""
    for step in facts.steps:
        _report_step(step, output)
    for phase, gaps in facts.gaps.items():
        for gap in gaps:
            steps = f"step {gap[0]} is" if len(gap) == 1 else f"{len(gap):,} steps from {gap[0]} to {gap[-1]} are"
            output.line("gap", f"{phase} {steps} not there", phase=phase, first=gap[0], last=gap[-1], count=len(gap))
    _report_bad_steps(facts.bad_steps, output)
    for reason in facts.unread_mirrors:
        output.error(f"the receipts of a mirror could not be read, so what it has is not known: {_on_one_line(reason)}")
    text = f"{source}: {plural(len(facts.steps), 'step')}, {plural(sum(step.rows for step in facts.steps), 'row')}"
    if not (facts.steps or facts.bad_steps):
        text = f"{source}: none of its steps matches; correct --steps or --phase"
    return output.summary(
        text,
        decide(unchecked=len(facts.bad_steps) + len(facts.unread_mirrors)),
        source=source,
        steps=len(facts.steps),
        bad_steps=len(facts.bad_steps),
        gaps=sum(len(gap) for gaps in facts.gaps.values() for gap in gaps),
        rows=sum(step.rows for step in facts.steps),
        missing=sum(step.missing or 0 for step in facts.steps),
    )


def report_run_verification(found: RunVerification, source: str, output: Output, *, whole: bool) -> int:
    """End a check of a run; ``whole``: of everything in its mirror, and not only of what its steps list."""
    findings = [*found.findings, *(found.elsewhere if whole else ())]
    damage = sum(finding.is_damage for finding in findings)
    unchecked = len(findings) - damage
    _report_bad_steps(found.bad_steps, output)
    report_findings(findings, output)
    _report_local_only(found.local_only, output)
    if found.elsewhere and not whole:
        output.remark(f"{plural(len(found.elsewhere), 'finding')} about other files in the same mirrors: verify those")
    files = present = intact = 0
    for mirror in found.mirrors.values():
        files, present, intact = files + mirror.files, present + mirror.present, intact + mirror.intact
    text = f"{source}: "
    if found.steps or not whole:  # else it is a mirror without an index, of which only files are known
        text += f"{plural(found.steps, 'step')}, {plural(found.records, 'record')}, "
    if found.not_referenced is not None:
        text += f"{plural(found.references, 'reference')} in W&B ({found.not_referenced:,} lacking), "
    text += f"{plural(files, 'file')} in their mirrors: {how_checked(found.mirrors.values(), output)}, "
    text += f"{plural(damage, 'finding')}, {unchecked + len(found.bad_steps):,} not checked"
    if found.not_referenced:
        output.remark("W&B lacks references to files that have landed since: `record-mirror link` adds them")
    return output.summary(
        text,
        decide(findings=damage, unchecked=unchecked + len(found.bad_steps)),
        source=source,
        unchanged=present + intact,
        findings=damage,
        unchecked=unchecked,
        steps=found.steps,
        bad_steps=len(found.bad_steps),
        records=found.records,
        files=files,
        present=present,
        intact=intact,
        references=found.references,
        not_referenced=found.not_referenced,
        local_only=len(found.local_only),
    )


def report_linked(linked: LinkedStep, output: Output, *, dry_run: bool) -> None:
    """Say what became of one step."""
    if linked.error is not None:
        output.error(f"{linked.phase} step {linked.step}: {linked.error}", phase=linked.phase, step=linked.step)
        return
    pending = f", {plural(linked.num_pending, 'record')} not landed yet" if linked.num_pending else ""
    output.line(
        "step",
        f"{_LINKED[linked.verdict][dry_run]}: {linked.phase} step {linked.step}{pending}",
        phase=linked.phase,
        step=linked.step,
        verdict=linked.verdict.value,
        pending=linked.num_pending,
        dry_run=dry_run,
    )


def report_link(summary: LinkSummary, run: str, output: Output) -> int:
    """End a link."""
    for reason in summary.passed_over.unreadable:
        output.error(_on_one_line(reason))
    if summary.latest_error is not None:
        output.error(summary.latest_error)
    others = sorted(name for name in summary.passed_over.other_runs if name)
    if others:
        output.remark(f"steps of other runs wait here too: {name_some(others)}")
    if "" in summary.passed_over.other_runs:
        output.remark("steps that were recorded while no run was known wait here too: --adopt takes them along")
    logged, completed = summary.count(Verdict.LOG), summary.count(Verdict.COMPLETE)
    there, older = summary.count(Verdict.THERE), summary.count(Verdict.OLDER)
    failed = len(summary.failed) + len(summary.passed_over.unreadable) + (summary.latest_error is not None)
    late = sum(step.num_pending > 0 and step.error is None for step in summary.steps)
    if late:
        output.remark(f"{plural(late, 'step')} with records that have not landed: link again when they have")
    verb = "would log" if summary.is_dry_run else "logged"
    text = f"{verb} {plural(logged, 'step')} of {run}, {completed:,} completed, {there:,} unchanged, {older:,} older, "
    text += f"{failed:,} failed"
    if not (logged or completed or failed):
        known = there + older
        text = f"W&B has {plural(known, 'step')} of {run} that could be linked" if known else f"no step of {run} waits"
        text = f"nothing to do: {text} from here"
    return output.summary(
        text,
        decide(done=logged + completed + there + older, left=failed + late),
        dry_run=summary.is_dry_run,
        run=run,
        copied=logged + completed,
        unchanged=there + older,
        failed=failed,
        late=late,
        logged=logged,
        completed=completed,
        older=older,
    )


def could_not_check(reason: str, output: Output) -> int:
    """End a command that found out nothing."""
    output.error(reason)
    return output.summary(None, Exit.UNCHECKED)


def _report_step(step: StepFacts, output: Output) -> None:
    known, rewards = step.known, step.rewards
    text = f"{known.phase} step {known.step}: {plural(step.rows, 'row')}, {step.trained:,} trained, "
    text += f"{step.superseded:,} superseded, "
    if step.mirrored is not None:
        text += f"{step.mirrored:,} mirrored, {step.missing:,} missing, "
    text += f"{step.local_only:,} local only"
    if rewards is not None:
        text += f", reward {rewards.mean:.4g} ({rewards.lowest:.4g} to {rewards.highest:.4g})"
    if known.contents > 1:
        text += f"; run {known.contents} times"
    if known.is_left_behind:
        text += "; left behind: the run went back before it"
    output.line(
        "step",
        text,
        phase=known.phase,
        step=known.step,
        rows=step.rows,
        trained=step.trained,
        superseded=step.superseded,
        recorded=step.recorded,
        mirrored=step.mirrored,
        missing=step.missing,
        local_only=step.local_only,
        reward=None if rewards is None else {"mean": rewards.mean, "min": rewards.lowest, "max": rewards.highest},
        contents=known.contents,
        left_behind=known.is_left_behind,
    )


def _report_bad_steps(bad_steps: Iterable[BadStep], output: Output) -> None:
    for bad in bad_steps:
        message = f"{bad.known.phase} step {bad.known.step} could not be read: {_on_one_line(bad.reason)}"
        output.error(message, phase=bad.known.phase, step=bad.known.step)


def _report_local_only(records: Iterable[ListedRecord], output: Output) -> None:
    for listed in records:
        output.line(
            "local_only",
            f"local only  {_on_one_line(listed.record_id)}  {_on_one_line(listed.where or 'nobody said where')}",
            id=listed.record_id,
            phase=listed.phase,
            step=listed.step,
            where=listed.where or None,
        )


def _on_one_line(text: str) -> str:
    """Return text that anybody may have written as it is, or quoted and escaped if it would end the line."""
    return text if len(text.splitlines()) <= 1 and not text.endswith("\n") else repr(text)
