"""The entry point of ``record-mirror``."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from references.cli import main


def test_the_command_is_installed() -> None:
    """``record-mirror`` runs the command line that holds the mirror's commands."""
    (found,) = entry_points(group="console_scripts", name="record-mirror")
    assert found.load() is main


def test_the_exit_code_is_the_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Help is complete; an unknown command is an error of use."""
    for args, code in ((["--help"], 0), (["--version"], 0), (["nonsense"], 2)):
        monkeypatch.setattr("sys.argv", ["record-mirror", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == code
    assert "sync" in capsys.readouterr().out
