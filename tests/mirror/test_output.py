"""Results go to standard output and remarks to standard error; JSON lines have nothing beside them."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest

from mirror.terminal.exits import Exit
from mirror.terminal.output import COUNTS, Output, format_bytes, logging_to_stderr, plural


def test_text_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """Results and the summary are on standard output, remarks and errors on standard error."""
    output = Output()
    output.line("finding", "missing  a.json.zst", name="a.json.zst")
    output.remark("looking")
    output.error("it broke")
    assert output.summary("one finding", Exit.DIFFERENCES, findings=1) == 4
    said = capsys.readouterr()
    assert said.out == "missing  a.json.zst\none finding\n"
    assert said.err == "looking\nerror: it broke\n"


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line on standard output is an object with a type, and the last is a summary with every count."""
    output = Output(json=True)
    output.line("finding", "missing  a.json.zst", name="a.json.zst")
    output.error("it broke", id="a")
    output.summary("one finding", Exit.DIFFERENCES, findings=1, url="s3://b")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == [
        {"type": "finding", "name": "a.json.zst"},
        {"type": "error", "message": "it broke", "id": "a"},
    ]
    elapsed_s = lines[2].pop("elapsed_s")
    assert elapsed_s >= 0
    assert lines[2] == {"type": "summary", **COUNTS, "findings": 1, "url": "s3://b", "exit_code": 4}


def test_quiet_says_only_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    """A quiet run that is complete says nothing; one that is not still says so."""
    output = Output(quiet=True)
    output.remark("looking")
    output.summary("all well", Exit.COMPLETE)
    assert capsys.readouterr() == ("", "")
    output.error("it broke")
    output.summary("not all well", Exit.PARTIAL)
    assert capsys.readouterr() == ("not all well\n", "error: it broke\n")


def test_names_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters in a name are not sent to a terminal, and a name that is not text is still shown."""
    Output().line("finding", "missing \x1b[2Jname\r\udcff")
    assert capsys.readouterr().out == "missing ?[2Jname?\\udcff\n"
    Output(json=True).line("finding", None, name="\x1b\udcff")
    assert json.loads(capsys.readouterr().out)["name"] == "\x1b\udcff"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (999_950, "1.0 MB"),
        (3_400_000_000, "3.4 GB"),
        (2e18, "2000.0 PB"),
    ],
)
def test_sizes_for_people(size_bytes: float, text: str) -> None:
    """Sizes are in decimal units with one digit after the point."""
    assert format_bytes(size_bytes) == text


def test_counts_for_people() -> None:
    """A noun follows its number."""
    assert [plural(count, "file") for count in (0, 1, 2_000)] == ["0 files", "1 file", "2,000 files"]
    assert plural(2, "directory") == "2 directories"


@pytest.mark.parametrize(
    ("verbose", "quiet", "expected"),
    [
        (0, False, ["WARNING ours", "WARNING theirs"]),
        (1, False, ["INFO ours", "WARNING ours", "WARNING theirs"]),
        (2, False, ["DEBUG ours", "INFO ours", "WARNING ours", "WARNING theirs"]),
        (2, True, []),
    ],
)
def test_how_much_is_logged(verbose: int, quiet: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 - a column of the table
    """Other libraries never say more than warnings: what they log in detail may hold secrets."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    before = logging.getLogger().handlers[:], logging.getLogger("mirror").level
    with logging_to_stderr(verbose=verbose, quiet=quiet):
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            logging.getLogger("mirror.engine").log(level, "ours")
            logging.getLogger("botocore.auth").log(level, "theirs")
    assert isinstance(sys.stderr, io.StringIO)
    lines = sys.stderr.getvalue().splitlines()
    assert sorted(line.split(maxsplit=2)[2] for line in lines) == sorted(expected)
    assert (logging.getLogger().handlers, logging.getLogger("mirror").level) == before
