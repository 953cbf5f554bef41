"""Clients of obstore for an S3 bucket: with the user's settings, credentials that last, and the bucket's own region."""

from __future__ import annotations

import functools
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from mirror.errors import CredentialsAbsentError
from mirror.importing import importing
from mirror.stores.obstore_bucket import CLIENT_OPTIONS, CONNECT_TIMEOUT
from mirror.stores.s3_settings import S3Settings
from mirror.stores.threads import DaemonThreads
from mirror.stores.words import in_words

if TYPE_CHECKING:
    from obstore.store import S3Credential
    from obstore.store import S3Store as Client

CREDENTIALS_FOR = timedelta(minutes=6)  # obstore asks again 5 minutes before; botocore fetches new ones when it must
AWS = "https://s3.amazonaws.com/{}"
_REGION_HEADER = "x-amz-bucket-region"


class S3ClientMaker:
    """Makes clients that differ in how they upload."""

    def __init__(self, bucket: str, settings: S3Settings) -> None:
        """Look nothing up yet."""
        self._bucket = bucket
        self._settings = settings
        self._credentials: Callable[[], S3Credential] | None = None
        self._region: str | None = None  # the bucket's, where AWS told it

    async def look_up(self, threads: DaemonThreads) -> None:
        """Find credentials, again after the first time, and where AWS has the bucket.

        Raises:
            CredentialsAbsentError: there are none.
        """
        settings = self._settings
        if settings.keys:
            self._credentials = functools.partial(_lasting, *settings.keys)
        elif not settings.anonymous:
            self._credentials = await threads.run(_Chain, settings.profile)
        if settings.endpoint is None:
            self._region = await threads.run(region_of, AWS.format(self._bucket)) or self._region

    def make(self, config: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Client:
        """Make a client with more configuration, and with headers that go with each of its requests.

        Raises:
            ValueError: a setting is none that obstore takes.
        """
        with importing:
            from obstore.store import S3Store  # noqa: PLC0415 - only where S3 is used

        region = {"region": self._region} if self._region else {}
        whole: Any = {  # obstore's type takes literal names alone
            **self._settings.config,
            "skip_signature": self._settings.anonymous,
            **region,
            **config,
        }
        client: Any = {**CLIENT_OPTIONS, "default_headers": dict(headers or {}), **self._settings.client}
        return S3Store(
            self._bucket,
            config=whole,
            client_options=client,
            retry_config={"max_retries": 0},
            credential_provider=self._credentials,
        )


class _Chain:
    """Credentials as botocore's chain finds them: environment, profile, single sign-on, container, instance."""

    def __init__(self, profile: str | None) -> None:
        """Look for them; blocks.

        Raises:
            CredentialsAbsentError: there are none.
        """
        with importing:
            from botocore.session import Session  # noqa: PLC0415 - heavy, and only where keys are not given

        self._found = Session(profile=profile).get_credentials()
        if self._found is None:
            raise CredentialsAbsentError("open", "", in_words("no credentials were found", ["NoCredentialsError"]))

    def __call__(self) -> S3Credential:
        """Return what is valid now, for obstore, which asks again in time."""
        frozen = self._found.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + CREDENTIALS_FOR,
        }


def _lasting(key: str, secret: str, token: str | None) -> S3Credential:
    return {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}


def region_of(bucket_url: str) -> str | None:
    """Ask AWS which region a bucket is in, as it tells everybody; blocks. None: it did not say."""
    request = urllib.request.Request(bucket_url, method="HEAD")  # noqa: S310 - our own https URL
    try:
        with urllib.request.urlopen(request, timeout=CONNECT_TIMEOUT.total_seconds()) as answer:  # noqa: S310 - likewise
            region: str | None = answer.headers.get(_REGION_HEADER)
    except urllib.error.HTTPError as error:  # a redirect or a denial tells it too
        return error.headers.get(_REGION_HEADER)
    except OSError:
        return None
    return region
