"""What a server that speaks like Azure may answer, to both drivers: objects that can be, or an error of ours."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Self
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.config import MirrorConfig
from mirror.errors import StoreError, TryAgainError
from mirror.location import parse_location
from mirror.store import Store
from mirror.stores.opening import open_store
from mirror.testing.servers import AZURE_ACCOUNT, azure_connection_string
from tests.hostile.anything import BOUNDED, EVIL_NAMES, names
from tests.hostile.test_listings import LAUGHS, Impostor, sizes
from tests.mirror.tls_fronts import TlsFronts


class AzureImpostor(Impostor):
    """A server that takes itself for an account of Azure."""

    def __init__(self, driver: str, fronts: TlsFronts) -> None:
        """Prepare; nothing listens yet."""
        super().__init__(f"azure-{driver}")
        self._fronts = fronts

    def __enter__(self) -> Self:
        """Listen, and open the store."""
        self._proxy.__enter__()
        url = self._fronts.of(self._proxy.url) if self._driver == "obstore" else self._proxy.url
        config = MirrorConfig(driver=self._driver, storage_options={"connection_string": azure_connection_string(url)})

        async def make() -> Store:
            return open_store(parse_location("az://box/run-7"), config)

        self.store = self._runner.run(make())
        return self


@pytest.fixture(scope="module", params=["obstore", "fsspec"])
def impostor(request: pytest.FixtureRequest, tls_fronts: TlsFronts) -> Iterator[AzureImpostor]:
    """One impostor for each driver."""
    with AzureImpostor(request.param, tls_fronts) as impostor:
        yield impostor


def page_of(*blobs: str, marker: str = "") -> bytes:
    """Return a page of a listing as Azure gives it."""
    head = f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://here/{AZURE_ACCOUNT}"'
    page = f'{head} ContainerName="box"><Blobs>{"".join(blobs)}</Blobs><NextMarker>{marker}</NextMarker>'
    return f"{page}</EnumerationResults>".encode(errors="surrogatepass")


def blob(name: str = "run-7/tr_a.json.zst", size: str = "3", at: str = "Sun, 29 Nov 2026 23:05:19 GMT") -> str:
    """Return one object of such a page."""
    about = f"<Last-Modified>{at}</Last-Modified><Etag>0x1</Etag><Content-Length>{size}</Content-Length>"
    kind = "<Content-Type>text/plain</Content-Type><BlobType>BlockBlob</BlobType>"
    return f"<Blob><Name>{name}</Name><Properties>{about}{kind}</Properties></Blob>"


blobs = st.builds(blob, names.map(lambda name: escape(f"run-7/{name}")), st.just("3") | sizes) | st.sampled_from(
    [
        *("<Blob></Blob>", "<Blob>x</Blob>", "<Blob><Name>k</Name></Blob>", "<Name>k</Name>", "&lol;"),
        "<Blob><Name>k</Name><Properties/></Blob>",
        '<Blob><Name Encoded="true">run-7/%00</Name><Properties/></Blob>',
        blob(at="never"),
    ]
)
pages = st.builds(lambda found: page_of(*found), st.lists(blobs, max_size=4)) | st.binary(max_size=40)


def test_any_page_is_objects_that_can_be_or_a_named_error(impostor: AzureImpostor) -> None:
    """Whatever the page says, in whatever shape: nothing but text and counts of bytes comes in, or a StoreError."""

    @BOUNDED
    @given(pages)
    def any_page(body: bytes) -> None:
        impostor.answer(body)
        impostor.assert_objects_that_can_be()

    any_page()


def test_any_answer_to_an_upload_or_a_look_is_a_fact_or_a_named_error(impostor: AzureImpostor) -> None:
    """No identity comes in that is none."""

    @BOUNDED
    @given(st.sampled_from(['"a"', "", '"']), st.sampled_from(["", "x", "3", "-1"]), st.sampled_from(["!", "AAAA", ""]))
    def any_answer(etag: str, version: str, md5: str) -> None:
        when = "Mon, 01 Jan 2024 00:00:00 GMT"
        impostor.answer(b"", ETag=etag, x_ms_version_id=version, Content_MD5=md5, Last_Modified=when)
        impostor.assert_facts()

    any_answer()


BOMBS = [
    f'<?xml version="1.0"?><!DOCTYPE z [<!ENTITY l0 "lol">{LAUGHS}]>'.encode() + page_of(blob("run-7/&l9;"))[38:],
    b'<?xml version="1.0"?><!DOCTYPE z [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + page_of(blob("&x;"))[38:],
    b"<a>" * 200_000 + b"</a>" * 200_000,
    page_of("<Blob>" * 50_000 + "</Blob>" * 50_000),
]


@pytest.mark.parametrize("bomb", BOMBS, ids=["entities", "a file", "depth", "depth within"])
def test_bombs_do_not_go_off(impostor: AzureImpostor, bomb: bytes) -> None:
    """Entities are neither expanded nor fetched, depth ends in an error, and little memory is taken."""
    impostor.answer(bomb)
    tracemalloc.start()
    try:
        with pytest.raises(TryAgainError) as refused:
            impostor.listed()
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    assert "root:" not in str(refused.value)


@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_a_listing_without_an_end_is_given_up(driver: str, tls_fronts: TlsFronts) -> None:
    """A server that gives the same page again and again is not listed for ever."""
    with AzureImpostor(driver, tls_fronts) as impostor:
        impostor.answer(page_of(blob(), marker="t"))
        with pytest.raises(TryAgainError, match="again and again"):
            impostor.listed()


@pytest.mark.parametrize("name", [name for name in EVIL_NAMES if name.isprintable()])
def test_a_key_outside_the_mirror_keeps_its_whole_name(impostor: AzureImpostor, name: str) -> None:
    """Nobody takes it for a file of the mirror: what is below the URL comes without its prefix, other keys with it."""
    impostor.answer(page_of(blob(escape(f"run-7/x{name}")), blob(escape(f"elsewhere/{name}"))))
    try:
        keys = [info.key for info in impostor.listed()]
    except StoreError:
        return
    assert not any(key.startswith(("run-7", "..")) for key in keys)
