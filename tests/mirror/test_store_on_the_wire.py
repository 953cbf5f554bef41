"""What the drivers of S3, GCS and Azure send, as a proxy in front of the servers sees it."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest
import xxhash

from mirror.config import MirrorConfig
from mirror.errors import (
    TryAgainError,
)
from mirror.location import parse_location
from mirror.receipts.segments import PREFIX
from mirror.redact import Redactor
from mirror.store import WHOLE_BYTES, Store, Stored
from mirror.stores.opening import open_store
from mirror.stores.s3 import S3Store
from mirror.testing import (
    Azurite,
    FakeGcs,
    Fault,
    FaultProxy,
    FlipRequestBit,
    Reply,
    SeaweedS3,
    refuse_wrong_xxhash128,
    requests_to,
    s3_error,
)
from mirror.testing.servers import AZURE_ACCOUNT
from tests.mirror.places import AzurePlace, GcsPlace, Place, S3Place
from tests.mirror.relay import Relay
from tests.mirror.store_kinds import Kind, get, keys_of, kind_of, parts_of, put, reliable
from tests.mirror.tls_fronts import TlsFronts

pytestmark = pytest.mark.integration

KEY = "tr_1.tokens.zst"
CONTENT = random.Random(1).randbytes(100_000)  # noqa: S311 - no secrets


@dataclass
class Recorder:
    """Keeps what a proxy is asked, and lets it pass."""

    requests: list[tuple[str, str, Mapping[str, str], bytes]] = field(default_factory=list)

    def __call__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply | None:
        self.requests.append((method, path, headers, body))
        return None


def test_a_file_costs_s3_one_request_that_carries_its_md5(s3_place: S3Place, seaweed: SeaweedS3) -> None:
    """One PUT, one round trip, no chunked framing, and ``Content-MD5`` for a store that is not AWS to check."""
    seen = Recorder()
    with FaultProxy(seaweed.url, check_request=seen) as proxy:
        kind = kind_of(s3_place, via=proxy.url, driver="fsspec")
        stored = kind.run(lambda store: put(store, KEY, CONTENT))
    ((method, path, headers, body),) = seen.requests
    md5 = hashlib.md5(CONTENT, usedforsecurity=False)
    assert (method, path, body) == ("PUT", f"/{s3_place.bucket}/{s3_place.prefix}/{KEY}", CONTENT)
    assert headers["content-md5"] == base64.b64encode(md5.digest()).decode()
    assert headers["content-length"] == str(len(CONTENT))
    assert not {"expect", "transfer-encoding", "x-amz-trailer", "content-encoding"} & headers.keys()
    assert stored.md5 == md5.hexdigest()


def test_a_file_costs_s3_one_request_that_carries_its_crc(s3_place: S3Place, seaweed: SeaweedS3) -> None:
    """Likewise by obstore, with a CRC64-NVME in place of the MD5, signed with the request."""
    seen = Recorder()
    with FaultProxy(seaweed.url, check_request=seen) as proxy:
        kind_of(s3_place, via=proxy.url, driver="obstore").run(lambda store: put(store, KEY, CONTENT))
    ((method, path, headers, body),) = seen.requests
    assert (method, path, body) == ("PUT", f"/{s3_place.bucket}/{s3_place.prefix}/{KEY}", CONTENT)
    assert len(base64.b64decode(headers["x-amz-checksum-crc64nvme"])) == 8
    assert "x-amz-checksum-crc64nvme" in headers["authorization"]
    assert headers["content-length"] == str(len(CONTENT))
    assert not {"expect", "transfer-encoding", "x-amz-trailer", "content-encoding"} & headers.keys()


def test_a_store_that_compares_checksums_is_spared_the_md5(s3_place: S3Place, seaweed: SeaweedS3) -> None:
    """Asked once, by an upload with a wrong checksum that it refuses, it is known to prove every other upload."""
    seen = Recorder()

    async def use(store: Store) -> tuple[Stored, Stored, Stored]:
        first = await put(store, KEY, CONTENT)
        await put(store, PREFIX + "w/00000001.jsonl", b"receipts")
        return first, await put(store, KEY, CONTENT), await put(store, KEY, CONTENT)

    with FaultProxy(seaweed.url, check_request=seen) as proxy:
        stored = kind_of(s3_place, via=proxy.url, driver="obstore").run(use)
    assert [answer.md5 is None for answer in stored] == [False, True, True]
    assert len(seen.requests) == 5  # the four, and the question
    assert s3_place.objects() == {KEY: CONTENT, PREFIX + "w/00000001.jsonl": b"receipts"}


@pytest.mark.parametrize("answer", [s3_error(403, "AccessDenied"), s3_error(400, "InvalidRequest")])
def test_a_store_that_refuses_the_question_takes_uploads(s3_place: S3Place, seaweed: SeaweedS3, answer: Reply) -> None:
    """What a strict gateway says of a wrong checksum is no word about uploads: they are proved by MD5 then."""

    def refuse_wrong(_method: str, _path: str, headers: Mapping[str, str], _body: bytes) -> Reply | None:
        return answer if headers["x-amz-checksum-crc64nvme"] == "AQEBAQEBAQE=" else None

    async def use(store: Store) -> Stored:
        await put(store, PREFIX + "w/00000001.jsonl", b"receipts")
        return await put(store, KEY, CONTENT)

    with FaultProxy(seaweed.url, check_request=refuse_wrong) as proxy:
        stored = kind_of(s3_place, via=proxy.url, driver="obstore").run(use)
    assert stored.md5 == hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
    assert len(s3_place.objects()) == 2


def test_the_users_own_options_go_with_each_upload_of_obstore(s3_place: S3Place) -> None:
    """Storage class, encryption, content type, metadata and tags are in the request that writes."""
    options = s3_place.options()
    options["s3_additional_kwargs"] = {
        "StorageClass": "STANDARD_IA",
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "key-1",
        "ContentType": "application/zstd",
        "Metadata": {"team": "rl"},
        "Tagging": "run=7",
    }
    options["requester_pays"] = True
    seen = Recorder()

    def answer(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        seen(method, path, headers, body)
        return Reply(status=200, headers={"ETag": '"0"'})

    location = parse_location(s3_place.url)
    with FaultProxy(s3_place.server.url, check_request=answer) as proxy:
        options["client_kwargs"] |= {"endpoint_url": proxy.url}
        config = MirrorConfig(driver="obstore", storage_options=options)
        Kind("s3", location, lambda: open_store(location, config), None).run(lambda store: put(store, KEY, CONTENT))
    ((_, _, headers, _),) = seen.requests
    assert headers["x-amz-storage-class"] == "STANDARD_IA"
    assert headers["x-amz-server-side-encryption"] == "aws:kms"
    assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "key-1"
    assert headers["content-type"] == "application/zstd"
    assert headers["x-amz-meta-team"] == "rl"
    assert headers["x-amz-tagging"] == "run=7"
    assert headers["x-amz-request-payer"] == "requester"


def test_a_file_costs_gcs_one_request_that_carries_its_md5(gcs_place: GcsPlace, fake_gcs: FakeGcs) -> None:
    """One POST with name, MD5 and content, so that the object is checked and named by one round trip."""
    seen = Recorder()
    with FaultProxy(fake_gcs.url, check_request=seen) as proxy:
        kind_of(gcs_place, via=proxy.url).run(lambda store: put(store, KEY, CONTENT))
    ((method, _, headers, body),) = seen.requests
    md5 = base64.b64encode(hashlib.md5(CONTENT, usedforsecurity=False).digest()).decode()
    assert method == "POST"
    assert json.dumps({"name": f"{gcs_place.prefix}/{KEY}", "md5Hash": md5}).encode() in body
    assert CONTENT in body
    assert not {"expect", "transfer-encoding"} & headers.keys()


def test_a_file_costs_azure_one_request_that_carries_its_md5(azure_place: AzurePlace, azurite: Azurite) -> None:
    """One PUT by adlfs, one round trip, with ``Content-MD5`` for Azure to check; large bodies are no matter."""
    content = CONTENT * 20
    seen = Recorder()
    with FaultProxy(azurite.url, check_request=seen) as proxy:
        kind = kind_of(azure_place, via=proxy.url, driver="fsspec")
        stored = kind.run(lambda store: put(store, KEY, content))
    ((method, path, headers, body),) = seen.requests
    md5 = hashlib.md5(content, usedforsecurity=False)
    assert (method, body) == ("PUT", content)
    assert path == f"/{AZURE_ACCOUNT}/{azure_place.container}/{azure_place.prefix}/{KEY}"
    assert headers["content-md5"] == base64.b64encode(md5.digest()).decode()
    assert not {"expect", "transfer-encoding"} & headers.keys()
    assert stored.md5 == md5.hexdigest()


def test_a_file_costs_azure_one_request_by_obstore(azure_place: AzurePlace, azurite: Azurite) -> None:
    """One PUT within TLS."""
    seen = Recorder()
    with FaultProxy(azurite.url, check_request=seen) as proxy:
        kind_of(azure_place, via=proxy.url, driver="obstore").run(lambda store: put(store, KEY, CONTENT))
    ((method, path, headers, body),) = seen.requests
    assert (method, body) == ("PUT", CONTENT)
    assert path == f"/{AZURE_ACCOUNT}/{azure_place.container}/{azure_place.prefix}/{KEY}"
    assert headers["content-length"] == str(len(CONTENT))
    assert not {"expect", "transfer-encoding"} & headers.keys()


def test_s3_is_given_the_receipts_own_hash_to_check(s3_place: S3Place, seaweed: SeaweedS3) -> None:
    """Where the store knows XXH3-128, the very digest of the receipt travels as its checksum, and no MD5 is spent."""
    seen = Recorder()
    with FaultProxy(seaweed.url, check_request=seen) as proxy:
        kind = kind_of(s3_place, via=proxy.url, upload_checksum="xxh3_128")
        stored = kind.run(lambda store: put(store, KEY, CONTENT))
    ((_, _, headers, _),) = seen.requests
    assert base64.b64decode(headers["x-amz-checksum-xxhash128"]) == xxhash.xxh3_128_digest(CONTENT)
    assert "content-md5" not in headers
    assert stored.md5 is None


def test_aws_itself_gets_the_receipts_own_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """``auto`` means XXH3-128 for AWS: seen by a proxy that stands in for it."""
    seen = Recorder()

    def answer(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        seen(method, path, headers, body)
        return Reply(status=200, headers={"ETag": '"0"'})

    with FaultProxy("http://127.0.0.1:9", check_request=answer) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        location = parse_location("s3://bucket/run-7")
        options = {"client_kwargs": {"endpoint_url": "http://s3.us-east-1.amazonaws.com"}}
        kind = Kind("aws", location, lambda: S3Store(location, options, redact=Redactor(), connections=2), None)
        kind.run(lambda store: put(store, KEY, CONTENT))
    ((_, _, headers, _),) = seen.requests
    assert base64.b64decode(headers["x-amz-checksum-xxhash128"]) == xxhash.xxh3_128_digest(CONTENT)


@pytest.mark.parametrize("upload_checksum", ["auto", "md5", "xxh3_128"])
def test_a_bit_flipped_on_the_way_to_s3_is_an_error(
    s3_place: S3Place, seaweed: SeaweedS3, upload_checksum: str
) -> None:
    """The store refuses other bytes than were meant, with the very first upload too; a second attempt puts it right."""
    check = refuse_wrong_xxhash128 if upload_checksum == "xxh3_128" else None
    with FaultProxy(seaweed.url, check_request=check) as proxy:
        kind = kind_of(s3_place, via=proxy.url, upload_checksum=upload_checksum)
        assert_a_flipped_bit_is_put_right(kind, proxy, requests_to("PUT"))
    assert s3_place.objects() == {KEY: CONTENT}


def test_a_bit_flipped_on_the_way_to_gcs_is_an_error(gcs_place: GcsPlace, gcs_proxy: FaultProxy) -> None:
    """Likewise, by the MD5 that the answer carries where the server does not check it itself."""
    assert_a_flipped_bit_is_put_right(kind_of(gcs_place, via=gcs_proxy.url), gcs_proxy, requests_to("POST"))
    assert gcs_place.objects() == {KEY: CONTENT}


def test_a_bit_flipped_on_the_way_to_azure_is_an_error(azure_place: AzurePlace, azure_proxy: FaultProxy) -> None:
    """On plain http, adlfs's driver is the one that is used, and Azure refuses other bytes than their MD5 says."""
    place = replace(azure_place, driver="auto")
    assert_a_flipped_bit_is_put_right(kind_of(place, via=azure_proxy.url), azure_proxy, requests_to("PUT"))
    assert azure_place.objects() == {KEY: CONTENT}


