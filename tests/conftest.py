"""Real stores on loopback for the whole suite, started when the first test asks for one."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Before any client is imported: nothing in the suite may find real credentials, profiles or services.
os.environ.update(
    {
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "NO_GCE_CHECK": "true",
    }
)
for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "STORAGE_EMULATOR_HOST"):
    os.environ.pop(name, None)
for name in [name for name in os.environ if name.startswith("AZURE_")]:
    del os.environ[name]

from tests.mirror.tls import Certificates  # noqa: E402 - it imports no client at once
from tests.mirror.tls_fronts import TlsFronts  # noqa: E402 - it imports no client at once

_tls_folder = tempfile.TemporaryDirectory(prefix="tests-tls-")
_certificates = Certificates.made_in(Path(_tls_folder.name))
os.environ["SSL_CERT_FILE"] = str(_certificates.trusted)  # aiohttp reads it when it is imported

from mirror.testing.proxy import FaultProxy  # noqa: E402 - after the environment is set
from mirror.testing.servers import Azurite, FakeGcs, RcloneS3, SeaweedS3  # noqa: E402 - likewise

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def seaweed() -> Iterator[SeaweedS3]:
    """An S3 server that checks signatures, rights and checksums."""
    with SeaweedS3() as server:
        yield server


@pytest.fixture(scope="session")
def rclone_s3() -> Iterator[RcloneS3]:
    """A plain and fast S3 server."""
    with RcloneS3() as server:
        yield server


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[FakeGcs]:
    """A GCS server."""
    with FakeGcs() as server:
        yield server


@pytest.fixture(scope="session")
def certificates() -> Certificates:
    """What a server needs to be trusted by every client in the suite."""
    return _certificates


@pytest.fixture(scope="session")
def tls_fronts(certificates: Certificates) -> Iterator[TlsFronts]:
    """TLS in front of plain servers."""
    with contextlib.ExitStack() as stack:
        yield TlsFronts(certificates, stack)


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """A server of Azure Blob Storage."""
    with Azurite() as server:
        yield server


@pytest.fixture
def s3_bucket(seaweed: SeaweedS3) -> str:
    """The name of a fresh bucket on the S3 server."""
    return seaweed.make_bucket(f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def gcs_bucket(fake_gcs: FakeGcs) -> str:
    """The name of a fresh bucket on the GCS server."""
    return fake_gcs.make_bucket(f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def s3_proxy(seaweed: SeaweedS3) -> Iterator[FaultProxy]:
    """A proxy in front of the S3 server, without faults yet."""
    with FaultProxy(seaweed.url) as proxy:
        yield proxy


@pytest.fixture
def gcs_proxy(fake_gcs: FakeGcs) -> Iterator[FaultProxy]:
    """A proxy in front of the GCS server, without faults yet."""
    with FaultProxy(fake_gcs.url) as proxy:
        yield proxy


@pytest.fixture
def azure_proxy(azurite: Azurite) -> Iterator[FaultProxy]:
    """A proxy in front of the Azure server, without faults yet."""
    with FaultProxy(azurite.url) as proxy:
        yield proxy
