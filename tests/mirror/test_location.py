"""A mirror's URL, taken apart: where it is, what its files are called, and which URLs are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.errors import ConfigError
from mirror.location import parse_location
from mirror.place import part_words, place_id, words_for_place

ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST")


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "protocol", "root", "uri"),
    [
        ("s3://bucket/run-7", "s3", "bucket/run-7", "s3://bucket/run-7/k"),
        ("s3://bucket/run-7/", "s3", "bucket/run-7", "s3://bucket/run-7/k"),
        ("s3://bucket", "s3", "bucket", "s3://bucket/k"),
        ("s3://bucket///", "s3", "bucket", "s3://bucket/k"),
        ("S3A://bucket/a/b/c/d", "s3", "bucket/a/b/c/d", "s3://bucket/a/b/c/d/k"),
        ("s3://bucket/odd #?%+ @ü::*", "s3", "bucket/odd #?%+ @ü::*", "s3://bucket/odd #?%+ @ü::*/k"),
        ("gs://bucket/run", "gs", "bucket/run", "gs://bucket/run/k"),
        ("gcs://bucket/run#12", "gs", "bucket/run#12", "gs://bucket/run#12/k"),
        ("memory://x/y/", "memory", "x/y", "memory://x/y/k"),
        ("sftp://me:pw@host/dir@home/x", "sftp", "me:pw@host/dir@home/x", "sftp://host/dir@home/x/k"),
        (
            "abfs://container@account.dfs.core.windows.net/run",
            "abfs",
            "container@account.dfs.core.windows.net/run",
            "abfs://container@account.dfs.core.windows.net/run/k",
        ),
        ("/data/mirror/", "file", "/data/mirror", "file:///data/mirror/k"),
        ("/data/../mirror", "file", "/mirror", "file:///mirror/k"),
        ("file:///data/mirror", "file", "/data/mirror", "file:///data/mirror/k"),
        ("file://localhost/data", "file", "/data", "file:///data/k"),
        ("local:///data", "file", "/data", "file:///data/k"),
        ("/", "file", "/", "file:///k"),
        ("/data/a::b/c:d", "file", "/data/a::b/c:d", "file:///data/a::b/c:d/k"),
    ],
)
def test_a_url_is_taken_apart(url: str, protocol: str, root: str, uri: str) -> None:
    """Trailing slashes, bucket roots, deep prefixes and odd names are all fine; no user info is in a file's URI."""
    location = parse_location(url)
    assert (location.protocol, location.root, location.uri("k")) == (protocol, root, uri)


def test_a_bucket_and_its_prefix_are_told_apart() -> None:
    """A prefix ends with a slash, or is empty at the bucket's root."""
    assert parse_location("s3://bucket/a/b").bucket_and_prefix() == ("bucket", "a/b/")
    assert parse_location("gs://bucket/").bucket_and_prefix() == ("bucket", "")


def test_a_path_is_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths, home directories and path objects are directories of this machine; a bucket is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert parse_location("mirror").directory == tmp_path / "mirror"
    assert parse_location("../mirror").directory == tmp_path.parent / "mirror"
    assert parse_location("~/mirror").directory == tmp_path / "home" / "mirror"
    assert parse_location(tmp_path).directory == tmp_path
    assert parse_location("s3://bucket/x").directory is None


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("", "names nothing"),
        ("   ", "names nothing"),
        ("/data/a\0b", "names nothing"),
        ("s3://", "names no bucket"),
        ("s3:///run", "names no bucket"),
        ("gs:///", "names no bucket"),
        ("s3:/bucket/run", "did you mean 's3://bucket/run'"),
        ("s3:bucket/run", "did you mean 's3://bucket/run'"),
        ("s3//bucket/run", "did you mean 's3://bucket/run'"),
        ("GS:bucket", "did you mean 'GS://bucket'"),
        ("abfs:/container@account.dfs.core.windows.net/x", "did you mean"),
        ("s3:AKIAX:canary-secret@bucket/run", "neither"),
        ("host:/data/mirror", "neither"),
        (" s3://bucket/run", "neither"),
        ("simplecache::s3://bucket/run", "neither"),
        ("zip://x.zip::s3://bucket/run", "chains"),
        ("file://data/mirror", "names a host: write 'file:///data/mirror'"),
        ("s3://AKIAX:canary-secret@bucket/run", "storage_options"),
        ("s3://AKIAX:canary-se/cret@bucket/run", "storage_options"),
    ],
)
def test_a_url_that_says_something_else_is_refused(url: str, advice: str) -> None:
    """What would become an unexpected directory, a chain or a leak is refused in one line, without its credentials."""
    with pytest.raises(ConfigError, match=advice) as caught:
        parse_location(url)
    assert "canary" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_url_is_refused() -> None:
    """Such as a setting that was never made."""
    with pytest.raises(ConfigError, match=r"must be text or a path such as s3://bucket/prefix, not None"):
        parse_location(None)  # type: ignore[arg-type] # the point


