"""What the commands' reports make of names that a disk holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.backlog import Left
from mirror.terminal.output import Output
from mirror.terminal.reports import report_left


def test_names_stay_on_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A name with a line break cannot pass for a line of the report; others are shown as they are."""
    report_left([Left(Path("/r"), "tr_ü 1", None), Left(Path("/r"), "n\nerror: forged", None)], Output())
    assert capsys.readouterr().err == "late, for the next run: tr_ü 1, n\\nerror: forged\n"
