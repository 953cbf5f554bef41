"""A run's steps against its mirror, and W&B's references against its receipts."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from mirror import EmptyMirrorError, MirrorConfig, RecordMirror, Verification, VerifyLevel
from mirror.judging import FindingKind
from mirror.samples import write_record
from mirror.testing import SeaweedS3
from references.artifact_name import artifact_name
from references.errors import SourceError
from references.run_index import StepIndex
from references.selection import Selection
from references.verify_run import verify_run
from references.verifying import RunVerification
from tests.mirror.places import DirectoryPlace, S3Place, mirror_to
from tests.references.whole_runs import SampleRun, artifact_path, delete_object, log_step, put_object

if TYPE_CHECKING:
    import wandb

    from references.source import KnownStep


@pytest.fixture
def run(tmp_path: Path) -> SampleRun:
    """A run of two steps, one record of which is on its node only."""
    sample = SampleRun(DirectoryPlace(tmp_path / "mirror"), tmp_path / "records", name=uuid.uuid4().hex[:12])
    sample.step(1, ["tr_a", "tr_b"])
    sample.step(2, ["tr_c"])
    sample.step(2, ["tr_local"], mirrored=False)
    return sample


def verified(run: SampleRun, *directories: Path, **options: Any) -> RunVerification:  # noqa: ANN401 - options of verify_run
    return verify_run(run.place.url, directories, **{"grace_s": 0, **options})


def kinds(found: RunVerification) -> dict[str, FindingKind]:
    return {finding.name: finding.kind for finding in found.findings}


def add_row(run: SampleRun, step: int, name: str) -> None:
    """List a record that was to be mirrored and never came."""
    index = run.steps["train", step]
    run.index(msgspec.structs.replace(index, rows=(*index.rows, run.row(name, run.promised(name)))))


def test_a_whole_run_has_no_findings(run: SampleRun) -> None:
    """Records and files are counted; what is on its node is listed, and is no finding."""
    found = verified(run)
    assert (found.steps, found.records, found.files) == (2, 4, 6)
    assert (found.findings, found.elsewhere, found.bad_steps) == ([], [], [])
    assert [record.record_id for record in found.local_only] == ["tr_local"]
    assert (found.references, found.not_referenced) == (0, None)
    assert found.mirrors[f"file://{run.place.url}"].present == 6


def test_a_record_that_is_nowhere_is_lost_and_its_step_is_named(run: SampleRun) -> None:
    """No receipt, no object, not on a node only."""
    add_row(run, 2, "tr_gone")
    found = verified(run)
    assert kinds(found) == {"tr_gone.json.zst": FindingKind.LOST}
    assert "train step 2" in found.findings[0].detail
    assert (found.damage, found.unchecked) == (1, 0)


def test_a_record_that_is_in_a_given_directory_is_missing_not_lost(run: SampleRun) -> None:
    """It only has to be copied."""
    add_row(run, 2, "tr_late")
    write_record(run.records, "tr_late", profile="tiny", rng=random.Random(1))  # noqa: S311 - sample data
    assert kinds(verified(run, run.records))["tr_late.json.zst"] is FindingKind.MISSING


def test_steps_that_are_not_there_are_not_called_whole(run: SampleRun) -> None:
    """A mistyped number would pass a check of nothing; it is said before the mirror is looked at."""
    looked: list[Verification] = []
    with pytest.raises(SourceError, match="has steps 1 to 2"):
        verify_run(run.place.url, selection=Selection(steps=[9]), progress=looked.append, grace_s=0)
    assert looked == []


def test_where_there_is_no_mirror_nothing_is_whole(run: SampleRun, tmp_path: Path) -> None:
    """A place without receipts, records and steps is an error; steps that lost their records are findings."""
    with pytest.raises(EmptyMirrorError):
        verify_run(tmp_path / "nowhere", grace_s=0)
    for path in tmp_path.glob("mirror/_receipts/*/*"):
        path.unlink()
    for name in ("tr_a", "tr_b", "tr_c"):
        delete_object(run.place, f"{name}.json.zst")
        delete_object(run.place, f"{name}.tokens.zst")
    assert set(kinds(verified(run)).values()) == {FindingKind.LOST}


def test_damage_is_told_by_step(run: SampleRun) -> None:
    """Deleted, cut short, flipped: each with its kind and the step that lists it."""
    delete_object(run.place, "tr_a.json.zst")
    put_object(run.place, "tr_b.tokens.zst", b"short")
    document = (run.records / "tr_c.json.zst").read_bytes()
    put_object(run.place, "tr_c.json.zst", document[:-1] + bytes([document[-1] ^ 1]))
    found = verified(run, level=VerifyLevel(read_back=1.0))
    assert kinds(found) == {
        "tr_a.json.zst": FindingKind.MISSING,
        "tr_b.tokens.zst": FindingKind.WRONG_SIZE,
        "tr_c.json.zst": FindingKind.CHANGED,
    }
    assert ["step 1" in finding.detail for finding in found.findings] == [True, True, False]
    assert found.elsewhere == []


def test_what_lands_while_we_look_is_not_lost(run: SampleRun, tmp_path: Path) -> None:
    """The receipts are read once more before anything is called lost."""
    add_row(run, 2, "tr_late")
    elsewhere = tmp_path / "elsewhere"  # where nothing else waits to be copied
    elsewhere.mkdir()
    write_record(elsewhere, "tr_late", profile="tiny", rng=random.Random(1))  # noqa: S311 - sample data

    def land(_so_far: Verification) -> None:
        with mirror_to(run.place) as mirror:
            mirror.submit(elsewhere, "tr_late")

    found = verified(run, progress=land)
    assert (found.findings, found.files) == ([], 8)


def test_files_without_a_receipt_are_told(run: SampleRun) -> None:
    """There is something of the record: it is unproven, not lost."""
    add_row(run, 2, "tr_x")
    put_object(run.place, "tr_x.json.zst", b"who knows")
    assert kinds(verified(run)) == {"tr_x.json.zst": FindingKind.NO_RECEIPT}


def test_what_no_selected_step_lists_is_told_apart(run: SampleRun) -> None:
    """Damage elsewhere in the mirror is known, and is not the step's."""
    delete_object(run.place, "tr_a.json.zst")
    found = verified(run, selection=Selection(steps=[2]))
    assert (found.findings, found.records) == ([], 2)
    assert [(finding.name, finding.kind) for finding in found.elsewhere] == [("tr_a.json.zst", FindingKind.MISSING)]


