"""The storage options of s3fs mean the same to obstore, or are named as what obstore cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore import UNSIGNED

from mirror.stores.s3_settings import S3Settings, s3_settings
from mirror.stores.unmappable import UnmappableError

NOWHERE = {"AWS_CONFIG_FILE": "/nonexistent"}


def settings(environment: dict[str, str] | None = None, **options: Any) -> S3Settings:  # noqa: ANN401 - storage options
    return s3_settings(options, NOWHERE | (environment or {}))


def test_nothing_given_is_aws_with_what_a_role_or_a_profile_gives() -> None:
    """No endpoint, no keys: found when the store is opened."""
    found = settings()
    assert (found.endpoint, found.keys, found.profile, found.anonymous) == (None, None, None, False)
    assert found.config == {"unsigned_payload": True}


def test_keys_may_stand_in_either_place() -> None:
    """s3fs takes them by its own names or by the client's; a token goes with them."""
    ours = settings(key="AKIA", secret="s", token="t")  # noqa: S106 - sample
    theirs = settings(
        client_kwargs={"aws_access_key_id": "AKIA", "aws_secret_access_key": "s", "aws_session_token": "t"}
    )
    assert ours.keys == theirs.keys == ("AKIA", "s", "t")
    assert settings(key="AKIA", secret="s").keys == ("AKIA", "s", None)  # noqa: S106 - sample


@pytest.mark.parametrize(
    "options",
    [{"anon": True}, {"config_kwargs": {"signature_version": UNSIGNED}}, {"anon": True, "key": "k"} | {"secret": "s"}],
)
def test_anonymous_needs_no_keys(options: dict[str, Any]) -> None:
    """Nothing is signed, whatever else is given."""
    found = s3_settings(options, NOWHERE)
    assert found.anonymous
    assert found.keys is None


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({"endpoint_url": "http://10.0.0.5:9000/"}, {}),
        ({"client_kwargs": {"endpoint_url": "http://10.0.0.5:9000"}}, {"AWS_ENDPOINT_URL": "http://other"}),
        ({}, {"AWS_ENDPOINT_URL_S3": "http://10.0.0.5:9000", "AWS_ENDPOINT_URL": "http://other"}),
        ({}, {"AWS_ENDPOINT_URL": "http://10.0.0.5:9000"}),
    ],
)
def test_the_endpoint_is_the_one_that_s3fs_would_take(options: dict[str, Any], environment: dict[str, str]) -> None:
    """An option goes before the environment, and S3's own variable before the general one; plain HTTP is allowed."""
    found = settings(environment, **options)
    assert found.endpoint == "http://10.0.0.5:9000"
    assert found.client["allow_http"] is True


def test_the_region_is_the_one_that_botocore_would_take(tmp_path: Path) -> None:
    """The client's, the environment's, then that of the profile in use."""
    file = tmp_path / "config"
    file.write_text("[default]\nregion = eu-north-1\n[profile lab]\nregion = eu-west-3\n")
    environment = {"AWS_CONFIG_FILE": str(file)}
    assert settings(environment).config["region"] == "eu-north-1"
    assert settings(environment, profile="lab").config["region"] == "eu-west-3"
    assert settings(environment | {"AWS_PROFILE": "lab"}).config["region"] == "eu-west-3"
    assert settings(environment | {"AWS_DEFAULT_REGION": "us-west-2"}).config["region"] == "us-west-2"
    found = settings(environment, client_kwargs={"region_name": "ap-south-1"})
    assert found.config["region"] == "ap-south-1"
    assert settings(environment, profile="lab").profile == "lab"


def test_what_every_object_gets_is_kept() -> None:
    """Encryption, storage class, content type, metadata, tags and requester pays have their counterparts."""
    found = settings(
        requester_pays=True,
        s3_additional_kwargs={
            "ServerSideEncryption": "aws:kms",
            "SSEKMSKeyId": "key-1",
            "BucketKeyEnabled": True,
            "StorageClass": "STANDARD_IA",
            "ContentType": "application/zstd",
            "Metadata": {"run": "7"},
            "Tagging": "run=7&owner=a%20b",
        },
    )
    assert found.config == {
        "unsigned_payload": True,
        "server_side_encryption": "aws:kms",
        "sse_kms_key_id": "key-1",
        "sse_bucket_key_enabled": True,
        "request_payer": True,
    }
    assert found.attributes == {"Storage-Class": "STANDARD_IA", "Content-Type": "application/zstd", "run": "7"}
    assert found.tags == {"run": "7", "owner": "a b"}


