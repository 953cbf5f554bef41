"""What the drivers of S3, GCS and Azure make of refusals, errors, broken connections and silence."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mirror.config import MirrorConfig
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
from mirror.location import parse_location
from mirror.redact import Redactor
from mirror.store import WHOLE_BYTES, Store
from mirror.stores.opening import open_store
from mirror.stores.s3 import S3Store
from mirror.testing import (
    READER,
    WRITER,
    Answer,
    Fault,
    FaultProxy,
    Hang,
    Identity,
    LoseReply,
    Reply,
    Reset,
    SeaweedS3,
    TruncateReply,
    requests_to,
    s3_error,
)
from mirror.testing.servers import AZURE_KEY, azure_connection_string
from tests.mirror.places import AzurePlace, GcsPlace, Place, S3Place
from tests.mirror.store_kinds import Kind, get, keys_of, kind_of, parts_of, put, reliable, shared_bucket

pytestmark = pytest.mark.integration

KEY = "tr_1.tokens.zst"
CONTENT = random.Random(1).randbytes(100_000)  # noqa: S311 - no secrets


@dataclass(frozen=True)
class Behind:
    """A store behind a proxy, asked by one of its drivers."""

    store: str  # s3, gcs or azure
    place: Place
    proxy: FaultProxy
    driver: str

    @property
    def kind(self) -> Kind:
        """How to open it."""
        return kind_of(self.place, via=self.proxy.url, driver=self.driver)

    @property
    def tries(self) -> int:
        """How often one upload is sent by itself: below s3fs and adlfs, aiohttp sends a PUT once more."""
        return 2 if self.driver == "fsspec" and self.store != "gcs" else 1

    @property
    def reads(self) -> int:
        """How often one object is read by itself: Azure's client begins three times."""
        return 3 if self.driver == "fsspec" and self.store == "azure" else 1


@pytest.fixture(params=["s3-obstore", "s3-fsspec", "gcs-fsspec", "azure-obstore", "azure-fsspec"])
def behind(request: pytest.FixtureRequest) -> Behind:
    """Each store by each of its drivers, behind a proxy."""
    store, _, driver = request.param.partition("-")
    return Behind(store, request.getfixturevalue(f"{store}_place"), request.getfixturevalue(f"{store}_proxy"), driver)


@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_identities_may_do_what_their_rights_say(driver: str, s3_place: S3Place) -> None:
    """A reader can read all and write nothing; a writer can write; a wrong secret is refused for everything."""
    kind_of(s3_place).run(lambda store: put(store, KEY, CONTENT))

    def as_identity(identity: Identity, use: Callable[[Store], Awaitable[object]]) -> object:
        return kind_of(S3Place(s3_place.server, s3_place.bucket, s3_place.prefix, identity), driver=driver).run(use)

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


def test_an_absent_bucket_is_the_stores_refusal(
    s3_place: S3Place, gcs_place: GcsPlace, azure_place: AzurePlace
) -> None:
    """No such bucket or container concerns every file until somebody acts, however it is found out."""
    absent: list[Place] = [replace(s3_place, bucket="absent"), replace(azure_place, container="absent")]
    by_either = [kind_of(place, driver=driver) for place in absent for driver in ("obstore", "fsspec")]
    for kind in [*by_either, kind_of(replace(gcs_place, bucket="absent"))]:
        for use in (keys_of, lambda store: put(store, KEY, b"")):
            with pytest.raises(StoreRefusedError):
                kind.run(use)
    for kind in by_either:
        with pytest.raises(StoreRefusedError):
            kind.run(lambda store: get(store, KEY))


@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_a_wrong_key_is_refused_for_everything_on_azure(driver: str, azure_place: AzurePlace) -> None:
    """The error names neither the wrong key nor the right one."""
    place = replace(azure_place, driver=driver)
    location = parse_location(place.url)
    url = place.options()["connection_string"].partition("BlobEndpoint=")[2].rpartition("/")[0]
    wrong = base64.b64encode(b"not-the-key").decode()
    config = MirrorConfig(driver=driver, storage_options={"connection_string": azure_connection_string(url, key=wrong)})
    kind = Kind("azure", location, lambda: open_store(location, config), place)
    for use in (keys_of, lambda store: get(store, KEY), lambda store: put(store, KEY, b""), lambda s: s.stat(KEY)):
        with pytest.raises(AccessDeniedError) as caught:
            kind.run(use)
        assert wrong not in str(caught.value)
        assert AZURE_KEY not in str(caught.value)


