"""The command ``record-mirror``: the mirror's commands, and those that are added to them here."""

# ruff: noqa: PLC0415 - a command imports what it needs itself: `record-mirror --help` waits for none of it

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirror.cli import commands
from mirror.commands import command, run
from mirror.exits import Exit
from mirror.options import option

if TYPE_CHECKING:
    from mirror.config import MirrorConfig
    from mirror.output import Output


@command(commands)
@option("--keep", type=click.Path(path_type=Path), default=None, metavar="DIR", help="Leave what it makes in DIR.")
def demo(*, keep: Path | None, config: MirrorConfig, output: Output) -> int:  # noqa: ARG001 - every command has settings
    """Show the main job on this machine: copy, verify, damage, repair."""
    from mirror.demo import run_demo

    with tempfile.TemporaryDirectory(prefix="record-mirror-demo-") as scratch:
        run_demo(keep or Path(scratch) / "demo", lambda text: output.line("step", text, text=text))
    return output.summary("the demonstration did what it promises", Exit.COMPLETE)


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(commands))


if __name__ == "__main__":
    main()