def test_a_bad_step_is_told(run: SampleRun) -> None:
    """Of its records nothing is known."""
    put_object(run.place, "index/train/step-3.json", b"nonsense")
    known: list[KnownStep] = [bad.known for bad in verified(run).bad_steps]
    assert [(step.phase, step.step) for step in known] == [("train", 3)]


def test_a_mirror_without_steps_is_only_looked_at_by_step(tmp_path: Path) -> None:
    """There is nothing to find then."""
    write_record(tmp_path / "records", "tr_a", profile="tiny", rng=random.Random(1))  # noqa: S311 - sample data
    with RecordMirror(tmp_path / "mirror") as mirror:
        mirror.scan(tmp_path / "records")
    found = verify_run(tmp_path / "mirror", grace_s=0)
    assert (found.steps, found.findings) == (0, [])


def test_hostile_ids_are_only_names(run: SampleRun, tmp_path: Path) -> None:
    """No path is made of them."""
    (tmp_path / "evil.json.zst").write_bytes(b"")
    index = run.steps["train", 2]
    rows = (*index.rows, run.row("../evil", run.promised("tr_x")), run.row("\x1b[2J", run.promised("tr_x")))
    run.index(msgspec.structs.replace(index, rows=rows))
    found = kinds(verified(run, run.records))
    assert (found["'../evil.json.zst'"], found["'\\x1b[2J.json.zst'"]) == (FindingKind.LOST, FindingKind.LOST)


