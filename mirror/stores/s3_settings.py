"""What s3fs's storage options mean to obstore's S3 client; what has no counterpart there is named, not dropped.

Nothing is contacted here: credentials that a profile or a role gives are read when the store is opened.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from mirror.location import endpoint_of
from mirror.stores.unmappable import UnmappableError

PROFILE_VARIABLES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
REGION_VARIABLE = "AWS_DEFAULT_REGION"  # the only one that botocore reads
# Options of s3fs that concern what the mirror never does with it, or does by itself.
_NEUTRAL = frozenset(
    {
        *("default_block_size", "default_fill_cache", "default_cache_type", "version_aware", "cache_regions"),
        *("skip_instance_cache", "use_listings_cache", "listings_expiry_time", "max_paths", "max_concurrency"),
        *("fixed_upload_size", "asynchronous", "loop", "batch_size"),
    }
)
# Of botocore's configuration: connections, retries, timeouts and checksums are the mirror's own.
_NEUTRAL_CONFIG = frozenset(
    {
        *("max_pool_connections", "retries", "parameter_validation", "user_agent", "user_agent_extra"),
        *("request_checksum_calculation", "response_checksum_validation", "tcp_keepalive", "connect_timeout"),
        *("read_timeout", "disable_request_compression"),
    }
)
# What obstore reads from the environment and botocore does not: with them the two would not do the same.
_OBSTORE_VARIABLES = (
    *("AWS_ENDPOINT", "AWS_SKIP_SIGNATURE", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_S3_EXPRESS"),
    *("AWS_REQUEST_PAYER", "AWS_SERVER_SIDE_ENCRYPTION", "AWS_SSE_KMS_KEY_ID", "AWS_SSE_CUSTOMER_KEY_BASE64"),
    *("AWS_SSE_BUCKET_KEY_ENABLED", "AWS_DISABLE_TAGGING"),
)
# What botocore reads from a profile and obstore does not.
_PROFILE_SETTINGS = (
    *("endpoint_url", "services", "s3", "ca_bundle", "use_fips_endpoint", "use_dualstack_endpoint"),
    *("s3_use_arn_region", "sigv4a_signing_region_set"),
)
_SIGNATURES = frozenset({None, "s3v4", "v4"})
_ATTRIBUTES = {
    "ContentType": "Content-Type",
    "ContentEncoding": "Content-Encoding",
    "ContentLanguage": "Content-Language",
    "ContentDisposition": "Content-Disposition",
    "CacheControl": "Cache-Control",
    "StorageClass": "Storage-Class",
}
_ENCRYPTION = {"ServerSideEncryption": "server_side_encryption", "SSEKMSKeyId": "sse_kms_key_id"}


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """How obstore is to reach a bucket as s3fs would with the same options."""

    config: Mapping[str, object]  # obstore's S3 configuration, credentials not included
    client: Mapping[str, object]  # obstore's HTTP client configuration
    attributes: Mapping[str, str] = field(default_factory=dict)  # of every object written
    tags: Mapping[str, str] = field(default_factory=dict)  # likewise
    keys: tuple[str, str, str | None] | None = None  # access key, secret, session token; None: a profile or a role
    profile: str | None = None
    anonymous: bool = False

    @property
    def endpoint(self) -> str | None:
        """The endpoint's URL; None: AWS."""
        endpoint = self.config.get("endpoint")
        return str(endpoint) if endpoint else None


def s3_settings(options: Mapping[str, object], environment: Mapping[str, str] | None = None) -> S3Settings:
    """Translate the storage options that s3fs takes.

    Raises:
        UnmappableError: one of them means something that obstore cannot do; the text says which.
    """
    environment = os.environ if environment is None else environment
    for variable in _OBSTORE_VARIABLES:
        if environment.get(variable):
            raise UnmappableError(f"obstore alone heeds the environment variable {variable}")
    given = {name: value for name, value in options.items() if value is not None and name not in _NEUTRAL}
    reader = _Reader(given, environment)
    settings = reader.settings()
    unknown = sorted(reader.left())
    if unknown:
        raise UnmappableError(f"obstore has nothing like the storage option {unknown[0]!r}")
    return settings