def test_a_signature_in_a_url_is_not_shown() -> None:
    """What a log or a page shows of a URL holds neither user info nor signed queries."""
    shown = parse_location("https://me:canary-pw@host/dir?X-Amz-Signature=canary-sig").shown
    assert "canary" not in shown
    assert shown.startswith("https://host/dir")


def test_distinct_places_have_distinct_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """URL, endpoint, account and host tell places apart, for what is in one says nothing about another."""
    places = [
        place_id(parse_location("s3://bucket/run"), {}),
        place_id(parse_location("s3://bucket/run-2"), {}),
        place_id(parse_location("s3://bucket/run/2"), {}),
        place_id(parse_location("gs://bucket/run"), {}),
        place_id(parse_location("/bucket/run"), {}),
        place_id(parse_location("s3://bucket/run"), {"endpoint_url": "http://a:1"}),
        place_id(parse_location("s3://bucket/run"), {"endpoint_url": "http://b:1"}),
        place_id(parse_location("abfs://c/run"), {"account_name": "one"}),
        place_id(parse_location("abfs://c/run"), {"account_name": "two"}),
        place_id(parse_location("smb://share/run"), {"host": "one"}),
    ]
    strings = [
        "AccountName=three;AccountKey=k",
        "AccountName=four;AccountKey=k",
        "BlobEndpoint=http://five:1;AccountKey=k",
    ]
    places += [place_id(parse_location("abfs://c/run"), {"connection_string": string}) for string in strings]
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://env:1")
    places.append(place_id(parse_location("s3://bucket/run"), {}))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "six")
    places.append(place_id(parse_location("abfs://c/run"), {}))
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=seven;AccountKey=k")
    places.append(place_id(parse_location("abfs://c/run"), {}))
    assert len(set(places)) == len(places)


def test_an_account_of_azure_has_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the protocol, and whether URL, options or environment name the account; a new key changes nothing."""
    string = "AccountName=a;AccountKey=old;EndpointSuffix=core.windows.net"
    names = {
        place_id(parse_location("az://c/run"), {"connection_string": string}),
        place_id(parse_location("az://c/run"), {"connection_string": "AccountKey=new; accountname=a"}),
        place_id(parse_location("az://c/run"), {"account_name": "a", "account_host": "a.blob.core.windows.net"}),
        place_id(parse_location("az://c/run"), {"account_name": "a", "account_key": "k"}),
    }
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "a")
    names.add(place_id(parse_location("az://c/run"), {}))
    assert len(names) == 1
    urls = ("az://c/run", "abfs://c/run/", "abfss://c@a.dfs.core.windows.net/run")
    assert {place_id(parse_location(url), {"account_name": "a"}) for url in urls} == names


def test_a_directory_has_one_name_however_it_is_reached(tmp_path: Path) -> None:
    """Through a link it is the same place."""
    (tmp_path / "mirror").mkdir()
    (tmp_path / "link").symlink_to("mirror")
    assert len({place_id(parse_location(tmp_path / name), {}) for name in ("mirror", "link")}) == 1


def test_one_place_has_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """However an endpoint is given, and whatever else the options hold, a place keeps its name."""
    location = parse_location("s3://bucket/run")
    names = {
        place_id(location, {"endpoint_url": "http://a:1"}),
        place_id(location, {"endpoint_url": "http://a:1/", "key": "x", "secret": "y"}),
        place_id(location, {"client_kwargs": {"endpoint_url": "http://a:1"}}),
    }
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://a:1")
    names.add(place_id(location, {"client_kwargs": {"region_name": "x"}}))
    names.add(place_id(parse_location("s3://bucket/run/"), {}))
    assert len(names) == 1


@pytest.mark.parametrize(
    ("url", "options", "where"),
    [
        ("s3://bucket/run", {}, None),
        ("s3://bucket/run", {"client_kwargs": {"endpoint_url": "http://a:1/"}}, "http://a:1"),
        ("az://c/run", {"account_name": "one", "account_key": "canary"}, "one"),
        (
            "az://c/run",
            {"connection_string": "AccountName=b;AccountKey=canary;BlobEndpoint=http://e:1"},
            "b, http://e:1",
        ),
        ("abfss://c@one.dfs.core.windows.net/run", {}, None),
        ("smb://share/run", {"host": "one", "password": "canary"}, "host=one"),
        ("/a/path", {"account_name": "unused"}, None),
    ],
)
def test_a_place_is_told_in_words(url: str, options: dict[str, object], where: str | None) -> None:
    """By its URL and by what else tells it from others, as far as that is not in the URL; never by a secret."""
    location = parse_location(url)
    assert part_words(words_for_place(location, options)) == (location.shown, where)


def test_a_places_name_is_a_plain_directory_name() -> None:
    """It becomes a directory beside the records: short, of plain characters, and readable."""
    name = place_id(parse_location("s3://bucket/" + "odd #?%/ü::*" * 40), {})
    assert name.startswith("s3-bucket-odd")
    assert name.isascii()
    assert len(name) < 90
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789-")
