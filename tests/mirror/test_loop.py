"""Work handed to a loop of its own ends with it, and never waits for a loop that is gone."""

from __future__ import annotations

import asyncio
import concurrent.futures
import subprocess
import sys
import threading

import pytest

from mirror.loop import LoopThread, run_in_loop
from mirror.testing.stores import Moment


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_work_runs_on_a_thread_of_its_own() -> None:
    """Its result and its errors come back to the caller."""
    thread = LoopThread("a-name")

    async def fail() -> None:
        raise ValueError("said so")

    assert thread.start(name_of_thread()).result(30) == "a-name"
    with pytest.raises(ValueError, match="said so"):
        thread.start(fail()).result(30)
    thread.close(30)


def test_closing_ends_what_is_under_way() -> None:
    """Whoever waits for it is told, and the thread is gone."""
    thread = LoopThread("to-be-closed")
    began = Moment()

    async def hang() -> None:
        began.happen()
        await asyncio.Event().wait()

    hanging = thread.start(hang())
    began.wait()
    thread.close(30)
    with pytest.raises(concurrent.futures.CancelledError):
        hanging.result(30)
    assert "to-be-closed" not in {other.name for other in threading.enumerate()}


def test_work_for_a_closed_loop_is_cancelled_at_once() -> None:
    """Nobody waits for what will never run; closing again is fine."""
    thread = LoopThread("closed")
    thread.close(30)
    with pytest.raises(concurrent.futures.CancelledError):
        thread.start(name_of_thread()).result(30)
    thread.call_soon(lambda: pytest.fail("a closed loop called something"))
    thread.close(30)


def test_work_handed_over_during_a_close_ends_either_way() -> None:
    """From many threads at once: each is done or cancelled, and none waits for ever."""
    for _ in range(20):
        thread = LoopThread("closing")
        ended: list[str] = []

        def hand_over(thread: LoopThread = thread, ended: list[str] = ended) -> None:
            try:
                thread.start(name_of_thread()).result(30)
                ended.append("done")
            except concurrent.futures.CancelledError:
                ended.append("cancelled")

        callers = [threading.Thread(target=hand_over) for _ in range(8)]
        for caller in callers:
            caller.start()
        thread.close(30)
        for caller in callers:
            caller.join(30)
        assert len(ended) == 8


def test_one_piece_of_work_may_have_a_loop_for_itself() -> None:
    """Called from inside a running loop or not, it runs elsewhere and leaves no thread behind."""

    async def caller() -> str:
        return run_in_loop(name_of_thread())

    assert run_in_loop(name_of_thread()) == "record-mirror"
    assert asyncio.run(caller()) == "record-mirror"
    assert "record-mirror" not in {other.name for other in threading.enumerate()}


ENDS_RIGHT_AFTER_A_CALL = """
import asyncio
import mirror.loop
import obstore
from obstore.store import S3Store

keys = {"access_key_id": "a", "secret_access_key": "b"}
store = S3Store(
    "bucket", config={"endpoint": "http://127.0.0.1:9", **keys}, client_options={"allow_http": True},
    retry_config={"max_retries": 0},
)

async def put():
    try:
        await obstore.put_async(store, "key", b"1", use_multipart=False)
    except Exception:
        pass

asyncio.run(put())
"""


def test_an_interpreter_ends_well_right_after_a_call_of_obstore() -> None:
    """Its threads take the interpreter's lock once more a moment later, and abort a process that is exiting."""
    for _ in range(15):
        ended = subprocess.run([sys.executable, "-c", ENDS_RIGHT_AFTER_A_CALL], capture_output=True, check=False)  # noqa: S603 - our own code
        assert (ended.returncode, ended.stderr) == (0, b"")
