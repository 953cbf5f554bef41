"""What adlfs's storage options mean to obstore's Azure client; what has no counterpart there is named, not dropped.

Nothing is contacted here: a token that a service principal or a machine is given is asked for when the store is opened.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from mirror.location import Location
from mirror.stores.azure_place import PUBLIC_SUFFIX, AzurePlace, place_of
from mirror.stores.unmappable import UnmappableError

# Options of adlfs that concern what the mirror never does with it, or does by itself.
_NEUTRAL = frozenset(
    {
        *("request_session", "socket_timeout", "blocksize", "default_fill_cache", "default_cache_type"),
        *("version_aware", "assume_container_exists", "max_concurrency", "timeout", "connection_timeout"),
        *("read_timeout", "skip_instance_cache", "use_listings_cache", "listings_expiry_time", "max_paths"),
        *("asynchronous", "loop", "batch_size"),
    }
)
# What adlfs takes from the environment where the options say nothing.
_VARIABLES = {
    "account_name": "AZURE_STORAGE_ACCOUNT_NAME",
    "account_key": "AZURE_STORAGE_ACCOUNT_KEY",
    "connection_string": "AZURE_STORAGE_CONNECTION_STRING",
    "sas_token": "AZURE_STORAGE_SAS_TOKEN",
    "client_id": "AZURE_STORAGE_CLIENT_ID",
    "client_secret": "AZURE_STORAGE_CLIENT_SECRET",
    "tenant_id": "AZURE_STORAGE_TENANT_ID",
}
_ANONYMOUS = "AZURE_STORAGE_ANON"
_FALSE = frozenset({"false", "0", "f", ""})
# What obstore reads from the environment and adlfs does not: with them the two would not do the same.
_OBSTORE_VARIABLES = (
    *("AZURE_STORAGE_USE_EMULATOR", "AZURE_USE_FABRIC_ENDPOINT", "AZURE_CREDENTIAL_TYPE", "AZURE_SKIP_SIGNATURE"),
    *("AZURE_STORAGE_ENCRYPTION_KEY", "AZURE_ENCRYPTION_KEY", "AZURE_FABRIC_WORKLOAD_HOST"),
    *("AZURE_FABRIC_TOKEN_SERVICE_URL", "AZURE_FABRIC_SESSION_TOKEN", "AZURE_FABRIC_CLUSTER_IDENTIFIER"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An application that Microsoft Entra gives tokens."""

    tenant_id: str
    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureSettings:
    """How obstore is to reach a container as adlfs would.

    Of the credentials there is one at most; none, and not anonymous: what azure-identity finds.
    """

    place: AzurePlace
    account: str
    endpoint: str  # of the account, with scheme
    key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    principal: Principal | None = None
    anonymous: bool = False


def azure_settings(
    location: Location, options: Mapping[str, object], environment: Mapping[str, str] | None = None
) -> AzureSettings:
    """Translate the storage options that adlfs takes.

    Raises:
        UnmappableError: one of them means something that obstore cannot do; the text says which.
    """
    environment = os.environ if environment is None else environment
    for variable in _OBSTORE_VARIABLES:
        if environment.get(variable):
            raise UnmappableError(f"obstore alone heeds the environment variable {variable}")
    place = place_of(location)
    given = {name: value for name, value in options.items() if value is not None and name not in _NEUTRAL}
    account = given.pop("account_name", None) or place.account
    found = {"account_name": account, **{name: given.pop(name, None) for name in _VARIABLES if name != "account_name"}}
    texts = {name: str(value or environment.get(_VARIABLES[name]) or "") for name, value in found.items()}
    anonymous = _is_anonymous(given.pop("anon", None), environment)
    host = given.pop("account_host", None)
    if given.pop("location_mode", "primary") != "primary":
        raise UnmappableError("obstore asks the primary location alone, and location_mode says another")
    if texts["connection_string"]:
        given.pop("credential", None)  # the string overrides it
        settings = _of_connection_string(place, texts["connection_string"])
    elif "credential" in given:
        raise UnmappableError("obstore cannot be given the storage option 'credential'")
    elif not texts["account_name"]:
        raise UnmappableError("neither the URL nor the storage options name an account_name")
    else:
        endpoint = f"https://{host}" if host else f"https://{texts['account_name']}.blob.{PUBLIC_SUFFIX}"
        settings = _of_options(place, endpoint, texts, anonymous=anonymous)
    if given:
        raise UnmappableError(f"obstore has nothing like the storage option {min(given)!r}")
    if urlsplit(settings.endpoint).query:
        raise UnmappableError("the account's endpoint has a query, which obstore does not send")
    return settings


