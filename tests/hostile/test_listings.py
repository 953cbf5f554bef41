"""What S3 and GCS servers may answer to a listing, an upload or a look: objects that can be, or an error of ours."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Self
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.config import MirrorConfig
from mirror.errors import StoreError, TryAgainError
from mirror.location import parse_location
from mirror.store import PAGE, ObjectInfo, Store
from mirror.stores.opening import open_store
from mirror.testing import FaultProxy, Reply
from tests.hostile.anything import BAD_JSON, BOUNDED, EVIL_NAMES, changed_json, names

PATIENCE_S = 30.0
DRIVERS = ("s3-obstore", "s3-fsspec", "gcs-fsspec")
ITEM = {"name": "run-7/tr_a.json.zst", "size": "3", "etag": "CJ=", "generation": "1"}


class Impostor:
    """A server that answers every request alike, and a store that believes to be talking to a real one."""

    def __init__(self, driver: str) -> None:
        self.reply = Reply(status=200)
        self._replies: list[Reply] = []  # before that
        self.kind, _, self._driver = driver.partition("-")
        self._proxy = FaultProxy("http://127.0.0.1:9", check_request=lambda *_: self._next())
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        """Listen, and open the store."""
        self._proxy.__enter__()
        key = {"key": "k" * 8, "secret": "s" * 8}
        endpoint = {"endpoint_url": self._proxy.url, "region_name": "us-east-1"}
        options: dict[str, Any] = {**key, "client_kwargs": endpoint}
        if self.kind == "gcs":
            options = {"token": "anon", "endpoint_url": self._proxy.url}
        config = MirrorConfig(driver=self._driver if self.kind == "s3" else "auto", storage_options=options)
        location = parse_location(f"{'s3' if self.kind == 's3' else 'gs'}://bucket/run-7")

        async def make() -> Store:
            return open_store(location, config)

        self.store = self._runner.run(make())
        return self

    def __exit__(self, *_: object) -> None:
        """Close both."""
        self._runner.run(self.store.aclose())
        self._runner.close()
        self._proxy.__exit__(None, None, None)

    def answer(self, body: bytes, **headers: str) -> None:
        """Answer so from now on."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.reply = Reply(status=200, body=body, headers={"Content-Type": "application/xml", **named})

    def answer_in_turn(self, *bodies: bytes) -> None:
        """Answer each of the next requests by one of these."""
        for body in bodies:
            self.answer(body)
            self._replies.append(self.reply)

    def _next(self) -> Reply:
        return self._replies.pop(0) if self._replies else self.reply

    def ask(self, use: Callable[[Store], Awaitable[Any]]) -> Any:  # noqa: ANN401 - whatever is asked
        """Use the store, for a bounded time."""

        async def bounded() -> Any:  # noqa: ANN401 - likewise
            async with asyncio.timeout(PATIENCE_S):
                return await use(self.store)

        return self._runner.run(bounded())

    def listed(self) -> list[ObjectInfo]:
        """List everything."""

        async def everything(store: Store) -> list[ObjectInfo]:
            return [info async for page in store.list_pages() for info in page]

        found: list[ObjectInfo] = self.ask(everything)
        return found

    def assert_objects_that_can_be(self) -> None:
        """A listing is texts and counts of bytes, or an error of ours."""
        try:
            found = self.listed()
        except StoreError:
            return
        for info in found:
            assert type(info.key) is str
            assert type(info.size_bytes) is int
            assert info.size_bytes >= 0
            assert info.etag is None or type(info.etag) is str
            assert info.version_id is None or type(info.version_id) is str

    def assert_facts(self) -> None:
        """What is said of an upload and of an object is an identity and a hash, or an error of ours."""
        for use in (
            lambda store: store.put("tr_a.json.zst", b"abc", "0" * 32),
            lambda store: store.stat("tr_a.json.zst"),
        ):
            try:
                found = self.ask(use)
            except StoreError:
                continue
            assert found.etag is None or type(found.etag) is str
            assert found.version_id is None or type(found.version_id) is str
            assert getattr(found, "xxh3_128", None) is None or len(found.xxh3_128) == 32


@pytest.fixture(scope="module", params=DRIVERS)
def impostor(request: pytest.FixtureRequest) -> Iterator[Impostor]:
    """One impostor for each driver."""
    with Impostor(request.param) as impostor:
        yield impostor


def s3_page(contents: str, *, more: str = "false", token: str = "") -> bytes:
    """Return a page of a listing as S3 gives it."""
    token = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    head = '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    page = f"<Name>bucket</Name><KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>{more}</IsTruncated>"
    return f"{head}{page}{token}{contents}</ListBucketResult>".encode(errors="surrogatepass")


def s3_item(key: str = "run-7/tr_a.json.zst", size: str = "3", at: str = "2026-01-01T00:00:00.000Z") -> str:
    """Return one object of such a page."""
    item = f"<Key>{key}</Key><LastModified>{at}</LastModified><ETag>&quot;a&quot;</ETag><Size>{size}</Size>"
    return f"<Contents>{item}</Contents>"


sizes = st.sampled_from(["-5", str(2**64), "9" * 5_000, "NaN", "1e400", "", "0x10", "3.5", "三"]) | names
s3_items = st.builds(s3_item, names.map(lambda name: escape(f"run-7/{name}")), st.just("3") | sizes) | st.sampled_from(
    ["<Contents></Contents>", "<Contents>x</Contents>", "<Contents><Key>k</Key></Contents>", "<Key>k</Key>", "&lol;"]
)
s3_pages = st.builds(lambda items: s3_page("".join(items)), st.lists(s3_items, max_size=4)) | st.binary(max_size=40)
gcs_pages = changed_json({"kind": "storage#objects", "items": [ITEM, {**ITEM, "name": "run-7/tr_b.json.zst"}]})


