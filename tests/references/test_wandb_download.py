"""W&B's own download of what was logged, from a real S3 server and from a directory; logging asks no store."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import wandb
from google.cloud import storage  # type: ignore[import-untyped] # ships no types

from mirror import RecordMirror
from mirror.location import Location
from mirror.receipts.receipt import Receipt, decode_lines, newest
from mirror.samples import write_record
from mirror.store import WHOLE_BYTES
from mirror.testing.proxy import FaultProxy
from mirror.testing.servers import ADMIN
from references.run_index import RecordLocation, Row, StepIndex
from tests.references.publishing import counts, helper_here

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.testing.servers import FakeGcs, SeaweedS3
    from tests.references.wandb_standin.server import WandbServer

pytestmark = pytest.mark.integration

LARGE_BYTES = WHOLE_BYTES + 1  # goes in several parts
IDS = [f"tr_{number}" for number in range(6)]


class ReadReceipts:
    """The receipts in a mirror's segments."""

    def __init__(self, segments: Iterable[bytes]) -> None:
        """Keep the newest of each record."""
        lines = [line for segment in segments for line in decode_lines(segment)]
        self._found = newest(line for line in lines if isinstance(line, Receipt))

    def covers(self, mirror: Location) -> bool:
        """Cover the only mirror there is."""
        return bool(mirror)

    def find(self, record_ids: Collection[str]) -> Mapping[str, Receipt]:
        """Find those of these records."""
        return {name: self._found[name] for name in record_ids if name in self._found}


def segments_in_bucket(client: Any, bucket: str, prefix: str) -> list[bytes]:  # noqa: ANN401 - botocore's client
    """Return the segments of receipts below a prefix."""
    listed = client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/_receipts/")["Contents"]
    return [client.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in listed]


def mirror_records(directory: Path, url: str, options: Mapping[str, object]) -> StepIndex:
    """Copy a few records, one of them large, and return the step that has them and one that is on its node only."""
    rng = random.Random(7)  # noqa: S311 - sample data
    for name in IDS:
        write_record(directory, name, profile="tiny", rng=rng)
    (directory / f"{IDS[0]}.experts.zst").write_bytes(rng.randbytes(LARGE_BYTES))
    with RecordMirror(url, storage_options=dict(options)) as mirror:
        for name in IDS:
            assert mirror.submit(directory, name)
        assert mirror.close(60), mirror.stats()
        places = [mirror.locate(directory, name) for name in IDS]
    records = [RecordLocation(path=place["path"], mirror=place["mirror"]) for place in places]
    records.append(RecordLocation(path="/data/local.json.zst"))
    rows = [
        Row(id=name, instance_id="task", repetition_id=0, attempt=0, superseded=False, record=record)
        for name, record in zip([*IDS, "local"], records, strict=True)
    ]
    return StepIndex(run=uuid.uuid4().hex[:12], phase="train", step=1, rows=tuple(rows))


def download(run: wandb.Run, index: StepIndex, target: Path) -> dict[str, bytes]:
    """Let W&B download and verify the step's version, and return its records' files."""
    artifact = wandb.Api().artifact(f"{run.entity}/{run.project}/skycap-records-train-{index.run}:train-step-1")
    root = Path(artifact.download(root=str(target)))
    artifact.verify(str(root))
    return {path.name: path.read_bytes() for path in (root / "records").iterdir()}


@pytest.mark.parametrize("versioned", [False, True], ids=["plain", "versioned"])
def test_references_to_s3_can_be_downloaded(
    seaweed: SeaweedS3,
    wandb_server: WandbServer,
    wandb_run: wandb.Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    versioned: bool,
) -> None:
    """Single and multipart objects, in a bucket with versions and without; logging asks nothing of the store."""
    bucket = seaweed.make_bucket(f"download-{uuid.uuid4().hex[:8]}", versioned=versioned)
    options = seaweed.storage_options()
    url = f"s3://{bucket}/run 7"
    index = mirror_records(tmp_path / "record", url, options)
    client = seaweed.client()
    receipts = ReadReceipts(segments_in_bucket(client, bucket, "run 7"))
    assert any("-" in (file.etag or "") for file in receipts.find(IDS)[IDS[0]].files)  # the mark of several parts
    with FaultProxy(seaweed.url) as proxy:
        for name in ("AWS_S3_ENDPOINT_URL", "AWS_ENDPOINT_URL"):
            monkeypatch.setenv(name, proxy.url)
        with helper_here(tmp_path / "spool", receipts=receipts) as made:
            made.publish(index, run=wandb_run)
            assert made.close(30)
            assert counts(made, "logged", "waiting_for_receipts") == (1, 0)
        assert proxy.requests == []
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ADMIN.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ADMIN.secret_key)

        files = download(wandb_run, index, tmp_path / "out")

    assert files == {path.name: path.read_bytes() for path in (tmp_path / "record").glob("*.zst")}
    assert len(wandb_server.requests("PutFile")) == 1


def test_references_to_a_directory_can_be_downloaded(wandb_run: wandb.Run, tmp_path: Path) -> None:
    """A mirror in a shared directory, with a name that URLs do not like."""
    url = str(tmp_path / "mirror #1 100%")
    index = mirror_records(tmp_path / "record", url, {})
    receipts = ReadReceipts(path.read_bytes() for path in Path(url, "_receipts").rglob("*.jsonl"))
    with helper_here(tmp_path / "spool", receipts=receipts) as made:
        made.publish(index, run=wandb_run)
        assert made.close(30)

    files = download(wandb_run, index, tmp_path / "out")

    assert files == {path.name: path.read_bytes() for path in (tmp_path / "record").glob("*.zst")}


def test_references_to_google_can_be_downloaded(
    fake_gcs: FakeGcs, wandb_run: wandb.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the JSON API, whose etag is in the receipt."""
    bucket = fake_gcs.make_bucket(f"download-{uuid.uuid4().hex[:8]}")
    index = mirror_records(tmp_path / "record", f"gs://{bucket}/run", fake_gcs.storage_options())
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake_gcs.url)
    google = storage.Client(project="test")
    receipts = ReadReceipts(blob.download_as_bytes() for blob in google.list_blobs(bucket, prefix="run/_receipts/"))
    with helper_here(tmp_path / "spool", receipts=receipts) as made:
        made.publish(index, run=wandb_run)
        assert made.close(30)

    files = download(wandb_run, index, tmp_path / "out")

    assert files == {path.name: path.read_bytes() for path in (tmp_path / "record").glob("*.zst")}
