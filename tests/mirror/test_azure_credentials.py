"""Every kind of credential that Azure knows, by both drivers: signatures, tokens that expire, and none."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.storage.blob import ContainerSasPermissions, generate_container_sas

from mirror.config import MirrorConfig
from mirror.errors import AccessDeniedError, ConfigError, CredentialsError
from mirror.location import parse_location
from mirror.store import Store
from mirror.stores.opening import open_store
from mirror.testing import Azurite, FaultProxy, Reply
from mirror.testing.servers import AZURE_ACCOUNT, AZURE_KEY
from tests.mirror.places import AzurePlace
from tests.mirror.store_kinds import Kind, get, keys_of, kind_of, put
from tests.mirror.tls_fronts import TlsFronts

pytestmark = [pytest.mark.integration, pytest.mark.parametrize("driver", ["obstore", "fsspec"])]

KEY = "tr_1.json.zst"
CONTENT = b"here" * 1_000


def account_at(url: str, fronts: TlsFronts) -> dict[str, Any]:
    """Return what leads adlfs to the account behind a URL: it takes a host, and asks it by https."""
    host = fronts.of(url).removeprefix("https://")
    return {"account_name": AZURE_ACCOUNT, "account_host": f"{host}/{AZURE_ACCOUNT}"}


def opened(url: str, driver: str, options: Mapping[str, object]) -> Kind:
    location = parse_location(url)
    config = MirrorConfig(driver=driver, storage_options=options)
    return Kind("azure", location, lambda: open_store(location, config), None)


def test_an_accounts_key_may_come_from_the_environment(
    driver: str, azure_place: AzurePlace, tls_fronts: TlsFronts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whatever else obstore would read there of credentials and endpoints changes nothing."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY)
    for name in ("AZURE_STORAGE_TOKEN", "AZURE_STORAGE_ENDPOINT", "AZURE_CONTAINER_NAME", "AZURE_STORAGE_SAS_KEY"):
        monkeypatch.setenv(name, "https://elsewhere.example")
    kind = opened(azure_place.url, driver, account_at(azure_place.server.url, tls_fronts))
    kind.run(lambda store: put(store, KEY, CONTENT))
    assert azure_place.objects() == {KEY: CONTENT}


def test_a_shared_access_signature_gives_the_rights_that_it_names(
    driver: str, azure_place: AzurePlace, tls_fronts: TlsFronts
) -> None:
    """One for reading reads and lists, and cannot write; the signature is in no error."""
    kind_of(azure_place).run(lambda store: put(store, KEY, CONTENT))
    token = generate_container_sas(
        AZURE_ACCOUNT,
        azure_place.container,
        AZURE_KEY,
        permission=ContainerSasPermissions(read=True, list=True),
        expiry=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1),
    )
    options = account_at(azure_place.server.url, tls_fronts) | {"sas_token": token}

    async def use(store: Store) -> None:
        assert await get(store, KEY) == CONTENT
        assert await keys_of(store) == [KEY]
        assert (await store.stat(KEY)) is not None
        with pytest.raises(AccessDeniedError) as caught:
            await put(store, "tr_2.json.zst", CONTENT)
        assert token.rpartition("sig=")[2] not in str(caught.value)

    opened(azure_place.url, driver, options).run(use)


def test_a_public_container_is_read_without_credentials(driver: str, azurite: Azurite, tls_fronts: TlsFronts) -> None:
    """Nothing is signed, nothing is asked for."""
    name = azurite.make_bucket(f"public-{uuid.uuid4().hex[:12]}")
    with azurite.client() as client:
        container = client.get_container_client(name)
        container.set_container_access_policy(signed_identifiers={}, public_access="container")
        container.upload_blob(f"run/{KEY}", CONTENT)
    options = account_at(azurite.url, tls_fronts) | {"anon": True}
    assert opened(f"az://{name}/run", driver, options).run(lambda store: get(store, KEY)) == CONTENT


def test_a_machines_own_identity_gives_tokens_and_gives_others_after_a_refresh(
    driver: str, tls_fronts: TlsFronts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no credential given, azure-identity finds one; a token that is refused is asked for anew by a refresh."""
    given: list[str] = []

    def give_token(_method: str, path: str, _headers: Mapping[str, str], _body: bytes) -> Reply:
        assert "storage.azure.com" in path
        given.append(f"token-{len(given)}")
        expires = int((dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)).timestamp())
        told = {"access_token": given[-1], "expires_on": str(expires), "resource": "r", "token_type": "Bearer"}
        return Reply(status=200, body=json.dumps(told).encode(), headers={"Content-Type": "application/json"})

    def store_for_the_last(_method: str, _path: str, headers: Mapping[str, str], _body: bytes) -> Reply:
        if expired and headers["authorization"] in {f"Bearer {token}" for token in expired}:
            return Reply(status=401, headers={"x-ms-error-code": "InvalidAuthenticationInfo"})
        assert headers["authorization"] == f"Bearer {given[-1]}"
        return Reply(status=201, headers={"ETag": '"0x1"'})

    expired: set[str] = set()

    async def use(store: Store) -> None:
        await put(store, KEY, CONTENT)
        await put(store, KEY, CONTENT)
        assert len(given) == 1
        expired.update(given)
        with pytest.raises(CredentialsError):
            await put(store, KEY, CONTENT)
        await store.refresh()
        await put(store, KEY, CONTENT)

    with (
        FaultProxy("http://127.0.0.1:9", check_request=give_token) as identity,
        FaultProxy("http://127.0.0.1:9", check_request=store_for_the_last) as storage,
    ):
        monkeypatch.setenv("IDENTITY_ENDPOINT", identity.url)
        monkeypatch.setenv("IDENTITY_HEADER", "header")
        opened("az://box/run-7", driver, account_at(storage.url, tls_fronts)).run(use)
    assert len(given) == 2


def test_a_credential_that_was_given_is_its_owners_to_close(
    driver: str, azure_place: AzurePlace, tls_fronts: TlsFronts
) -> None:
    """It is used by adlfs, survives a refresh, and is open still after the mirror is not."""
    if driver == "obstore":
        with pytest.raises(ConfigError, match="credential"):
            opened(azure_place.url, driver, {"account_name": "acc", "credential": Given()}).open()
        return
    given = Given()

    def store(_method: str, _path: str, headers: Mapping[str, str], _body: bytes) -> Reply:
        assert headers["authorization"] == "Bearer token"
        return Reply(status=201, headers={"ETag": '"0x1"'})

    async def use(store: Store) -> None:
        for _ in range(3):
            await put(store, KEY, CONTENT)
            await store.refresh()

    with FaultProxy("http://127.0.0.1:9", check_request=store) as storage:
        options = account_at(storage.url, tls_fronts) | {"credential": given}
        opened("az://box/run-7", "auto", options).run(use)
    assert not given.is_closed


class Given:
    """A credential of the user's own."""

    is_closed = False

    async def get_token(self, *_scopes: str, **_options: object) -> AccessToken:
        return AccessToken("token", int((dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)).timestamp()))

    async def close(self) -> None:
        self.is_closed = True
