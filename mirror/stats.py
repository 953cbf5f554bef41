"""What a mirror says of itself at one moment: counts, sizes in bytes, times in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict


class MirrorStats(TypedDict):
    """``submitted`` is always ``mirrored + failed + late + pending``."""

    url: str  # without credentials
    submitted: int  # handed over, or found by a look; may fall when two turn out to be one
    mirrored: int
    failed: int  # given up until somebody acts, or the record is written again
    late: int  # found again on disk, and copied then
    pending: int
    late_names: list[str]  # ids, as many as fit on a page
    lost: int  # their file was gone before it was copied
    timed_out: int  # requests
    retried: int  # requests
    files: int  # sent
    bytes: int  # sent
    kept_files: int  # of copied records: in the mirror already with the same bytes
    unchanged: int  # records that looks at directories found in the mirror already
    lag_s: float  # age of the oldest record that is not in the mirror yet
    driver: str  # what makes the requests: obstore, fsspec, or files for a directory
    driver_reason: str  # why it and no other
    breaker: str  # closed, open or refused
    breaker_reason: str | None
    last_error: str | None


@dataclass(slots=True)
class Totals:
    """What was done; written on the event loop, read anywhere."""

    sent_files: int = 0
    sent_bytes: int = 0
    kept_files: int = 0  # files of copied records that were in the mirror already
    unchanged: int = 0  # records that a look found to be in the mirror already
    lost: int = 0  # records whose local file was gone before it was copied
    last_error: str | None = None
