"""What ``references/reference.py`` makes of a receipt, for each kind of store."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path
from urllib.request import url2pathname

import pytest

from mirror.location import parse_location
from mirror.receipts.receipt import FileReceipt
from references.reference import Reference, reference_to

HASH = "0123456789abcdef0123456789abcdef"
MD5 = hashlib.md5(b"bytes", usedforsecurity=False)


def receipt(name: str = "tr_1.json.zst", **answered: str | None) -> FileReceipt:
    return FileReceipt(name=name, size=5, xxh3_128=HASH, **answered)  # type: ignore[arg-type] # text fields only


def test_s3_is_compared_by_its_etag_and_version() -> None:
    """On S3 the digest is the ETag, also of a multipart upload, and the version is named."""
    file = receipt(etag="9b2cf535-3", version_id="v7")

    assert reference_to(file, parse_location("s3://bucket/run-7")) == Reference(
        path="records/tr_1.json.zst",
        uri="s3://bucket/run-7/tr_1.json.zst",
        digest="9b2cf535-3",
        size_bytes=5,
        extra={"etag": "9b2cf535-3", "versionID": "v7", "xxh3_128": HASH},
    )


@pytest.mark.parametrize("version_id", [None, "null"])
def test_a_bucket_without_versions_names_none(version_id: str | None) -> None:
    """What S3 calls the version ``null`` is no version that W&B could ask for."""
    reference = reference_to(receipt(etag="e", version_id=version_id), parse_location("s3://bucket"))

    assert reference is not None
    assert "versionID" not in reference.extra


def test_google_is_compared_by_its_json_etag_and_generation() -> None:
    """On Google Cloud Storage the digest is the JSON API's etag, never the MD5, and the version is the generation."""
    file = receipt(etag="CJ==", version_id="1700", md5=MD5.hexdigest())

    reference = reference_to(file, parse_location("gs://bucket/run"))

    assert reference is not None
    assert (reference.uri, reference.digest) == ("gs://bucket/run/tr_1.json.zst", "CJ==")
    assert reference.extra["versionID"] == "1700"


def test_a_local_file_is_compared_by_its_md5() -> None:
    """In a directory the digest is the base64 of the content's MD5."""
    reference = reference_to(receipt(md5=MD5.hexdigest()), parse_location("/mirror/run"))

    assert reference is not None
    assert reference.uri == "file:///mirror/run/tr_1.json.zst"
    assert reference.digest == b64encode(MD5.digest()).decode()


@pytest.mark.parametrize("name", ["a#b.json.zst", "a?b.json.zst", "a%20b.json.zst", "ü [1]: **.json.zst"])
def test_any_name_of_a_local_file_survives(name: str) -> None:
    """W&B finds the very file again when it unquotes the URI's path."""
    reference = reference_to(receipt(name, md5=MD5.hexdigest()), parse_location("/mirror/run"))

    assert reference is not None
    assert Path(url2pathname(reference.uri.removeprefix("file://"))) == Path("/mirror/run", name)


@pytest.mark.parametrize("url", ["abfs://container/run", "memory://run", "sftp://host/run"])
def test_a_store_that_wandb_cannot_read_gets_no_reference(url: str) -> None:
    """One such reference would make W&B's download of the whole version fail."""
    assert reference_to(receipt(etag="e", md5=MD5.hexdigest()), parse_location(url)) is None


@pytest.mark.parametrize(
    ("url", "answered"), [("s3://bucket", {"md5": MD5.hexdigest()}), ("gs://bucket", {}), ("/mirror", {"etag": "e"})]
)
def test_a_receipt_without_what_wandb_compares_gets_no_reference(url: str, answered: dict[str, str]) -> None:
    """Without the ETag, or a local file's MD5, W&B's download would refuse the file."""
    assert reference_to(receipt(**answered), parse_location(url)) is None


@pytest.mark.parametrize("name", ["a#b.json.zst", "a?b.json.zst"])
@pytest.mark.parametrize("url", ["s3://bucket", "gs://bucket"])
def test_a_key_that_wandb_would_cut_off_gets_no_reference(url: str, name: str) -> None:
    """W&B parses the URI, and would fetch another object."""
    assert reference_to(receipt(name, etag="e"), parse_location(url)) is None