@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_a_bit_flipped_within_tls_is_an_error(driver: str, azure_place: AzurePlace, tls_fronts: TlsFronts) -> None:
    """Over https nothing that changes on the way reaches the store, whichever driver sends it."""
    with Relay(tls_fronts.of(azure_place.server.url)) as wire:
        kind = kind_of(replace(azure_place, driver=driver), via=wire.url)

        async def use(store: Store) -> None:
            tries = 2 if driver == "fsspec" else 1  # below adlfs, aiohttp sends a PUT once more by itself
            wire.flip(behind_bytes=50_000, times=tries)  # of a hundred thousand
            with pytest.raises(TryAgainError):
                await put(store, KEY, CONTENT)
            assert wire.has_flipped
            assert await keys_of(store) == []
            await put(store, KEY, CONTENT)
            assert await get(store, KEY) == CONTENT

        kind.run(use)
    assert azure_place.objects() == {KEY: CONTENT}


def test_a_bit_flipped_in_a_name_on_the_way_to_gcs_is_an_error(gcs_place: GcsPlace, gcs_proxy: FaultProxy) -> None:
    """The name goes in the body; the store stores what it is told, and says by which name."""
    name_ends = len(f'--{"0" * 32}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{{"name": "')
    name_ends += len(f"{gcs_place.prefix}/{KEY}")

    async def use(store: Store) -> None:
        gcs_proxy.script(Fault(action=FlipRequestBit(at=name_ends - len(".tokens.zst") + 2), match=requests_to("POST")))
        with pytest.raises(TryAgainError, match="another name"):
            await put(store, KEY, CONTENT)
        await put(store, KEY, CONTENT)

    kind_of(gcs_place, via=gcs_proxy.url).run(use)
    assert gcs_place.objects()[KEY] == CONTENT