def test_any_page_is_objects_that_can_be_or_a_named_error(impostor: Impostor) -> None:
    """Whatever the page says, in whatever shape: nothing but text and counts of bytes comes in, or a StoreError."""

    @BOUNDED
    @given(s3_pages if impostor.kind == "s3" else gcs_pages)
    def any_page(body: bytes) -> None:
        impostor.answer(body)
        impostor.assert_objects_that_can_be()

    any_page()


def test_any_answer_to_an_upload_or_a_look_is_a_fact_or_a_named_error(impostor: Impostor) -> None:
    """Neither an identity nor a hash comes in that is none."""

    @BOUNDED
    @given(
        changed_json({**ITEM, "md5Hash": "AAAA"}), st.sampled_from(["!", "AAAA", "A", "", "AAAAAAAAAAAAAAAAAAAAAA=="])
    )
    def any_answer(body: bytes, checksum: str) -> None:
        impostor.answer(
            body, x_amz_checksum_xxhash128=checksum, ETag='"a"', Last_Modified="Mon, 01 Jan 2024 00:00:00 GMT"
        )
        impostor.assert_facts()

    any_answer()


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
BOMBS = {
    "s3": [
        f'<?xml version="1.0"?><!DOCTYPE z [<!ENTITY l0 "lol">{LAUGHS}]>'.encode()
        + s3_page(s3_item("run-7/&l9;"))[38:],
        b'<?xml version="1.0"?><!DOCTYPE z [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + s3_page(s3_item("&x;"))[38:],
        b"<a>" * 200_000 + b"</a>" * 200_000,
        s3_page("<Contents>" * 50_000 + "</Contents>" * 50_000),
    ],
    "gcs": [*BAD_JSON, b'{"kind": "x", "items": ' + b"[" * 1_000_000, b'{"kind":' * 1_000_000],
}


def test_bombs_do_not_go_off(impostor: Impostor) -> None:
    """Entities are neither expanded nor fetched, depth ends in an error, and little memory is taken."""
    for bomb in BOMBS[impostor.kind]:
        impostor.answer(bomb)
        tracemalloc.start()
        try:
            with pytest.raises(TryAgainError) as refused:
                impostor.listed()
            assert tracemalloc.get_traced_memory()[1] < 200 << 20
        finally:
            tracemalloc.stop()
        assert "root:" not in str(refused.value)


def test_a_packed_answer_is_not_unpacked_without_end() -> None:
    """A few kilobytes that unpack to a gigabyte are read no further than a page can be long."""
    packed = gzip.compress(b" " * (256 << 20), 9)
    packed = b"".join([packed] * 4)
    with Impostor("gcs-fsspec") as impostor:
        impostor.answer(packed, Content_Encoding="gzip")
        tracemalloc.start()
        try:
            with pytest.raises(TryAgainError, match="longer than"):
                impostor.listed()
            assert tracemalloc.get_traced_memory()[1] < 512 << 20
        finally:
            tracemalloc.stop()


def test_a_page_of_ten_megabytes_is_read(impostor: Impostor) -> None:
    """Of one giant name, or of more objects than were asked for."""
    long = "run-7/" + "k" * 10_000_000
    impostor.answer(s3_page(s3_item(long)) if impostor.kind == "s3" else page_of([{**ITEM, "name": long}]))
    assert [len(info.key) for info in impostor.listed()] == [10_000_000]


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_listing_without_an_end_is_given_up(driver: str) -> None:
    """A server that gives the same page again and again is not listed for ever."""
    with Impostor(driver) as impostor:
        endless = s3_page(s3_item(), more="true", token="t")  # noqa: S106 - a page's
        impostor.answer(endless if impostor.kind == "s3" else page_of([ITEM], nextPageToken="t"))
        with pytest.raises(TryAgainError, match="again and again"):
            impostor.listed()


@pytest.mark.parametrize("name", [name for name in EVIL_NAMES if name.isprintable()])
def test_a_key_outside_the_mirror_keeps_its_whole_name(impostor: Impostor, name: str) -> None:
    """Nobody takes it for a file of the mirror: what is below the URL comes without its prefix, other keys with it."""
    inside, outside = f"run-7/x{name}", f"elsewhere/{name}"
    if impostor.kind == "s3":
        impostor.answer(s3_page(s3_item(escape(inside)) + s3_item(escape(outside))))
    else:
        impostor.answer(page_of([{**ITEM, "name": inside}, {**ITEM, "name": outside}]))
    try:
        keys = [info.key for info in impostor.listed()]
    except StoreError:
        return
    assert not any(key.startswith(("run-7", "..")) for key in keys)


def test_a_listing_that_is_cut_short_before_its_prefix_goes_on() -> None:
    """A key that sorts before a prefix does not prove that none begins with it."""
    items = "".join(s3_item(f"run-7/a{number:03}") for number in range(PAGE))
    full = s3_page(items, more="true", token="t")  # noqa: S106 - a page's
    with Impostor("s3-obstore") as impostor:
        impostor.answer_in_turn(full, b"<Page/>", s3_page(s3_item("run-7/b")), s3_page(s3_item("run-7/c1")))

        async def listed(store: Store) -> list[str]:
            return [info.key async for page in store.list_pages("c") for info in page]

        assert impostor.ask(listed) == ["c1"]


def page_of(items: list[dict[str, str]], **more: str) -> bytes:
    """Return a page of a listing as GCS gives it."""
    return json.dumps({"kind": "storage#objects", "items": items, **more}).encode()
