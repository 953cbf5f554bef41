"""What the commands' reports make of names that a disk holds, and of what failed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mirror.backlog import Left
from mirror.pruning.judging import Keep
from mirror.pruning.prune import PruneResult
from mirror.terminal.asked import Asked
from mirror.terminal.copy_reports import report_left
from mirror.terminal.output import Output
from mirror.terminal.proof_reports import PruneReport


def test_names_stay_on_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A name with a line break cannot pass for a line of the report; others are shown as they are."""
    report_left([Left(Path("/r"), "tr_ü 1", None), Left(Path("/r"), "n\nerror: forged", None)], Output())
    assert capsys.readouterr().err == "late, for the next run: tr_ü 1, n\\nerror: forged\n"


def test_what_could_not_be_deleted_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """All of it failed, or a part; what was kept on purpose is none, and what was not looked at is left for later."""
    asked = Asked([Path("/r")], (), "s3://bucket/run-7")
    cases = [
        (PruneResult(confirmed=True, kept=Counter({Keep.FAILED: 1}), is_complete=True), 1),
        (PruneResult(confirmed=True, pruned=2, kept=Counter({Keep.FAILED: 1}), is_complete=True), 3),
        (PruneResult(confirmed=True, pruned=2, kept=Counter({Keep.CHANGED: 1, Keep.EXCLUDED: 1}), is_complete=True), 0),
        (PruneResult(confirmed=True, pruned=2), 3),
    ]
    for result, code in cases:
        assert PruneReport(asked, Output()).end(result, interrupted=False, said_yes=True) == code
    assert PruneReport(asked, Output()).end(cases[-1][0], interrupted=True, said_yes=True) == 130
    assert "nothing to do: kept 1 record (1 failed)" in capsys.readouterr().out
