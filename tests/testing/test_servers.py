"""The servers of the suite are real: they store, they check, and they are gone afterwards."""

from __future__ import annotations

import base64
import hashlib
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import adlfs
import gcsfs
import pytest
import s3fs
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob import BlobServiceClient

from mirror.testing import READER, WRITER, Azurite, FakeGcs, RcloneS3, SeaweedS3, ServerError
from mirror.testing.process import ServerProcess, find_program, free_ports
from mirror.testing.servers import azure_connection_string

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from mirror.testing import Identity

ALL_SERVERS = [SeaweedS3, RcloneS3, FakeGcs, Azurite]


def open_s3(server: SeaweedS3 | RcloneS3, identity: Identity | None = None) -> AbstractFileSystem:
    return s3fs.S3FileSystem(**(server.storage_options(identity) if identity else server.storage_options()))


def is_running(pid: int) -> bool:
    """Say whether a process runs; one that ended and waits for its parent does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except FileNotFoundError:
        return False


@pytest.mark.integration
def test_s3_keeps_what_it_is_given(seaweed: SeaweedS3, rclone_s3: RcloneS3, s3_bucket: str) -> None:
    """Objects come back byte for byte from both S3 servers."""
    rclone_s3.make_bucket("plain")
    for server, bucket in ((seaweed, s3_bucket), (rclone_s3, "plain")):
        s3 = open_s3(server)
        s3.pipe_file(f"{bucket}/deep/a", b"x" * 10_000)
        assert s3.cat_file(f"{bucket}/deep/a") == b"x" * 10_000


@pytest.mark.integration
def test_s3_identities_have_their_rights(seaweed: SeaweedS3, s3_bucket: str) -> None:
    """A reader cannot write, a writer cannot read, and a wrong secret can do nothing."""
    open_s3(seaweed).pipe_file(f"{s3_bucket}/a", b"x")
    reader, writer = open_s3(seaweed, READER), open_s3(seaweed, WRITER)
    assert reader.cat_file(f"{s3_bucket}/a") == b"x"
    with pytest.raises(PermissionError):
        reader.pipe_file(f"{s3_bucket}/b", b"x")
    writer.pipe_file(f"{s3_bucket}/b", b"x")
    with pytest.raises(PermissionError):
        writer.cat_file(f"{s3_bucket}/a")
    impostor = s3fs.S3FileSystem(**seaweed.storage_options() | {"secret": "wrong"})
    with pytest.raises(PermissionError):
        impostor.pipe_file(f"{s3_bucket}/c", b"x")


@pytest.mark.integration
def test_s3_buckets_are_versioned_on_demand(seaweed: SeaweedS3) -> None:
    """A versioned bucket answers a write with a version id, a plain one does not, and no bucket makes itself."""
    client = seaweed.client()
    seaweed.make_bucket("versioned", versioned=True)
    seaweed.make_bucket("unversioned")
    first = client.put_object(Bucket="versioned", Key="a", Body=b"1")["VersionId"]
    assert client.put_object(Bucket="versioned", Key="a", Body=b"2")["VersionId"] != first
    assert client.get_object(Bucket="versioned", Key="a", VersionId=first)["Body"].read() == b"1"
    assert "VersionId" not in client.put_object(Bucket="unversioned", Key="a", Body=b"1")
    with pytest.raises(client.exceptions.NoSuchBucket):
        client.put_object(Bucket="absent", Key="a", Body=b"1")


@pytest.mark.integration
def test_gcs_keeps_what_it_is_given(fake_gcs: FakeGcs, gcs_bucket: str) -> None:
    """Objects come back byte for byte, and the answer to a write names etag and generation."""
    gcs = gcsfs.GCSFileSystem(**fake_gcs.storage_options())
    answer = gcs.pipe_file(f"{gcs_bucket}/deep/a", b"x" * 10_000)
    assert {"etag", "generation", "md5Hash"} <= answer.keys()
    assert gcs.cat_file(f"{gcs_bucket}/deep/a") == b"x" * 10_000


@pytest.mark.integration
def test_azure_keeps_what_it_is_given(azurite: Azurite) -> None:
    """Objects come back byte for byte through adlfs, with an ETag."""
    container = azurite.make_bucket("kept")
    azure = adlfs.AzureBlobFileSystem(**azurite.storage_options(), skip_instance_cache=True)
    azure.pipe_file(f"{container}/deep/a", b"x" * 10_000)
    assert azure.cat_file(f"{container}/deep/a") == b"x" * 10_000
    assert azure.info(f"{container}/deep/a")["etag"]


@pytest.mark.integration
def test_azure_checks_what_it_is_sent(azurite: Azurite) -> None:
    """A wrong signature is refused, and so are other bytes than their MD5 says; no container makes itself."""
    container = azurite.make_bucket("checked")
    wrong = azure_connection_string(azurite.url, key=base64.b64encode(b"wrong").decode())
    with (
        BlobServiceClient.from_connection_string(wrong) as impostor,
        pytest.raises(HttpResponseError, match="signature"),
    ):
        impostor.get_blob_client(container, "a").upload_blob(b"x")
    with azurite.client() as client:
        settings = {"headers": {"Content-MD5": base64.b64encode(hashlib.md5(b"other").digest()).decode()}}  # noqa: S324 - Azure's
        with pytest.raises(HttpResponseError, match="Md5Mismatch"):
            client.get_blob_client(container, "a").upload_blob(b"x", **settings)
        with pytest.raises(ResourceNotFoundError, match="ContainerNotFound"):
            client.get_blob_client("absent", "a").upload_blob(b"x")


@pytest.mark.integration
@pytest.mark.parametrize("kind", ALL_SERVERS)
def test_nothing_is_left(kind: type[SeaweedS3 | RcloneS3 | FakeGcs | Azurite]) -> None:
    """After the with statement the process is gone and the server says so."""
    with kind() as server:
        pid = server.pid
        assert is_running(pid)
    assert not is_running(pid)
    with pytest.raises(ServerError, match="use it in a with statement"):
        _ = server.pid


@pytest.mark.integration
def test_a_server_dies_with_its_starter() -> None:
    """When the process that started a server is killed, the server ends too."""
    script = "from mirror.testing import RcloneS3\nwith RcloneS3() as s: print(s.pid, flush=True); input()"
    with subprocess.Popen(  # noqa: S603 - our own interpreter and script
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert is_running(pid)
        descriptor = os.pidfd_open(pid)
        starter.kill()
    try:
        # A pidfd becomes readable when its process has ended.
        assert select.select([descriptor], [], [], 10)[0]
    finally:
        os.close(descriptor)


def test_an_absent_program_names_its_package() -> None:
    """The error says what to install."""
    with pytest.raises(ServerError, match="pip install no-such-package"):
        find_program("no-such-program", "no-such-package")


def test_a_server_that_ends_early_shows_its_log(tmp_path: Path) -> None:
    """The end of the log is in the error."""
    process = ServerProcess(["/bin/sh", "-c", "echo the port is cursed; exit 3"], cwd=tmp_path, env={})
    with pytest.raises(ServerError, match=r"(?s)exit code 3.*the port is cursed"):
        process.wait_until(lambda: False, timeout_s=10)
    process.stop()


def test_free_ports_are_distinct() -> None:
    """Ports asked for together differ."""
    assert len(set(free_ports(50))) == 50
