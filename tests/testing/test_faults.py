"""Each fault as the real clients meet it: s3fs and gcsfs, real servers, the proxy between them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import aiohttp
import botocore.exceptions
import fsspec.asyn
import gcsfs
import pytest
import s3fs
import xxhash

from mirror.testing import (
    Answer,
    Fault,
    FaultProxy,
    FlipReplyBit,
    FlipRequestBit,
    Hang,
    LoseReply,
    RcloneS3,
    Reset,
    Stall,
    Throttle,
    TruncateReply,
    refuse_wrong_xxhash128,
    requests_to,
    s3_error,
)

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from mirror.testing import FakeGcs, SeaweedS3
    from mirror.testing.faults import Action

pytestmark = pytest.mark.integration

BODY = b"0123456789" * 500


def open_s3(server: SeaweedS3 | RcloneS3, proxy: FaultProxy) -> AbstractFileSystem:
    """Return an s3fs that leaves trying again to its caller."""
    filesystem = s3fs.S3FileSystem(
        **server.storage_options(url=proxy.url), config_kwargs={"retries": {"total_max_attempts": 1}}
    )
    filesystem.retries = 1
    return filesystem


@pytest.fixture
def s3(seaweed: SeaweedS3, s3_proxy: FaultProxy) -> AbstractFileSystem:
    """An s3fs through the proxy."""
    return open_s3(seaweed, s3_proxy)


@pytest.fixture
def gcs(fake_gcs: FakeGcs, gcs_proxy: FaultProxy) -> AbstractFileSystem:
    """A gcsfs through the proxy, with its own retries."""
    return gcsfs.GCSFileSystem(**fake_gcs.storage_options(url=gcs_proxy.url))


def on_the_wire(action: Action, method: str) -> Fault:
    """Return a fault that outlives aiohttp, which repeats a request once when a kept connection is reset."""
    return Fault(action=action, match=requests_to(method), times=2)


@pytest.mark.parametrize("action", [Reset(), Reset(after_bytes=1000)])
def test_s3_reset_before_anything_is_stored(
    s3: AbstractFileSystem, s3_proxy: FaultProxy, s3_bucket: str, action: Action
) -> None:
    """A reset connection is botocore's error, and the object is not there."""
    s3_proxy.script(on_the_wire(action, "PUT"))
    with pytest.raises((botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError)):
        s3.pipe_file(f"{s3_bucket}/a", BODY)
    s3_proxy.clear()
    assert not s3.exists(f"{s3_bucket}/a")


def test_s3_lost_reply(s3: AbstractFileSystem, s3_proxy: FaultProxy, s3_bucket: str) -> None:
    """The client sees an error although the object is there."""
    s3_proxy.script(on_the_wire(LoseReply(), "PUT"))
    with pytest.raises((botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError)):
        s3.pipe_file(f"{s3_bucket}/a", BODY)
    s3_proxy.clear()
    assert s3.cat_file(f"{s3_bucket}/a") == BODY


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (503, "SlowDown", OSError),
        (500, "InternalError", OSError),
        (429, "TooManyRequests", OSError),
        (403, "AccessDenied", PermissionError),
        (400, "ExpiredToken", PermissionError),
    ],
)
def test_s3_refusals(
    s3: AbstractFileSystem, s3_proxy: FaultProxy, s3_bucket: str, status: int, code: str, expected: type[OSError]
) -> None:
    """A scripted answer reaches the caller as s3fs translates that code, and the store hears nothing."""
    s3_proxy.script(Fault(action=Answer(s3_error(status, code)), match=requests_to("PUT")))
    with pytest.raises(expected):
        s3.pipe_file(f"{s3_bucket}/a", BODY)
    assert [r.status for r in s3_proxy.requests] == [status]
    assert not s3.exists(f"{s3_bucket}/a")


def test_s3_hang(s3: AbstractFileSystem, s3_proxy: FaultProxy, s3_bucket: str) -> None:
    """A request that is never answered ends by the caller's own timeout."""
    s3_proxy.script(Fault(action=Hang(), match=requests_to("PUT")))
    with pytest.raises(TimeoutError):
        fsspec.asyn.sync(s3.loop, s3._pipe_file, f"{s3_bucket}/a", BODY, timeout=0.5)


@pytest.mark.parametrize("action", [Stall(0.2), Throttle(bytes_per_s=50_000)])
def test_s3_slowness_is_no_error(s3: AbstractFileSystem, s3_proxy: FaultProxy, s3_bucket: str, action: Action) -> None:
    """A late answer and a thin line only take longer."""
    s3_proxy.script(Fault(action=action, match=requests_to("PUT")))
    s3.pipe_file(f"{s3_bucket}/a", BODY)
    assert s3_proxy.remaining_faults == 0
    assert s3.cat_file(f"{s3_bucket}/a") == BODY


