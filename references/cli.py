"""The command ``record-mirror``: the mirror's commands, and those that are added to them here."""

from __future__ import annotations

import sys

from mirror.cli import commands
from mirror.commands import run


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(commands))


if __name__ == "__main__":
    main()