@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_a_bit_flipped_on_the_way_to_a_store_that_checks_nothing_is_an_error(driver: str, s3_place: S3Place) -> None:
    """A store that ignores every checksum is caught by its ETag, once that was seen to be an MD5."""
    stored: list[bytes] = []

    def store_anything(_method: str, _path: str, _headers: Mapping[str, str], body: bytes) -> Reply:
        stored.append(body)
        return Reply(status=200, headers={"ETag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'})

    with FaultProxy(s3_place.server.url, check_request=store_anything) as proxy:

        async def use(store: Store) -> None:
            await put(store, "tr_0.tokens.zst", CONTENT)
            proxy.script(Fault(action=FlipRequestBit(at=5_000)))
            with pytest.raises(TryAgainError):
                await put(store, KEY, CONTENT)
            await put(store, KEY, CONTENT)

        kind_of(s3_place, via=proxy.url, driver=driver).run(use)
    assert [body == CONTENT for body in stored] == [True, False, True]


def test_a_store_that_takes_a_wrong_checksum_is_not_trusted_to_compare(s3_place: S3Place) -> None:
    """Its answer to the question shows that its ETags are MD5s: the very next upload is proved by one."""

    def store_anything(_method: str, _path: str, _headers: Mapping[str, str], body: bytes) -> Reply:
        return Reply(status=200, headers={"ETag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'})

    async def use(store: Store) -> None:
        await put(store, PREFIX + "w/00000001.jsonl", b"receipts")
        proxy.script(Fault(action=FlipRequestBit(at=5_000)))
        with pytest.raises(TryAgainError, match="other bytes"):
            await put(store, KEY, CONTENT)
        assert (await put(store, KEY, CONTENT)).md5 == hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()

    with FaultProxy(s3_place.server.url, check_request=store_anything) as proxy:
        kind_of(s3_place, via=proxy.url, driver="obstore").run(use)


def assert_a_flipped_bit_is_put_right(kind: Kind, proxy: FaultProxy, match: Callable[[str, str], bool]) -> None:
    flip = Fault(action=FlipRequestBit(at=5_000), match=match)

    async def use(store: Store) -> None:
        proxy.script(flip)
        with pytest.raises(TryAgainError):
            await put(store, KEY, CONTENT)
        again = reliable(store)
        proxy.script(flip)
        await put(again, KEY, CONTENT)
        assert proxy.remaining_faults == 0
        assert again.counts.retried == 1
        assert await get(again, KEY) == CONTENT

    kind.run(use)


@pytest.mark.parametrize(
    ("place_name", "match"), [("s3", "partNumber=2"), ("gcs", "upload_id"), ("azure", "comp=block")]
)
def test_a_bit_flipped_in_a_part_is_an_error(request: pytest.FixtureRequest, place_name: str, match: str) -> None:
    """Each part of a large file is checked as well, and the whole of it is sent again."""
    place: Place = request.getfixturevalue(f"{place_name}_place")
    proxy: FaultProxy = request.getfixturevalue(f"{place_name}_proxy")
    size = WHOLE_BYTES + 1

    async def use(store: Store) -> None:
        proxy.script(Fault(action=FlipRequestBit(at=9), match=requests_to("PUT", match)))
        again = reliable(store)
        await again.put_parts(KEY, parts_of(size), size)
        assert proxy.remaining_faults == 0
        assert again.counts.retried == 1

    kind_of(place, via=proxy.url).run(use)
    (content,) = place.objects().values()
    assert content == bytes(size)


def test_credentials_read_again_in_the_middle_of_a_large_file_do_not_end_it(s3_place: S3Place) -> None:
    """Another call's expired token is no reason to begin an upload again."""
    size = WHOLE_BYTES + 1

    async def use(store: Store) -> None:
        async def parts() -> AsyncIterator[bytes]:
            async for part in parts_of(size)():
                yield part
                await store.refresh()

        await store.put_parts(KEY, parts, size)

    kind_of(s3_place).run(use)
    (content,) = s3_place.objects().values()
    assert content == bytes(size)


def test_the_users_own_options_go_with_each_upload(s3_place: S3Place) -> None:
    """Storage class, encryption, access control and tags that s3fs is given are in the requests that write."""
    options = s3_place.options()
    options["s3_additional_kwargs"] = {
        "StorageClass": "STANDARD_IA",
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "key-1",
        "ACL": "bucket-owner-full-control",
        "Tagging": "run=7",
    }
    seen = Recorder()

    def answer(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        seen(method, path, headers, body)
        begun = "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
        return Reply(status=200, body=begun.encode() if method == "POST" else b"", headers={"ETag": '"0"'})

    location = parse_location(s3_place.url)
    with FaultProxy(s3_place.server.url, check_request=answer) as proxy:
        options["client_kwargs"] |= {"endpoint_url": proxy.url}
        kind = Kind("s3", location, lambda: S3Store(location, options, redact=Redactor(), connections=2), None)

        async def use(store: Store) -> None:
            await put(store, KEY, CONTENT)
            await store.put_parts(KEY, parts_of(WHOLE_BYTES + 1), WHOLE_BYTES + 1)

        kind.run(use)
    writes = [headers for method, path, headers, _ in seen.requests if "partNumber" not in path and "=1" not in path]
    assert len(writes) == 2
    for headers in writes:
        assert headers["x-amz-storage-class"] == "STANDARD_IA"
        assert headers["x-amz-server-side-encryption"] == "aws:kms"
        assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "key-1"
        assert headers["x-amz-acl"] == "bucket-owner-full-control"
        assert headers["x-amz-tagging"] == "run=7"