def azure_error(status: int, code: str, headers: Mapping[str, str] | None = None) -> Reply:
    """Return an answer as Azure Blob Storage gives it: the code is in a header as well."""
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>scripted</Message></Error>'
    told = {"Content-Type": "application/xml", "x-ms-error-code": code, **(headers or {})}
    return Reply(status=status, body=body.encode(), headers=told)


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
    ("azure", azure_error(503, "ServerBusy"), ThrottledError),
    ("azure", azure_error(500, "InternalError"), TryAgainError),
    ("azure", azure_error(500, "OperationTimedOut"), TryAgainError),
    ("azure", Reply(status=502, body=b"<html>bad gateway</html>"), TryAgainError),
    ("azure", azure_error(400, "Md5Mismatch"), TryAgainError),
    ("azure", azure_error(403, "AuthenticationFailed"), CredentialsError),
    ("azure", azure_error(401, "InvalidAuthenticationInfo"), CredentialsError),
    ("azure", azure_error(403, "AuthorizationPermissionMismatch"), AccessDeniedError),
    ("azure", azure_error(413, "RequestBodyTooLarge"), FileRefusedError),
    ("azure", azure_error(409, "BlobImmutableDueToPolicy"), FileRefusedError),
    ("azure", azure_error(403, "AccountIsDisabled"), StoreRefusedError),
    ("azure", azure_error(404, "ContainerNotFound"), StoreRefusedError),
]


@pytest.mark.parametrize(
    ("place_name", "driver", "reply", "expected"),
    [
        pytest.param(name, driver, reply, expected, id=f"{name}-{driver}-{reply.status}-{expected.__name__}-{number}")
        for number, (name, reply, expected) in enumerate(ANSWERS)
        for driver in (["fsspec"] if name == "gcs" else ["obstore", "fsspec"])
    ],
)
def test_answers_are_sorted_by_what_to_do_next(
    request: pytest.FixtureRequest, place_name: str, driver: str, reply: Reply, expected: type[StoreError]
) -> None:
    """Through the real client, with its own retries and translations, each answer becomes the error that says so."""
    proxy: FaultProxy = request.getfixturevalue(f"{place_name}_proxy")
    kind = kind_of(request.getfixturevalue(f"{place_name}_place"), via=proxy.url, driver=driver)
    proxy.script(Fault(action=Answer(reply)))
    with pytest.raises(expected) as caught:
        kind.run(lambda store: put(store, KEY, CONTENT))
    assert type(caught.value) is expected
    assert proxy.counts.total() == 1


def test_the_pause_that_a_store_asks_for_arrives(behind: Behind) -> None:
    """``Retry-After`` is carried by the error, in seconds; obstore hides it, so that on S3 s3fs is to hear it next."""
    asked = {"Retry-After": "7"}
    replies = {
        "s3": s3_error(503, "SlowDown", retry_after_s=7),
        "gcs": gcs_error(503, "", asked),
        "azure": azure_error(503, "ServerBusy", asked),
    }
    behind.proxy.script(Fault(action=Answer(replies[behind.store]), times=2))

    async def use(store: Store) -> list[float | None]:
        pauses = []
        for _ in range(2):
            with pytest.raises(ThrottledError) as caught:
                await put(store, KEY, CONTENT)
            pauses.append(caught.value.retry_after_s)
        await put(store, KEY, CONTENT)
        return pauses

    expected = {("s3", "obstore"): [None, 7], ("azure", "obstore"): [None, None]}
    assert behind.kind.run(use) == expected.get((behind.store, behind.driver), [7, 7])
    assert behind.place.objects() == {KEY: CONTENT}


@pytest.mark.parametrize("action", [Reset(), Reset(after_bytes=50_000), LoseReply()], ids=["at once", "within", "lost"])
def test_a_broken_connection_is_tried_again(behind: Behind, action: Reset | LoseReply) -> None:
    """Reset before, within or after an upload: the attempt fails as passing, and the next puts it right."""
    proxy = behind.proxy

    async def use(store: Store) -> None:
        proxy.script(Fault(action=action, times=behind.tries))
        with pytest.raises(TryAgainError):
            await put(store, KEY, CONTENT)
        await put(store, KEY, CONTENT)

    behind.kind.run(use)
    assert behind.place.objects() == {KEY: CONTENT}


