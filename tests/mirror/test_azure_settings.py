"""The storage options of adlfs mean the same to obstore, or are named as what obstore cannot do."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from mirror.location import parse_location
from mirror.stores.azure_place import AzurePlace
from mirror.stores.azure_settings import AzureSettings, Principal, azure_settings, secrets_in
from mirror.stores.unmappable import UnmappableError

URL = "az://box/run-7"
HERE = AzurePlace("box", "run-7/", None)
KEY = base64.b64encode(b"key").decode()
PUBLIC = "https://acc.blob.core.windows.net"


def settings(environment: Any = None, url: str = URL, **options: Any) -> AzureSettings:  # noqa: ANN401 - storage options
    return azure_settings(parse_location(url), options, environment or {})


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("az://box/run-7", AzurePlace("box", "run-7/", None)),
        ("abfs://box", AzurePlace("box", "", None)),
        ("abfs://box/deep/run/", AzurePlace("box", "deep/run/", None)),
        ("abfss://box@acc.dfs.core.windows.net/run-7", AzurePlace("box", "run-7/", "acc")),
        ("abfss://box@acc.blob.core.windows.net/run-7", AzurePlace("box", "run-7/", "acc")),
        ("abfss://acc.dfs.core.windows.net/box/run-7", AzurePlace("box", "run-7/", "acc")),
    ],
)
def test_a_url_names_a_container_a_prefix_and_perhaps_an_account(url: str, place: AzurePlace) -> None:
    """In every form that adlfs takes."""
    found = settings(url=url, account_name=place.account or "acc", account_key=KEY)
    assert (found.place, found.account, found.endpoint) == (place, "acc", PUBLIC)


def test_an_account_is_of_the_options_then_the_url_then_the_environment() -> None:
    """As adlfs takes it."""
    with_account = "abfss://box@url.dfs.core.windows.net/run"
    environment = {"AZURE_STORAGE_ACCOUNT_NAME": "env"}
    assert settings(environment, url=with_account, account_name="option", account_key=KEY).account == "option"
    assert settings(environment, url=with_account, account_key=KEY).account == "url"
    assert settings(environment, account_key=KEY).account == "env"


@pytest.mark.parametrize("in_environment", [False, True])
def test_of_several_credentials_the_one_is_taken_that_adlfs_takes(in_environment: bool) -> None:  # noqa: FBT001 - a parameter
    """An account's key, then a shared access signature, then an application; whether options or environment give it."""

    def given(**values: str) -> AzureSettings:
        if not in_environment:
            return settings(account_name="acc", **values)
        return settings({f"AZURE_STORAGE_{name.upper()}": value for name, value in values.items()}, account_name="acc")

    application = {"client_id": "c", "client_secret": "s", "tenant_id": "t"}
    whole = {"account_key": KEY, "sas_token": "?sv=1&sig=x", **application}
    assert given(**whole) == AzureSettings(place=HERE, account="acc", endpoint=PUBLIC, key=KEY)
    del whole["account_key"]
    assert given(**whole) == AzureSettings(place=HERE, account="acc", endpoint=PUBLIC, sas_token="sv=1&sig=x")  # noqa: S106 - sample
    assert given(**application).principal == Principal(tenant_id="t", client_id="c", client_secret="s")  # noqa: S106 - sample


def test_no_credential_is_what_azure_identity_finds_unless_anonymous_is_asked_for() -> None:
    """``anon`` matters only where nothing else is given, and the option goes before the environment."""
    found = settings(account_name="acc")
    assert (found.key, found.sas_token, found.principal, found.anonymous) == (None, None, None, False)
    assert settings(account_name="acc", anon=True).anonymous
    assert settings({"AZURE_STORAGE_ANON": "1"}, account_name="acc").anonymous
    assert not settings({"AZURE_STORAGE_ANON": "f"}, account_name="acc").anonymous
    assert not settings({"AZURE_STORAGE_ANON": "1"}, account_name="acc", anon=False).anonymous
    assert not settings(account_name="acc", anon=True, account_key=KEY).anonymous


