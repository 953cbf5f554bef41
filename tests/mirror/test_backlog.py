"""The books balance, nothing handed over is forgotten, and memory is bounded, in whatever order things happen."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mirror.backlog import ENDED_FINDS, Added, Backlog, Counts, Job, Outcome
from tests.mirror.fake_clock import FakeClock

A, B = Path("/records/a"), Path("/records/b")


def books(backlog: Backlog) -> tuple[int, int, int, int, int]:
    counts = backlog.counts()
    return counts.submitted, counts.mirrored, counts.failed, counts.late, counts.pending


def taken(backlog: Backlog) -> Job:
    job = backlog.take()
    assert job is not None
    return job


def test_a_record_goes_from_pending_to_mirrored() -> None:
    """Handed over, taken, settled: each moment has its place in the books."""
    backlog = Backlog(10)
    assert backlog.submit(A, "x") is Added.QUEUED
    assert books(backlog) == (1, 0, 0, 0, 1)
    job = taken(backlog)
    assert (job.directory, job.record_id) == (A, "x")
    assert books(backlog) == (1, 0, 0, 0, 1)
    assert backlog.settle(job, Outcome.MIRRORED)
    assert books(backlog) == (1, 1, 0, 0, 0)
    assert backlog.take() is None


def test_records_are_taken_in_the_order_they_came() -> None:
    """The oldest goes first; directories have names of their own."""
    backlog = Backlog(10)
    for directory, record_id in ((A, "x"), (A, "y"), (B, "x")):
        backlog.submit(directory, record_id)
    jobs = [taken(backlog) for _ in range(3)]
    assert [(job.directory, job.record_id) for job in jobs] == [(A, "x"), (A, "y"), (B, "x")]


def test_a_record_that_waits_is_not_queued_twice() -> None:
    """Handed over again while it waits, it is one copy and two in the books."""
    backlog = Backlog(10)
    backlog.submit(A, "x")
    assert backlog.submit(A, "x") is Added.KNOWN
    job = taken(backlog)
    assert backlog.take() is None
    backlog.settle(job, Outcome.MIRRORED)
    assert books(backlog) == (2, 2, 0, 0, 0)


def test_a_record_handed_over_during_its_copy_is_copied_again() -> None:
    """The copy under way may have read the older bytes."""
    backlog = Backlog(10)
    backlog.submit(A, "x")
    job = taken(backlog)
    backlog.submit(A, "x")
    assert not backlog.settle(job, Outcome.MIRRORED)
    assert books(backlog) == (2, 0, 0, 0, 2)
    assert backlog.settle(taken(backlog), Outcome.MIRRORED)
    assert books(backlog) == (2, 2, 0, 0, 0)


def test_also_when_it_is_closed_meanwhile() -> None:
    """A close drains what was handed over before it, in its last generation."""
    backlog = Backlog(10)
    backlog.submit(A, "x")
    job = taken(backlog)
    backlog.submit(A, "x")
    backlog.close()
    assert not backlog.settle(job, Outcome.MIRRORED)
    assert backlog.settle(taken(backlog), Outcome.MIRRORED)


def test_a_mark_is_settled_when_all_before_it_is() -> None:
    """What is handed over after it, be it a record before it once more, need not be waited for."""
    backlog = Backlog(10)
    assert backlog.is_settled(backlog.mark())
    backlog.submit(A, "x")
    job = taken(backlog)
    first = backlog.mark()
    backlog.submit(A, "x")
    backlog.submit(A, "y")
    second = backlog.mark()
    backlog.submit(A, "y")
    assert not backlog.is_settled(first)
    backlog.settle(job, Outcome.MIRRORED)
    assert backlog.is_settled(first)
    for _ in range(2):
        assert not backlog.is_settled(second)
        backlog.settle(taken(backlog), Outcome.MIRRORED)
    assert backlog.is_settled(second)


@pytest.mark.parametrize("outcome", [Outcome.MIRRORED, Outcome.FAILED])
def test_a_record_handed_over_before_and_after_a_mark_is_waited_for(outcome: Outcome) -> None:
    """The copy that is under way may have begun with older bytes than those of before the mark."""
    backlog = Backlog(10)
    backlog.submit(A, "x")
    job = taken(backlog)
    backlog.submit(A, "x")
    mark = backlog.mark()
    backlog.submit(A, "x")
    assert not backlog.settle(job, outcome)
    assert not backlog.is_settled(mark)
    backlog.settle(taken(backlog), Outcome.MIRRORED)
    assert backlog.is_settled(mark)


def test_nor_is_it_before_what_was_late_is_copied() -> None:
    """A look may find it after the mark was made."""
    backlog = Backlog(1)
    backlog.submit(A, "x")
    backlog.submit(A, "y")
    mark = backlog.mark()
    backlog.settle(taken(backlog), Outcome.MIRRORED)
    assert backlog.found(A, "y", 0.0) is Added.QUEUED
    assert not backlog.is_settled(mark)
    backlog.settle(taken(backlog), Outcome.MIRRORED)
    assert backlog.is_settled(mark)


def test_what_does_not_fit_is_late_and_found_again() -> None:
    """A full queue loses nothing: the record is looked for on disk, and then counts once."""
    backlog = Backlog(2)
    for record_id in "abc":
        backlog.submit(A, record_id)
    assert books(backlog) == (3, 0, 0, 1, 2)
    assert backlog.due(0.0) == []  # no look while more than half of the queue waits
    backlog.settle(taken(backlog), Outcome.MIRRORED)
    assert backlog.due(0.0) == [A]
    assert backlog.found(A, "c", 5.0) is Added.QUEUED
    assert books(backlog) == (3, 1, 0, 0, 2)


def test_what_a_look_finds_by_itself_counts_as_handed_over() -> None:
    """A record of an earlier process enters the books when it is found; one that waits is known."""
    backlog = Backlog(10)
    assert backlog.found(A, "old", 5.0) is Added.QUEUED
    assert backlog.found(A, "old", 5.0) is Added.KNOWN
    assert books(backlog) == (1, 0, 0, 0, 1)


def test_a_look_that_comes_by_before_the_server_does_counts_no_record_twice() -> None:
    """A record lies on disk before it is handed over: whatever became of the find meanwhile, it is one in the books."""
    backlog = Backlog(1)
    backlog.found(A, "x", 5.0)
    backlog.submit(A, "x")
    assert books(backlog) == (1, 0, 0, 0, 1)
    backlog.submit(A, "x")  # a second hand-over is a second one
    assert books(backlog) == (2, 0, 0, 0, 2)
    backlog.settle(taken(backlog), Outcome.MIRRORED)

    backlog.found(A, "y", 5.0)
    job = taken(backlog)
    backlog.submit(A, "y")
    assert not backlog.settle(job, Outcome.MIRRORED)
    assert books(backlog) == (3, 2, 0, 0, 1)
    backlog.settle(taken(backlog), Outcome.UNCHANGED)

    backlog.found(A, "z", 5.0)
    backlog.settle(taken(backlog), Outcome.LATE)
    backlog.submit(A, "other")
    backlog.submit(A, "z")
    assert books(backlog) == (5, 3, 0, 1, 1)


@pytest.mark.parametrize("end", [Outcome.MIRRORED, Outcome.FAILED])
def test_a_hand_over_that_adds_nothing_to_what_a_look_had_ended_is_no_second_record(end: Outcome) -> None:
    """A look copied it, or gave it up, a moment before: only what changes something is one more."""
    backlog = Backlog(1)
    backlog.found(A, "x", 5.0)
    backlog.settle(taken(backlog), end)
    before = books(backlog)
    backlog.submit(A, "x")
    backlog.settle(taken(backlog), Outcome.FAILED if end is Outcome.FAILED else Outcome.UNCHANGED)
    assert books(backlog) == before
    backlog.submit(A, "x")
    backlog.settle(taken(backlog), Outcome.UNCHANGED)
    assert books(backlog)[:2] == (2, before[1] + 1)

    backlog.found(A, "y", 5.0)
    backlog.settle(taken(backlog), end)
    backlog.submit(A, "y")
    backlog.settle(taken(backlog), Outcome.MIRRORED)  # other bytes
    assert books(backlog)[0] == 4


def test_after_a_close_a_hand_over_of_what_a_look_found_leaves_nothing_behind() -> None:
    """It is late beside the copy that is under way, which stays in the books until it ends."""
    backlog = Backlog(1, late_names=1)
    backlog.found(A, "x", 5.0)
    job = taken(backlog)
    backlog.close()
    backlog.submit(A, "x")
    backlog.looking(A)
    backlog.settle_late(A, "x", Outcome.UNCHANGED)
    assert (backlog.counts().late, backlog.counts().pending) == (0, 1)
    backlog.settle(job, Outcome.MIRRORED)
    assert backlog.left() == []
    assert backlog.counts().oldest is None


def test_what_is_late_without_a_name_may_count_twice() -> None:
    """There is no room to remember that only a look has found it."""
    backlog = Backlog(1, late_names=0)
    backlog.found(A, "x", 5.0)
    backlog.settle(taken(backlog), Outcome.LATE)
    backlog.submit(A, "x")
    assert books(backlog) == (2, 0, 0, 1, 1)


def test_so_many_ended_finds_are_remembered() -> None:
    """The hand-over of an older one counts."""
    backlog = Backlog(1)
    for number in range(ENDED_FINDS + 1):
        backlog.found(A, f"tr_{number}", 5.0)
        backlog.settle(taken(backlog), Outcome.MIRRORED)
    for number, counted in ((0, 1), (ENDED_FINDS, 0)):
        before = backlog.counts().submitted
        backlog.submit(A, f"tr_{number}")
        backlog.settle(taken(backlog), Outcome.UNCHANGED)
        assert backlog.counts().submitted == before + counted


def test_of_several_hand_overs_after_a_find_one_is_the_find() -> None:
    """The others are more."""
    backlog = Backlog(1)
    backlog.found(A, "x", 5.0)
    backlog.settle(taken(backlog), Outcome.MIRRORED)
    backlog.submit(A, "x")
    backlog.submit(A, "x")
    backlog.settle(taken(backlog), Outcome.UNCHANGED)
    assert books(backlog) == (2, 2, 0, 0, 0)


def test_a_late_hand_over_that_adds_nothing_is_no_second_record_either() -> None:
    """The look that settles it saw it in the mirror; one that began before it was late says nothing of it."""
    backlog = Backlog(1)
    backlog.found(A, "x", 5.0)
    backlog.settle(taken(backlog), Outcome.MIRRORED)
    backlog.looking(A)
    backlog.submit(A, "other")
    backlog.submit(A, "x")
    backlog.settle_late(A, "x", Outcome.UNCHANGED)
    assert books(backlog) == (3, 1, 0, 1, 1)
    backlog.looking(A)
    backlog.settle_late(A, "x", Outcome.UNCHANGED)
    assert books(backlog) == (2, 1, 0, 0, 1)


def test_a_find_that_became_late_and_is_found_again_may_still_be_another_mirrors() -> None:
    """It leaves the books where another mirror has copied it meanwhile."""
    backlog = Backlog(1)
    backlog.found(A, "x", 5.0)
    backlog.settle(taken(backlog), Outcome.LATE)
    backlog.found(A, "x", 5.0)
    job = taken(backlog)
    assert not job.own
    backlog.settle(job, Outcome.ELSEWHERE)
    assert books(backlog) == (0, 0, 0, 0, 0)
    backlog.submit(A, "x")
    backlog.settle(taken(backlog), Outcome.UNCHANGED)
    assert books(backlog) == (1, 1, 0, 0, 0)


def test_a_failed_store_makes_records_late_until_their_time() -> None:
    """They are looked for no earlier than told, and at once when the store is back."""
    backlog = Backlog(10)
    backlog.submit(A, "x")
    backlog.settle(taken(backlog), Outcome.LATE, look_at=100.0)
    assert backlog.due(99.0) == []
    assert backlog.due(100.0) == [A]
    backlog.postpone(A, 200.0)
    assert backlog.due(150.0) == []
    backlog.look_now()
    assert backlog.due(150.0) == [A]
    assert books(backlog) == (1, 0, 0, 1, 0)


def test_a_look_settles_what_needs_no_copy() -> None:
    """A late record that is in the mirror after all is mirrored, one whose file is gone has failed."""
    backlog = Backlog(1)
    for record_id in "abc":
        backlog.submit(A, record_id)
    ids, unnamed = backlog.looking(A)
    assert (set(ids), unnamed) == ({"b"}, 1)
    backlog.settle_late(A, "b", Outcome.MIRRORED)
    backlog.settle_late(A, None, Outcome.FAILED, unnamed)
    assert books(backlog) == (3, 1, 1, 0, 1)


def test_a_look_says_nothing_of_what_came_after_it_began() -> None:
    """A record that became late while a directory was looked through may have been passed by: it stays late."""
    backlog = Backlog(2)
    for record_id in "abcde":
        backlog.submit(A, record_id)
    ids, unnamed = backlog.looking(A)
    assert (set(ids), unnamed) == ({"c", "d"}, 1)
    backlog.submit(A, "c")
    backlog.submit(A, "f")
    for record_id in sorted(ids):
        backlog.settle_late(A, record_id, Outcome.MIRRORED)
    backlog.settle_late(A, None, Outcome.MIRRORED, unnamed)
    assert books(backlog) == (7, 3, 0, 2, 2)
    assert [left.record_id for left in backlog.left()] == ["a", "b", "c"]
    assert backlog.looking(A) == (frozenset("c"), 1)


def test_closed_it_takes_only_what_is_late() -> None:
    """What comes after a close is late, and what is late is still copied before the deadline."""
    backlog = Backlog(10)
    backlog.submit(A, "x")
    backlog.close()
    assert backlog.submit(A, "y") is Added.CLOSED
    assert backlog.found(A, "z", 1.0) is Added.CLOSED
    assert backlog.found(A, "y", 1.0) is Added.QUEUED
    assert books(backlog) == (2, 0, 0, 0, 2)


def test_what_a_copy_turned_out_to_lack_is_taken_after_a_close_too() -> None:
    """A close does not call complete what it knows to be incomplete; an abandoned one takes nothing."""
    backlog = Backlog(10)
    backlog.close()
    assert backlog.found(A, "x", 1.0, owed=True) is Added.QUEUED
    backlog.settle(taken(backlog), Outcome.MIRRORED)
    backlog.abandon()
    assert backlog.found(A, "x", 1.0, owed=True) is Added.CLOSED


def test_what_is_owed_to_a_copy_of_a_find_waits_once() -> None:
    """Handed over while it waits to be copied once more, it is not copied twice at the same time."""
    backlog = Backlog(10)
    backlog.found(A, "x", 1.0)
    job = taken(backlog)
    assert backlog.found(A, "x", 1.0, owed=True) is Added.KNOWN
    assert not backlog.settle(job, Outcome.MIRRORED)
    backlog.submit(A, "x")
    assert taken(backlog) is job
    assert backlog.take() is None


def test_what_a_copy_under_way_will_lack_is_copied_once_more() -> None:
    """It may have begun without what is owed; what only waits takes that along."""
    backlog = Backlog(10)
    backlog.submit(A, "x")
    assert backlog.found(A, "x", 1.0, owed=True) is Added.KNOWN
    job = taken(backlog)
    assert backlog.found(A, "x", 1.0) is Added.KNOWN
    assert backlog.found(A, "x", 1.0, owed=True) is Added.KNOWN
    assert not backlog.settle(job, Outcome.MIRRORED)
    assert backlog.settle(taken(backlog), Outcome.MIRRORED)
    assert books(backlog) == (1, 1, 0, 0, 0)


def test_abandoned_everything_is_late_and_stays_so() -> None:
    """What nobody will copy any more is late, whatever a copy still under way says, and has names."""
    backlog = Backlog(10)
    for record_id in "abc":
        backlog.submit(A, record_id)
    job = taken(backlog)
    backlog.abandon()
    assert backlog.settle(job, Outcome.MIRRORED)
    assert backlog.found(A, "a", 1.0) is Added.CLOSED
    assert backlog.take() is None
    assert books(backlog) == (3, 0, 0, 3, 0)
    assert backlog.names(2) == ["a", "b"]
    assert {left.record_id for left in backlog.left()} == {"a", "b", "c"}


def test_the_lag_is_that_of_the_oldest_record_that_is_not_mirrored() -> None:
    """It grows until that record is there, also while it is late."""
    clock = FakeClock(100.0)
    backlog = Backlog(10, clock=clock)
    assert backlog.counts().oldest is None
    backlog.submit(A, "x")
    clock.advance(50)
    backlog.submit(A, "y")
    assert backlog.counts().oldest == 100.0
    first, second = taken(backlog), taken(backlog)
    backlog.settle(second, Outcome.LATE)
    backlog.settle(first, Outcome.LATE)
    clock.advance(50)
    assert backlog.counts().oldest == 100.0
    backlog.found(A, "x", 90.0)
    backlog.settle(taken(backlog), Outcome.MIRRORED)
    backlog.settle_late(A, *settle_all(backlog, "y"))
    assert backlog.counts().oldest is None


def settle_all(backlog: Backlog, record_id: str) -> tuple[str, Outcome]:
    backlog.looking(A)
    return record_id, Outcome.MIRRORED


@pytest.mark.parametrize("closed", [False, True])
def test_memory_is_bounded_however_much_is_handed_over(*, closed: bool) -> None:
    """The queue and the names of late records have room for so many; the rest is a number."""
    backlog = Backlog(50)
    if closed:
        backlog.close()
    for number in range(10_000):
        backlog.submit(A, f"tr_{number}")
    assert len(backlog.left()) <= 100
    counts = backlog.counts()
    assert counts.late + counts.pending == counts.submitted == 10_000


def test_many_threads_hand_over_while_others_copy() -> None:
    """The books balance, and every record was taken once a hand-over at most."""
    backlog = Backlog(100)
    done = threading.Event()
    copied: list[str] = []

    def hand_over(name: str) -> None:
        for number in range(300):
            backlog.submit(A, f"{name}{number}")

    def copy() -> None:
        while not (done.is_set() and backlog.pending == 0):
            job = backlog.take()
            if job is not None:
                copied.append(job.record_id)
                backlog.settle(job, Outcome.MIRRORED)

    servers = [threading.Thread(target=hand_over, args=(name,)) for name in "abcd"]
    copiers = [threading.Thread(target=copy) for _ in range(2)]
    for thread in [*servers, *copiers]:
        thread.start()
    for thread in servers:
        thread.join()
    done.set()
    for thread in copiers:
        thread.join()
    submitted, mirrored, failed, late, pending = books(backlog)
    assert (submitted, failed, pending) == (1200, 0, 0)
    assert mirrored + late == 1200
    assert len(copied) == len(set(copied)) == mirrored


@dataclass
class Look:
    """A look at a directory that is under way, as the engine takes it."""

    late_ids: frozenset[str]
    unnamed: int
    to_offer: list[str]
    seen: set[str] = field(default_factory=set)


class AnyOrder(RuleBasedStateMachine):
    """Whatever a server, copies, looks and a close do to a backlog, in any order.

    ``owed`` is what must reach the mirror: handed over, or found on disk, and not copied since; each with the number of
    its generation. A look offers what is owed when it comes by, as one that compares the disk with receipts does.
    """

    @initialize(size=st.integers(1, 2))
    def begin(self, size: int) -> None:
        """Make a small backlog."""
        self.size = size
        self.backlog = Backlog(size, clock=FakeClock())
        self.owed: dict[tuple[Path, str], int] = {}
        self.jobs: list[tuple[Job, int]] = []  # with the generation that was there when the copy began
        self.pending: dict[tuple[Path, str], list[int]] = {}  # the generations that a mark before them waits for
        self.marks: list[tuple[int, int]] = []  # with the generation that would have come next
        self.generations = itertools.count()
        self.looks: dict[Path, Look] = {}
        self.is_abandoned = False

    @rule(directory=st.sampled_from([A, B]), record_id=st.sampled_from("abcdgh"))
    def submit(self, directory: Path, record_id: str) -> None:
        """A server hands a record over."""
        key = (directory, record_id)
        self.owed[key] = next(self.generations)
        if self.backlog.submit(directory, record_id) in (Added.QUEUED, Added.KNOWN):
            self.pending.setdefault(key, []).append(self.owed[key])

    @rule()
    def mark(self) -> None:
        """Somebody begins to wait for what was handed over so far."""
        self.marks.append((self.backlog.mark(), next(self.generations)))

    @rule()
    def take(self) -> None:
        """A worker takes the next record."""
        job = self.backlog.take()
        if job is not None:
            assert job not in [other for other, _ in self.jobs]
            self.jobs.append((job, self.owed.get((job.directory, job.record_id), -1)))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome))
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        """A copy ends."""
        self._settle(*self.jobs.pop(data.draw(st.integers(0, len(self.jobs) - 1))), outcome)

    def _settle(self, job: Job, generation: int, outcome: Outcome) -> None:
        key = (job.directory, job.record_id)
        is_over = self.backlog.settle(job, outcome)
        self.pending[key] = [later for later in self.pending.get(key, []) if later > generation and not is_over]
        is_settled = is_over and outcome is not Outcome.LATE and not self.is_abandoned
        if is_settled and self.owed.get(key) == generation:
            del self.owed[key]

    @rule(directory=st.sampled_from([A, B]))
    def begin_look(self, directory: Path) -> None:
        """A directory's late records are looked for: its owed ones lie on disk without a receipt."""
        if directory not in self.looks:
            late_ids, unnamed = self.backlog.looking(directory)
            owed = sorted(record_id for owed_in, record_id in self.owed if owed_in == directory)
            self.looks[directory] = Look(late_ids, unnamed, owed)

    @rule(directory=st.sampled_from([A, B]))
    def go_on_looking(self, directory: Path) -> None:
        """A look comes by its next record; at the end it settles what it did not have to offer."""
        look = self.looks.get(directory)
        if look is None:
            return
        if look.to_offer:
            record_id = look.to_offer[0]
            if (directory, record_id) in self.owed:
                added = self.backlog.found(directory, record_id, 1.0)
                if added is Added.QUEUED:
                    self.pending[directory, record_id] = [self.owed[directory, record_id]]
                if added is Added.FULL:
                    return  # it waits for room
                if added is Added.CLOSED:
                    del self.owed[directory, record_id]  # found too late: the next start copies it
                look.seen |= {record_id} & look.late_ids
            look.to_offer.pop(0)
            return
        for record_id in look.late_ids - look.seen:
            self.backlog.settle_late(directory, record_id, Outcome.UNCHANGED)
        self.backlog.settle_late(directory, None, Outcome.MIRRORED, look.unnamed)
        del self.looks[directory]

    @rule(record_id=st.sampled_from("abgh"))
    def find_another(self, record_id: str) -> None:
        """A look finds what an earlier process left."""
        if self.backlog.found(A, record_id, 1.0) is Added.QUEUED:
            self.owed[A, record_id] = next(self.generations)
            self.pending[A, record_id] = [self.owed[A, record_id]]

    @rule(record_id=st.sampled_from("abg"))
    def recheck(self, record_id: str) -> None:
        """A record turns out to lack a kind, perhaps while it is being copied without it once more."""
        added = self.backlog.found(A, record_id, 1.0, owed=True)
        is_copied = (A, record_id) in [(job.directory, job.record_id) for job, _ in self.jobs]
        if added is Added.QUEUED or (added is Added.KNOWN and is_copied):
            self.owed[A, record_id] = next(self.generations)
            self.pending.setdefault((A, record_id), []).append(self.owed[A, record_id])

    @rule()
    def postpone_and_look_now(self) -> None:
        """Times of looks change nothing in the books."""
        self.backlog.postpone(A, 50.0)
        self.backlog.look_now()

    @rule()
    def close(self) -> None:
        """The server shuts down."""
        self.backlog.close()

    @precondition(lambda self: not self.is_abandoned)
    @rule()
    def abandon(self) -> None:
        """The time for draining is over."""
        self.backlog.abandon()
        self.pending.clear()
        self.is_abandoned = True

    @invariant()
    def the_books_balance(self) -> None:
        """Every hand-over is in exactly one of four places, and none of them is negative."""
        if not hasattr(self, "backlog"):
            return
        counts = self.backlog.counts()
        assert counts.submitted == counts.mirrored + counts.failed + counts.late + counts.pending
        assert min(counts.mirrored, counts.failed, counts.late, counts.pending) >= 0
        assert (counts.oldest is None) == (counts.late + counts.pending == 0)
        assert counts.late + counts.pending >= len({(left.directory, left.record_id) for left in self.backlog.left()})
        if self.is_abandoned:
            assert counts.pending == 0

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """Books without anything late or pending mean that everything handed over was settled."""
        if hasattr(self, "backlog") and not self.backlog.late and not self.backlog.pending:
            assert self.owed == {}

    @invariant()
    def marks_are_waited_for(self) -> None:
        """While something is pending that came before a mark, the mark is not settled."""
        if hasattr(self, "backlog"):
            for mark, then in self.marks:
                if self.backlog.is_settled(mark):
                    assert all(generation >= then for waiting in self.pending.values() for generation in waiting)

    def teardown(self) -> None:
        """From here on all goes well: in the end everything handed over was copied."""
        if not hasattr(self, "backlog") or self.is_abandoned:
            return
        for job, generation in self.jobs:
            self._settle(job, generation, Outcome.MIRRORED)
        for directory in (A, B):
            while directory in self.looks:
                self._copy_everything()
                self.go_on_looking(directory)
        while self.backlog.late or self.backlog.pending:
            self._copy_everything()
            self.backlog.look_now()
            for directory in self.backlog.due(1.0):
                self.begin_look(directory)
                while directory in self.looks:
                    self.go_on_looking(directory)
                    self._copy_everything()
        assert self.owed == {}
        self.the_books_balance()

    def _copy_everything(self) -> None:
        while (job := self.backlog.take()) is not None:
            self._settle(job, self.owed.get((job.directory, job.record_id), -1), Outcome.MIRRORED)

    @invariant()
    def memory_is_bounded(self) -> None:
        """No more waits, and no more late records have names, than there is room for."""
        if hasattr(self, "backlog"):
            assert len(self.backlog.left()) <= 2 * self.size


AnyOrder.TestCase.settings = settings(max_examples=150, stateful_step_count=50)
test_any_order_of_events = AnyOrder.TestCase


def test_counts_are_facts() -> None:
    """They do not change afterwards."""
    backlog = Backlog(1)
    before = backlog.counts()
    backlog.submit(A, "x")
    assert before == Counts(submitted=0, mirrored=0, failed=0, late=0, pending=0, oldest=None)
