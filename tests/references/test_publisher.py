"""What a helper process does with its steps, through the real client against the stand-in W&B server."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from references.calls import THREAD_NAME
from references.claims import By, Claims
from references.codec import decode, encode
from references.seams import Patience, PublishSettings
from references.spool import Spool, StepKey
from tests.references.publishing import (
    MIRROR,
    PATIENCE,
    SETTINGS,
    MirrorIndexes,
    MirrorReceipts,
    SleepingMirror,
    counts,
    helper_here,
    helpers,
    publish,
    publisher_process,
    publisher_threads,
    step_index,
    versions,
    wait_until,
)
from tests.references.wandb_standin.faults import Delay, Drop, Fault, Hang, LoseReply, Refuse, Status

if TYPE_CHECKING:
    from pathlib import Path

    import wandb

    from tests.references.wandb_standin.server import WandbServer

pytestmark = pytest.mark.integration


def test_a_step_becomes_a_version_with_references(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Every receipted file is a reference, a local-only record is a row, nothing but ``step.json`` is uploaded."""
    index = step_index(3, run=name)
    with helper_here(tmp_path, receipts=MirrorReceipts()) as made:
        made.publish(index, run=wandb_run)
        assert made.close(30)

    [version] = versions(wandb_server, name)
    assert sorted(version.aliases) == ["latest", "train-step-3"]
    assert {path: entry["ref"] for path, entry in version.entries.items() if path != "step.json"} == {
        f"records/{file}": f"{MIRROR}/{file}"
        for record in ("tr_3_0", "tr_3_1")
        for file in (f"{record}.tokens.zst", f"{record}.json.zst")
    }
    assert wandb_server.state.blob(version, "step.json") == encode(index)
    metadata = json.loads(version.metadata)
    assert (metadata["num_trajectories"], metadata["num_mirrored"], metadata["num_referenced"]) == (3, 2, 4)
    assert (metadata["num_pending"], metadata["receipts_read"]) == (0, True)
    assert len(wandb_server.requests("PutFile")) == 1


def test_steps_are_logged_in_order_and_leave_the_spool(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """One version each, ``latest`` on the newest; a run's first step asks W&B what is there, no later one does."""
    with helper_here(tmp_path) as made:
        for step in range(1, 6):
            made.publish(step_index(step, run=name), run=wandb_run)
        made.publish(step_index(5, run=name, phase="eval"), run=wandb_run)
        assert made.close(30)
        assert counts(made, "logged", "spooled", "pending", "failed", "retried") == (6, 0, 0, 0, 0)

    assert [version.aliases for version in versions(wandb_server, name)][:4] == [
        [f"train-step-{n}"] for n in range(1, 5)
    ]
    assert sorted(versions(wandb_server, name)[-1].aliases) == ["latest", "train-step-5"]
    assert len(wandb_server.requests("ArtifactMembershipByName")) == 2


@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        ("CreateArtifact", Status(code=500)),
        ("CreateArtifact", Status(code=429, retry_after_s=0)),
        ("CreateArtifact", Status(code=403)),
        ("CreateArtifactFiles", Refuse()),
        ("PutManifest", Drop()),
        ("CommitArtifact", Drop()),
    ],
    ids=str,
)
def test_a_passing_failure_is_tried_again(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path, operation: str, fault: Fault
) -> None:
    """What even the client's own retries did not overcome is tried again, after a look at what is there."""
    wandb_server.faults.plan(operation, fault, times=2)
    with helper_here(tmp_path) as made:
        made.publish(step_index(1, run=name), run=wandb_run)
        assert made.close(30)
        assert counts(made, "logged", "failed", "spooled") == (1, 0, 0)

    assert len(versions(wandb_server, name)) == 1


