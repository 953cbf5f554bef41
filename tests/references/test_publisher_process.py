"""Logging steps from a helper process, through the real client: ``references/publisher_process.py``."""

from __future__ import annotations

import functools
import json
import logging
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest
import wandb

from mirror import MirrorConfig
from mirror.receipts.receipt import encode_line
from mirror.receipts.segments import segment_key
from references.claims import By, Claims
from references.codec import encode
from references.errors import ConfigError, StepError
from references.indexing import StepIndexer
from references.publisher_process import PublisherProcess
from references.record_log import RecordLog
from references.run_index import StepIndex
from references.seams import PublishSettings
from references.spool import Spool, StepKey
from tests.references.publishing import (
    counts,
    helpers,
    publish,
    publisher_process,
    publisher_threads,
    receipt_of,
    row,
    run_trainer,
    step_index,
    versions,
    wait_until,
)
from tests.references.wandb_standin.faults import Hang, Status

if TYPE_CHECKING:
    from tests.references.wandb_standin.server import WandbServer

pytestmark = pytest.mark.integration


def test_a_step_becomes_a_version_with_references(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """The helper reads the receipts, makes the references and gives the mirror the index; then it leaves."""
    mirror = tmp_path / "mirror"
    segment = mirror / segment_key("server", 1)
    segment.parent.mkdir(parents=True)
    receipt = receipt_of("tr_1")
    md5 = [{**json.loads(encode_line(receipt)), "files": []}]
    files = [{"name": one.name, "size": 7, "xxh3_128": "0" * 32, "md5": "0" * 32} for one in receipt.files]
    segment.write_text(json.dumps({**md5[0], "files": files}) + "\n", encoding="utf-8")
    index = StepIndex(run=name, phase="train", step=1, rows=(row("tr_1", "task", f"file://{mirror}/tr_1.json.zst"),))
    with publisher_process(tmp_path / "spool", mirror=mirror) as made:
        publish(made, index, run=wandb_run)
        assert made.close(60)
        assert counts(made, "logged", "pending", "spooled", "dropped") == (1, 0, 0, 0)

    [version] = versions(wandb_server, name)
    assert sorted(version.entries) == ["records/tr_1.json.zst", "records/tr_1.tokens.zst", "step.json"]
    assert wandb_server.state.blob(version, "step.json") == encode(index)
    assert (mirror / "index" / "train" / "step-1.json").read_bytes() == encode(index)
    assert (publisher_threads(), helpers()) == ([], [])


@pytest.mark.parametrize("run", ["my-run", 3, SimpleNamespace(name="my-run")], ids=str)
def test_a_run_that_is_none_is_refused_at_once(run: object, tmp_path: Path) -> None:
    """Before anything is begun, by a sentence that says what to give; without a run a step is spooled as ever."""
    log = RecordLog()
    spool = Spool(tmp_path)
    indexer = StepIndexer(log, publisher=PublisherProcess(spool=spool))
    with pytest.raises(StepError, match=r"the run to log to is a \w+: give what wandb.init returned"):
        indexer.step_end(1, run=run)
    assert not helpers()

    log.add_attempt("train", id="tr_1", instance_id="task")
    indexer.step_end(1)
    assert not indexer.close(1)
    assert list(spool.steps()) == [StepKey("", "train", 1)]


def test_nothing_is_left_after_a_close_while_wandb_hangs(
    wandb_server: WandbServer, own_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Every call hangs and goes on hanging: no thread, no process; the run is unharmed, and the spool has the steps."""
    threads = set(threading.enumerate())
    wandb_server.faults.plan("*", Hang(), times=None)
    settings = PublishSettings(queue_size=8, timeout_s=0.3, backoff_s=0.05)
    with publisher_process(tmp_path, settings=settings) as made:
        for step in (1, 2, 3):
            publish(made, step_index(step, run=name), run=own_run)
        assert wait_until(lambda: counts(made, "timed_out") == (1,))
        assert not made.close(1)
        assert set(threading.enumerate()) <= threads
        assert helpers() == []
        assert counts(made, "logged", "spooled") == (0, 3)
        claim = Claims(Spool(tmp_path), By.LINK).other(StepKey(name, "train", 1))
        assert claim is not None  # W&B's client still has it
        assert claim.process == os.getpid()

    wandb_server.heal()
    own_run.log({"reward": 1.0})
    own_run.finish()
    with publisher_process(tmp_path) as later:
        again = wandb.init(project="tests", id=name, reinit="create_new", resume="allow")
        for key in Spool(tmp_path).steps():
            publish(later, step_index(key.step, run=name), run=again)
        assert later.close(60)
        again.finish()
    assert sorted(json.loads(one.metadata)["global_step"] for one in versions(wandb_server, name)) == [1, 2, 3]


def test_an_index_is_built_elsewhere(wandb_run: wandb.Run, name: str, tmp_path: Path) -> None:
    """Whoever publishes does not wait for it."""
    builds, may_build = threading.Event(), threading.Event()

    def build() -> StepIndex:
        builds.set()
        assert may_build.wait(30)
        return step_index(1, run=name)

    with publisher_process(tmp_path) as made:
        made.publish("train", 1, build, run=wandb_run)
        assert builds.wait(30)
        assert counts(made, "pending") == (1,)
        may_build.set()
        assert made.close(60)


def test_a_bug_in_building_raises_into_the_step_after(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Once each, or into the close where no step follows; the steps around it are logged."""

    def bug() -> StepIndex:
        raise LookupError("a bug")

    with publisher_process(tmp_path) as made:
        made.publish("train", 1, bug, run=wandb_run)
        assert wait_until(lambda: counts(made, "dropped") == (1,))
        with pytest.raises(LookupError, match="a bug"):
            publish(made, step_index(2, run=name), run=wandb_run)
        no_json = msgspec.structs.replace(step_index(3, run=name).rows[0], annotations={"x": object()})
        publish(made, msgspec.structs.replace(step_index(3, run=name), rows=(no_json,)), run=wandb_run)
        with pytest.raises(TypeError):
            made.close(60)
        assert not made.close(0)

    assert [sorted(version.aliases) for version in versions(wandb_server, name)] == [["latest", "train-step-2"]]
    assert (publisher_threads(), helpers()) == ([], [])


def test_a_bug_in_a_step_that_nobody_takes_over_is_raised_here_and_now(
    wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """It counts as dropped, and the bug of an earlier step is still raised, after it."""
    builds, may_build = threading.Event(), threading.Event()

    def early() -> StepIndex:
        builds.set()
        may_build.wait()
        raise LookupError("an early bug")

    def late(error: BaseException) -> StepIndex:
        raise error

    with publisher_process(tmp_path) as made:
        made.publish("train", 1, early, run=wandb_run)
        assert builds.wait(30)
        assert not made.close(0)
        may_build.set()
        assert wait_until(lambda: counts(made, "dropped") == (1,))
        for number, error in enumerate([ValueError("a late bug"), KeyboardInterrupt()], 2):
            with pytest.raises(type(error)):
                made.publish("train", number, functools.partial(late, error), run=wandb_run)
            assert counts(made, "dropped") == (number,)
        with pytest.raises(LookupError, match="an early bug"):
            publish(made, step_index(4, run=name), run=wandb_run)
        assert not made.close(0)
        assert counts(made, "dropped", "spooled") == (4, 1)


def test_a_step_with_nothing_in_it_is_not_logged(wandb_run: wandb.Run, tmp_path: Path) -> None:
    """Nor does a helper begin for it."""
    with publisher_process(tmp_path) as made:
        made.publish("train", 1, lambda: None, run=wandb_run)
        assert wait_until(lambda: counts(made, "pending") == (0,))
        assert helpers() == []
        assert made.close(30)


def test_a_helper_that_is_killed_costs_no_step(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What it had is in the spool, it is said so, and the next step is logged by another helper."""
    wandb_server.faults.plan("CreateArtifact", Hang())
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=wandb_run)
        assert wandb_server.wait_for("CreateArtifact")
        [helper] = helpers()
        os.kill(helper, signal.SIGKILL)
        assert wait_until(lambda: not Path(f"/proc/{helper}").exists())
        wandb_server.heal()
        publish(made, step_index(2, run=name), run=wandb_run)
        assert not made.close(60)
        assert counts(made, "logged", "spooled") == (1, 1)

    assert "the process that logs to W&B is gone" in caplog.text
    assert list(Spool(tmp_path).steps()) == [StepKey(name, "train", 1)]


def test_a_step_that_a_stopped_helper_does_not_take_is_spooled_all_the_same(
    wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """A helper that does nothing any more is ended by the close, and what it was sent is in the spool."""
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=wandb_run)
        assert wait_until(lambda: counts(made, "logged") == (1,))
        [helper] = helpers()
        os.kill(helper, signal.SIGSTOP)
        publish(made, step_index(2, run=name, mirrored=5_000), run=wandb_run)
        publish(made, step_index(3, run=name), run=wandb_run)
        assert not made.close(0)
        assert (publisher_threads(), helpers()) == ([], [])

    assert list(Spool(tmp_path).steps()) == [StepKey(name, "train", 2), StepKey(name, "train", 3)]


def test_a_full_outbox_drops_into_the_spool(wandb_run: wandb.Run, name: str, tmp_path: Path) -> None:
    """Steps beyond the queue are counted as dropped, and nobody waits."""
    may_build = threading.Event()

    def build() -> StepIndex:
        assert may_build.wait(30)
        return step_index(1, run=name)

    with publisher_process(tmp_path, settings=PublishSettings(queue_size=1)) as made:
        made.publish("train", 1, build, run=wandb_run)
        publish(made, step_index(2, run=name), run=wandb_run)
        assert counts(made, "dropped") == (1,)
        may_build.set()
        assert not made.close(60)
        assert counts(made, "logged", "spooled") == (1, 1)
    assert list(Spool(tmp_path).steps()) == [StepKey(name, "train", 2)]


def test_after_close_a_step_is_still_spooled(wandb_run: wandb.Run, name: str, tmp_path: Path) -> None:
    """Counted as dropped; no helper begins."""
    with publisher_process(tmp_path) as made:
        assert made.close(5)
        publish(made, step_index(1, run=name), run=wandb_run)
        assert not made.close(5)
        assert counts(made, "dropped", "spooled") == (1, 1)
        assert helpers() == []


def test_a_finished_run_takes_nothing_and_nobody_is_alarmed(
    wandb_server: WandbServer, own_run: wandb.Run, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Finished before its step, or before the helper came to it: the step waits in the spool."""
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=own_run)
        assert wait_until(lambda: counts(made, "logged") == (1,))
        own_run.finish()
        publish(made, step_index(2, run=name), run=own_run)
        assert not made.close(30)
        assert counts(made, "failed", "timed_out", "without_run", "spooled") == (0, 0, 1, 1)

    assert len(versions(wandb_server, name)) == 1
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING and one.name.startswith("references")]


def test_finishing_the_run_races_the_helper(
    wandb_server: WandbServer, own_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Whatever the moment, nothing is raised, and each step is in W&B once or in the spool."""
    with publisher_process(tmp_path) as made:
        for step in range(1, 8):
            publish(made, step_index(step, run=name), run=own_run)
        assert wandb_server.wait_for("CommitArtifact")
        own_run.finish()
        made.close(10)

    spooled = {key.step for key in Spool(tmp_path).steps()}
    logged = [json.loads(version.metadata)["global_step"] for version in versions(wandb_server, name)]
    assert len(logged) == len(set(logged))
    assert spooled | set(logged) == set(range(1, 8))


def test_a_run_that_no_other_process_can_use_costs_no_step(name: str, tmp_path: Path) -> None:
    """The step waits in the spool like any other that is not logged."""
    run = SimpleNamespace(
        id=name, entity="e", project="p", offline=False, disabled=False, log_artifact=threading.Lock()
    )
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=run)
        assert not made.close(30)
        assert counts(made, "without_run", "failed") == (1, 0)

    assert list(Spool(tmp_path).steps()) == [StepKey(name, "train", 1)]


def test_what_the_helper_remarks_is_in_the_log(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator of the training reads of a failure where everything else is."""
    wandb_server.faults.plan("CreateArtifact", Status(code=403), times=None)
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=wandb_run)
        assert not made.close(30)

    assert "gave up logging train step 1" in caplog.text


def test_settings_that_cannot_be_handed_over_are_refused_at_construction(tmp_path: Path) -> None:
    """The sentence says what to give instead."""
    config = MirrorConfig(storage_options={"session": threading.Lock()})
    with pytest.raises(ConfigError, match="plain values"):
        PublisherProcess(spool=Spool(tmp_path), mirror="s3://bucket/run", mirror_config=config)


FORK = """
run = wandb.init(project="tests", id=name)
publish(made, step_index(1, run=name), run=run)
assert wait_until(lambda: counts(made, "logged") == (1,))
child = os.fork()
if child == 0:
    publish(made, step_index(9, run=name), run=None)
    assert wait_until(lambda: len(helpers()) == 1)
    made.close(5)
    os._exit(0 if counts(made, "spooled")[0] >= 1 and not helpers() else 1)
_, status = os.waitpid(child, 0)
publish(made, step_index(2, run=name), run=run)
print("child", os.waitstatus_to_exitcode(status), "parent", made.close(30), "left", helpers(), flush=True)
run.finish()
"""


def test_a_forked_child_begins_afresh(
    wandb_server: WandbServer, client_environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    """The child publishes with a helper of its own and ends; the parent's helper is unharmed."""
    output, _ = run_trainer(FORK, client_environment, name, str(tmp_path)).communicate(timeout=90)

    assert "child 0 parent True left []" in output, output
    assert {json.loads(version.metadata)["global_step"] for version in versions(wandb_server, name)} == {1, 2}
    assert StepKey(name, "train", 9) in list(Spool(tmp_path).steps())


LEAVES = """
for step in range(12):
    publish(made, step_index(step, run=name), run=None)
raise SystemExit("the trainer gave up")
"""


def test_leaving_right_after_a_step_loses_none(client_environment: dict[str, str], name: str, tmp_path: Path) -> None:
    """A trainer that ends without closing, however soon after its last step, has every step in the spool."""
    output, _ = run_trainer(LEAVES, client_environment, name, str(tmp_path)).communicate(timeout=90)

    assert "gave up" in output
    assert sorted(key.step for key in Spool(tmp_path).steps()) == list(range(12))


KILLED = """
run = wandb.init(project="tests", id=name)
for step in (1, 2, 3):
    publish(made, step_index(step, run=name), run=run)
assert wait_until(lambda: counts(made, "spooled") == (3,))
print(*helpers(), flush=True)
made.close(60)
"""


def test_the_helper_leaves_when_its_owner_is_killed(
    wandb_server: WandbServer, client_environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    """Though W&B hangs; the spool has every step."""
    wandb_server.faults.plan("CreateArtifact", Hang(), times=None)
    process = run_trainer(KILLED, client_environment, name, str(tmp_path))
    assert process.stdout is not None
    [helper] = map(int, process.stdout.readline().split())
    process.kill()
    process.communicate(timeout=30)

    assert wait_until(lambda: not Path(f"/proc/{helper}").exists())
    assert sorted(key.step for key in Spool(tmp_path).steps()) == [1, 2, 3]
