"""What the S3 and GCS drivers send, and what they make of the answers, as a proxy in front of the servers sees it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import xxhash

from mirror.breaker import Breaker
from mirror.errors import (
    AccessDeniedError,
    CredentialsError,
    DeadlineError,
    FileRefusedError,
    StoreError,
    StoreRefusedError,
    ThrottledError,
    TryAgainError,
)
from mirror.limiter import Limiter
from mirror.location import parse_location
from mirror.redact import Redactor
from mirror.reliable import ReliableStore
from mirror.retry import RetryPolicy
from mirror.store import PART_BYTES, WHOLE_BYTES, Store
from mirror.stores.s3 import S3Store
from mirror.testing import (
    READER,
    WRITER,
    Answer,
    FakeGcs,
    Fault,
    FaultProxy,
    FlipRequestBit,
    Hang,
    Identity,
    LoseReply,
    Reply,
    Reset,
    SeaweedS3,
    TruncateReply,
    refuse_wrong_xxhash128,
    requests_to,
    s3_error,
)
from tests.mirror.places import GcsPlace, Place, S3Place
from tests.mirror.store_kinds import Kind, get, keys_of, kind_of, put, shared_bucket

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


@pytest.fixture
def s3_place(seaweed: SeaweedS3) -> S3Place:
    return S3Place(seaweed, shared_bucket(seaweed, versioned=False), f"wire/{uuid.uuid4().hex}")


@pytest.fixture
def gcs_place(fake_gcs: FakeGcs) -> GcsPlace:
    return GcsPlace(fake_gcs, shared_bucket(fake_gcs, versioned=False), f"wire/{uuid.uuid4().hex}")


@pytest.fixture(params=["s3", "gcs"])
def place_and_proxy(request: pytest.FixtureRequest) -> tuple[Place, FaultProxy]:
    """Both stores, each behind a proxy."""
    return request.getfixturevalue(f"{request.param}_place"), request.getfixturevalue(f"{request.param}_proxy")


def reliable(store: Store, *, attempts: int = 3, timeout_s: float = 20.0) -> ReliableStore:
    policy = RetryPolicy(attempts=attempts, backoff_s=0.01, timeout_s=timeout_s)
    return ReliableStore(store, policy, limiter=Limiter(8), breaker=Breaker("the store"))


def parts_of(size: int) -> Callable[[], AsyncIterator[bytes]]:
    """Return a large file as a mirror reads it."""

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, size, PART_BYTES):
            yield bytes(min(PART_BYTES, size - start))

    return parts


def test_a_file_costs_s3_one_request_that_carries_its_md5(s3_place: S3Place, seaweed: SeaweedS3) -> None:
    """One PUT, one round trip, no chunked framing, and ``Content-MD5`` for a store that is not AWS to check."""
    seen = Recorder()
    with FaultProxy(seaweed.url, check_request=seen) as proxy:
        stored = kind_of(s3_place, via=proxy.url).run(lambda store: put(store, KEY, CONTENT))
    ((method, path, headers, body),) = seen.requests
    md5 = hashlib.md5(CONTENT, usedforsecurity=False)
    assert (method, path, body) == ("PUT", f"/{s3_place.bucket}/{s3_place.prefix}/{KEY}", CONTENT)
    assert headers["content-md5"] == base64.b64encode(md5.digest()).decode()
    assert headers["content-length"] == str(len(CONTENT))
    assert not {"expect", "transfer-encoding", "x-amz-trailer", "content-encoding"} & headers.keys()
    assert stored.md5 == md5.hexdigest()


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


@pytest.mark.parametrize("upload_checksum", ["md5", "xxh3_128"])
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


def test_a_bit_flipped_on_the_way_to_a_store_that_checks_nothing_is_an_error(s3_place: S3Place) -> None:
    """A store that ignores ``Content-MD5`` is caught by its ETag, once that was seen to be an MD5."""
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

        kind_of(s3_place, via=proxy.url).run(use)
    assert [body == CONTENT for body in stored] == [True, False, True]


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


@pytest.mark.parametrize(("place_name", "match"), [("s3", "partNumber=2"), ("gcs", "upload_id")])
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


def test_identities_may_do_what_their_rights_say(s3_place: S3Place) -> None:
    """A reader can read all and write nothing; a writer can write; a wrong secret is refused for everything."""
    kind_of(s3_place).run(lambda store: put(store, KEY, CONTENT))

    def as_identity(identity: Identity, use: Callable[[Store], Awaitable[object]]) -> object:
        return kind_of(S3Place(s3_place.server, s3_place.bucket, s3_place.prefix, identity)).run(use)

    assert as_identity(READER, lambda store: get(store, KEY)) == CONTENT
    assert as_identity(READER, keys_of) == [KEY]
    with pytest.raises(AccessDeniedError):
        as_identity(READER, lambda store: put(store, KEY, b""))
    as_identity(WRITER, lambda store: put(store, "tr_2.tokens.zst", b""))
    wrong = Identity(access_key=READER.access_key, secret_key="not-the-secret")  # noqa: S106 - of a throw-away server
    for use in (keys_of, lambda store: get(store, KEY), lambda store: put(store, KEY, b"")):
        with pytest.raises(StoreRefusedError) as caught:
            as_identity(wrong, use)
        assert "not-the-secret" not in str(caught.value)
    assert set(s3_place.objects()) == {KEY, "tr_2.tokens.zst"}


def test_an_absent_bucket_is_the_stores_refusal(s3_place: S3Place, gcs_place: GcsPlace) -> None:
    """No such bucket concerns every file until somebody acts, however it is found out."""
    for absent in (replace(s3_place, bucket="absent"), replace(gcs_place, bucket="absent")):
        for use in (keys_of, lambda store: put(store, KEY, b"")):
            with pytest.raises(StoreRefusedError):
                kind_of(absent).run(use)
    with pytest.raises(StoreRefusedError):
        kind_of(replace(s3_place, bucket="absent")).run(lambda store: get(store, KEY))


def gcs_error(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Reply:
    """Return an answer as the JSON API gives it."""
    body = {"error": {"code": status, "message": "scripted", "errors": [{"reason": reason, "message": "scripted"}]}}
    return Reply(status=status, body=json.dumps(body).encode(), headers=headers or {})


ANSWERS: list[tuple[str, Reply, type[StoreError]]] = [
    ("s3", s3_error(503, "SlowDown"), ThrottledError),
    ("s3", Reply(status=429), ThrottledError),
    ("s3", s3_error(500, "InternalError"), TryAgainError),
    ("s3", Reply(status=502, body=b"<html>bad gateway</html>"), TryAgainError),
    ("s3", s3_error(400, "RequestTimeout"), TryAgainError),
    ("s3", s3_error(403, "ExpiredToken"), CredentialsError),
    ("s3", s3_error(400, "ExpiredToken"), CredentialsError),
    ("s3", s3_error(403, "RequestTimeTooSkewed"), CredentialsError),
    ("s3", s3_error(403, "AccessDenied"), AccessDeniedError),
    ("s3", s3_error(400, "KeyTooLongError"), FileRefusedError),
    ("s3", s3_error(400, "EntityTooLarge"), FileRefusedError),
    ("s3", s3_error(403, "QuotaExceeded"), StoreRefusedError),
    ("s3", s3_error(507, "XMinioStorageFull"), StoreRefusedError),
    ("gcs", gcs_error(429, "rateLimitExceeded"), ThrottledError),
    ("gcs", gcs_error(503, "backendError"), TryAgainError),
    ("gcs", Reply(status=502, body=b"<html>bad gateway</html>"), TryAgainError),
    ("gcs", gcs_error(401, "authError"), CredentialsError),
    ("gcs", gcs_error(403, "forbidden"), AccessDeniedError),
    ("gcs", gcs_error(413, "uploadTooLarge"), FileRefusedError),
]


@pytest.mark.parametrize(
    ("place_name", "reply", "expected"),
    ANSWERS,
    ids=[f"{place}-{reply.status}-{error.__name__}-{number}" for number, (place, reply, error) in enumerate(ANSWERS)],
)
def test_answers_are_sorted_by_what_to_do_next(
    request: pytest.FixtureRequest, place_name: str, reply: Reply, expected: type[StoreError]
) -> None:
    """Through the real client, with its own retries and translations, each answer becomes the error that says so."""
    proxy: FaultProxy = request.getfixturevalue(f"{place_name}_proxy")
    kind = kind_of(request.getfixturevalue(f"{place_name}_place"), via=proxy.url)
    proxy.script(Fault(action=Answer(reply)))
    with pytest.raises(expected) as caught:
        kind.run(lambda store: put(store, KEY, CONTENT))
    assert type(caught.value) is expected
    assert proxy.counts.total() == 1


def test_the_pause_that_a_store_asks_for_arrives(place_and_proxy: tuple[Place, FaultProxy]) -> None:
    """``Retry-After`` is carried by the error, in seconds."""
    place, proxy = place_and_proxy
    asked = {"Retry-After": "7"}
    reply = s3_error(503, "SlowDown", retry_after_s=7) if isinstance(place, S3Place) else gcs_error(503, "", asked)
    proxy.script(Fault(action=Answer(reply)))
    with pytest.raises(ThrottledError) as caught:
        kind_of(place, via=proxy.url).run(lambda store: put(store, KEY, CONTENT))
    assert caught.value.retry_after_s == 7


@pytest.mark.parametrize("action", [Reset(), Reset(after_bytes=50_000), LoseReply()], ids=["at once", "within", "lost"])
def test_a_broken_connection_is_tried_again(
    place_and_proxy: tuple[Place, FaultProxy], action: Reset | LoseReply
) -> None:
    """Reset before, within or after an upload: the attempt fails as passing, and the next puts it right."""
    place, proxy = place_and_proxy
    # Below botocore, aiohttp sends a PUT once more by itself when a connection breaks.
    times = 2 if isinstance(place, S3Place) else 1

    async def use(store: Store) -> None:
        proxy.script(Fault(action=action, times=times))
        with pytest.raises(TryAgainError):
            await put(store, KEY, CONTENT)
        await put(store, KEY, CONTENT)

    kind_of(place, via=proxy.url).run(use)
    assert place.objects() == {KEY: CONTENT}


def test_a_store_that_is_down_is_tried_again(place_and_proxy: tuple[Place, FaultProxy]) -> None:
    """Refused connections are a passing failure, for every kind of call."""
    place, proxy = place_and_proxy

    async def use(store: Store) -> None:
        proxy.down()
        for call in (put(store, KEY, CONTENT), get(store, KEY), keys_of(store), store.stat(KEY)):
            with pytest.raises(TryAgainError):
                await call
        proxy.up()
        await put(store, KEY, CONTENT)
        assert await keys_of(store) == [KEY]

    kind_of(place, via=proxy.url).run(use)


def test_an_answer_that_ends_early_is_not_taken_for_the_object(place_and_proxy: tuple[Place, FaultProxy]) -> None:
    """A truncated body is a passing failure; read again from its start the object is whole."""
    place, proxy = place_and_proxy

    async def use(store: Store) -> None:
        await put(store, KEY, CONTENT)
        cut = Fault(action=TruncateReply(after_bytes=60_000), match=requests_to("GET"))
        proxy.script(cut)
        with pytest.raises(TryAgainError):
            await get(store, KEY)
        proxy.script(cut)
        again = reliable(store)
        assert await again.repeat(lambda: get(again, KEY)) == CONTENT

    kind_of(place, via=proxy.url).run(use)


def test_a_call_that_hangs_is_cancelled_by_our_own_deadline(place_and_proxy: tuple[Place, FaultProxy]) -> None:
    """A server that accepts and never answers costs one deadline a call, of every kind; then things go on."""
    place, proxy = place_and_proxy

    async def use(store: Store) -> None:
        await put(store, KEY, CONTENT)
        impatient = reliable(store, attempts=1, timeout_s=0.3)
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: put(impatient, KEY, CONTENT),
            lambda: get(impatient, KEY),
            lambda: keys_of(impatient),
            lambda: impatient.stat(KEY),
        ]
        for call in calls:
            proxy.script(Fault(action=Hang()))
            with pytest.raises(DeadlineError):
                await call()
        assert impatient.counts.timed_out == len(calls)
        assert await get(store, KEY) == CONTENT

    kind_of(place, via=proxy.url).run(use)


def test_a_part_that_hangs_is_cancelled_too(s3_place: S3Place, s3_proxy: FaultProxy) -> None:
    """Neither a part nor the clearing up behind it holds on beyond the deadline, whatever the client's own timeouts."""
    options = s3_place.options(via=s3_proxy.url) | {"config_kwargs": {"read_timeout": 3_600}}
    location = parse_location(s3_place.url)
    kind = Kind("s3", location, lambda: S3Store(location, options, redact=Redactor(), connections=4), None)
    size = WHOLE_BYTES + 1

    async def use(store: Store) -> None:
        impatient = reliable(store, attempts=1, timeout_s=0.5)
        s3_proxy.script(Fault(action=Hang(), match=requests_to("PUT", "partNumber=1")))
        s3_proxy.script(Fault(action=Hang(), match=requests_to("DELETE")))
        async with asyncio.timeout(60):
            with pytest.raises(DeadlineError):
                await impatient.put_parts(KEY, parts_of(size), size)

    kind.run(use)
    assert s3_proxy.remaining_faults == 0
    assert s3_place.objects() == {}


