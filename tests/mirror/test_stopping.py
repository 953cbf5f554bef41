"""Signals ask a command to stop: once to finish, SIGINT again to end at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from mirror.terminal.stopping import Stopping


@pytest.fixture(autouse=True)
def _same_handlers() -> Iterator[None]:
    """Leave signals to pytest afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_ends_the_wait() -> None:
    """SIGTERM asks to stop, and the wait for it ends."""
    with Stopping() as stopping:
        assert not stopping.wait(0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(10)
        assert stopping.wait(10)
        assert (stopping.asked, stopping.interrupted) == (True, False)


def test_a_second_interrupt_ends_at_once() -> None:
    """The first SIGINT asks; the next one raises where the main thread is; more of them change nothing."""
    with Stopping() as stopping:
        os.kill(os.getpid(), signal.SIGINT)
        assert stopping.wait(10)
        assert stopping.interrupted
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)


def test_termination_may_be_repeated() -> None:
    """A supervisor that sends SIGTERM twice does not cut the work short; a person may."""
    with Stopping() as stopping:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(10)
        assert not stopping.interrupted
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_may_come_on_any_thread() -> None:
    """The system may hand it to a thread that is not the waiting one, as after a stop and a continue: it counts."""
    with Stopping() as stopping:
        blocked = threading.Event()

        def be_handed_the_signal() -> None:
            blocked.wait(0.2)  # by then the main thread waits
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

        thread = threading.Thread(target=be_handed_the_signal)
        thread.start()
        assert stopping.wait(60)
        thread.join()


def test_another_thread_may_end_a_wait() -> None:
    """``wake`` ends a wait without asking to stop."""
    stopping = Stopping()
    threading.Thread(target=stopping.wake).start()
    assert not stopping.wait(10)
    assert not stopping.asked


def test_the_handlers_are_given_back() -> None:
    """After the block signals go where they went before."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Stopping():
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
