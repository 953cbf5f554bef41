"""What a command's exit code says, decided in one place."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """The exit codes of every command."""

    COMPLETE = 0
    FAILED = 1
    USAGE = 2
    PARTIAL = 3
    DIFFERENCES = 4  # a check found something
    UNCHECKED = 5  # a check could not run, or not to its end
    INTERRUPTED = 130


def decide(*, done: int = 0, left: int = 0, findings: int = 0, unchecked: int = 0, interrupted: bool = False) -> Exit:
    """Choose the exit code of a run that came to an end; the worst that can be said decides.

    Args:
        done: how much is where it should be.
        left: how much should be there and is not.
        findings: how many differences a check found and nobody mended.
        unchecked: how much could not be checked.
        interrupted: a user ended the run early; without effect when nothing is left to do.
    """
    if left and interrupted:
        return Exit.INTERRUPTED
    if left:
        return Exit.PARTIAL if done else Exit.FAILED
    if findings:
        return Exit.DIFFERENCES
    if unchecked:
        return Exit.UNCHECKED
    return Exit.COMPLETE
