"""What a store's library would not take is said when settings are made, with what to write; nothing is contacted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from mirror import ConfigError, MirrorConfig, RecordMirror, ServerSettings, prune, repair, verify
from mirror.location import parse_location
from mirror.status import read_mirror
from mirror.stores.opening import check_settings
from tests.mirror.command_line import Line

S3, GCS, AZURE = "s3://bucket/run", "gs://bucket/run", "az://box/run"
KEYS: Mapping[str, object] = {"key": "AKIA-canary", "secret": "canary-secret"}


def check(url: str, options: Mapping[str, object], driver: str = "auto") -> None:
    check_settings(parse_location(url), MirrorConfig(storage_options=options, driver=driver))


@pytest.mark.parametrize("driver", ["auto", "fsspec"])
@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        (S3, {"endpint_url": "https://host"}, "s3fs has no storage option 'endpint_url': did you mean 'endpoint_url'"),
        (S3, {"client_kwargs": {"region": "eu-1"}}, "client_kwargs has no storage option 'region': did .*region_name"),
        (S3, {"s3_additional_kwargs": {"ServerSideEncrypton": "AES256"}}, "did you mean 'ServerSideEncryption'"),
        (S3, {"config_kwargs": {"retrys": {}}}, "no storage option 'retrys': correct its name"),
        (S3, {"config_kwargs": {"s3": {"addressing_style": "pth"}}}, "addressing style pth is invalid"),
        (S3, {"username": "a", "key": "b", "secret": "c"}, "either key or username"),
        (S3, {"client_kwargs": "eu-1"}, "'client_kwargs' is text and must be a table of options"),
        (S3, {"secret": 12345678}, "'secret' is a number and must be text: put it in double quotes"),
        (S3, {"anon": "false"}, "'anon' is text and must be true or false"),
        (GCS, {"tokn": "/key.json"}, "gcsfs has no storage option 'tokn': did you mean 'token'"),
        (GCS, {"endpoint_url": True}, "'endpoint_url' is true or false and must be text"),
        (
            AZURE,
            {"account_name": "a", "acount_key": "k"},
            "adlfs has no storage option 'acount_key': did .*account_key",
        ),
        (AZURE, {"account_key": ["k"]}, "'account_key' is a list and must be text"),
        ("adl://store/run", {}, "no store is known for adl://"),
    ],
)
def test_a_mistake_is_named_with_what_to_write(url: str, options: dict[str, object], words: str, driver: str) -> None:
    """Whichever library drives the store."""
    with pytest.raises(ConfigError, match=words):
        check(url, options, driver)


@pytest.mark.parametrize("driver", ["auto", "fsspec"])
@pytest.mark.parametrize(
    ("url", "options"),
    [
        (S3, {}),
        (S3, {**KEYS, "token": None, "endpoint_url": "http://127.0.0.1:9", "client_kwargs": {"region_name": "x"}}),
        (S3, {"profile": "nobody", "anon": False, "use_ssl": True, "requester_pays": True}),
        (S3, {"config_kwargs": {"s3": {"addressing_style": "virtual"}, "max_pool_connections": 5}}),
        (S3, {"s3_additional_kwargs": {"ACL": "private", "StorageClass": "STANDARD", "Metadata": {"a": "b"}}}),
        (S3, {"max_concurrency": 5, "listings_expiry_time": 5, "session": None, "skip_instance_cache": True}),
        (GCS, {"token": "anon", "project": "p", "requester_pays": "other", "endpoint_url": "http://127.0.0.1:9"}),
        (GCS, {"session_kwargs": {}, "consistency": "md5", "use_listings_cache": False, "block_size": 1}),
        (AZURE, {"account_name": "a", "account_key": "k", "anon": False, "max_concurrency": 4}),
        (AZURE, {"account_name": "a", "credential": object(), "account_host": "127.0.0.1:9"}),
        (
            S3,
            {"s3_additional_kwargs": {"CopySourceSSECustomerKey": "k", "MetadataDirective": "COPY", "acl": "private"}},
        ),
        (GCS, {"retry_timeout": 5.0, "retry_initial": 1, "retry_maximum": 9, "retry_multiplier": 2}),
        (AZURE, {"account_name": "a", "anon": False, "managed_identity_client_id": "00000000-0000"}),
        (AZURE, {"account_name": "a", "anon": False, "exclude_cli_credential": True, "authority": "login"}),
        ("memory://run", {"whatever": 1}),
        ("/a/directory", {"auto_mkdir": True, "skip_instance_cache": True, "profile": None}),
    ],
)
def test_what_the_library_takes_is_taken(url: str, options: dict[str, object], driver: str) -> None:
    """An option that is good for something is never refused, nor one of a store that says nothing of its options."""
    check(url, options, driver)


def test_a_library_that_lists_its_options_is_asked() -> None:
    """Also for a store that is known only by fsspec's interface."""

    class Strict(MemoryFileSystem):  # type: ignore[misc] # fsspec ships no types
        """A filesystem that takes no other options."""

        def __init__(self, host: str = "", *, use_listings_cache: bool = True) -> None:
            """Take a host, and what every filesystem takes."""
            super().__init__(host, use_listings_cache=use_listings_cache)

    fsspec.register_implementation("strict", Strict, clobber=True)
    check("strict://server/x", {"host": "other"})
    with pytest.raises(ConfigError, match="strict has no storage option 'hots': did you mean 'host'"):
        check("strict://server/x", {"hots": "typo"})


