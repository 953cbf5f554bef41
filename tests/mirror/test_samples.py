"""Sample records are what a capture server would have written."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, get_args

import pytest
import zstandard

from mirror.samples import PROFILES, ProfileName, write_corpus, write_litter, write_record

if TYPE_CHECKING:
    from pathlib import Path

ALL_PROFILES: tuple[ProfileName, ...] = get_args(ProfileName)


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - sample data, no secrets


def read_document(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(zstandard.ZstdDecompressor().decompress(path.read_bytes()))
    return document


@pytest.mark.parametrize("profile", ALL_PROFILES)
def test_a_record_has_the_files_and_sizes_of_its_profile(tmp_path: Path, profile: ProfileName) -> None:
    """Each file that the profile names is there, within its range of sizes, and the document comes last."""
    expected = PROFILES[profile]
    for number in range(8):
        names = write_record(tmp_path, f"tr_{number}", profile=profile, rng=seeded(number))
        kinds = [kind for kind, _ in expected.sidecar_bytes]
        assert names == [*(f"tr_{number}.{kind}.zst" for kind in kinds), f"tr_{number}.json.zst"]
        ranges = [*(bounds for _, bounds in expected.sidecar_bytes), expected.document_bytes]
        for name, (low, high) in zip(names, ranges, strict=True):
            assert low * 0.9 <= (tmp_path / name).stat().st_size <= high * 1.1


def test_the_document_says_what_the_record_is(tmp_path: Path) -> None:
    """The document is one zstd frame of JSON whose manifest names the sidecars beside it."""
    names = write_record(
        tmp_path, "tr_a", profile="tokens", rng=seeded(1), instance_id="math-7", step=3, attempt=1, reward=0.5
    )
    document = read_document(tmp_path / "tr_a.json.zst")
    assert document["format_version"] == 1
    assert (document["id"], document["status"], document["ended"]) == ("tr_a", "finished", True)
    assert document["meta"] == {"instance_id": "math-7", "repetition_id": 0, "step": 3, "attempt": 1, "task": "math"}
    assert document["annotations"]["reward"] == 0.5
    assert document["finished_at"] > document["created_at"]
    assert [sidecar["file"] for sidecar in document["sidecars"].values()] == names[:-1]


def test_an_open_record_has_not_ended_and_is_replaced_when_finished(tmp_path: Path) -> None:
    """A record written at shutdown is open; finishing it later replaces its files under the same names."""
    rng = seeded(1)
    first = write_record(tmp_path, "tr_a", profile="tiny", rng=rng, status="open")
    document = read_document(tmp_path / "tr_a.json.zst")
    assert (document["status"], document["ended"], document["finished_at"]) == ("open", False, None)
    before = (tmp_path / first[0]).read_bytes()
    assert write_record(tmp_path, "tr_a", profile="tiny", rng=rng) == first
    assert read_document(tmp_path / "tr_a.json.zst")["ended"] is True
    assert (tmp_path / first[0]).read_bytes() != before


def test_a_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """The same seed writes the same corpus anywhere; another seed writes other records."""
    ids = write_corpus(tmp_path / "a", profile="tiny", count=20, seed=5)
    assert write_corpus(tmp_path / "b", profile="tiny", count=20, seed=5) == ids
    assert len(set(ids)) == 20
    assert all(record_id.startswith("tr_") for record_id in ids)
    files = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    assert len(files) == 40
    assert not set(ids) & set(write_corpus(tmp_path / "c", profile="tiny", count=20, seed=6))


def test_nothing_temporary_is_left(tmp_path: Path) -> None:
    """Every file of a corpus is under its final name."""
    write_corpus(tmp_path, profile="tiny", count=10, seed=1)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_litter_is_everything_that_is_not_a_record(tmp_path: Path) -> None:
    """Litter holds sidecars without a document, dot-files and a subdirectory, and no visible document."""
    litter = write_litter(tmp_path)
    assert all((tmp_path / path).is_file() for path in litter)
    assert list(tmp_path.glob("[!.]*.json.zst")) == []
    assert list(tmp_path.glob("[!.]*.tokens.zst")) != []
    assert list(tmp_path.glob(".*.tmp")) != []
    assert list((tmp_path / "old").glob("*.json.zst")) != []


def test_an_unknown_profile_is_refused_by_name(tmp_path: Path) -> None:
    """The error lists the profiles there are."""
    with pytest.raises(ValueError, match=r"no profile 'huge'; choose one of tiny, text, tokens, moe"):
        write_record(tmp_path, "tr_a", profile="huge", rng=seeded(1))  # type: ignore[arg-type] # the point
