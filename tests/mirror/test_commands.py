"""The frame around every command turns what went wrong into a sentence and an exit code."""

from __future__ import annotations

import json

import click
import pytest

from mirror.errors import ConfigError, RecordError, StoreRefusedError
from mirror.terminal.commands import command, run
from mirror.terminal.exits import Exit
from mirror.terminal.output import Output


def line_that_fails(error: BaseException, *, failure: Exit = Exit.FAILED) -> click.Group:
    """Make a command line whose one command fails."""
    group = click.Group()

    @command(group, failure=failure)
    @click.argument("url")
    def fail(*, output: Output, **_given: object) -> int:
        output.remark("about to fail")
        raise error

    return group


@pytest.mark.parametrize(
    ("error", "failure", "code", "sentence"),
    [
        (ConfigError("workers must be more"), Exit.FAILED, 2, "workers must be more"),
        (StoreRefusedError("list", "", "no such bucket"), Exit.FAILED, 1, "s3://b: no such bucket"),
        (StoreRefusedError("list", "_receipts/", "no such bucket"), Exit.UNCHECKED, 5, "s3://b: no such bucket"),
        (StoreRefusedError("get", "tr_a.json.zst", "no"), Exit.UNCHECKED, 5, "s3://b: tr_a.json.zst: no"),
        (RecordError("tr_a is gone"), Exit.UNCHECKED, 1, "tr_a is gone"),
        (PermissionError(13, "Permission denied", "/records"), Exit.UNCHECKED, 5, "/records: Permission denied"),
        (OSError("the disk is full"), Exit.FAILED, 1, "the file system: the disk is full"),
        (KeyboardInterrupt(), Exit.FAILED, 130, "interrupted"),
        (click.ClickException("of its own"), Exit.FAILED, 1, "of its own"),
    ],
)
def test_a_failure_is_a_sentence_and_a_code(
    error: BaseException, failure: Exit, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """For people on standard error; with --json also as a line of its own before the summary."""
    group = line_that_fails(error, failure=failure)
    assert run(group, ["fail", "s3://b"]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1] == f"error: {sentence}"
    assert run(group, ["fail", "s3://b", "--json"]) == code
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {"type": "error", "message": sentence}
    assert (lines[1]["type"], lines[1]["exit_code"], len(lines)) == ("summary", code, 2)


def test_a_bug_keeps_its_traceback() -> None:
    """What no user can cause is not hidden behind a sentence."""
    with pytest.raises(ZeroDivisionError):
        run(line_that_fails(ZeroDivisionError()), ["fail", "s3://b"])


def test_no_credentials_in_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the sentence quotes."""
    run(line_that_fails(ConfigError("cannot open https://me:secret@host/x?sig=abc now")), ["fail", "s3://b"])
    assert capsys.readouterr().err.splitlines()[-1] == "error: cannot open https://***@host/x?*** now"
