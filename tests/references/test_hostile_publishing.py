"""What may befall a training and its helper process: kills, stops, forks, disks and settings that are not as they were.

Whatever it is, a step is in W&B once, or in the spool.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import wandb

from mirror.receipts.receipt import FileReceipt, Receipt, encode_line
from mirror.receipts.segments import segment_key
from references.codec import encode
from references.messages import AskIsOver, IsOver, Order, Report, RunTicket, Step
from references.run_index import StepIndex
from references.seams import PublishSettings
from references.spool import Spool, StepKey
from tests.references.publishing import (
    PATIENCE,
    counts,
    helpers,
    publish,
    publisher_process,
    publisher_threads,
    row,
    run_trainer,
    step_index,
    versions,
    wait_until,
)
from tests.references.wandb_standin.faults import Hang, Refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.references.wandb_standin.server import WandbServer

pytestmark = pytest.mark.integration

MANY = 10_000


def logged_steps(server: WandbServer, run: str) -> list[int]:
    """Return the steps that W&B has, one for each version."""
    return sorted(json.loads(version.metadata)["global_step"] for version in versions(server, run))


def spooled_steps(directory: Path) -> list[int]:
    """Return the steps that the spool has."""
    return [key.step for key in Spool(directory).steps()]


def is_gone(process: int) -> bool:
    """Say whether a process is there no more."""
    return not Path(f"/proc/{process}").exists()


# The helper


def test_a_helper_that_is_killed_while_it_begins(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Before it has heard of any step; the next step has another helper."""
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=wandb_run)
        assert wait_until(helpers)
        [helper] = helpers()
        os.kill(helper, signal.SIGKILL)
        assert wait_until(lambda: is_gone(helper))
        publish(made, step_index(2, run=name), run=wandb_run)
        assert not made.close(60)
        assert counts(made, "logged", "spooled", "pending") == (1, 1, 0)

    assert (logged_steps(wandb_server, name), spooled_steps(tmp_path)) == ([2], [1])


def test_helpers_that_are_killed_one_after_the_other(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Whatever each of them was doing."""
    with publisher_process(tmp_path) as made:
        for step in range(1, 7):
            publish(made, step_index(step, run=name, mirrored=200 * step), run=wandb_run)
            if step % 2:
                publish(made, step_index(step, run=name, mirrored=200 * step, note="again"), run=wandb_run)
            for helper in helpers():
                os.kill(helper, signal.SIGKILL)
        made.close(60)
        assert (publisher_threads(), helpers()) == ([], [])

    logged = logged_steps(wandb_server, name)
    assert set(logged) | set(spooled_steps(tmp_path)) == set(range(1, 7))
    contents = [wandb_server.state.blob(version, "step.json") for version in versions(wandb_server, name)]
    assert len(contents) == len(set(contents))


def test_a_stopped_helper_keeps_no_step_from_the_spool(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Far more is said to it than its pipe takes: what goes beyond the queue is dropped, and it goes on when it can."""
    with publisher_process(tmp_path, settings=PublishSettings(queue_size=4, backoff_s=0.05)) as made:
        publish(made, step_index(1, run=name), run=wandb_run)
        assert wait_until(lambda: counts(made, "logged") == (1,))
        [helper] = helpers()
        os.kill(helper, signal.SIGSTOP)
        for step in range(2, 10):
            publish(made, step_index(step, run=name, mirrored=3000), run=wandb_run)
            assert wait_until(lambda step=step: spooled_steps(tmp_path) == list(range(2, step + 1)))  # type: ignore[misc] # a bound name
        assert wait_until(lambda: counts(made, "dropped", "pending") == (4, 4))
        os.kill(helper, signal.SIGCONT)
        assert not made.close(60)

    assert (logged_steps(wandb_server, name), spooled_steps(tmp_path)) == ([1, 2, 3, 4, 5], [6, 7, 8, 9])


def test_a_stopped_helper_is_ended_with_its_pipe_full(wandb_run: wandb.Run, name: str, tmp_path: Path) -> None:
    """The close does not wait for what cannot be said."""
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=wandb_run)
        assert wait_until(lambda: counts(made, "logged") == (1,))
        os.kill(helpers()[0], signal.SIGSTOP)
        for step in (2, 3, 4):
            publish(made, step_index(step, run=name, mirrored=3000), run=wandb_run)
        assert not made.close(0)
        assert (publisher_threads(), helpers()) == ([], [])

    assert spooled_steps(tmp_path) == [2, 3, 4]


