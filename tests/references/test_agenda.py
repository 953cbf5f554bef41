"""What the publisher does next, on a clock that the tests move: ``references/agenda.py``."""

from __future__ import annotations

import contextlib
import logging
import shutil
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from references.agenda import MAX_ABANDONED_CALLS, Agenda
from references.claims import By, Claims
from references.codec import encode
from references.outcome import Outcome, Result
from references.run_index import Phase, RecordLocation, Row, StepIndex
from references.seams import Patience, PublishSettings
from references.spool import Spool, SpoolError, StepKey, content_hash
from references.wandb_client import Found, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from mirror.location import Location
    from mirror.receipts.receipt import Receipt
    from references.calls import Call

RUN = cast("Run", SimpleNamespace(id="r", entity="e", project="p", offline=False, disabled=False))
LOGGED = Result(outcome=Outcome.LOGGED, newest_step=-1, index_written=True)
FAILED = Result(outcome=Outcome.FAILED, error="no", index_written=True)


class NoReceipts:
    """A mirror that has receipts to wait for."""

    def covers(self, mirror: Location) -> bool:
        """Cover any."""
        return bool(mirror)

    def find(self, record_ids: Collection[str]) -> Mapping[str, Receipt]:
        """Find none."""
        assert record_ids
        return {}


def step_bytes(step: int, *, run: str = "r", phase: Phase = "train", note: str = "") -> bytes:
    row = Row(
        id="a", instance_id=note, repetition_id=0, attempt=0, superseded=False, record=RecordLocation(mirror="s3://b/a")
    )
    return encode(StepIndex(run=run, phase=phase, step=step, rows=(row,)))