def test_a_store_that_is_down_is_tried_again(behind: Behind) -> None:
    """Refused connections are a passing failure, for every kind of call."""
    proxy = behind.proxy

    async def use(store: Store) -> None:
        proxy.down()
        for call in (put(store, KEY, CONTENT), get(store, KEY), keys_of(store), store.stat(KEY)):
            with pytest.raises(TryAgainError):
                await call
        proxy.up()
        await put(store, KEY, CONTENT)
        assert await keys_of(store) == [KEY]

    behind.kind.run(use)


def test_an_answer_that_ends_early_is_not_taken_for_the_object(behind: Behind) -> None:
    """A truncated body is a passing failure; read again from its start the object is whole."""
    proxy = behind.proxy

    async def use(store: Store) -> None:
        await put(store, KEY, CONTENT)
        cut = Fault(action=TruncateReply(after_bytes=60_000), match=requests_to("GET"), times=behind.reads)
        proxy.script(cut)
        with pytest.raises(TryAgainError):
            await get(store, KEY)
        proxy.script(cut)
        again = reliable(store)
        assert await again.repeat(lambda: get(again, KEY)) == CONTENT

    behind.kind.run(use)


def test_a_call_that_hangs_is_cancelled_by_our_own_deadline(behind: Behind) -> None:
    """A server that accepts and never answers costs one deadline a call, of every kind; then things go on."""
    proxy = behind.proxy

    async def use(store: Store) -> None:
        await put(store, KEY, CONTENT)
        await store.stat(KEY)  # every client is open: a deadline is spent on an answer alone
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

    behind.kind.run(use)


def test_a_part_that_hangs_is_cancelled_too(s3_place: S3Place, s3_proxy: FaultProxy) -> None:
    """Neither a part nor the clearing up behind it holds on beyond the deadline, whatever the client's own timeouts."""
    options = s3_place.options(via=s3_proxy.url) | {"config_kwargs": {"read_timeout": 3_600}}
    location = parse_location(s3_place.url)
    kind = Kind("s3", location, lambda: S3Store(location, options, redact=Redactor(), connections=4), None)
    size = WHOLE_BYTES + 1

    async def use(store: Store) -> None:
        await store.stat(KEY)  # the client is open: the deadline is spent on answers alone
        impatient = reliable(store, attempts=1, timeout_s=0.5)
        s3_proxy.script(Fault(action=Hang(), match=requests_to("PUT", "partNumber=1")))
        s3_proxy.script(Fault(action=Hang(), match=requests_to("DELETE")))
        async with asyncio.timeout(60):
            with pytest.raises(DeadlineError):
                await impatient.put_parts(KEY, parts_of(size), size)

    kind.run(use)
    assert s3_proxy.remaining_faults == 0
    assert s3_place.objects() == {}


@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_credentials_are_read_again_from_where_they_came(
    driver: str, s3_place: S3Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a refresh the store works with what somebody has meanwhile written into the credentials file."""
    shared = tmp_path / "credentials"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    options = {key: value for key, value in s3_place.options().items() if key not in {"key", "secret"}}
    location = parse_location(s3_place.url)
    config = MirrorConfig(driver=driver, storage_options=options)
    kind = Kind("s3", location, lambda: open_store(location, config), None)

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


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>please log in</html>", b'<?xml version="1.0"?><Page/>'])
def test_a_page_that_is_no_listing_is_not_an_empty_mirror(behind: Behind, body: bytes) -> None:
    """A gateway's answer with status 200 is a passing failure: nothing is known of what is there."""
    proxy = behind.proxy

    async def use(store: Store) -> None:
        assert await keys_of(store) == []
        await put(store, KEY, CONTENT)
        proxy.script(Fault(action=Answer(Reply(status=200, body=body)), times=10))
        with pytest.raises(TryAgainError):
            await keys_of(store)
        proxy.clear()
        assert await keys_of(store) == [KEY]

    behind.kind.run(use)
