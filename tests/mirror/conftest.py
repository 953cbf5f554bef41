"""Properties that have no deadline on any machine, and places on the real stores that nobody used before."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings

from mirror.samples import write_corpus, write_litter
from mirror.testing import Azurite, FakeGcs, SeaweedS3
from tests.mirror.command_line import Line
from tests.mirror.moments import MOMENTS, Moments
from tests.mirror.places import AzurePlace, DirectoryPlace, GcsPlace, Place, S3Place
from tests.mirror.store_kinds import shared_bucket
from tests.mirror.tls_fronts import TlsFronts

settings.register_profile("any machine", deadline=None, max_examples=60)
settings.load_profile("any machine")


@pytest.fixture
def s3_place(seaweed: SeaweedS3) -> S3Place:
    """A deep new prefix on the S3 server."""
    return S3Place(seaweed, shared_bucket(seaweed, versioned=False), f"mirror/of/{uuid.uuid4().hex}")


@pytest.fixture
def gcs_place(fake_gcs: FakeGcs) -> GcsPlace:
    """A deep new prefix on the GCS server."""
    return GcsPlace(fake_gcs, shared_bucket(fake_gcs, versioned=False), f"mirror/of/{uuid.uuid4().hex}")


@pytest.fixture
def azure_place(azurite: Azurite, tls_fronts: TlsFronts) -> AzurePlace:
    """A deep new prefix on the Azure server."""
    container = shared_bucket(azurite, versioned=False)
    return AzurePlace(azurite, container, f"mirror/of/{uuid.uuid4().hex}", tls_fronts)


@pytest.fixture(params=["directory", "s3", "s3_fsspec", "gcs", "azure", "azure_fsspec"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Each kind of store that is first class, by each of its drivers."""
    if request.param == "directory":
        return DirectoryPlace(tmp_path / "mirror" / "of" / "run-7")
    if request.param == "s3_fsspec":
        s3_place: S3Place = request.getfixturevalue("s3_place")
        return replace(s3_place, driver="fsspec")
    if request.param == "azure_fsspec":
        azure_place: AzurePlace = request.getfixturevalue("azure_place")
        return replace(azure_place, driver="fsspec")
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    """The mirror's commands, in this process."""
    return Line(capsys, monkeypatch)


@pytest.fixture
def moments() -> Iterator[Moments]:
    """What is to happen between two calls of the file system."""
    yield MOMENTS
    MOMENTS.forget()


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A record directory with records of every size, and with what a directory holds besides."""
    directory = tmp_path / "records"
    write_corpus(directory, profile="tiny", count=30, seed=1)
    write_corpus(directory, profile="text", count=10, seed=2)
    write_corpus(directory, profile="tokens", count=4, seed=3)
    write_corpus(directory, profile="moe", count=2, seed=4)
    write_litter(directory)
    return directory