@dataclass
class Desk:
    """An agenda, the calls that it has begun and not heard of, and the time."""

    directory: Path
    settings: PublishSettings = field(
        default_factory=lambda: PublishSettings(queue_size=3, timeout_s=100, attempts=3, backoff_s=10)
    )
    receipts: NoReceipts | None = None
    now: float = 0.0

    def __post_init__(self) -> None:
        """Open the agenda."""
        self.calls: list[tuple[Call, Callable[[], object]]] = []
        self.spool = Spool(self.directory)
        self.agenda = Agenda(
            settings=self.settings,
            patience=Patience(receipts_wait_s=60, receipts_poll_s=5, settle_s=300),
            spool=self.spool,
            receipts=self.receipts,
            index_store=None,
            launch=lambda call, function: self.calls.append((call, function)),
        )

    def take(self, step: int, *, run: Run | None = RUN, phase: Phase = "train", note: str = "") -> None:
        name = "r" if run is None else run.id
        data = step_bytes(step, run=name, phase=phase, note=note)
        self.hand_over(StepKey(name, phase, step), data, run)

    def hand_over(self, key: StepKey, data: bytes, run: Run | None) -> None:
        """Spool a step where that is possible, as the training process does, then hand it over."""
        with contextlib.suppress(SpoolError):
            self.spool.put(key, data)
        self.agenda.take(key, data, run, self.now)
        self.agenda.advance(self.now)

    def job(self) -> Any:  # noqa: ANN401 - the partial's arguments
        """What the one call under way is about: an attempt's ``Job``, or a function and its arguments."""
        _, function = self.calls[-1]
        arguments = cast("Any", function).args
        return arguments[0] if hasattr(arguments[0], "key") else (cast("Any", function).func.__name__, *arguments[1:])

    def answer(self, answer: object, *, call: int = -1) -> None:
        begun, _ = self.calls.pop(call)
        self.agenda.ended(begun, answer, self.now)
        self.agenda.advance(self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.agenda.advance(self.now)

    def count(self, name: str) -> int:
        return self.agenda.counts()[name]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """An agenda with room for three steps, three attempts each."""
    return Desk(tmp_path)


def test_a_step_leaves_the_spool_when_it_is_logged(desk: Desk) -> None:
    """Not before W&B has it."""
    desk.take(1)
    assert desk.count("spooled") == 1

    desk.answer(LOGGED)

    assert (desk.count("logged"), desk.count("spooled"), desk.count("pending")) == (1, 0, 0)
    assert desk.agenda.has_logged_all


def test_one_call_at_a_time_and_the_oldest_step_first(desk: Desk) -> None:
    """A second step waits for the first, and a late older step goes before a newer one."""
    for step in (4, 6, 5):
        desk.take(step)
    order = []
    while desk.calls:
        order.append(desk.job().key.step)
        desk.answer(LOGGED)

    assert order == [4, 5, 6]


def test_a_failure_is_tried_again_after_a_pause_and_asks_first(desk: Desk) -> None:
    """The second try knows that the first may have got through; after the last the step stays in the spool."""
    desk.take(1)
    assert not desk.job().uncertain
    desk.answer(FAILED)
    assert not desk.calls
    assert desk.agenda.next_due() == 10
    desk.wait(10)
    assert desk.job().uncertain
    desk.answer(FAILED)
    desk.wait(20)
    desk.answer(FAILED)
    desk.wait(1000)

    assert not desk.calls
    assert (desk.count("retried"), desk.count("failed"), desk.count("spooled")) == (2, 1, 1)
    assert not desk.agenda.has_logged_all


def test_what_failed_gets_one_more_chance_once_wandb_works(desk: Desk) -> None:
    """A later success brings the failed step back into the queue, once."""
    desk.take(1)
    for pause in (10, 20, 0):
        desk.answer(FAILED)
        desk.wait(pause)
    desk.take(2)
    assert desk.job().key.step == 2
    desk.answer(LOGGED)
    assert (desk.job().key.step, desk.job().uncertain) == (1, True)
    for pause in (10, 20, 0):
        desk.answer(FAILED)
        desk.wait(pause)
    desk.take(3)
    desk.answer(LOGGED)

    assert not desk.calls
    assert (desk.count("failed"), desk.count("spooled")) == (1, 1)


def test_a_full_queue_drops_and_the_spool_keeps(desk: Desk) -> None:
    """What does not fit is counted, and logged when there is room again."""
    for step in range(5):
        desk.take(step)
    assert (desk.count("dropped"), desk.count("pending"), desk.count("spooled")) == (2, 3, 5)

    order = []
    while desk.calls:
        order.append(desk.job().key.step)
        desk.answer(LOGGED)

    assert order == [0, 1, 2, 3, 4]
    assert desk.agenda.has_logged_all


def test_a_version_past_its_time_is_abandoned_and_looked_for_first(desk: Desk) -> None:
    """Nothing else is logged to that artifact before W&B is known to have the version; other artifacts go on."""
    desk.take(1)
    desk.wait(100)
    assert (desk.count("timed_out"), desk.count("pending"), desk.count("spooled")) == (1, 0, 1)
    desk.take(2)
    desk.take(7, phase="eval")
    assert desk.job().key.phase == "eval"
    desk.answer(LOGGED)
    assert len(desk.calls) == 1

    desk.answer(FAILED, call=0)

    assert desk.job()[0] == "find"
    found = Found(version="v0", step=1, index_hash=content_hash(step_bytes(1)), num_referenced=0, num_pending=0)
    desk.answer(found)
    assert desk.job().key.step == 2
    assert (desk.count("logged"), desk.count("timed_out"), desk.count("spooled")) == (2, 1, 1)


def test_an_abandoned_version_that_comes_through_late_counts_as_logged(desk: Desk) -> None:
    """The thread that was abandoned brings good news, and the artifact is free again."""
    desk.take(1)
    desk.wait(100)
    desk.take(2)
    desk.answer(LOGGED)

    assert desk.job().key.step == 2
    assert (desk.count("logged"), desk.count("timed_out"), desk.count("spooled")) == (1, 1, 1)


def test_an_abandoned_version_that_never_came_is_not_logged_again(desk: Desk) -> None:
    """When the client must have given it up the artifact goes on with the next step; the spool keeps the lost one."""
    desk.take(1)
    desk.wait(100)
    desk.take(2)
    desk.answer(FAILED)
    checks = 0
    while desk.calls and desk.job()[0] == "find":
        desk.answer(None)
        checks += 1
        due = desk.agenda.next_due()
        assert due is not None
        desk.wait(due - desk.now)
        if hasattr(desk.job(), "key"):
            break

    assert desk.now >= 400
    assert checks < 15
    assert desk.job().key.step == 2
    desk.answer(LOGGED)
    assert (desk.count("logged"), desk.count("spooled")) == (1, 1)
    assert not desk.calls


def test_an_unanswered_look_settles_nothing(desk: Desk) -> None:
    """While W&B does not answer, nobody knows; the looking goes on and nothing is logged."""
    desk.take(1)
    desk.wait(100)
    desk.take(2)
    desk.answer(FAILED)
    for _ in range(20):
        desk.answer(OSError("down"))
        due = desk.agenda.next_due()
        assert due is not None
        desk.wait(due - desk.now)

    assert desk.job()[0] == "find"


def test_hanging_calls_are_capped(desk: Desk) -> None:
    """When as many calls hang as may hang, nothing more is begun until one of them ends."""
    runs = [cast("Run", SimpleNamespace(id=f"r{number}")) for number in range(MAX_ABANDONED_CALLS + 1)]
    for run in runs:
        desk.take(1, run=run)
        desk.wait(100)
    assert len(desk.calls) == MAX_ABANDONED_CALLS
    assert desk.count("pending") == 1

    desk.answer(FAILED, call=0)

    assert desk.job().key.run == runs[-1].id


def test_an_older_step_gives_latest_back(desk: Desk) -> None:
    """After a replay ``latest`` is put back on the newest step, once, when nothing else waits."""
    desk.take(3)
    desk.take(4)
    desk.answer(Result(outcome=Outcome.LOGGED, newest_step=5, index_written=True))
    desk.answer(LOGGED)

    assert desk.job() == ("give_latest", "skycap-records-train-r", "train-step-5")
    desk.answer(None)
    assert not desk.calls
    assert desk.agenda.next_due() is None


def test_latest_is_tried_again_and_then_left(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """A failure to put it back is tried again a bounded number of times, and said."""
    desk.take(3)
    desk.answer(Result(outcome=Outcome.LOGGED, newest_step=5, index_written=True))
    for _ in range(3):
        desk.answer(OSError("down"))
        desk.wait(60)

    assert not desk.calls
    assert "names an older step" in caplog.text


def test_a_step_waits_for_receipts_and_then_goes_without(tmp_path: Path) -> None:
    """It looks every few seconds until its time is over; then it is logged with what has landed."""
    desk = Desk(tmp_path, receipts=NoReceipts())
    desk.take(1)
    looks = 0
    while desk.job().may_wait:
        desk.answer(Result(outcome=Outcome.WAITING, num_pending=1, index_written=True))
        assert desk.count("waiting_for_receipts") == 1
        due = desk.agenda.next_due()
        assert due is not None
        desk.wait(due - desk.now)
        looks += 1

    assert (desk.now, looks) == (60, 12)


def test_what_landed_late_is_completed(tmp_path: Path) -> None:
    """A version that lacks references stays in the spool until a newer version of the step has them."""
    desk = Desk(tmp_path, receipts=NoReceipts())
    desk.take(1)
    desk.answer(Result(outcome=Outcome.LOGGED, newest_step=-1, num_pending=1, index_written=True))
    assert (desk.count("logged"), desk.count("waiting_for_receipts"), desk.count("spooled")) == (1, 1, 1)
    assert desk.agenda.has_logged_all
    desk.wait(5)
    assert (desk.job().logged_pending, desk.job().may_wait) == (1, True)
    desk.answer(Result(outcome=Outcome.WAITING, num_pending=1, index_written=True))
    desk.wait(10)

    desk.answer(LOGGED)

    assert (desk.count("completed"), desk.count("waiting_for_receipts"), desk.count("spooled")) == (1, 0, 0)


def test_the_end_takes_what_has_landed(tmp_path: Path) -> None:
    """At close, half of the time may be spent waiting; then what there is, is logged, and the spool keeps the rest."""
    desk = Desk(tmp_path, receipts=NoReceipts())
    desk.take(1)
    desk.answer(Result(outcome=Outcome.LOGGED, newest_step=-1, num_pending=2, index_written=True))
    desk.agenda.close(desk.now, desk.now + 40)
    desk.wait(0)
    while desk.job().may_wait:
        desk.answer(Result(outcome=Outcome.WAITING, num_pending=1, index_written=True))
        due = desk.agenda.next_due()
        assert due is not None
        desk.wait(due - desk.now)
    assert desk.now == 20
    desk.answer(Result(outcome=Outcome.LOGGED, num_pending=1, index_written=True))
    desk.wait(5)
    desk.answer(Result(outcome=Outcome.NOTHING_NEW, num_pending=1, index_written=True))

    assert desk.agenda.is_finished
    assert (desk.count("completed"), desk.count("spooled")) == (1, 1)


def test_the_mirrors_index_is_caught_up(desk: Desk) -> None:
    """A step whose index the mirror did not take stays, until it does; no further version is logged for that."""
    desk.take(1)
    desk.answer(Result(outcome=Outcome.LOGGED, newest_step=-1, index_written=False))
    assert desk.count("spooled") == 1
    desk.wait(5)
    desk.answer(Result(outcome=Outcome.NOTHING_NEW, index_written=True))

    assert (desk.count("spooled"), desk.count("completed")) == (0, 0)


def test_without_a_run_a_step_waits_for_one(desk: Desk) -> None:
    """It is spooled; the next step that comes with the run takes it along."""
    desk.take(1, run=None)
    assert (len(desk.calls), desk.count("without_run"), desk.count("spooled")) == (0, 1, 1)

    desk.take(2)

    assert desk.job().key.step == 1
    desk.answer(LOGGED)
    desk.answer(LOGGED)
    assert desk.agenda.has_logged_all


def test_an_index_that_knew_no_run_is_given_one(desk: Desk) -> None:
    """Its bytes and its place in the spool then name the run."""
    desk.hand_over(StepKey("", "train", 1), step_bytes(1, run=""), None)
    desk.take(2)

    assert (desk.job().key, desk.job().data) == (StepKey("r", "train", 1), step_bytes(1))
    assert list(desk.spool.steps()) == [StepKey("r", "train", 1), StepKey("r", "train", 2)]


def test_a_step_that_comes_again_with_its_run_is_not_replaced_by_the_older_one(desk: Desk) -> None:
    """The one that knew no run is older: it is neither logged nor kept."""
    desk.hand_over(StepKey("", "train", 1), step_bytes(1, run="", note="old"), None)
    desk.take(1, note="new")

    assert desk.job().data == step_bytes(1, note="new")
    assert desk.spool.get(StepKey("r", "train", 1)) == step_bytes(1, note="new")
    desk.answer(LOGGED)
    assert (len(desk.calls), desk.count("spooled"), desk.agenda.has_logged_all) == (0, 0, True)


def test_a_run_that_is_over_takes_nothing_and_nothing_is_counted_as_failed(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """The step waits in the spool, and the same run is not tried again."""
    desk.take(1)
    desk.answer(Result(outcome=Outcome.RUN_OVER, index_written=True))
    desk.take(2)

    assert not desk.calls
    assert (desk.count("failed"), desk.count("without_run"), desk.count("spooled")) == (0, 2, 2)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("outcome", [Outcome.OFFLINE, Outcome.DISABLED])
def test_a_client_that_sends_nothing_is_a_normal_state(
    desk: Desk, outcome: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted as such, kept in the spool, no warning."""
    desk.take(1)
    desk.answer(Result(outcome=outcome, index_written=True))

    assert (desk.count(outcome.name.lower()), desk.count("failed"), desk.count("spooled")) == (1, 0, 1)
    assert desk.agenda.has_logged_all
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_newer_content_of_a_waiting_step_takes_its_place(desk: Desk) -> None:
    """Only the newer one is logged; the older one is counted as replaced."""
    desk.take(1)
    desk.take(2, note="old")
    desk.take(2, note="new")
    desk.answer(LOGGED)

    assert desk.job().data == step_bytes(2, note="new")
    assert (desk.count("replaced"), desk.count("pending")) == (1, 1)


def test_a_newer_content_of_a_step_under_way_is_logged_after_it(desk: Desk) -> None:
    """The older version is not disturbed, and its success does not remove the newer one from the spool."""
    desk.take(1, note="old")
    desk.take(1, note="new")
    desk.answer(LOGGED)

    assert desk.job().data == step_bytes(1, note="new")
    assert (desk.count("replaced"), desk.count("spooled"), desk.agenda.has_logged_all) == (0, 1, False)
    desk.answer(LOGGED)
    assert (desk.count("logged"), desk.count("spooled"), desk.agenda.has_logged_all) == (2, 0, True)


def test_a_spool_that_fails_does_not_keep_a_step_from_being_logged(tmp_path: Path) -> None:
    """The disk is full and W&B is well: W&B gets it."""
    (tmp_path / "spool").write_text("")
    desk = Desk(tmp_path / "spool")
    desk.take(1)

    assert desk.job().data == step_bytes(1)
    desk.answer(LOGGED)
    assert desk.agenda.has_logged_all


@pytest.mark.parametrize("fate", ["given up", "without a run", "at the end"])
def test_what_the_spool_has_lost_is_put_back(desk: Desk, fate: str) -> None:
    """Somebody has emptied it, or it was full when the step came: what W&B does not have is there in the end."""
    desk.take(1)
    shutil.rmtree(desk.directory)
    match fate:
        case "given up":
            for pause in (10, 20, 0):
                desk.answer(FAILED)
                desk.wait(pause)
        case "without a run":
            desk.answer(Result(outcome=Outcome.RUN_OVER, index_written=True))
        case _:
            desk.agenda.leave()

    assert desk.spool.get(StepKey("r", "train", 1)) == step_bytes(1)


def test_a_step_is_claimed_as_long_as_it_may_be_logged(desk: Desk) -> None:
    """Queued, under way, or perhaps still with W&B's client; not once it was given up, nor after the end."""
    looking = Claims(desk.spool, By.LINK)

    def claimed() -> list[int]:
        return [step for step in range(1, 6) if looking.other(StepKey("r", "train", step))]

    for step in (1, 2, 3, 4):
        desk.take(step)
    assert claimed() == [1, 2, 3]  # there is no room for the fourth
    for pause in (10, 20, 0):
        desk.answer(FAILED)
        desk.wait(pause)
    assert claimed() == [2, 3]
    desk.answer(Result(outcome=Outcome.TIMED_OUT))
    desk.take(5)
    assert claimed() == [2, 3, 5]

    desk.agenda.leave()

    assert claimed() == [2]


def test_an_answer_that_is_no_result_is_a_failure(desk: Desk) -> None:
    """A bug in the attempt, or an interpreter that is going down, ends like any other failure."""
    desk.take(1)
    desk.answer(SystemExit("odd"))

    assert desk.count("retried") == 1
