"""The step index, ``step.json``: which attempts a step had, which of them trained, and where their records are.

``run_index.md`` beside this file specifies the format, ``run_index.schema.json`` states it for machines. The facts here
are msgspec structs, frozen as our dataclasses are, since a step has thousands of rows.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec

from mirror.errors import BadNameError
from mirror.names import check_name

FORMAT_VERSION: Literal[1] = 1
Phase = Literal["train", "eval"]
PHASES: tuple[Phase, ...] = get_args(Phase)

MAX_STEP_DIGITS = 18  # a time in nanoseconds is no step
MAX_ROWS = 1_000_000
MAX_FILES_PER_RECORD = 256

_Count = Annotated[int, msgspec.Meta(ge=0)]


def _unknown() -> None:
    """Give None as a default that is written all the same: ``omit_defaults`` leaves out plain defaults only."""


class RecordLocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where one record is, as its server answered; what it did not say is None.

    Attributes:
        host: the address of the node that wrote it.
        path: the document on that node's disk.
        mirror: the document's URI in the mirror; None for a record that is on that disk only.
        files: the record's file names, sidecars then document; None when the server did not list them.
    """

    host: str | None = None
    path: str | None = msgspec.field(default_factory=_unknown)
    mirror: str | None = msgspec.field(default_factory=_unknown)
    files: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_FILES_PER_RECORD)] | None = None

    @property
    def file_names(self) -> tuple[str, ...]:
        """The names that are known: the listed files, else the document's alone; plain file names, all of them."""
        if self.files is not None:
            return self.files
        document = (self.mirror or self.path or "").rpartition("/")[2]
        try:
            return (check_name(document),)
        except BadNameError:
            return ()


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt that the generator opened in the step."""

    id: str
    instance_id: str
    repetition_id: int
    attempt: _Count
    status: str | None = None
    annotations: dict[str, Any] | None = None
    superseded: bool
    trained: bool | None = None
    record: RecordLocation | None = None


class StepIndex(msgspec.Struct, frozen=True, kw_only=True):
    """All attempts of one step and phase of a run.

    Attributes:
        run: the W&B run's id; "" when none was known.
    """

    format_version: Literal[1] = FORMAT_VERSION
    run: str
    phase: Phase
    step: _Count
    rows: Annotated[tuple[Row, ...], msgspec.Meta(max_length=MAX_ROWS)]
