"""What must hold of the steps of a training once everything is healthy again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mirror.receipts.receipt import Receipt
from references.spool import Spool, StepKey
from tests.campaign.notes import Notes
from tests.references.wandb_standin.server import WandbServer
from tests.references.wandb_standin.state import Version

PHASE: Final = "train"


def ended_steps(notes: Notes) -> dict[int, list[str]]:
    """Return the rows of each step that ended, as its trainer wrote them down."""
    return {fact["step"]: fact["ids"] or [f"tr_none_{fact['step']}"] for fact in notes.read("ended")}


def steps_are_spooled(ended: Mapping[int, list[str]], spool: Spool) -> Iterator[str]:
    """Without W&B each step that ended waits in the spool, with its rows."""
    for step, ids in ended.items():
        data = spool.get(StepKey("", PHASE, step))
        if data is None or _rows(data) != ids:
            yield f"step {step} is not in the spool as it ended: {data!r:.300}"


def steps_are_in_the_mirror(ended: Mapping[int, list[str]], objects: Mapping[str, bytes]) -> Iterator[str]:
    """Each step's index is in the mirror, with its rows."""
    for step, ids in ended.items():
        data = objects.get(f"index/{PHASE}/step-{step}.json")
        if data is None or _rows(data) != ids:
            yield f"the index of step {step} is not in the mirror as it ended: {data!r:.300}"


def steps_are_in_wandb(
    notes: Notes, server: WandbServer, run: str, receipts: Mapping[str, Receipt], spool: Spool
) -> Iterator[str]:
    """Each step is in W&B once, with its rows, and references every file that its records have receipts for."""
    ended, begun = ended_steps(notes), {fact["step"] for fact in notes.read("ending")}
    versions = server.state.versions_of(f"skycap-records-{PHASE}-{run}")
    aliases = {alias: version for version in versions for alias in version.aliases}
    for step, ids in ended.items():
        version = aliases.get(f"{PHASE}-step-{step}")
        if version is None:
            yield f"step {step} is not in W&B"
            continue
        data = server.state.blob(version, "step.json")
        if _rows(data) != ids:
            yield f"step {step} is in W&B with the rows {_rows(data)}, not {ids}"
        yield from _references(step, json.loads(data), version, receipts)
    contents = Counter((_step(version), json.dumps(version.entries, sort_keys=True)) for version in versions)
    for (step, _), times in contents.items():
        if times > 1:
            yield f"step {step} is in W&B {times} times with one content"
    for step in {_step(version) for version in versions} - begun:
        yield f"step {step} is in W&B and never came to its end"
    if ended and ("latest" not in aliases or _step(aliases["latest"]) != max(ended)):
        yield f"`latest` is not step {max(ended)}"
    if left := list(spool.steps()):
        yield f"the spool still has {left}"


def _references(step: int, index: dict[str, Any], version: Version, receipts: Mapping[str, Receipt]) -> Iterator[str]:
    wanted = {
        f"records/{file.name}": file
        for row in index["rows"]
        if row["record"] and row["record"]["mirror"] and row["id"] in receipts
        for file in receipts[row["id"]].files
        if not (row["record"]["mirror"].startswith("s3://") and {*"#?"} & {*file.name})  # which W&B cannot follow
    }
    found = {path: entry for path, entry in version.entries.items() if path != "step.json"}
    if wanted.keys() != found.keys():
        yield f"step {step} references {sorted(found)}, not {sorted(wanted)}"
    for path in wanted.keys() & found.keys():
        file, entry = wanted[path], found[path]
        if entry["size"] != file.size or (file.etag and entry["digest"] != file.etag):
            yield f"step {step} has another digest or size for {path} than its receipt"


def _rows(data: bytes) -> list[str]:
    return [row["id"] for row in json.loads(data)["rows"]]


def _step(version: Version) -> int:
    return int(json.loads(version.metadata)["global_step"])