@pytest.mark.integration
def test_references_on_s3_are_compared_with_receipts(
    wandb_run: wandb.Run, seaweed: SeaweedS3, s3_bucket: str, tmp_path: Path
) -> None:
    """As logged they are right; after a record was written again its references are of an earlier copy."""
    sample = SampleRun(S3Place(seaweed, s3_bucket), tmp_path / "records", name=uuid.uuid4().hex[:12])
    name = artifact_name("train", sample.name)
    log_step(wandb_run, sample.step(1, ["tr_a", "tr_b"]), sample.receipts(), name=name)
    config = MirrorConfig(storage_options=sample.place.options())
    found = verify_run(artifact_path(wandb_run, name), config=config, grace_s=0)
    assert (found.references, found.not_referenced, found.findings) == (4, 0, [])

    write_record(sample.records, "tr_a", profile="tiny", rng=random.Random(9))  # noqa: S311 - sample data
    with mirror_to(sample.place) as mirror:
        mirror.submit(sample.records, "tr_a")
    found = verify_run(artifact_path(wandb_run, name), config=config, grace_s=0)
    assert kinds(found) == dict.fromkeys(["tr_a.json.zst", "tr_a.tokens.zst"], FindingKind.CHANGED)
    assert all("log the step again" in finding.detail for finding in found.findings)


@pytest.mark.integration
def test_files_that_landed_after_the_step_was_logged_are_counted(wandb_run: wandb.Run, run: SampleRun) -> None:
    """They are in the mirror, and W&B does not refer to them yet."""
    name = artifact_name("train", run.name)
    log_step(wandb_run, run.steps["train", 1], {}, name=name)
    found = verify_run(artifact_path(wandb_run, name), allow_protocols=["file"], grace_s=0)
    assert (found.references, found.not_referenced, found.findings) == (0, 4, [])


@pytest.mark.integration
def test_an_artifacts_records_may_be_in_a_given_directory(wandb_run: wandb.Run, run: SampleRun) -> None:
    """What the directory has is missing in the mirror, and what it has besides is no business of the run's."""
    name = artifact_name("train", run.name)
    add_row(run, 1, "tr_late")
    add_row(run, 1, "tr_gone")
    log_step(wandb_run, run.steps["train", 1], run.receipts(), name=name)
    rng = random.Random(1)  # noqa: S311 - sample data
    for record_id in ("tr_late", "tr_other"):
        write_record(run.records, record_id, profile="tiny", rng=rng)
    found = verify_run(artifact_path(wandb_run, name), [run.records], allow_protocols=["file"], grace_s=0)
    assert kinds(found) == {"tr_late.json.zst": FindingKind.MISSING, "tr_gone.json.zst": FindingKind.LOST}
    assert found.elsewhere == []


@pytest.mark.integration
def test_a_mirror_that_may_not_be_read_is_unchecked(wandb_run: wandb.Run, run: SampleRun) -> None:
    """Nothing is known of its records: not intact, not lost."""
    name = artifact_name("train", run.name)
    log_step(wandb_run, run.steps["train", 1], run.receipts(), name=name)
    found = verify_run(artifact_path(wandb_run, name), grace_s=0)
    assert set(kinds(found).values()) == {FindingKind.UNCHECKED}
    assert (found.damage, found.unchecked) == (0, 2)


@pytest.mark.integration
def test_a_bucket_that_is_not_there_is_unchecked(wandb_run: wandb.Run, run: SampleRun, seaweed: SeaweedS3) -> None:
    """Likewise."""
    name = artifact_name("train", run.name)
    rows = tuple(
        run.row(f"tr_{n}", msgspec.structs.replace(run.promised("tr"), mirror=f"s3://gone/tr_{n}.json.zst"))
        for n in range(2)
    )
    log_step(wandb_run, StepIndex(run=run.name, phase="train", step=1, rows=rows), {}, name=name)
    config = MirrorConfig(storage_options=seaweed.storage_options(), attempts=1)
    found = verify_run(artifact_path(wandb_run, name), config=config, grace_s=0)
    assert (found.damage, found.unchecked) == (0, 2)