class _Reader:
    """Takes the options one by one; what is left at the end was not understood."""

    def __init__(self, options: Mapping[str, object], environment: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._client = self._table("client_kwargs")
        self._botocore = {
            name: value for name, value in self._table("config_kwargs").items() if name not in _NEUTRAL_CONFIG
        }
        self._extras = self._table("s3_additional_kwargs")
        self._environment = environment

    def left(self) -> Iterator[str]:
        yield from self._options
        for name, table in (("client_kwargs", self._client), ("config_kwargs", self._botocore)):
            yield from (f"{name}.{key}" for key in table)
        yield from (f"s3_additional_kwargs.{key}" for key in self._extras)

    def settings(self) -> S3Settings:
        config: dict[str, object] = {}
        client: dict[str, object] = {}
        profile = self._options.pop("profile", None)
        self._place(config, client, self._profile(None if profile is None else str(profile)))
        self._connection(client)
        attributes, tags = self._objects(config)
        keys = self._keys()
        anonymous = bool(self._options.pop("anon", False)) or self._signature_is_none()
        if self._options.pop("requester_pays", False):
            config["request_payer"] = True
        return S3Settings(
            config=config,
            client=client,
            attributes=attributes,
            tags=tags,
            keys=None if anonymous else keys,
            profile=None if profile is None else str(profile),
            anonymous=anonymous,
        )

    def _profile(self, name: str | None) -> Mapping[str, str]:
        """Read what the profile in use sets."""
        name = name or next((self._environment[v] for v in PROFILE_VARIABLES if self._environment.get(v)), "default")
        file = self._environment.get("AWS_CONFIG_FILE") or "~/.aws/config"
        parser = configparser.RawConfigParser()
        try:
            parser.read(os.path.expanduser(file), encoding="utf-8")  # noqa: PTH111 - as botocore reads it
        except (configparser.Error, UnicodeDecodeError):
            raise UnmappableError(f"{file} cannot be read") from None
        sections = [section for section in (name, f"profile {name}") if parser.has_section(section)]
        profile = dict(parser.items(sections[-1])) if sections else {}
        for setting in _PROFILE_SETTINGS:
            if setting in profile:
                raise UnmappableError(f"obstore does not heed {setting} of the profile {name!r}")
        return profile

    def _place(self, config: dict[str, object], client: dict[str, object], profile: Mapping[str, str]) -> None:
        endpoint = endpoint_of("s3", {**self._options, "client_kwargs": self._client}, self._environment)
        self._options.pop("endpoint_url", None)
        self._client.pop("endpoint_url", None)
        region = self._client.pop("region_name", None) or self._botocore.pop("region_name", None)
        region = region or self._environment.get(REGION_VARIABLE) or profile.get("region")
        if region:
            config["region"] = str(region)
        self._client.pop("use_ssl", None)
        use_ssl = self._options.pop("use_ssl", True)
        if endpoint is None:
            if not use_ssl:
                raise UnmappableError("obstore reaches AWS by TLS alone, and use_ssl is false")
        else:
            config["endpoint"] = endpoint
            client["allow_http"] = urlsplit(endpoint).scheme == "http"
        style = self._s3("addressing_style")
        if style not in {None, "auto", "path"}:
            raise UnmappableError(f"obstore is not asked with addressing_style {style!r}")
        for name in ("use_accelerate_endpoint", "use_dualstack_endpoint", "use_fips_endpoint"):
            if self._s3(name) or self._botocore.pop(name, None):
                raise UnmappableError(f"obstore has nothing like {name}")
        # The checksum of each upload is signed in place of its hash, as AWS's own tools do.
        config["unsigned_payload"] = not self._s3("payload_signing_enabled")

    def _connection(self, client: dict[str, object]) -> None:
        verify = self._client.pop("verify", None)
        verify = verify if verify is not None else self._environment.get("AWS_CA_BUNDLE")
        if verify is False:
            client["allow_invalid_certificates"] = True
        elif isinstance(verify, str):
            client["root_certificate"] = _read_bundle(verify)
        proxies = self._botocore.pop("proxies", None)
        if isinstance(proxies, Mapping) and proxies:
            if len(set(map(str, proxies.values()))) > 1:
                raise UnmappableError("obstore takes one proxy for every protocol")
            client["proxy_url"] = str(next(iter(proxies.values())))

    def _objects(self, config: dict[str, object]) -> tuple[dict[str, str], dict[str, str]]:
        for name, ours in _ENCRYPTION.items():
            if name in self._extras:
                config[ours] = str(self._extras.pop(name))
        if "BucketKeyEnabled" in self._extras:
            config["sse_bucket_key_enabled"] = bool(self._extras.pop("BucketKeyEnabled"))
        if self._extras.get("RequestPayer") == "requester":
            config["request_payer"] = bool(self._extras.pop("RequestPayer"))
        attributes = {ours: str(self._extras.pop(name)) for name, ours in _ATTRIBUTES.items() if name in self._extras}
        metadata = self._extras.pop("Metadata", None)
        if isinstance(metadata, Mapping):
            attributes |= {str(name): str(value) for name, value in metadata.items()}
        tags = dict(parse_qsl(str(self._extras.pop("Tagging", "")), keep_blank_values=True))
        return attributes, tags

    def _keys(self) -> tuple[str, str, str | None] | None:
        names = (("key", "aws_access_key_id"), ("secret", "aws_secret_access_key"), ("token", "aws_session_token"))
        key, secret, token = (self._options.pop(ours, None) or self._client.pop(theirs, None) for ours, theirs in names)
        if key and secret:
            return str(key), str(secret), None if token is None else str(token)
        if key or secret or token:
            raise UnmappableError("obstore takes an access key with its secret, or neither")
        return None

    def _signature_is_none(self) -> bool:
        signature = self._botocore.pop("signature_version", None)
        if isinstance(signature, str | None) and signature in _SIGNATURES:
            return False
        if type(signature).__name__ == "UNSIGNED":  # botocore's
            return True
        raise UnmappableError(f"obstore signs with version 4 alone, not {signature!r}")

    def _s3(self, name: str) -> object:
        """Take one of botocore's settings for S3."""
        table = self._botocore.get("s3")
        if not isinstance(table, Mapping):
            return None
        self._botocore["s3"] = rest = dict(table)
        value = rest.pop(name, None)
        if not rest:
            del self._botocore["s3"]
        return value

    def _table(self, name: str) -> dict[str, object]:
        value = self._options.pop(name, None)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise UnmappableError(f"the storage option {name!r} is no table")
        return {str(key): inner for key, inner in value.items() if inner is not None}


def _read_bundle(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UnmappableError(f"the certificates in {path} cannot be read") from error
