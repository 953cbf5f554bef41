"""Runs that are absent, finished, offline or disabled; forks, kills and exits: the publisher beside the real client."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import wandb

from references.codec import encode
from references.spool import Spool, StepKey
from tests.references.publishing import (
    counts,
    publish,
    publisher_process,
    run_trainer,
    step_index,
    versions,
    wait_until,
)
from tests.references.wandb_standin.faults import Hang

if TYPE_CHECKING:
    from tests.references.wandb_standin.server import WandbServer

pytestmark = pytest.mark.integration


def test_without_a_run_a_step_is_spooled_and_logged_later(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """The next step that comes with the run takes it along; one that knew no run is given this one."""
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=None)
        publish(made, step_index(2, run=""), run=None)
        assert wait_until(lambda: counts(made, "without_run", "spooled") == (2, 2))
        publish(made, step_index(3, run=name), run=wandb_run)
        assert made.close(30)
        assert counts(made, "logged", "spooled") == (3, 0)

    assert [json.loads(version.metadata)["run_id"] for version in versions(wandb_server, name)] == [name] * 3


def test_without_a_run_the_mirror_gets_the_index_all_the_same(
    wandb_server: WandbServer, name: str, tmp_path: Path
) -> None:
    """Where W&B is absent, the bucket alone describes the run."""
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    with publisher_process(tmp_path / "spool", mirror=mirror) as made:
        publish(made, step_index(1, run=name), run=None)
        assert wait_until(lambda: counts(made, "without_run") == (1,))
        assert not made.close(30)

    assert (mirror / "index" / "train" / "step-1.json").read_bytes() == encode(step_index(1, run=name))
    assert wandb_server.requests("CreateArtifact") == wandb_server.requests("ArtifactMembershipByName") == []


class _Unnamed:
    """A tracker's run that cannot be asked for its id."""

    @property
    def id(self) -> str:
        raise RuntimeError


def test_a_run_that_cannot_be_asked_costs_no_step(name: str, tmp_path: Path) -> None:
    """The step waits in the spool like any other that is not logged."""
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=_Unnamed())
        assert not made.close(5)

    assert list(Spool(tmp_path).steps()) == [StepKey(name, "train", 1)]


def test_nothing_waits_for_a_run_at_the_end(name: str, tmp_path: Path) -> None:
    """With steps that never met a run, ``close`` says so at once, and they stay in the spool."""
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=None)
        assert not made.close(30)

    assert list(Spool(tmp_path).steps()) == [StepKey(name, "train", 1)]


def test_an_offline_run_is_a_normal_state(
    wandb_server: WandbServer, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted as such, no warning, no request; the step stays in the spool, whatever becomes of W&B's own files."""
    run = wandb.init(project="tests", id=name, mode="offline", reinit="create_new", dir=str(tmp_path))
    with publisher_process(tmp_path / "spool") as made:
        publish(made, step_index(1, run=name), run=run)
        assert made.close(30)
        assert counts(made, "offline", "failed", "logged", "spooled") == (1, 0, 0, 1)
    run.finish()

    assert wandb_server.requests("CreateArtifact") == []
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING and one.name.startswith("references")]


def test_an_offline_step_is_logged_by_whoever_comes_later(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """After W&B's staging directory is gone, the spool alone brings every step to W&B."""
    scratch = tmp_path / "wandb"
    scratch.mkdir()
    run = wandb.init(project="tests", id=name, mode="offline", reinit="create_new", dir=str(scratch))
    with publisher_process(tmp_path / "spool") as made:
        for step in (1, 2):
            publish(made, step_index(step, run=name), run=run)
        assert made.close(30)
    run.finish()
    shutil.rmtree(scratch)
    with publisher_process(tmp_path / "spool") as later:
        for step in (1, 2):
            publish(later, step_index(step, run=name), run=wandb_run)
        assert later.close(30)
        assert counts(later, "logged", "spooled") == (2, 0)

    assert len(versions(wandb_server, name)) == 2


def test_a_disabled_run_is_a_normal_state(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Counted as such, no warning; the step stays in the spool."""
    run = wandb.init(project="tests", id=name, mode="disabled", reinit="create_new")
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=run)
        assert made.close(30)
        assert counts(made, "disabled", "failed", "logged", "spooled") == (1, 0, 0, 1)

    assert not [one for one in caplog.records if one.levelno >= logging.WARNING and one.name.startswith("references")]


def test_metrics_go_on_while_a_version_hangs(
    wandb_server: WandbServer, own_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """The run's own logging is not held up by a version that W&B does not take."""
    wandb_server.faults.plan("PutManifest", Hang(), times=None)
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=own_run)
        assert wandb_server.wait_for("PutManifest")
        before = len(wandb_server.requests("FileStream"))
        own_run.log({"reward": 1.0})
        assert wandb_server.wait_for("FileStream", before + 1)
        wandb_server.heal()


EXIT = """
publish(made, step_index(1, run=name), run=None)
assert wait_until(lambda: counts(made, "without_run") == (1,))
os.kill(helpers()[0], signal.SIGSTOP)
publish(made, step_index(2, run=name), run=None)
"""


def test_leaving_without_close_does_not_hang(client_environment: dict[str, str], name: str, tmp_path: Path) -> None:
    """An interpreter that ends while the helper does nothing any more, ends; the spool has the steps."""
    process = run_trainer(EXIT, client_environment, name, str(tmp_path))
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 0, output
    assert list(Spool(tmp_path).steps()) == [StepKey(name, "train", 1), StepKey(name, "train", 2)]


KILLED = """
run = wandb.init(project="tests", id=name)
for step in (1, 2, 3):
    publish(made, step_index(step, run=name), run=run)
made.close(60)
"""


def test_kill_9_loses_no_step(
    wandb_server: WandbServer,
    wandb_run: wandb.Run,
    client_environment: dict[str, str],
    name: str,
    tmp_path: Path,
) -> None:
    """Killed after W&B has committed a version and before anybody knew, the next process makes no second one."""
    wandb_server.faults.plan("ArtifactByID", Hang(), times=None)  # what the client asks once it has committed
    process = run_trainer(KILLED, client_environment, name, str(tmp_path))
    assert wait_until(lambda: versions(wandb_server, name))
    assert wait_until(lambda: Spool(tmp_path).count() == 3)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    wandb_server.heal()

    with publisher_process(tmp_path) as later:
        for key in list(Spool(tmp_path).steps()):
            publish(later, step_index(key.step, run=key.run), run=wandb_run)
        assert later.close(30)
        assert counts(later, "logged", "spooled") == (3, 0)

    assert len(versions(wandb_server, name)) == 3


def test_many_threads_may_publish(wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path) -> None:
    """Steps from several threads are each logged once."""
    with publisher_process(tmp_path) as made:
        threads = [
            threading.Thread(target=publish, args=(made, step_index(step, run=name)), kwargs={"run": wandb_run})
            for step in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made.close(30)

    assert len(versions(wandb_server, name)) == 8