def secrets_in(options: Mapping[str, object], environment: Mapping[str, str] | None = None) -> list[str]:
    """Return what is secret within a connection string and a shared access signature: a store may repeat it alone."""
    environment = os.environ if environment is None else environment
    string, token = (
        str(options.get(name) or environment.get(_VARIABLES[name]) or "") for name in ("connection_string", "sas_token")
    )
    parts = _parts_of(string)
    tokens = [token, parts.get("SHAREDACCESSSIGNATURE", "")]
    signatures = [value.partition("sig=")[2].partition("&")[0] for value in tokens]
    found = [parts.get("ACCOUNTKEY", ""), *tokens, *signatures, *map(unquote, signatures)]
    return [secret for secret in found if secret]


def _is_anonymous(option: object, environment: Mapping[str, str]) -> bool:
    if option is not None:
        return bool(option)
    return environment.get(_ANONYMOUS, "false").lower() not in _FALSE


def _of_options(place: AzurePlace, endpoint: str, texts: Mapping[str, str], *, anonymous: bool) -> AzureSettings:
    """Take the first credential that adlfs would take."""
    account = texts["account_name"]
    if texts["account_key"]:
        return AzureSettings(place=place, account=account, endpoint=endpoint, key=texts["account_key"])
    if texts["sas_token"]:
        token = texts["sas_token"].removeprefix("?")
        return AzureSettings(place=place, account=account, endpoint=endpoint, sas_token=token)
    if texts["client_id"]:
        lacking = next((name for name in ("tenant_id", "client_secret") if not texts[name]), None)
        if lacking:
            raise UnmappableError(f"a client_id is of no use without a {lacking}")
        principal = Principal(
            tenant_id=texts["tenant_id"], client_id=texts["client_id"], client_secret=texts["client_secret"]
        )
        return AzureSettings(place=place, account=account, endpoint=endpoint, principal=principal)
    return AzureSettings(place=place, account=account, endpoint=endpoint, anonymous=anonymous)


def _of_connection_string(place: AzurePlace, text: str) -> AzureSettings:
    """Take apart what Azure's portal gives.

    Form: https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string
    """
    if not all("=" in part for part in text.rstrip(";").split(";")):
        raise UnmappableError("the connection string is not NAME=VALUE;NAME=VALUE;...")
    values = _parts_of(text)
    account = values.get("ACCOUNTNAME")
    endpoint = values.get("BLOBENDPOINT")
    if not endpoint:
        if not account:
            raise UnmappableError("the connection string names neither an AccountName nor a BlobEndpoint")
        protocol = values.get("DEFAULTENDPOINTSPROTOCOL", "https")
        endpoint = f"{protocol}://{account}.blob.{values.get('ENDPOINTSUFFIX', PUBLIC_SUFFIX)}"
    token = values.get("SHAREDACCESSSIGNATURE", "").removeprefix("?") or None
    key = values.get("ACCOUNTKEY") if account else None
    return AzureSettings(
        place=place,
        account=account or (urlsplit(endpoint).hostname or "").partition(".")[0],
        endpoint=endpoint.rstrip("/"),
        key=key,
        sas_token=None if key else token,
        anonymous=not (key or token),
    )


def _parts_of(connection_string: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in connection_string.split(";")]
    return {name.strip().upper(): value for name, _, value in pairs}
