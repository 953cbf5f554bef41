"""A small run for tests of reading: records on a node's disk, a mirror of them, step indexes there and in W&B."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import wandb

from mirror import locate
from mirror.receipts.receipt import Receipt, decode_lines, newest
from mirror.samples import ProfileName, write_record
from references.artifact import build_artifact
from references.artifact_name import ARTIFACT_TYPE, step_alias
from references.codec import encode
from references.landing import land, step_json
from references.run_index import Phase, RecordLocation, Row, StepIndex
from references.spool import content_hash
from references.wandb_client import INDEX_HASH
from tests.mirror.places import DirectoryPlace, Place, S3Place, mirror_to


@dataclass
class SampleRun:
    """A run whose capture server is on this machine."""

    place: Place
    records: Path  # the server's record directory
    name: str = "run"
    steps: dict[tuple[Phase, int], StepIndex] = field(default_factory=dict)

    def step(
        self,
        number: int,
        ids: Iterable[str],
        *,
        phase: Phase = "train",
        profile: ProfileName = "tiny",
        mirrored: bool = True,
        exclude: tuple[str, ...] = (),
        seed: int = 0,
        **row: Any,  # noqa: ANN401 - fields of the rows
    ) -> StepIndex:
        """Write records, copy them unless they are to be on their node only, and index them in the mirror."""
        rng = random.Random(f"{number}/{seed}")  # noqa: S311 - sample data
        rows: list[Row] = []
        names = list(ids)
        for name in names:
            write_record(self.records, name, profile=profile, rng=rng, step=number)
        with mirror_to(self.place, exclude=exclude) as mirror:
            for order, name in enumerate(names):
                if mirrored:
                    mirror.submit(self.records, name)
                found = mirror.locate(self.records, name) if mirrored else locate(self.records, name)
                location = RecordLocation(
                    host="10.0.0.5", path=found["path"], mirror=found["mirror"], files=tuple(found["files"])
                )
                rows.append(self.row(name, location, order, **row))
            assert mirror.close(60), mirror.stats()
        before = self.steps.get((phase, number))
        index = StepIndex(run=self.name, phase=phase, step=number, rows=(*(before.rows if before else ()), *rows))
        self.index(index)
        return index

    def row(self, name: str, location: RecordLocation | None, order: int = 0, **fields: Any) -> Row:  # noqa: ANN401 - fields of a row
        """Return a finished attempt that trained."""
        values = {"attempt": 0, "superseded": False, "trained": True, "annotations": {"reward": float(order)}, **fields}
        return Row(id=name, instance_id="task", repetition_id=order, status="finished", record=location, **values)

    def promised(self, name: str) -> RecordLocation:
        """Return where a record would be that was to be mirrored, and that nobody wrote."""
        document = f"{name}.json.zst"
        mirror = f"{self.place.url}/{document}"
        return RecordLocation(host="10.0.0.5", path=f"/data/{document}", mirror=mirror, files=(document,))

    def index(self, index: StepIndex) -> None:
        """Put a step's index into the mirror."""
        self.steps[index.phase, index.step] = index
        put_object(self.place, f"index/{index.phase}/step-{index.step}.json", encode(index))

    def receipts(self) -> Mapping[str, Receipt]:
        """Return the newest receipt of each record."""
        lines = [line for segment in _segments(self.place) for line in decode_lines(segment)]
        return newest(line for line in lines if isinstance(line, Receipt))

    def pulled(self, phase: Phase = "train", *, ids: Iterable[str] | None = None) -> dict[str, bytes]:
        """Return what a pull of this phase must bring, by path; of these records, or of all that a step lists."""
        steps = [index for key, index in self.steps.items() if key[0] == phase]
        names = {row.id for index in steps for row in index.rows} if ids is None else set(ids)
        files = {
            file.name: (self.records / file.name).read_bytes()
            for name, receipt in self.receipts().items()
            if name in names
            for file in receipt.files
        }
        return files | {f"index/step-{index.step}.json": encode(index) for index in steps}


def _segments(place: Place) -> list[bytes]:
    if isinstance(place, DirectoryPlace):
        return [path.read_bytes() for path in (place.path / "_receipts").rglob("*.jsonl")]
    assert isinstance(place, S3Place)
    client = place.server.client()
    listed = client.list_objects_v2(Bucket=place.bucket, Prefix=f"{place.prefix}/_receipts/").get("Contents", ())
    return [client.get_object(Bucket=place.bucket, Key=item["Key"])["Body"].read() for item in listed]


def put_object(place: Place, key: str, data: bytes) -> None:
    """Write an object as another client than ours."""
    if isinstance(place, DirectoryPlace):
        path = place.path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    else:
        assert isinstance(place, S3Place)
        place.server.client().put_object(Bucket=place.bucket, Key=f"{place.prefix}/{key}", Body=data)


def delete_object(place: Place, key: str) -> None:
    """Delete an object as another client than ours."""
    if isinstance(place, DirectoryPlace):
        (place.path / key).unlink()
    else:
        assert isinstance(place, S3Place)
        place.server.client().delete_object(Bucket=place.bucket, Key=f"{place.prefix}/{key}")


def times(directory: Path) -> dict[str, int]:
    """Return when each file and directory below a directory was last changed."""
    return {str(path.relative_to(directory)): path.lstat().st_mtime_ns for path in directory.rglob("*")}


def log_step(
    run: wandb.Run,
    index: StepIndex,
    receipts: Mapping[str, Receipt],
    *,
    name: str,
    metadata: Mapping[str, Any] | None = None,
    step_file: bytes | None = None,
) -> str:
    """Log a step to W&B as the publisher does, wait for it, and return the version."""
    landing = land(index, receipts)
    data = step_json(index, landing.pending) if step_file is None else step_file
    about = {"global_step": index.step, "training_phase": index.phase, INDEX_HASH: content_hash(encode(index))}
    artifact = build_artifact(name, data, landing.references, {**about, **(metadata or {})})
    run.log_artifact(artifact, aliases=[step_alias(index.phase, index.step)])
    return str(artifact.wait(timeout=30).version)


def artifact_path(run: wandb.Run, name: str) -> str:
    """Return how a user names the artifact."""
    return f"{run.entity}/{run.project}/{name}"


def artifact_name(phase: Phase, run_id: str) -> str:
    """Return the name of a run's artifact."""
    return f"{ARTIFACT_TYPE}-{phase}-{run_id}"
