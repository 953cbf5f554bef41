"""A pull at work: steps one after the other, records concurrently, so that a run of any length takes little memory.

What did not come is looked at once more in the end: its receipt may have been written, or written anew, while we read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mirror.allowance import Allowance
from mirror.config import MirrorConfig
from mirror.errors import StoreError
from mirror.receipts.receipt import Receipt
from mirror.stores.threads import DaemonThreads
from references.fetching import Fetcher, FetchError
from references.folder import Folder
from references.listed import ListedRecord, listed_records
from references.mirrors import OpenMirror, RefusedMirrorError
from references.opening import OpenRun
from references.out_directory import PhaseDirectory
from references.pull_plan import NotPulled, PullSummary, Wanted, Why, kinds_of, left_out, not_pulled, plan_record
from references.run_index import Phase
from references.selection import Selection
from references.source import BadStep, KnownStep, LoadedStep, load_steps

DISK_THREADS = 8
_MAY_PASS = {Why.MISSING, Why.DAMAGED}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doubtful:
    """A record that did not come, the receipt of it that was known then, and why; None: it is in no mirror."""

    listed: ListedRecord
    receipt: Receipt | None
    outcome: NotPulled | None


class Puller:
    """One pull, on one event loop. Run it once, then close it."""

    def __init__(
        self,
        run: OpenRun,
        out: Folder | None,
        selection: Selection,
        config: MirrorConfig,
        *,
        dry_run: bool,
        progress: Callable[[PullSummary], None],
    ) -> None:
        """Begin with nothing; ``out`` is None where a dry run finds no directory."""
        self._run = run
        self._out = out
        self._selection = selection
        self._workers = config.workers
        self._progress = progress
        self._summary = PullSummary(is_dry_run=dry_run)
        self._threads = DaemonThreads(DISK_THREADS, "record-mirror-pull")
        self._fetcher = Fetcher(in_flight=Allowance(config.max_bytes_in_flight), threads=self._threads)
        self._places: dict[Phase, PhaseDirectory] = {}
        self._seen: dict[Phase, set[str]] = {}
        self._unlisted = set(selection.ids or ())  # that no step has listed so far
        self._doubtful: list[_Doubtful] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self, wanted: Sequence[KnownStep]) -> PullSummary:
        """Pull what is wanted of these steps; see ``references.pull.pull`` for the errors."""
        try:
            async with contextlib.aclosing(load_steps(self._run.source, wanted)) as steps:
                async for step in steps:
                    await self._take_step(step)
            await self._wait_until_under_way(0)
            await self._look_again()
            await self._wait_until_under_way(0)
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)
        self._summary.unlisted = sorted(self._unlisted)
        self._summary.not_pulled.sort(key=lambda record: (record.phase, record.step, record.record_id))
        self._summary.local_only.sort(key=lambda record: (record.phase, record.step, record.record_id))
        return self._summary

    def close(self) -> None:
        """Remove what is not whole, and let go."""
        for place in self._places.values():
            place.close()
        self._threads.close()

    async def _take_step(self, step: LoadedStep | BadStep) -> None:
        if isinstance(step, BadStep):
            self._summary.bad_steps.append(step)
            return
        self._summary.steps += 1
        phase, number = step.index.phase, step.index.step
        place = self._place(phase)
        if not self._summary.is_dry_run:
            await self._threads.run(place.write_index, number, step.data)
        self._unlisted.difference_update(row.id for row in step.index.rows if row.record is not None)
        seen = self._seen.setdefault(phase, set())
        for listed in listed_records(step.index, self._selection):
            if listed.record_id not in seen:
                seen.add(listed.record_id)
                await self._take(listed)
        self._progress(self._summary)

    async def _take(self, listed: ListedRecord) -> None:
        self._summary.records += 1
        try:
            mirror = self._run.mirrors.of(listed.location)
            if mirror is not None:
                await mirror.read()
        except RefusedMirrorError as error:
            self._summary.not_pulled.append(not_pulled(listed, Why.REFUSED, str(error)))
        except StoreError as error:
            self._summary.not_pulled.append(not_pulled(listed, Why.UNREADABLE, str(error)))
        else:
            await self._begin(listed, self._run.mirrors.find(listed.record_id, mirror), self._doubt)

    async def _begin(
        self,
        listed: ListedRecord,
        found: tuple[OpenMirror, Receipt] | None,
        otherwise: Callable[[_Doubtful], None],
    ) -> None:
        """Begin to fetch a record, or hand it over to ``otherwise`` where that cannot be done."""
        receipt = found[1] if found else None
        plan = plan_record(listed, receipt, self._selection)
        if not isinstance(plan, Wanted):
            otherwise(_Doubtful(listed=listed, receipt=receipt, outcome=plan))
        elif found is not None:
            self._summary.kinds |= kinds_of(plan.receipt)
            await self._wait_until_under_way(self._workers - 1)
            self._under_way.add(asyncio.create_task(self._fetch(listed, plan, found[0], otherwise)))

    async def _fetch(
        self, listed: ListedRecord, wanted: Wanted, mirror: OpenMirror, otherwise: Callable[[_Doubtful], None]
    ) -> None:
        place = self._place(listed.phase)
        try:
            if self._summary.is_dry_run:
                files = await self._fetcher.lacking(wanted, place)
            else:
                files = await self._fetcher.fetch(wanted, mirror.store, place)
        except FetchError as error:
            outcome = not_pulled(listed, error.why, str(error))
            otherwise(_Doubtful(listed=listed, receipt=wanted.receipt, outcome=outcome))
        else:
            self._summary.copied_records += bool(files)
            self._summary.unchanged_records += not files
            self._summary.unchanged_files += len(wanted.files) - len(files)
            self._summary.copied_files += len(files)
            self._summary.copied_bytes += sum(file.size for file in files)
            self._summary.left_out |= left_out(wanted.receipt, self._selection)
        self._progress(self._summary)

    def _doubt(self, doubtful: _Doubtful) -> None:
        """Keep for a second look what may come right by then."""
        if doubtful.outcome is None or doubtful.outcome.why in _MAY_PASS:
            self._doubtful.append(doubtful)
        else:
            self._note(doubtful)

    async def _look_again(self) -> None:
        if not self._doubtful:
            return
        for mirror in self._run.mirrors:
            with contextlib.suppress(StoreError):  # what was known before still is
                await mirror.read_again()
        for doubtful in self._doubtful:
            found = self._run.mirrors.find(doubtful.listed.record_id)
            if found is None or found[1] == doubtful.receipt:
                self._note(doubtful)
            else:
                await self._begin(doubtful.listed, found, self._note)

    def _note(self, doubtful: _Doubtful) -> None:
        if doubtful.outcome is None:
            self._summary.local_only.append(doubtful.listed)
        else:
            self._summary.not_pulled.append(doubtful.outcome)

    async def _wait_until_under_way(self, at_most: int) -> None:
        """Wait until no more records than that are being fetched.

        Raises:
            OSError: one of them found the local disk full, or not to be written.
        """
        while len(self._under_way) > at_most:
            done, self._under_way = await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*done)

    def _place(self, phase: Phase) -> PhaseDirectory:
        if phase not in self._places:
            self._places[phase] = PhaseDirectory(self._out, phase, write=not self._summary.is_dry_run)
        return self._places[phase]