def test_no_value_is_quoted() -> None:
    """It may be a secret."""
    with pytest.raises(ConfigError) as wrong:
        check(S3, {"key": ["canary-key"], "secret": {"canary-secret": 1}})
    assert "canary" not in str(wrong.value)


def test_a_mirror_in_a_directory_takes_none(tmp_path: Path) -> None:
    """Who gives one means another place, and would have got a directory of that name."""
    with pytest.raises(ConfigError, match=r"'profile' is given: leave that out, or correct the mirror's URL"):
        RecordMirror(tmp_path / "bucket", MirrorConfig(storage_options={"profile": "training"}))


USES: Mapping[str, Callable[[MirrorConfig, Path], Any]] = {
    "a mirror": lambda config, _: RecordMirror(S3, config),
    "a run": lambda config, records: ServerSettings.of_run(records, S3, config.as_mapping()),
    "verify": lambda config, _: verify(S3, config=config),
    "repair": lambda config, records: repair(S3, [records], config=config),
    "prune": lambda config, records: prune([records], S3, config=config),
    "status": lambda config, _: read_mirror(S3, config),
}


@pytest.mark.parametrize("use", USES)
def test_every_use_of_a_mirror_refuses_them_first(use: str, tmp_path: Path) -> None:
    """The store that is named here does not exist: nobody got as far as asking it."""
    config = MirrorConfig(storage_options={**KEYS, "endpoint_url": "http://127.0.0.1:9", "endpint": 1})
    with pytest.raises(ConfigError, match="'endpint'"):
        USES[use](config, tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("sync", "DIR", S3),
        ("sync", "--dry-run", "DIR", S3),
        ("watch", "--listen", "off", "DIR", S3),
        ("verify", S3),
        ("repair", S3, "DIR"),
        ("prune", "DIR", S3),
        ("status", S3),
    ],
)
def test_a_command_ends_as_after_a_mistake_in_its_arguments(
    line: Line, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """With one sentence and exit code 2, also where there would have been nothing to copy."""
    args = [str(tmp_path) if argument == "DIR" else argument for argument in arguments]
    said = line(*args, "--json", "--storage-option", "endpint_url=http://127.0.0.1:9")
    assert said.code == 2
    assert said.err == "error: s3fs has no storage option 'endpint_url': did you mean 'endpoint_url'?\n"
    assert [json.loads(text)["type"] for text in said.out.splitlines()] == ["error", "summary"]
