"""The helper process after its training process was killed: what it was told is kept, and nothing is printed."""

from __future__ import annotations

import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from references.messages import Order, Step
from references.seams import Patience, PublishSettings
from references.spool import Spool, StepKey

BEGIN = "import sys; from references.publisher_child import main; main(int(sys.argv[1]), parent=0)"  # no parent of ours


def orphan(said: list[object]) -> str:
    """Run a helper whose training process said this and was gone before it was heard; return what it printed."""
    ours, other_end = socket.socketpair()
    connection = Connection(ours.detach())
    for message in said:
        connection.send(message)
    connection.close()
    with other_end:
        command = [sys.executable, "-c", BEGIN, str(other_end.fileno())]
        done = subprocess.run(  # noqa: S603 - our own interpreter and module
            command, pass_fds=[other_end.fileno()], capture_output=True, text=True, timeout=120, check=True
        )
    return done.stdout + done.stderr


def test_a_step_that_was_handed_over_before_the_training_was_killed_is_spooled(tmp_path: Path) -> None:
    """Though the spool had not taken it then: the helper hears everything to the end before it leaves."""
    spool = Spool(tmp_path / "spool")
    order = Order(settings=PublishSettings(), patience=Patience(), spool=spool, mirror=None, log_level=30)
    keys = [StepKey("run", "train", number) for number in (1, 2)]
    steps = [Step(key, b"step %d" % key.step, None) for key in keys]
    assert orphan([order, *steps]) == ""
    assert [spool.get(key) for key in keys] == [step.data for step in steps]


def test_a_helper_that_was_told_nothing_leaves_in_silence() -> None:
    """The training process was killed while it started one."""
    assert orphan([]) == ""