def test_a_refusal_is_given_up_after_the_last_attempt(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Attempts are bounded, nothing is raised, and the spool keeps the step."""
    wandb_server.faults.plan("CreateArtifact", Status(code=403), times=None)
    with helper_here(tmp_path) as made:
        made.publish(step_index(1, run=name), run=wandb_run)
        assert not made.close(30)
        assert counts(made, "failed", "retried", "logged", "pending", "spooled") == (1, 2, 0, 0, 1)

    assert len(wandb_server.requests("CreateArtifact")) == SETTINGS.attempts
    assert "gave up logging train step 1" in caplog.text


def test_a_lost_commit_reply_makes_no_second_version(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """The client says that it failed; W&B is asked, has the version, and nothing is logged again."""
    with helper_here(tmp_path, receipts=MirrorReceipts()) as made:
        made.publish(step_index(1, run=name), run=wandb_run)
        assert wait_until(lambda: counts(made, "logged") == (1,))
        wandb_server.faults.plan("CommitArtifact", LoseReply(), times=None)
        made.publish(step_index(2, run=name), run=wandb_run)
        assert made.close(30)
        assert counts(made, "logged", "retried", "spooled") == (2, 1, 0)

    assert len(versions(wandb_server, name)) == 2
    assert len(wandb_server.requests("CreateArtifact")) == 2


def test_a_slow_server_is_only_slow(wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path) -> None:
    """A delay on every call delays nobody but the worker."""
    wandb_server.faults.plan("CommitArtifact", Delay(seconds=0.3), times=None)
    with helper_here(tmp_path) as made:
        for step in (1, 2):
            made.publish(step_index(step, run=name), run=wandb_run)
        assert made.close(30)

    assert len(versions(wandb_server, name)) == 2


def test_a_hang_is_abandoned_and_the_step_stays_in_the_spool(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """While W&B hangs, ``publish`` returns at once and threads do not pile up; ``close`` ends the worker."""
    wandb_server.faults.plan("CommitArtifact", Hang(), times=None)
    settings = PublishSettings(queue_size=8, timeout_s=0.5, backoff_s=0.05)
    with helper_here(tmp_path, settings=settings, patience=replace(PATIENCE, settle_s=300)) as made:
        made.publish(step_index(1, run=name), run=wandb_run)
        assert wait_until(lambda: counts(made, "timed_out") == (1,))
        for step in range(2, 6):
            made.publish(step_index(step, run=name), run=wandb_run)
        assert not made.close(1)
        assert counts(made, "timed_out", "logged", "pending", "spooled") == (1, 0, 4, 5)
        assert len(wandb_server.requests("CreateArtifact")) == 1
        assert len(publisher_threads()) <= 1
    wandb_server.heal()

    assert wait_until(lambda: not publisher_threads())


def test_a_version_that_came_through_after_all_is_found(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Abandoned while the server hung, committed when it woke: the next step is logged only after that is known."""
    wandb_server.faults.plan("CommitArtifact", Hang(), times=1)
    settings = PublishSettings(queue_size=8, timeout_s=1, backoff_s=0.05)
    with helper_here(tmp_path, settings=settings) as made:
        made.publish(step_index(1, run=name), run=wandb_run)
        assert wait_until(lambda: counts(made, "timed_out") == (1,))
        wandb_server.heal()
        assert wait_until(lambda: versions(wandb_server, name))
        made.publish(step_index(2, run=name), run=wandb_run)
        assert made.close(30)
        assert counts(made, "timed_out", "logged", "spooled") == (1, 2, 0)

    assert len(versions(wandb_server, name)) == 2


def test_down_and_up_again(wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path) -> None:
    """Steps of an outage are given up one after the other, and logged once a later step gets through."""
    wandb_server.down()
    settings = PublishSettings(queue_size=8, timeout_s=30, attempts=1, backoff_s=0.05)
    with helper_here(tmp_path, settings=settings) as made:
        made.publish(step_index(1, run=name), run=wandb_run)
        assert wait_until(lambda: counts(made, "failed") == (1,))
        wandb_server.up()
        made.publish(step_index(2, run=name), run=wandb_run)
        assert made.close(30)
        assert counts(made, "logged", "failed", "spooled") == (2, 1, 0)

    first, second = versions(wandb_server, name)
    assert sorted(first.aliases + second.aliases) == ["latest", "train-step-1", "train-step-2"]
    assert "latest" in first.aliases
    assert "train-step-2" in first.aliases


def test_a_full_queue_drops_and_the_spool_keeps(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """What the queue has no room for is counted, durable, and logged when W&B works again."""
    wandb_server.faults.plan("CommitArtifact", Hang(), times=1)
    with helper_here(tmp_path, settings=PublishSettings(queue_size=2, timeout_s=30, backoff_s=0.05)) as made:
        for step in range(1, 6):
            made.publish(step_index(step, run=name), run=wandb_run)
            assert wait_until(lambda step=step: counts(made, "spooled") == (step,))  # type: ignore[misc] # a bound name
        assert counts(made, "dropped", "pending") == (3, 2)
        wandb_server.heal()
        assert made.close(30)
        assert counts(made, "logged", "spooled") == (5, 0)

    assert len(versions(wandb_server, name)) == 5


def test_late_receipts_come_as_a_newer_version(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """What has not landed is named in ``step.json``; when it lands, a newer version takes the aliases."""
    receipts = MirrorReceipts()
    receipts.missing = {"tr_1_1"}
    with helper_here(tmp_path, receipts=receipts) as made:
        made.publish(step_index(1, run=name), run=wandb_run)
        assert wait_until(lambda: counts(made, "logged", "waiting_for_receipts") == (1, 1))
        receipts.missing = set()
        assert made.close(30)
        assert counts(made, "logged", "completed", "waiting_for_receipts", "spooled") == (1, 1, 0, 0)

    first, second = versions(wandb_server, name)
    rows = json.loads(wandb_server.state.blob(first, "step.json"))["rows"]
    assert [row.get("pending", False) for row in rows] == [False, True, False]
    assert (len(first.entries), len(second.entries)) == (3, 5)
    assert (first.aliases, sorted(second.aliases)) == ([], ["latest", "train-step-1"])
    assert decode(wandb_server.state.blob(second, "step.json")) == step_index(1, run=name)


def test_receipts_that_cannot_be_read_do_not_keep_a_step_back(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The version is logged and says so; the spool keeps the step for later; no secret is in the log."""
    receipts = MirrorReceipts()
    receipts.error = PermissionError("GET https://store/x?X-Amz-Signature=hunter2 denied")
    with helper_here(tmp_path, receipts=receipts) as made:
        made.publish(step_index(1, run=name), run=wandb_run)
        assert made.close(1)
        assert counts(made, "logged", "spooled") == (1, 1)

    metadata = json.loads(versions(wandb_server, name)[0].metadata)
    assert (metadata["receipts_read"], metadata["num_referenced"], metadata["num_pending"]) == (False, 0, 2)
    assert "denied" in caplog.text
    assert "hunter2" not in caplog.text


def test_the_mirror_gets_each_index(wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path) -> None:
    """Before W&B; and a mirror that refuses keeps no version back, but the step in the spool until it takes it."""
    indexes = MirrorIndexes()
    with helper_here(tmp_path, index_store=indexes) as made:
        made.publish(step_index(1, run=name), run=wandb_run)
        assert wait_until(lambda: counts(made, "logged", "spooled") == (1, 0))
        assert indexes.written == {("train", 1): encode(step_index(1, run=name))}
        indexes.error = OSError("full")
        made.publish(step_index(2, run=name), run=wandb_run)
        assert wait_until(lambda: counts(made, "logged", "spooled") == (2, 1))
        indexes.error = None
        assert made.close(30)
        assert counts(made, "spooled", "completed") == (0, 0)

    assert set(indexes.written) == {("train", 1), ("train", 2)}
    assert len(versions(wandb_server, name)) == 2


def test_a_replayed_step_takes_its_alias_and_latest_stays_on_the_newest(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """A run resumed at step 2 after step 4, in another process: the same step again is a newer version."""
    with helper_here(tmp_path) as made:
        for step in range(1, 5):
            made.publish(step_index(step, run=name), run=wandb_run)
        assert made.close(30)
    with helper_here(tmp_path) as resumed:
        for step in (2, 3):
            resumed.publish(step_index(step, run=name, note="again"), run=wandb_run)
        assert resumed.close(30)

    found = {alias: version.index for version in versions(wandb_server, name) for alias in version.aliases}
    assert found == {"train-step-1": 0, "train-step-2": 4, "train-step-3": 5, "train-step-4": 3, "latest": 3}


@pytest.mark.parametrize("deduplication", ["latest", "any"])
def test_what_is_there_already_is_not_logged_again(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path, deduplication: str
) -> None:
    """A step that an earlier process has logged, and could not cross off, makes no second version and moves nothing."""
    wandb_server.state.deduplication = deduplication  # type: ignore[assignment] # one of its two values
    for _ in range(2):
        with helper_here(tmp_path, receipts=MirrorReceipts()) as made:
            for step in (1, 2, 3):
                made.publish(step_index(step, run=name), run=wandb_run)
            assert made.close(30)
            assert counts(made, "logged", "spooled") == (3, 0)

    assert [version.aliases for version in versions(wandb_server, name)][:2] == [["train-step-1"], ["train-step-2"]]
    assert len(versions(wandb_server, name)) == 3
    assert "latest" in versions(wandb_server, name)[2].aliases


def test_fewer_references_do_not_replace_more(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Published again where the receipts cannot be read, a complete version stays as it is."""
    with helper_here(tmp_path, receipts=MirrorReceipts()) as made:
        made.publish(step_index(1, run=name), run=wandb_run)
        assert made.close(30)
    with helper_here(tmp_path) as blind:
        blind.publish(step_index(1, run=name), run=wandb_run)
        assert blind.close(30)

    assert len(versions(wandb_server, name)) == 1


def test_publishing_returns_while_every_call_hangs(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """The steps are in the spool while W&B answers nothing; ``close`` ends thread and process all the same."""
    wandb_server.faults.plan("*", Hang(), times=None)
    with publisher_process(tmp_path, settings=PublishSettings(timeout_s=1, attempts=1)) as made:
        for step in range(5):
            publish(made, step_index(step, run=name, mirrored=1000), run=wandb_run)
        assert wait_until(lambda: counts(made, "spooled") == (5,))
        assert not made.close(0)
        assert (publisher_threads(), helpers()) == ([], [])
    assert Spool(tmp_path).count() == 5


def test_the_worker_ends_while_every_call_hangs(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Neither W&B nor the mirror answers anything; only the threads that hang are left."""
    wandb_server.faults.plan("*", Hang(), times=None)
    mirror = SleepingMirror()
    with helper_here(tmp_path, settings=PublishSettings(timeout_s=1, attempts=1), receipts=mirror) as made:
        for step in range(5):
            made.publish(step_index(step, run=name, mirrored=1000), run=wandb_run)
        assert not made.close(0)
        assert THREAD_NAME not in publisher_threads()
    mirror.awake.set()
    wandb_server.heal()
    assert wait_until(lambda: not publisher_threads())


def test_a_mirror_that_hangs_does_not_keep_a_step_back(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Logged without references, and completed when the mirror wakes up."""
    mirror = SleepingMirror()
    patience = Patience(receipts_wait_s=0.1, receipts_poll_s=0.02, mirror_timeout_s=0.1)
    with helper_here(tmp_path, receipts=mirror, index_store=mirror, patience=patience) as made:
        made.publish(step_index(1, run=name), run=wandb_run)
        assert wait_until(lambda: counts(made, "logged", "spooled") == (1, 1))
        mirror.awake.set()
        assert made.close(30)
        assert counts(made, "completed", "spooled") == (1, 0)

    assert [len(version.entries) for version in versions(wandb_server, name)] == [1, 5]


def test_wandb_hanging_for_the_whole_run_leaves_nothing_behind(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Every call hangs from the first step to the end; afterwards one version per step is logged from the spool."""
    wandb_server.faults.plan("*", Hang(), times=None)
    settings = PublishSettings(queue_size=8, timeout_s=0.3, backoff_s=0.05)
    with publisher_process(tmp_path, settings=settings) as made:
        for step in (1, 2, 3):
            publish(made, step_index(step, run=name), run=wandb_run)
        assert not made.close(1)
        assert (publisher_threads(), helpers()) == ([], [])
    wandb_server.heal()
    with publisher_process(tmp_path) as later:
        for key in Spool(tmp_path).steps():
            publish(later, step_index(key.step, run=name), run=wandb_run)
        assert later.close(30)

    assert sorted(json.loads(version.metadata)["global_step"] for version in versions(wandb_server, name)) == [1, 2, 3]


def test_what_was_abandoned_is_not_logged_after_the_close(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """W&B answers a question when nobody waits any more: the version is not handed over behind anybody's back."""
    wandb_server.faults.plan("ArtifactMembershipByName", Delay(seconds=1.5))
    with helper_here(tmp_path, settings=PublishSettings(timeout_s=0.3)) as made:
        made.publish(step_index(1, run=name), run=wandb_run)
        assert not made.close(0.5)
        assert wait_until(lambda: not publisher_threads())

    assert not versions(wandb_server, name)
    assert Spool(tmp_path).count() == 1


def test_a_step_is_claimed_while_this_process_may_log_it(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """From the moment that it is taken over until it is logged, or left to others; what is in flight stays claimed."""
    looking = Claims(Spool(tmp_path), By.LINK)
    wandb_server.faults.plan("CommitArtifact", Hang())
    with helper_here(tmp_path) as made:
        for step in (1, 2):
            made.publish(step_index(step, run=name), run=wandb_run)
        assert wandb_server.wait_for("CommitArtifact")
        assert all(looking.other(StepKey(name, "train", step)) for step in (1, 2))
        assert not made.close(0)
        assert [looking.other(StepKey(name, "train", step)) is None for step in (1, 2)] == [False, True]
    wandb_server.heal()
    with helper_here(tmp_path) as later:
        for step in (1, 2):
            later.publish(step_index(step, run=name), run=wandb_run)
        assert later.close(30)

    assert not any(path.name.endswith(".claim") for path in tmp_path.rglob("*"))


def test_nothing_is_warned_of_when_all_is_well(
    wandb_run: wandb.Run, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A healthy run logs nothing above INFO."""
    with helper_here(tmp_path, receipts=MirrorReceipts(), index_store=MirrorIndexes()) as made:
        made.publish(step_index(1, run=name), run=wandb_run)
        assert made.close(30)

    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
