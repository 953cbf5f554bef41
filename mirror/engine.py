"""The mirror's work on its event loop: take records from the backlog, copy them, keep receipts, look for late ones.

One owner for all of it: ``run`` ends every task that it began. The decisions lie elsewhere (backlog, looking, copying,
reliable); this file only connects them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from mirror.backlog import Added, Backlog, Job, Outcome
from mirror.breaker import Breaker, BreakerState
from mirror.copying import Copier, copy_record
from mirror.errands import Errands
from mirror.errors import (
    FileRefusedError,
    RecordChangedError,
    RecordError,
    RecordGoneError,
    StoreError,
    StoreRefusedError,
)
from mirror.given_up import GivenUp
from mirror.kinds import Kinds
from mirror.looking import Looked, look, matcher
from mirror.names import document_name
from mirror.receipts.ledger import Ledger
from mirror.receipts.segments import SegmentWriter, write_probe
from mirror.record import FileState, read_state, require_directory
from mirror.record_directories import RecordDirectories
from mirror.record_directory import RecordDirectory, RecordReceipts
from mirror.reliable import ReliableStore
from mirror.stats import Totals
from mirror.stores.threads import DaemonThreads
from mirror.unreadable import TRIES, Unreadable

logger = logging.getLogger(__name__)

FLUSH_EVERY_S = 3.0  # while there are new receipts
TICK_S = 1.0  # how often late directories are considered
RETRY_S = 1.0  # while somebody waits for what failed
ROUNDS = 3  # of rechecks for whoever waits: what one finds is copied once more, and so is to be rechecked itself
LAST_FLUSH_S = 5.0  # for the last receipts when a close runs out of time


class Engine:
    """Copies what the backlog holds until it is stopped. Made and used on one event loop."""

    def __init__(
        self,
        *,
        store: ReliableStore,
        probe_once: Callable[[], Awaitable[None]],
        breaker: Breaker,
        copier: Copier,
        backlog: Backlog,
        kinds: Kinds,
        open_ledger: Callable[[Path], Ledger],
        mirror_directory: Path | None,
        workers: int,
        rescan_s: float,
    ) -> None:
        """Connect the parts; nothing runs yet. ``probe_once`` writes past the store's retries and breaker."""
        self.totals = Totals()
        self.wake = asyncio.Event()  # set when the backlog has something new, or room
        self._store = store
        self._probe_once = probe_once
        self._breaker = breaker
        self._copier = copier
        self._backlog = backlog
        self._kinds = kinds
        self._workers = workers
        self._rescan_s = rescan_s
        self._segments = SegmentWriter(store, copier.writer)
        self._threads = DaemonThreads(4, "record-mirror-disk")
        self._directories = RecordDirectories(
            store=store,
            segments=self._segments,
            threads=self._threads,
            open_ledger=open_ledger,
            mirror_directory=mirror_directory,
        )
        self.given_up = GivenUp()
        self._copies: set[asyncio.Task[None]] = set()
        self._errands = Errands(self.wake.set)
        self._news = asyncio.Event()  # set when a record has left the backlog, or may have
        self._store_was_away = False
        self._unreadable = Unreadable()

    async def run(self) -> None:
        """Work until cancelled, then end every task."""
        regular = [asyncio.create_task(self._flush_regularly()), asyncio.create_task(self._wake_regularly())]
        try:
            while True:
                self.wake.clear()
                self._start_copies()
                self._start_looks()
                self._start_asking()
                self._start_rechecks()
                self._news.set()
                await self.wake.wait()
        finally:
            tasks = [*regular, *self._copies, *self._errands.tasks()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def probe(self) -> None:
        """Find out at the start whether the mirror can be written: reported by the log and in the breaker's state."""
        try:
            await asyncio.wait_for(self._probe_once(), 30)
        except StoreError as error:
            refused = isinstance(error, FileRefusedError | StoreRefusedError)
            self._breaker.failed(StoreRefusedError("probe", "", error.reason) if refused else error, refused=refused)
        except TimeoutError:
            logger.warning("the mirror did not answer a first probe within 30 s")

    async def drained(self, *, late_too: bool) -> bool:
        """Wait until nothing of what was handed over so far is pending (nor late: ``late_too``), receipts included.

        Returns:
            False if a directory cannot be read any more, so that nobody knows what is left of it to copy.
        """
        if late_too:  # somebody who waits has them looked for at once
            self._unreadable.try_anew()
            self._backlog.look_now()
        self.wake.set()
        await self._settled(late_too=late_too)
        await self._errands.wait(but=self._ask)  # looks may find more, and learn of kinds that copies under way lack
        is_settled = await self._settled(late_too=late_too)
        is_readable = True
        for _ in range(ROUNDS):
            if not (is_readable and (paths := self._kinds.unsettled(gone_too=True))):
                break
            is_readable = all(await asyncio.gather(*map(self._rechecked, paths)))
            is_settled = await self._settled(late_too=late_too)
        while True:
            try:
                await self._segments.flush()
            except StoreError:
                await asyncio.sleep(RETRY_S)
            else:
                return is_settled and is_readable

    async def _rechecked(self, path: Path) -> bool:
        """Have what a recheck of a directory finds offered; False: it cannot be read."""
        for _ in range(TRIES):
            if await self._errands.anew(self._recheck, path):
                return True
            await asyncio.sleep(RETRY_S)
        return False

    async def _settled(self, *, late_too: bool) -> bool:
        """Wait until nothing that was handed over so far is pending (nor late: ``late_too``).

        Returns:
            False if late records are left, all in directories that cannot be read.
        """
        mark = self._backlog.mark()
        while not (self._backlog.is_settled(mark) and (not late_too or self._has_looked())):
            self._news.clear()
            await self._news.wait()
        return not (late_too and self._backlog.late)

    def _has_looked(self) -> bool:
        """Whether nothing is late but where nobody can look."""
        return all(map(self._unreadable.is_given_up, self._backlog.late_in()))

    async def last_flush(self) -> None:
        """Bring the last receipts into the mirror, if that is quick: a restart would find them beside the records."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LAST_FLUSH_S):
                await self._segments.flush()

    async def aclose(self) -> None:
        """Let go of files and connections."""
        self._directories.close()
        self._threads.close()
        self._copier.threads.close()
        await self._store.aclose()

    @property
    def needs_store(self) -> bool:
        """Whether anything is left that only the store can take; any thread may ask."""
        return bool(self._backlog.pending or self._backlog.late or self.receipts_waiting)

    @property
    def receipts_waiting(self) -> int:
        """How many receipts are not in the mirror yet; any thread may ask."""
        return self._segments.waiting

    async def look_at(self, path: Path, include: Collection[str] | None = None) -> Looked:
        """Offer every record of a directory that is not in the mirror, waiting for room where the backlog is full.

        ``include``: shell patterns of the ids that this look and later ones are for; None: as before.

        Raises:
            OSError: the directory cannot be read.
            RecordError: it is the mirror itself.
        """
        directory = await self._directories.get(path)
        records = files = 0
        async with directory.looking:
            if include is not None:
                directory.wanted = matcher(include)
            await self._directories.read_receipts(directory)
            late_ids, late_unnamed = self._backlog.looking(path)
            seen: set[str] = set()
            async for chunk in self._threads.iterate(
                look(path, directory.ledger, self._copier.exclude, directory.wanted)
            ):
                self._kinds.learn(path, chunk.kinds)
                records += chunk.documents - len(chunk.uncopied)
                files += chunk.covered_files
                for record in chunk.uncopied:
                    if self._is_done(directory, record.record_id):
                        continue
                    await self._offer(path, record.record_id, record.since)
                    if record.record_id in late_ids:
                        seen.add(record.record_id)
                self.wake.set()
            unseen = late_ids - seen
            if unseen:  # another mirror may have copied them, and a prune deleted them, since the look began
                await self._threads.run(directory.ledger.refresh)
            states = {record_id: read_state(path, document_name(record_id)) for record_id in unseen}
            require_directory(path)
            for record_id, state in states.items():
                self._settle_unseen(directory, record_id, state)
            self._backlog.settle_late(path, None, Outcome.UNCHANGED, late_unnamed)
            self.totals.unchanged += records
            self._unreadable.was_read(path)
            self.wake.set()
        return Looked(records, files)

    async def _offer(self, path: Path, record_id: str, since: float, *, owed: bool = False) -> Added:
        """Have a record that was found copied, once there is room for it."""
        while (added := self._backlog.found(path, record_id, since, owed=owed)) is Added.FULL:
            self._news.clear()
            await self._news.wait()
        return added

    def _is_done(self, directory: RecordDirectory, record_id: str) -> bool:
        """Whether nothing is left to do for a record that a look came by a moment ago."""
        try:
            is_copied = directory.holds(record_id, self._kinds.known(directory.path), self._copier.exclude)
        except RecordGoneError:
            require_directory(directory.path)
            return True
        return is_copied or self.given_up.has(directory.path, record_id)

    def _settle_unseen(self, directory: RecordDirectory, record_id: str, document: FileState | None) -> None:
        """Settle a late record that the look did not offer: it is in the mirror, given up, or gone from the disk."""
        if self.given_up.has(directory.path, record_id):
            outcome = Outcome.FAILED
        elif document is None and directory.ledger.get(record_id) is None:
            self._lose(directory.path, record_id)
            outcome = Outcome.FAILED
        elif (
            document is not None
            and directory.wanted(record_id)
            and not directory.ledger.covered({record_id: document}, self._copier.exclude)
        ):
            return  # it came, or came back, during the look: the next one finds it
        else:
            outcome = Outcome.UNCHANGED
        self._backlog.settle_late(directory.path, record_id, outcome)

    def _start_copies(self) -> None:
        while len(self._copies) < self._workers and (job := self._backlog.take()) is not None:
            task = asyncio.create_task(self._copy_on(job))
            self._copies.add(task)
            task.add_done_callback(self._copied)

    def _copied(self, task: asyncio.Task[None]) -> None:
        self._copies.discard(task)
        if not self._copies:  # else one of them takes what waits
            self.wake.set()

    def _start_looks(self) -> None:
        if self._breaker.state is not BreakerState.CLOSED:
            self._store_was_away = True
            return
        if self._store_was_away:
            self._store_was_away = False
            self._backlog.look_now()
        for path in self._backlog.due(time.time(), though_busy=self._unreadable):
            self._errands.begin(self._look_for_late, path)

    def _start_asking(self) -> None:
        """While the store is away and no copy would find out that it is back, ask it."""
        if self._breaker.state is not BreakerState.CLOSED and not self._copies:
            self._errands.begin(self._ask)

    async def _ask(self) -> None:
        try:
            await write_probe(self._store, self._copier.writer)
        except StoreError as error:
            self._note(error)

    def _start_rechecks(self) -> None:
        """Look now and then for kinds that came up when a record was copied already."""
        for path in self._kinds.to_recheck():
            self._errands.begin(self._recheck, path)

    async def _recheck(self, path: Path) -> bool:
        """Have records completed that were copied without a kind that they have; False: nobody could look."""
        try:
            missed = await self._threads.run(self._kinds.recheck, path)
        except OSError as error:
            self._unreadable.tell(path, error)
            return False
        if not self._kinds.is_away(path):
            self._unreadable.was_read(path)
        for record_id in missed:
            if await self._offer(path, record_id, time.time(), owed=True) is not Added.CLOSED:
                self._kinds.offered(path, record_id)
        return True

    async def _look_for_late(self, path: Path) -> None:
        try:
            self._backlog.postpone(path, time.time() + self._rescan_s)
            await self.look_at(path)
        except (OSError, RecordError) as error:
            if not self._unreadable.failed(path, error):
                self._backlog.postpone(path, time.time() + RETRY_S)
            elif isinstance(error, FileNotFoundError | NotADirectoryError) and self._unreadable.is_away_for_long(path):
                self._lose_all(path)

    def _lose_all(self, path: Path) -> None:
        """Wait no longer for what is late in a directory that does not come back."""
        late_ids, late_unnamed = self._backlog.looking(path)
        for record_id in late_ids:
            self._lose(path, record_id)
            self._backlog.settle_late(path, record_id, Outcome.FAILED)
        self.totals.lost += late_unnamed
        self._backlog.settle_late(path, None, Outcome.FAILED, late_unnamed)

    async def _copy_on(self, job: Job) -> None:
        """Copy a record, and then whatever waits, until nothing does."""
        following: Job | None = job
        while following is not None:
            await self._copy(following)
            self._news.set()
            await asyncio.sleep(0)  # one that needs no request has let nobody else have a turn
            following = self._backlog.take()

    async def _copy(self, job: Job) -> None:
        outcome = Outcome.LATE
        try:
            outcome = await self._copy_or_lose(job)
        except RecordChangedError as error:
            self._note(error)
        except (FileRefusedError, RecordError) as error:
            outcome = Outcome.FAILED
            self._give_up(job, error)
        except (StoreError, OSError) as error:
            self._note(error)
            logger.debug("%s is late: %s", job.record_id, error)
        except Exception as error:
            outcome = Outcome.FAILED
            self._give_up(job, error)
            logger.exception("a bug kept %r from being copied; the local file is kept", job.record_id)
        finally:
            self._backlog.settle(job, outcome, look_at=time.time() + self._rescan_s)

    async def _copy_or_lose(self, job: Job) -> Outcome:
        try:
            return await self._copy_one(job)
        except RecordGoneError:
            require_directory(job.directory)
            if read_state(job.directory, document_name(job.record_id)) is not None:
                return Outcome.LATE  # it came, or came back, just now
            return await self._gone(job)

    async def _copy_one(self, job: Job) -> Outcome:
        directory = await self._directory(job.directory)
        kinds = self._kinds.known(job.directory)
        if self._kinds.is_due(job.directory):
            kinds = await self._threads.run(self._kinds.look, job.directory)
        if not job.own:
            await directory.read_others()
            if directory.holds(job.record_id, kinds, self._copier.exclude):
                self.totals.unchanged += 1
                return Outcome.ELSEWHERE
        receipts = RecordReceipts(directory.ledger, directory.others, job.record_id)
        copied = await copy_record(self._copier, job.directory, job.record_id, kinds=kinds, receipts=receipts)
        self.totals.sent_files += copied.sent_files
        self.totals.sent_bytes += copied.sent_bytes
        self.totals.kept_files += len(copied.receipt.files) - copied.sent_files
        if not copied.is_known:
            line, mark = directory.ledger.append(copied.receipt)
            self._segments.add(line, mark)
        self.given_up.discard(job.directory, job.record_id)
        self._kinds.copied(job.directory, job.record_id, kinds)
        logger.debug("copied %s: %d files, %d bytes sent", job.record_id, copied.sent_files, copied.sent_bytes)
        return Outcome.MIRRORED if copied.sent_files else Outcome.UNCHANGED

    async def _directory(self, path: Path) -> RecordDirectory:
        """Return a directory's state; its first user also starts a look for what an earlier process left."""
        is_first = self._directories.opened(path) is None
        directory = await self._directories.get(path)
        if is_first:
            self._errands.begin(self._look_for_late, path)
        return directory

    async def _wake_regularly(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.wake.set()

    async def _flush_regularly(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_EVERY_S)
            try:
                await self._segments.flush()
            except StoreError as error:
                self._note(error)
                logger.warning("receipts are kept for the next flush: %s", error)
            except Exception:
                logger.exception("a bug kept receipts from the mirror; they are kept for the next flush")

    async def _gone(self, job: Job) -> Outcome:
        directory = self._directories.opened(job.directory)
        if directory is not None:
            await self._threads.run(directory.ledger.refresh)
            if not job.own and directory.ledger.get(job.record_id) is None:  # it was there: somebody deleted it
                with contextlib.suppress(StoreError):
                    await directory.in_mirror.anew()
            if directory.ledger.get(job.record_id) is not None:
                return Outcome.UNCHANGED  # copied, perhaps by another mirror, before it was deleted
        self._lose(job.directory, job.record_id)
        return Outcome.FAILED

    def _lose(self, path: Path, record_id: str) -> None:
        self.totals.lost += 1
        logger.error(
            "%r is lost: no such record is in %s any more, or was ever; submit a record once its document is there",
            record_id,
            path,
        )

    def _give_up(self, job: Job, error: Exception) -> None:
        self._note(error)
        if not self.given_up.has(job.directory, job.record_id):  # else that was said, and nothing has changed
            logger.error("gave up on %r; the local file is kept: %s", job.record_id, error)
        self.given_up.add(job.directory, job.record_id, str(error))

    def _note(self, error: Exception) -> None:
        self.totals.last_error = str(error)
