"""What a step is called in W&B: the artifact's name, the aliases of a version, and its metadata."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from references.run_index import Phase, StepIndex

ARTIFACT_TYPE = "skycap-records"
MAX_NAME_CHARS = 128
_REFUSED = re.compile(r"[^A-Za-z0-9_.\-]")
_HASH_CHARS = 12


def artifact_name(phase: Phase, run_id: str) -> str:
    """Return the name of a run's artifact: ``skycap-records-<phase>-<run id>``.

    Characters that W&B refuses become ``-``. Where that or the limit of 128 characters changes the run id, a hash of it
    is appended, so that distinct runs keep distinct names.
    """
    prefix = f"{ARTIFACT_TYPE}-{phase}-"
    plain = _REFUSED.sub("-", run_id)
    if plain == run_id and len(prefix) + len(plain) <= MAX_NAME_CHARS:
        return prefix + plain
    suffix = "-" + hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return prefix + plain[: MAX_NAME_CHARS - len(prefix) - len(suffix)] + suffix


def step_alias(phase: Phase, step: int) -> str:
    """Return the alias under which a step's newest version is found."""
    return f"{phase}-step-{step}"


def aliases(index: StepIndex) -> list[str]:
    """Return the aliases that a step's version takes."""
    return [step_alias(index.phase, index.step), "latest"]


def metadata(index: StepIndex, *, num_referenced: int) -> dict[str, str | int]:
    """Return the metadata of a step's version.

    Args:
        index: the step.
        num_referenced: how many files of its records the version refers to.
    """
    records = [row.record for row in index.rows if row.record is not None]
    return {
        "global_step": index.step,
        "training_phase": index.phase,
        "run_id": index.run,
        "num_trajectories": len(index.rows),
        "num_trained": sum(row.trained is True for row in index.rows),
        "num_superseded": sum(row.superseded for row in index.rows),
        "num_recorded": len(records),
        "num_mirrored": sum(record.mirror is not None for record in records),
        "num_referenced": num_referenced,
    }
