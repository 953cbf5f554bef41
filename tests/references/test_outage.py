"""What the log says of a mirror that fails again and again: ``references/outage.py``."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING

from references.outage import REMIND_EVERY_S, Outage
from references.seams import Patience
from tests.references.publishing import MirrorIndexes, MirrorReceipts, helper_here, step_index, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

RUN = SimpleNamespace(id="r", entity="e", project="p", offline=True, disabled=False)


def test_a_failure_is_told_once_a_minute_and_that_it_works_once() -> None:
    """However often it fails, and also where every other try works."""
    now = 0.0
    outage = Outage(lambda: now)
    assert not outage.worked()
    assert [outage.failed() for _ in range(3)] == [True, False, False]
    assert [outage.worked() for _ in range(2)] == [True, False]

    now = REMIND_EVERY_S - 1
    assert not outage.failed()
    assert not outage.worked()

    now = REMIND_EVERY_S
    assert [outage.failed() for _ in range(2)] == [True, False]
    assert outage.worked()


def test_a_mirror_that_refuses_every_index_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A step that waits for its receipts offers its index again and again: the log says so once, and when it ends."""
    caplog.set_level(logging.DEBUG, logger="references")
    indexes, receipts = MirrorIndexes(), MirrorReceipts()
    indexes.error = PermissionError("no credentials were found")
    receipts.missing = {"tr_1_0"}
    patience = Patience(receipts_wait_s=60, receipts_poll_s=0.01)

    def told(level: int, words: str) -> int:
        return sum(line.levelno == level and words in line.getMessage() for line in caplog.records)

    with helper_here(tmp_path, patience=patience, receipts=receipts, index_store=indexes) as made:
        made.publish(step_index(1, run="r"), run=RUN)
        assert wait_until(lambda: told(logging.DEBUG, "it is kept in the spool") >= 5)
        indexes.error = None
        assert wait_until(lambda: told(logging.INFO, "takes step indexes again") == 1)

    assert told(logging.WARNING, "did not take the index of train step 1, it is kept in the spool: no cred") == 1
    assert indexes.written
