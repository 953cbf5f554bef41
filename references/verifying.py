"""A verification of a run at work: step by step, each mirror that the steps name verified once, as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mirror.errors import BadNameError, StoreError
from mirror.judging import Finding, unchecked
from mirror.names import check_name, document_name
from mirror.record import read_state
from mirror.verify import Verification
from references.listed import ListedRecord, listed_records
from references.mirrors import OpenMirror, RefusedMirrorError
from references.opening import OpenRun
from references.run_judging import judge_receipted, judge_references, judge_unreceipted, of_step, shown_name
from references.selection import Selection
from references.source import BadStep, LoadedStep, load_steps


@dataclass(slots=True, kw_only=True)
class RunVerification:
    """What a verification of a run found.

    Attributes:
        steps: whose index was read.
        records: that they list; one that several steps list counts once.
        files: of those records that receipts name.
        references: of W&B that were compared.
        not_referenced: files that W&B could refer to and does not; None where W&B was not asked.
        local_only: records that no mirror was to have, and none has.
        findings: about what the steps list; each says which step that is.
        elsewhere: about other files in the same mirrors, and other records in the directories.
        bad_steps: steps whose index could not be read; of their records nothing is known.
        mirrors: what each mirror as a whole is like, by its URL.
        has_steps: whether there are steps at all, wanted or not.
    """

    steps: int = 0
    records: int = 0
    files: int = 0
    references: int = 0
    not_referenced: int | None = None
    local_only: list[ListedRecord] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    elsewhere: list[Finding] = field(default_factory=list)
    bad_steps: list[BadStep] = field(default_factory=list)
    mirrors: dict[str, Verification] = field(default_factory=dict)
    has_steps: bool = False

    @property
    def damage(self) -> int:
        """How many findings about what the steps list say that something is wrong."""
        return sum(finding.is_damage for finding in self.findings)

    @property
    def unchecked(self) -> int:
        """How many of them say that nothing is known."""
        return len(self.findings) - self.damage


class RunVerifier:
    """One verification, on one event loop."""

    def __init__(
        self,
        run: OpenRun,
        directories: Iterable[Path],
        selection: Selection,
        look: Callable[[OpenMirror], Awaitable[Verification]],
    ) -> None:
        """Begin with nothing; ``look`` verifies a mirror and fills its manifest."""
        self._run = run
        self._directories = list(directories)
        self._selection = selection
        self._look = look
        self._result = RunVerification()
        self._looked_at: dict[OpenMirror, dict[str, list[Finding]] | StoreError] = {}  # findings by record
        self._seen: set[str] = set()
        self._doubtful: list[ListedRecord] = []  # no receipt was there, nor anything else

    async def run(self) -> RunVerification:
        """Look at everything that is wanted; see ``references.verify_run.verify_run`` for the errors."""
        result = self._result
        known = await self._run.source.find()
        result.has_steps = bool(known)
        wanted = self._selection.choose(known)
        if self._run.mirrors.given is not None:  # whatever the steps list
            await self._findings(self._run.mirrors.given, "")
        async with contextlib.aclosing(load_steps(self._run.source, wanted)) as steps:
            async for step in steps:
                if isinstance(step, BadStep):
                    result.bad_steps.append(step)
                else:
                    await self._take_step(step)
        await self._look_again()
        for found in self._looked_at.values():
            if not isinstance(found, StoreError):
                result.elsewhere += [f for record_id in found.keys() - self._seen for f in found[record_id]]
        for findings in (result.findings, result.elsewhere):
            findings.sort(key=lambda finding: finding.name.encode())
        return result

    async def _take_step(self, step: LoadedStep) -> None:
        self._result.steps += 1
        for listed in listed_records(step.index, self._selection):
            if listed.record_id not in self._seen:
                self._seen.add(listed.record_id)
                await self._take(listed)
        if step.references is not None:
            self._result.references += len(step.references)
            receipts = {row.id: found[1] for row in step.index.rows if (found := self._run.mirrors.find(row.id))}
            findings, not_referenced = judge_references(step.index, step.references, receipts)
            self._result.findings += findings
            self._result.not_referenced = (self._result.not_referenced or 0) + not_referenced

    async def _take(self, listed: ListedRecord) -> None:
        self._result.records += 1
        try:
            mirror = self._run.mirrors.of(listed.location)
            found = await self._findings(mirror, listed.record_id) if mirror is not None else []
        except (RefusedMirrorError, StoreError) as error:
            finding = unchecked(shown_name(document_name(listed.record_id)), listed.record_id, error)
            self._result.findings.append(of_step(finding, listed.phase, listed.step))
            return
        if self._judge_receipted(listed, mirror):
            return
        if found:
            self._result.findings += judge_unreceipted(listed, found, on_disk=None)
        else:
            self._doubtful.append(listed)

    async def _findings(self, mirror: OpenMirror, record_id: str) -> list[Finding]:
        """Return what is wrong with a record's files in a mirror, which is looked at the first time.

        Raises:
            StoreError: it could not be listed, or its receipts not read.
        """
        if mirror not in self._looked_at:
            by_record: dict[str, list[Finding]] = {}
            try:
                verification = await self._look(mirror)
            except StoreError as error:
                self._looked_at[mirror] = error
                raise
            self._result.mirrors[mirror.location.base] = verification
            for finding in verification.findings:
                by_record.setdefault(finding.record_id, []).append(finding)
            self._looked_at[mirror] = by_record
        known = self._looked_at[mirror]
        if isinstance(known, StoreError):
            raise known
        return known.get(record_id, [])

    async def _look_again(self) -> None:
        """Judge what was not there, with the receipts that were written meanwhile."""
        if not self._doubtful:
            return
        for mirror, found in self._looked_at.items():
            if not isinstance(found, StoreError):
                await mirror.read_again()
        for listed in self._doubtful:
            if not self._judge_receipted(listed, None):
                findings = judge_unreceipted(listed, (), on_disk=self._on_disk(listed.record_id))
                self._result.findings += findings
                if not findings:
                    self._result.local_only.append(listed)

    def _judge_receipted(self, listed: ListedRecord, mirror: OpenMirror | None) -> bool:
        """Judge a record if there is a receipt of it, in the mirror that its row names or in another one."""
        known = self._run.mirrors.find(listed.record_id, mirror)
        if known is None:
            return False
        found = self._looked_at.get(known[0])
        findings = found.get(listed.record_id, []) if isinstance(found, dict) else []
        self._result.files += len(known[1].files)
        self._result.findings += judge_receipted(listed, known[1], findings)
        return True

    def _on_disk(self, record_id: str) -> str | None:
        try:
            name = check_name(document_name(record_id))
        except BadNameError:
            return None
        return next((str(place) for place in self._directories if read_state(place, name) is not None), None)