def test_another_host_is_asked_by_https() -> None:
    """Of another cloud, or of a private endpoint; the account still signs."""
    found = settings(account_name="acc", account_host="acc.blob.core.chinacloudapi.cn", account_key=KEY)
    assert (found.endpoint, found.account) == ("https://acc.blob.core.chinacloudapi.cn", "acc")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"DefaultEndpointsProtocol=https;AccountName=acc;AccountKey={KEY};EndpointSuffix=core.windows.net",
            AzureSettings(place=HERE, account="acc", endpoint=PUBLIC, key=KEY),
        ),
        (f"accountname=acc;accountkey={KEY};", AzureSettings(place=HERE, account="acc", endpoint=PUBLIC, key=KEY)),
        (
            "BlobEndpoint=https://acc.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=x%3D",
            AzureSettings(place=HERE, account="acc", endpoint=PUBLIC, sas_token="sv=1&sig=x%3D"),  # noqa: S106 - sample
        ),
        (
            f"AccountName=acc;AccountKey={KEY};BlobEndpoint=http://127.0.0.1:10000/acc;",
            AzureSettings(place=HERE, account="acc", endpoint="http://127.0.0.1:10000/acc", key=KEY),
        ),
        ("AccountName=acc", AzureSettings(place=HERE, account="acc", endpoint=PUBLIC, anonymous=True)),
    ],
)
def test_a_connection_string_overrides_whatever_else_is_given(text: str, expected: AzureSettings) -> None:
    """Key, signature and endpoint are those of the string, wherever it comes from."""
    others: dict[str, Any] = {"account_name": "other", "account_key": "other", "credential": object(), "anon": False}
    assert settings(connection_string=text, **others) == expected
    assert settings({"AZURE_STORAGE_CONNECTION_STRING": text}, **others) == expected


def test_what_the_mirror_does_by_itself_changes_nothing() -> None:
    """Block sizes, concurrency, timeouts and caches are the mirror's own business."""
    plain = settings(account_name="acc", account_key=KEY)
    assert plain == settings(
        account_name="acc",
        account_key=KEY,
        blocksize=5,
        max_concurrency=3,
        read_timeout=7,
        use_listings_cache=True,
        location_mode="primary",
        version_aware=True,
        sas_token=None,
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "account_name"),
        ({"account_name": "acc", "credential": object()}, "credential"),
        ({"account_name": "acc", "account_key": KEY, "location_mode": "secondary"}, "location_mode"),
        ({"account_name": "acc", "account_key": KEY, "tomorrow": 1}, "tomorrow"),
        ({"account_name": "acc", "client_id": "c", "client_secret": "s"}, "tenant_id"),
        ({"account_name": "acc", "client_id": "c", "tenant_id": "t"}, "client_secret"),
        ({"connection_string": "nonsense"}, "NAME=VALUE"),
        ({"connection_string": f"AccountKey={KEY}"}, "AccountName"),
        ({"connection_string": "UseDevelopmentStorage=true"}, "AccountName"),
        ({"connection_string": "BlobEndpoint=https://acc.blob.core.windows.net/?sv=1&sig=x"}, "query"),
    ],
)
def test_what_obstore_cannot_do_is_named(options: dict[str, Any], named: str) -> None:
    """The reason says which option it is, so that nobody wonders why the slower driver runs."""
    with pytest.raises(UnmappableError, match=named):
        settings(**options)


@pytest.mark.parametrize("variable", ["AZURE_CREDENTIAL_TYPE", "AZURE_STORAGE_USE_EMULATOR", "AZURE_SKIP_SIGNATURE"])
def test_what_only_obstore_heeds_in_the_environment_is_named(variable: str) -> None:
    """A variable that adlfs does not know must not change where records go, or how."""
    with pytest.raises(UnmappableError, match=variable):
        settings({variable: "true"}, account_name="acc", account_key=KEY)


def test_no_secret_is_shown() -> None:
    """Neither key nor signature nor an application's secret is in what a log would show of the settings."""
    secret = "very-secret"  # noqa: S105 - sample
    for given in (
        {"account_key": secret},
        {"sas_token": secret},
        {"client_id": "c", "tenant_id": "t", "client_secret": secret},
    ):
        assert secret not in repr(settings(account_name="acc", **given))


@pytest.mark.parametrize("in_environment", [False, True])
def test_the_secrets_within_a_setting_are_known_one_by_one(in_environment: bool) -> None:  # noqa: FBT001 - a parameter
    """A key in a connection string, a signature in its token, as it is and as a URL writes it."""

    def known(name: str, value: str) -> set[str]:
        if in_environment:
            return set(secrets_in({}, {f"AZURE_STORAGE_{name.upper()}": value}))
        return set(secrets_in({name: value}, {}))

    assert known("connection_string", f"AccountName=acc;AccountKey={KEY};") == {KEY}
    token = "sv=1&sig=a%2Bb&se=2"  # noqa: S105 - sample
    assert known("sas_token", token) == {token, "a%2Bb", "a+b"}
    assert known("connection_string", f"BlobEndpoint=https://x;SharedAccessSignature={token}") == {
        token,
        "a%2Bb",
        "a+b",
    }
    assert known("connection_string", "nonsense") == set()