def test_s3_truncated_read(s3: AbstractFileSystem, s3_proxy: FaultProxy, s3_bucket: str) -> None:
    """A body that ends early is aiohttp's error."""
    s3.pipe_file(f"{s3_bucket}/a", BODY)
    s3_proxy.script(Fault(action=TruncateReply(after_bytes=1000), match=requests_to("GET")))
    with pytest.raises(aiohttp.ClientPayloadError):
        s3.cat_file(f"{s3_bucket}/a")


def test_s3_flipped_on_the_way_up(s3: AbstractFileSystem, s3_proxy: FaultProxy, s3_bucket: str) -> None:
    """The server, which checks what it gets, refuses the body."""
    s3_proxy.script(Fault(action=FlipRequestBit(at=3), match=requests_to("PUT")))
    with pytest.raises(OSError, match="did not match"):
        s3.pipe_file(f"{s3_bucket}/a", BODY)
    assert not s3.exists(f"{s3_bucket}/a")


def test_s3_flipped_on_the_way_down(s3: AbstractFileSystem, s3_proxy: FaultProxy, s3_bucket: str) -> None:
    """The client, which checks what it gets, notices."""
    s3.pipe_file(f"{s3_bucket}/a", BODY)
    s3_proxy.script(Fault(action=FlipReplyBit(at=3), match=requests_to("GET")))
    with pytest.raises(botocore.exceptions.FlexibleChecksumError):
        s3.cat_file(f"{s3_bucket}/a")


def test_s3_down_and_up(s3: AbstractFileSystem, s3_proxy: FaultProxy, s3_bucket: str) -> None:
    """While the store is down nothing connects; afterwards the same client works again."""
    s3.pipe_file(f"{s3_bucket}/a", BODY)
    s3_proxy.down()
    with pytest.raises((botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError)):
        s3.pipe_file(f"{s3_bucket}/b", BODY)
    s3_proxy.up()
    s3.pipe_file(f"{s3_bucket}/b", BODY)
    assert s3.cat_file(f"{s3_bucket}/b") == BODY


def test_a_store_that_checks_our_hash(rclone_s3: RcloneS3) -> None:
    """With the check in front, an upload whose XXHASH128 is not the body's is refused as S3 refuses it."""
    rclone_s3.make_bucket("checked")
    of_another_body = base64.b64encode(xxhash.xxh3_128_digest(b"other")).decode()
    with FaultProxy(rclone_s3.url, check_request=refuse_wrong_xxhash128) as proxy:
        s3 = open_s3(rclone_s3, proxy)
        s3.pipe_file("checked/a", BODY, ChecksumXXHASH128=base64.b64encode(xxhash.xxh3_128_digest(BODY)).decode())
        with pytest.raises(OSError, match="XXHASH128"):
            s3.pipe_file("checked/b", BODY, ChecksumXXHASH128=of_another_body)
        assert s3.ls("checked", detail=False) == ["checked/a"]


def test_gcs_lost_reply_is_sent_again(gcs: AbstractFileSystem, gcs_proxy: FaultProxy, gcs_bucket: str) -> None:
    """Gcsfs tries again by itself, so the store gets the object twice."""
    gcs_proxy.script(Fault(action=LoseReply(), match=requests_to("POST")))
    gcs.pipe_file(f"{gcs_bucket}/a", BODY)
    assert [r.status for r in gcs_proxy.requests] == [None, 200]
    assert gcs.cat_file(f"{gcs_bucket}/a") == BODY


def test_gcs_refusal(gcs: AbstractFileSystem, gcs_proxy: FaultProxy, gcs_bucket: str) -> None:
    """Access denied is a plain OSError in gcsfs."""
    gcs_proxy.script(Fault(action=Answer(s3_error(403, "AccessDenied")), match=requests_to("POST")))
    with pytest.raises(OSError, match="Forbidden"):
        gcs.pipe_file(f"{gcs_bucket}/a", BODY)


def test_gcs_flips_go_unnoticed(gcs: AbstractFileSystem, gcs_proxy: FaultProxy, gcs_bucket: str) -> None:
    """Neither gcsfs nor this server checks what passes, so the answer's hash has to be compared."""
    gcs.pipe_file(f"{gcs_bucket}/a", BODY)
    gcs_proxy.script(Fault(action=FlipReplyBit(at=3), match=requests_to("GET")))
    assert gcs.cat_file(f"{gcs_bucket}/a") == b"0122" + BODY[4:]


def test_gcs_upload_session_passes_the_proxy(gcs: AbstractFileSystem, gcs_proxy: FaultProxy, gcs_bucket: str) -> None:
    """A resumable upload, begun through the proxy, goes on through it."""
    body = bytes(range(256)) * 2048
    with gcs.open(f"{gcs_bucket}/a", "wb", block_size=1 << 18) as target:
        target.write(body)
    assert sum("upload_id" in r.path for r in gcs_proxy.requests) >= 2
    assert gcs.cat_file(f"{gcs_bucket}/a") == body
