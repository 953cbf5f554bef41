"""Clients of obstore for one Azure container: with the user's settings, and credentials that last."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mirror.importing import importing
from mirror.stores.azure_settings import AzureSettings
from mirror.stores.obstore_bucket import CLIENT_OPTIONS

if TYPE_CHECKING:
    from obstore.store import AzureCredential
    from obstore.store import AzureStore as Client


class AzureClientMaker:
    """Makes clients, with credentials that were looked up before."""

    def __init__(self, settings: AzureSettings) -> None:
        """Look nothing up yet."""
        self._settings = settings
        self._credentials: Callable[[], AzureCredential] | None = None

    def look_up(self) -> None:
        """Find credentials, again after the first time; blocks.

        Raises:
            azure.core.exceptions.ClientAuthenticationError: there are none, or none that are accepted.
        """
        settings = self._settings
        if settings.key:
            self._credentials = _Lasting({"access_key": settings.key, "expires_at": None})
        elif settings.sas_token:
            self._credentials = _Lasting({"sas_token": settings.sas_token, "expires_at": None})
        elif not settings.anonymous:
            self._credentials = _tokens(settings)
            self._credentials()  # what is wrong with them is said here in words; obstore would hide it

    def make(self) -> Client:
        """Make a client.

        Raises:
            ValueError: a setting is none that obstore takes.
        """
        with importing:
            from obstore.store import AzureStore  # noqa: PLC0415 - only where Azure is used

        settings = self._settings
        return AzureStore(
            settings.place.container,
            config={
                "account_name": settings.account,
                "endpoint": settings.endpoint,
                "skip_signature": settings.anonymous,
            },
            client_options=CLIENT_OPTIONS,
            retry_config={"max_retries": 0},
            credential_provider=self._credentials,
        )


class _Lasting:
    """A credential that stays as it is."""

    def __init__(self, credential: AzureCredential) -> None:
        self._credential = credential

    def __call__(self) -> AzureCredential:
        return self._credential


def _tokens(settings: AzureSettings) -> Any:  # noqa: ANN401 - obstore's provider, and azure-identity's classes
    """Return what gives obstore a token whenever it needs one, from where adlfs would take it."""
    with importing:
        from azure.identity import ClientSecretCredential, DefaultAzureCredential  # noqa: PLC0415 - heavy
        from obstore.auth.azure import AzureCredentialProvider  # noqa: PLC0415 - it imports azure-identity

    found = settings.principal
    if found is None:
        return AzureCredentialProvider(DefaultAzureCredential())
    return AzureCredentialProvider(
        ClientSecretCredential(tenant_id=found.tenant_id, client_id=found.client_id, client_secret=found.client_secret)
    )