def test_credentials_are_read_again_from_where_they_came(
    s3_place: S3Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a refresh the store works with what somebody has meanwhile written into the credentials file."""
    shared = tmp_path / "credentials"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    options = {key: value for key, value in s3_place.options().items() if key not in {"key", "secret"}}
    location = parse_location(s3_place.url)
    kind = Kind("s3", location, lambda: S3Store(location, options, redact=Redactor(), connections=4), None)

    def write(identity: Identity) -> None:
        shared.write_text(
            f"[default]\naws_access_key_id = {identity.access_key}\naws_secret_access_key = {identity.secret_key}\n"
        )

    async def use(store: Store) -> None:
        with pytest.raises(CredentialsError):
            await put(store, KEY, CONTENT)
        write(READER)
        await store.refresh()
        with pytest.raises(AccessDeniedError):
            await put(store, KEY, CONTENT)
        write(WRITER)
        await store.refresh()
        await put(store, KEY, CONTENT)

    kind.run(use)
    assert s3_place.objects() == {KEY: CONTENT}


def test_a_write_whose_answer_was_lost_is_receipted_as_it_ended(seaweed: SeaweedS3) -> None:
    """When a versioned bucket took a write twice, the answer that counts names the version that is the latest."""
    place = S3Place(seaweed, shared_bucket(seaweed, versioned=True), f"wire/{uuid.uuid4().hex}")
    with FaultProxy(seaweed.url) as proxy:
        proxy.script(Fault(action=LoseReply()))
        stored = kind_of(place, via=proxy.url).run(lambda store: put(reliable(store), KEY, CONTENT))
        assert proxy.counts["PUT"] == 2
    found = seaweed.client().list_object_versions(Bucket=place.bucket, Prefix=place.prefix)["Versions"]
    assert len(found) == 2
    assert [version["VersionId"] for version in found if version["IsLatest"]] == [stored.version_id]


@pytest.fixture
def s3_proxy(seaweed: SeaweedS3) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.url) as proxy:
        yield proxy


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>please log in</html>", b'<?xml version="1.0"?><Page/>'])
def test_a_page_that_is_no_listing_is_not_an_empty_mirror(
    place_and_proxy: tuple[Place, FaultProxy], body: bytes
) -> None:
    """A gateway's answer with status 200 is a passing failure: nothing is known of what is there."""
    place, proxy = place_and_proxy

    async def use(store: Store) -> None:
        assert await keys_of(store) == []
        await put(store, KEY, CONTENT)
        proxy.script(Fault(action=Answer(Reply(status=200, body=body))))
        with pytest.raises(TryAgainError):
            await keys_of(store)
        assert await keys_of(store) == [KEY]

    kind_of(place, via=proxy.url).run(use)