def test_the_way_to_the_store_is_kept(tmp_path: Path) -> None:
    """A bundle of certificates, a proxy, and signed payloads where somebody wants them."""
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(b"-----BEGIN CERTIFICATE-----")
    proxies = {"http": "http://proxy:3128", "https": "http://proxy:3128"}
    botocore = {"proxies": proxies, "s3": {"addressing_style": "path", "payload_signing_enabled": True}}
    found = settings(client_kwargs={"verify": str(bundle)}, config_kwargs=botocore)
    assert found.client == {"root_certificate": b"-----BEGIN CERTIFICATE-----", "proxy_url": "http://proxy:3128"}
    assert found.config == {"unsigned_payload": False}
    assert settings({"AWS_CA_BUNDLE": str(bundle)}).client["root_certificate"]
    assert settings(client_kwargs={"verify": False}).client == {"allow_invalid_certificates": True}


def test_what_the_mirror_does_by_itself_changes_nothing() -> None:
    """Connections, retries, caches and botocore's checksums are the mirror's own business."""
    botocore = {
        "max_pool_connections": 5,
        "retries": {"max_attempts": 3},
        "request_checksum_calculation": "when_required",
    }
    found = settings(config_kwargs=botocore, use_listings_cache=True, default_block_size=5, version_aware=True)
    assert found == settings()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"s3_additional_kwargs": {"ACL": "private"}}, "s3_additional_kwargs.ACL"),
        ({"s3_additional_kwargs": {"SSECustomerKey": "k"}}, "s3_additional_kwargs.SSECustomerKey"),
        ({"session": object()}, "session"),
        ({"tomorrow": 1}, "tomorrow"),
        ({"client_kwargs": {"api_version": "2006-03-01"}}, "client_kwargs.api_version"),
        ({"config_kwargs": {"s3": {"tomorrow": 1}}}, "config_kwargs.s3"),
        ({"config_kwargs": {"client_cert": "x"}}, "config_kwargs.client_cert"),
        ({"config_kwargs": {"signature_version": "s3"}}, "version 4"),
        ({"config_kwargs": {"s3": {"addressing_style": "virtual"}}}, "addressing_style"),
        ({"config_kwargs": {"s3": {"use_accelerate_endpoint": True}}}, "use_accelerate_endpoint"),
        ({"config_kwargs": {"use_fips_endpoint": True}}, "use_fips_endpoint"),
        ({"config_kwargs": {"proxies": {"http": "http://a", "https": "http://b"}}}, "one proxy"),
        ({"client_kwargs": {"verify": "/nonexistent.pem"}}, "/nonexistent.pem"),
        ({"client_kwargs": "no table"}, "client_kwargs"),
        ({"key": "AKIA"}, "access key"),
        ({"use_ssl": False}, "use_ssl"),
    ],
)
def test_what_obstore_cannot_do_is_named(options: dict[str, Any], named: str) -> None:
    """The reason says which option it is, so that nobody wonders why the slower driver runs."""
    with pytest.raises(UnmappableError, match=named):
        s3_settings(options, NOWHERE)


@pytest.mark.parametrize(
    ("profile", "named"),
    [
        ("endpoint_url = http://lab", "endpoint_url"),
        ("s3 =\n  addressing_style = virtual", "s3"),
        ("[", "cannot be read"),
    ],
)
def test_what_only_botocore_heeds_in_a_profile_is_named(tmp_path: Path, profile: str, named: str) -> None:
    """A profile that sends requests elsewhere, or a file that cannot be read, is no place to guess."""
    file = tmp_path / "config"
    file.write_text(f"[default]\n{profile}\n")
    with pytest.raises(UnmappableError, match=named):
        settings({"AWS_CONFIG_FILE": str(file)})


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT", "AWS_SKIP_SIGNATURE", "AWS_SERVER_SIDE_ENCRYPTION"])
def test_what_only_obstore_heeds_in_the_environment_is_named(variable: str) -> None:
    """A variable that s3fs does not know must not change where records go, or how."""
    with pytest.raises(UnmappableError, match=variable):
        settings({variable: "true"})