def test_a_step_of_ten_thousand_records(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """Each of its files is a reference."""
    mirror = tmp_path / "mirror"
    segment = mirror / segment_key("server", 1)
    segment.parent.mkdir(parents=True)
    names = [f"tr_{number}" for number in range(MANY)]
    with segment.open("wb") as file:
        for one in names:
            receipt = FileReceipt(name=f"{one}.json.zst", size=7, xxh3_128="0" * 32, etag=None, md5="0" * 32)
            file.write(encode_line(Receipt(id=one, at=1.0, writer="w", host="h", path=f"/{one}", files=(receipt,))))
    rows = tuple(row(one, "task", f"file://{mirror}/{one}.json.zst") for one in names)
    with publisher_process(tmp_path / "spool", mirror=mirror) as made:
        publish(made, StepIndex(run=name, phase="train", step=1, rows=rows), run=wandb_run)
        assert made.close(120)

    [version] = versions(wandb_server, name)
    assert len(version.entries) == MANY + 1


# The training


def test_the_helper_leaves_with_the_training_though_a_fork_of_it_lives_on(
    client_environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    """A data loader holds the pipe open, and outlives the kill."""
    script = """
publish(made, step_index(1, run=name), run=None)
assert wait_until(lambda: counts(made, "without_run") == (1,))
fork = os.fork()
if fork == 0:
    signal.pause()
print(*helpers(), fork, flush=True)
signal.pause()
"""
    process = run_trainer(script, client_environment, name, str(tmp_path))
    assert process.stdout is not None
    helper, fork = map(int, process.stdout.readline().split())
    try:
        process.kill()
        assert wait_until(lambda: is_gone(helper))
    finally:
        os.kill(fork, signal.SIGKILL)
        process.communicate(timeout=30)

    assert spooled_steps(tmp_path) == [1]


_PARENT = """
import os, subprocess, sys
begin = "import sys; from references.publisher_child import main; main(int(sys.argv[1]), int(sys.argv[2]))"
command = [sys.executable, "-c", begin, sys.argv[1], str(os.getpid())]
print(subprocess.Popen(command, pass_fds=[int(sys.argv[1])]).pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("whole", [0, 1, 2])
def test_the_helper_leaves_with_the_training_that_was_killed_in_the_middle_of_a_word(
    whole: int, client_environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    """Nobody says the rest, and somebody holds the pipe open; what was said wholly before is in the spool."""
    ours, other_end = socket.socketpair()
    order = Order(settings=PublishSettings(), patience=PATIENCE, spool=Spool(tmp_path), mirror=None, log_level=30)
    steps = [Step(StepKey(name, "train", number), encode(step_index(number, run=name)), None) for number in (1, 2)]
    words = [struct.pack("!i", len(data)) + data for data in map(pickle.dumps, [order, *steps])]
    with ours, other_end:
        trainer = subprocess.Popen(  # noqa: S603 - our own interpreter and script
            [sys.executable, "-c", _PARENT, str(other_end.fileno())],
            pass_fds=[other_end.fileno()],
            env=client_environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert trainer.stdout is not None
        helper = int(trainer.stdout.readline())
        try:
            ours.sendall(b"".join(words[:whole]) + words[whole][: len(words[whole]) // 2])
            if whole == 2:
                ours.recv(1)  # its report: it is at work
            trainer.kill()
            assert wait_until(lambda: is_gone(helper))
        finally:
            trainer.kill()
            trainer.communicate(timeout=30)

    assert spooled_steps(tmp_path) == [1][: max(0, whole - 1)]


def test_a_training_that_was_stopped_goes_on(
    wandb_server: WandbServer, client_environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    """A version was under way: all are logged, none twice."""
    script = """
run = wandb.init(project="tests", id=name)
for step in range(1, 6):
    publish(made, step_index(step, run=name), run=run)
print("published", flush=True)
print("closed", made.close(60), flush=True)
run.finish()
"""
    process = run_trainer(script, client_environment, name, str(tmp_path))
    assert process.stdout is not None
    while "published" not in process.stdout.readline():
        assert process.poll() is None
    assert wait_until(lambda: versions(wandb_server, name))
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=90)

    assert "closed True" in output
    assert logged_steps(wandb_server, name) == [1, 2, 3, 4, 5]


def test_an_interrupted_close_leaves_at_once(
    wandb_server: WandbServer, client_environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    """W&B hangs, the close would wait for long, and the user does not; the spool has the step."""
    wandb_server.faults.plan("ArtifactMembershipByName", Hang(), times=None)  # the run itself can be finished
    script = """
run = wandb.init(project="tests", id=name)
publish(made, step_index(1, run=name), run=run)
assert wait_until(lambda: counts(made, "spooled") == (1,))
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.alarm(1)
made.close(600)
"""
    process = run_trainer(script, client_environment, name, str(tmp_path))
    output, _ = process.communicate(timeout=90)

    assert "KeyboardInterrupt" in output
    assert process.returncode != 0
    assert spooled_steps(tmp_path) == [1]


def test_two_trainings_on_one_spool(wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path) -> None:
    """Each logs its own steps, and leaves the other's alone."""
    with publisher_process(tmp_path) as one, publisher_process(tmp_path) as other:
        for step in (1, 2, 3):
            publish(one, step_index(step, run=name), run=wandb_run)
            publish(other, step_index(step, run=f"{name}-other"), run=wandb_run)
        assert one.close(60)
        assert other.close(60)

    assert logged_steps(wandb_server, name) == logged_steps(wandb_server, f"{name}-other") == [1, 2, 3]
    assert spooled_steps(tmp_path) == []


def test_a_step_that_is_published_by_two_trainings_is_in_wandb_once(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """A training that was restarted publishes the same again while the helper of the other still works."""
    with publisher_process(tmp_path) as one, publisher_process(tmp_path) as other:
        publish(one, step_index(1, run=name), run=wandb_run)
        assert wait_until(lambda: versions(wandb_server, name))
        publish(other, step_index(1, run=name), run=wandb_run)
        assert one.close(60)
        assert other.close(60)

    assert logged_steps(wandb_server, name) == [1]
    assert spooled_steps(tmp_path) == []


# The disk


def test_a_spool_that_takes_nothing_does_not_keep_a_step_from_wandb(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and the step is logged from memory."""
    (tmp_path / "spool").write_text("no directory")
    with publisher_process(tmp_path / "spool") as made:
        publish(made, step_index(1, run=name), run=wandb_run)
        assert made.close(60)

    assert logged_steps(wandb_server, name) == [1]
    assert "train step 1 is not in the spool, and lost if W&B fails too" in caplog.text


def test_what_neither_wandb_nor_the_spool_takes_is_said_to_be_lost(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After the close nobody logs a step."""
    (tmp_path / "spool").write_text("no directory")
    with publisher_process(tmp_path / "spool") as made:
        assert made.close(0)
        publish(made, step_index(1, run=name), run=None)
        assert not made.close(0)

    assert "train step 1 is lost: the spool" in caplog.text


def test_a_spool_that_was_emptied_has_the_step_again_when_wandb_does_not_take_it(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path
) -> None:
    """A cleaner of old files has removed the directory while the step was under way."""
    wandb_server.faults.plan("CreateArtifact", Hang(), times=None)
    with publisher_process(tmp_path / "spool") as made:
        publish(made, step_index(1, run=name), run=wandb_run)
        assert wandb_server.wait_for("CreateArtifact")
        (tmp_path / "spool").rename(tmp_path / "gone")
        assert not made.close(1)

    assert spooled_steps(tmp_path / "spool") == [1]


def test_a_training_that_changes_its_directory(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative places are those of the beginning, in the training and in its helper."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with publisher_process(Path("spool"), mirror=Path("mirror")) as made:
        monkeypatch.chdir(tmp_path / "elsewhere")
        publish(made, step_index(1, run=name, mirrored=0), run=wandb_run)
        assert made.close(60)

    assert logged_steps(wandb_server, name) == [1]
    assert (tmp_path / "mirror" / "index" / "train" / "step-1.json").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []


# Settings and environment


@pytest.fixture
def other_paths() -> Iterator[None]:
    """A search path with what the documentation does not allow, and Python takes."""
    sys.path.append(Path("/nowhere"))  # type: ignore[arg-type] # that is it
    yield
    sys.path.remove(Path("/nowhere"))  # type: ignore[arg-type] # likewise


@pytest.mark.usefixtures("other_paths")
def test_a_search_path_that_holds_a_path(wandb_run: wandb.Run, name: str, tmp_path: Path) -> None:
    """A trainer has put a ``Path`` there: the helper begins all the same."""
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=wandb_run)
        assert made.close(60)


def test_what_its_owner_can_import_the_helper_can(
    wandb_run: wandb.Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told of a class that is found only where the training has put it on its search path."""
    folder = tmp_path / "ü of ours"
    folder.mkdir()
    source = "from references.seams import Patience\nclass Ours(Patience):\n    pass\n"
    (folder / f"ours_{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    patience = importlib.import_module(f"ours_{name}").Ours(receipts_wait_s=0.1)
    with publisher_process(tmp_path / "spool", patience=patience) as made:
        publish(made, step_index(1, run=name), run=wandb_run)
        assert made.close(60)


def test_a_directory_with_files_named_like_standard_modules(
    wandb_run: wandb.Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training has gone there; its helper takes none of them for the real one."""
    for module in ("json", "types", "re", "logging", "socket"):
        (tmp_path / f"{module}.py").write_text("raise RuntimeError('a file of somebody')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with publisher_process(tmp_path / "spool") as made:
        publish(made, step_index(1, run=name), run=wandb_run)
        assert made.close(60)


class Raising(logging.Handler):
    """A handler of the training's that never works."""

    def __init__(self, error: BaseException) -> None:
        """Raise that."""
        super().__init__()
        self.error = error
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Raise."""
        self.heard.append(record.getMessage())
        raise self.error


@pytest.fixture(params=[ValueError("a bug"), SystemExit(1)], ids=["bug", "exit"])
def raising(request: pytest.FixtureRequest) -> Iterator[Raising]:
    """Gets what the product logs."""
    handler = Raising(request.param)
    logging.getLogger("references").addHandler(handler)
    yield handler
    logging.getLogger("references").removeHandler(handler)


def test_a_handler_that_raises_at_what_the_helper_logs(
    wandb_server: WandbServer,
    wandb_run: wandb.Run,
    name: str,
    tmp_path: Path,
    raising: Raising,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The helper is heard from then on, and what it said is printed."""
    wandb_server.faults.plan("CreateArtifact", Refuse(), times=1)
    with publisher_process(tmp_path) as made:
        publish(made, step_index(1, run=name), run=wandb_run)
        assert wait_until(lambda: counts(made, "logged", "retried") == (1, 1)), made.stats()
        assert made.close(60)

    assert raising.heard
    assert raising.heard[0] in capsys.readouterr().err


def test_a_handler_that_raises_keeps_no_step_from_wandb(
    wandb_server: WandbServer, wandb_run: wandb.Run, name: str, tmp_path: Path, raising: Raising
) -> None:
    """The training's own process has logged something: that the spool took nothing."""
    (tmp_path / "spool").write_text("no directory")
    with publisher_process(tmp_path / "spool") as made:
        for step in (1, 2):
            publish(made, step_index(step, run=name), run=wandb_run)
        assert made.close(60)

    assert logged_steps(wandb_server, name) == [1, 2]
    assert "train step 1 is not in the spool" in raising.heard[0]


LOGIN = {
    "settings": "more = {'settings': wandb.Settings(api_key=key, base_url=url)}",
    "login": "wandb.login(key=key, host=url)",
    "environment": "os.environ |= {'WANDB_API_KEY': key, 'WANDB_BASE_URL': url}",
}


@pytest.mark.parametrize("how", LOGIN)
def test_however_the_training_has_logged_in(
    how: str, wandb_server: WandbServer, client_environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    """The helper asks the same server with the same key."""
    script = f"""
key, url = os.environ.pop("WANDB_API_KEY"), os.environ.pop("WANDB_BASE_URL")
more = {{}}
{LOGIN[how]}
run = wandb.init(project="tests", id=name, **more)
publish(made, step_index(1, run=name), run=run)
print("closed", made.close(60), made.stats(), flush=True)
run.finish()
"""
    environment = {**client_environment, "HOME": str(tmp_path), "NETRC": str(tmp_path / "netrc")}
    output, _ = run_trainer(script, environment, name, str(tmp_path / "spool")).communicate(timeout=90)

    assert "closed True" in output, output
    assert logged_steps(wandb_server, name) == [1]


def test_one_run_after_another(
    wandb_server: WandbServer, client_environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    """The client was taken down in between, as a notebook does; each step is logged to its own run."""
    script = """
for number in range(2):
    run = wandb.init(project="tests", id=f"{name}-{number}")
    publish(made, step_index(1, run=f"{name}-{number}"), run=run)
    assert wait_until(lambda: counts(made, "logged") == (number + 1,)), made.stats()
    run.finish()
    wandb.teardown()
print("closed", made.close(60), helpers(), flush=True)
"""
    output, _ = run_trainer(script, client_environment, name, str(tmp_path)).communicate(timeout=90)

    assert "closed True []" in output, output
    assert [logged_steps(wandb_server, f"{name}-{number}") for number in range(2)] == [[1], [1]]


def test_a_training_that_does_not_answer_is_not_taken_for_one_whose_run_is_over(
    wandb_server: WandbServer, client_environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    """Native code may hold it up for long: its step is tried again, and logged to that very run when it answers."""
    ours, other_end = socket.socketpair()
    connection = Connection(ours.detach())
    settings = PublishSettings(attempts=1, timeout_s=60)
    connection.send(Order(settings=settings, patience=PATIENCE, spool=Spool(tmp_path), mirror=None, log_level=30))
    begin = "import os, sys; from references.publisher_child import main; main(int(sys.argv[1]), os.getppid())"
    with other_end:
        helper = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-c", begin, str(other_end.fileno())],
            pass_fds=[other_end.fileno()],
            env=client_environment,
        )
    ticket = RunTicket(
        number=0, id="r", entity="team", project="tests", offline=False, disabled=False, pickled=b"?", environment={}
    )
    index = step_index(1, run=name)
    try:
        connection.send(Step(StepKey(name, "train", 1), encode(index), ticket))
        questions = 0
        while True:
            message = connection.recv()
            questions += isinstance(message, AskIsOver)
            if isinstance(message, Report) and message.counts["failed"]:
                break
        assert (questions, message.counts["without_run"]) == (1, 0)
        connection.send(Step(StepKey(name, "train", 2), encode(step_index(2, run=name)), ticket))
        while not isinstance(connection.recv(), AskIsOver):
            pass
        connection.send(IsOver(0, is_over=True))
        while not (isinstance(message := connection.recv(), Report) and message.counts["without_run"]):
            pass
    finally:
        helper.kill()
        helper.wait()
        connection.close()
    assert wandb_server.requests("CreateArtifact") == []
