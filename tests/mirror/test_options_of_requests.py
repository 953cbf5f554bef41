"""What the user's options ask of every request goes with every request, whichever driver makes it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import pytest

from mirror.config import MirrorConfig
from mirror.errors import StoreError
from mirror.location import parse_location
from mirror.store import WHOLE_BYTES
from mirror.stores.opening import open_store
from mirror.testing import FaultProxy, Reply
from tests.mirror.store_kinds import parts_of

KEY = "tr_1.tokens.zst"
SIZE = WHOLE_BYTES + 1
PAGE = (
    b'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>run-7/x</Key><Size>1</Size>'
    b"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>"
)
BEGUN = b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"


class Store:
    """Answers whatever is asked, and keeps what it was asked; the third part of a large file is refused."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    def __call__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:  # noqa: ARG002 - unused
        query = path.partition("?")[2]
        what = next((word for word in ("list-type", "partNumber", "uploads", "uploadId") if word in query), "")
        self.asked.append((f"{method} {what}".strip(), headers))
        if "partNumber=3" in query:
            return Reply(status=403)
        at = {"ETag": '"0"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        return Reply(status=200, body=PAGE if what == "list-type" else BEGUN if what == "uploads" else b"", headers=at)


def every_request(driver: str, **options: Any) -> dict[str, Mapping[str, str]]:  # noqa: ANN401 - options of s3fs
    """Make a request of each kind, and return the headers of each."""
    asked = Store()
    with FaultProxy("http://127.0.0.1:9", check_request=asked) as proxy:
        client = {"endpoint_url": proxy.url, "region_name": "us-east-1"}
        storage = {"key": "k" * 8, "secret": "s" * 8, "client_kwargs": client, **options}
        config = MirrorConfig(driver=driver, storage_options=storage)

        async def use() -> None:
            store = open_store(parse_location("s3://bucket/run-7"), config)
            try:
                await store.put(KEY, b"x", "0" * 32)
                assert [page async for page in store.list_pages()]
                assert b"".join([chunk async for chunk in store.read(KEY)]) == b""
                await store.stat(KEY)
                with pytest.raises(StoreError):
                    await store.put_parts(KEY, parts_of(SIZE), SIZE)
            finally:
                await store.aclose()

        asyncio.run(use())
    found = dict(asked.asked)
    assert set(found) == {"PUT", "GET list-type", "GET", "HEAD", "POST uploads", "PUT partNumber", "DELETE uploadId"}
    return found


@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
@pytest.mark.parametrize("options", [{"requester_pays": True}, {"s3_additional_kwargs": {"RequestPayer": "requester"}}])
def test_whoever_asks_pays_for_every_request(driver: str, options: dict[str, Any]) -> None:
    """Uploads in one or in parts, what takes a broken one back, listings, reads and looks."""
    for kind, headers in every_request(driver, **options).items():
        assert headers.get("x-amz-request-payer") == "requester", kind


def test_a_customers_key_goes_with_whatever_touches_bytes() -> None:
    """With obstore there is no such option: s3fs is taken then."""
    key = base64.b64encode(b"k" * 32).decode()
    options = {"SSECustomerKey": "k" * 32, "SSECustomerAlgorithm": "AES256"}
    found = every_request("auto", s3_additional_kwargs=options)
    for kind in ("PUT", "GET", "HEAD", "POST uploads", "PUT partNumber"):
        assert found[kind]["x-amz-server-side-encryption-customer-key"] == key, kind
