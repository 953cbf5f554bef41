"""No secret leaves in a message: canaries put wherever one may be never come out."""

from __future__ import annotations

import asyncio

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from mirror.config import MirrorConfig
from mirror.errors import StoreError
from mirror.location import parse_location
from mirror.redact import Redactor, redact_url
from mirror.stores.opening import open_store

CANARY = "canary0SECRET9value"


@pytest.mark.parametrize(
    "text",
    [
        f"cannot open sftp://me:{CANARY}@host/dir",
        f"GET https://{CANARY}@host/x failed",
        f"s3:/key:{CANARY}@bucket/x is no URL",
        f"GET https://host/x?X-Amz-Signature={CANARY} failed",
        f"GET https://host/x?a=1&sig={CANARY}&sv=2 failed",
        f'"https://host/x?token={CANARY}"',
        f"Authorization: Bearer {CANARY}",
        f"authorization: Basic {CANARY}",
        f"{{'Authorization': 'Bearer {CANARY}'}}",
        f"x-amz-security-token: {CANARY}",
        f"AWS_SECRET_ACCESS_KEY={CANARY}",
        f'{{"password": "{CANARY}"}}',
        f"password={CANARY}&user=x",
        f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={CANARY};EndpointSuffix=core",
        f"SharedAccessSignature=sv=1&sig={CANARY}",
        f"token: {CANARY}",
    ],
)
def test_what_looks_like_a_secret_is_blanked(text: str) -> None:
    """User info, query strings, headers and values assigned to secret names are blanked, whoever wrote the message."""
    assert CANARY not in redact_url(text)
    assert "***" in redact_url(text)


@pytest.mark.parametrize(
    "text",
    [
        "no such bucket: s3://bucket/run-7",
        "put tr_a.json.zst: SlowDown: Please reduce your request rate",
        "Connection reset by peer (http://127.0.0.1:9000/bucket/tr_a.json.zst)",
        "The specified key does not exist. What now?",
        "mail me@host about it",
    ],
)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    """An operator sees what the store said."""
    assert redact_url(text) == text


@pytest.mark.parametrize(
    "options",
    [
        {"secret": CANARY},
        {"key": CANARY},
        {"token": {"refresh": {"value": CANARY}}},
        {"client_kwargs": {"aws_secret_access_key": CANARY}},
        {"config_kwargs": {"proxies": [{"password": CANARY}]}},
        {"sas_token": CANARY},
        {"connection_string": CANARY},
        {"credentials": [CANARY]},
        {"passwords": ("x", CANARY)},
    ],
)
def test_a_stores_own_secrets_are_blanked_wherever_they_turn_up(options: dict[str, object]) -> None:
    """Every value under a secret-looking name, at any depth, is blanked in any sentence, in the forms of URLs too."""
    redact = Redactor(options, {})
    assert redact(f"the key {CANARY} is unknown") == "the key *** is unknown"


def test_secrets_are_blanked_in_the_forms_of_urls() -> None:
    """A secret with signs that URLs escape is found in a URL as well."""
    redact = Redactor({"secret": "ca/na+ry =secret"}, {})
    for form in ("ca/na+ry =secret", "ca%2Fna%2Bry%20%3Dsecret", "ca/na%2Bry%20%3Dsecret", "ca%2Fna%2Bry+%3Dsecret"):
        assert redact(f"at {form} it failed") == "at *** it failed"


def test_the_longest_secret_is_blanked_first() -> None:
    """A secret that contains another leaves no rest."""
    redact = Redactor({"key": "abcd", "secret": "abcd-efgh"}, {})
    assert redact("abcd-efgh and abcd") == "*** and ***"


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "WANDB_API_KEY", "AZURE_ACCOUNT_KEY"])
def test_secrets_of_the_environment_are_blanked(name: str) -> None:
    """What a library read from the environment does not leave either."""
    assert Redactor({}, {name: CANARY})(f"used {CANARY}") == "used ***"


def test_the_environment_is_the_process_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless told otherwise, the environment is that of this process."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    assert Redactor()(f"used {CANARY}") == "used ***"


def test_ordinary_options_are_not_blanked() -> None:
    """Endpoints, regions, flags, numbers, short values and "anonymous" stay readable."""
    options = {"endpoint_url": "http://host", "anon": True, "token": "anon", "key": "ab", "secret": None, "max_key": 5}
    redact = Redactor(options, {"AWS_REGION": "eu-west-1", "WANDB_API_KEY": "none", "HOME": "/home/me"})
    text = "anon at http://host in eu-west-1, none in /home/me: ab 5"
    assert redact(text) == text


def test_what_a_url_gives_a_store_is_blanked_without_the_protocol_too() -> None:
    """Some libraries name a place by what stands behind ``://``, user info included."""
    said = f"no connection to me:{CANARY}@127.0.0.1:9"

    class Telling(MemoryFileSystem):  # type: ignore[misc] # fsspec ships no types
        """A filesystem whose library does so."""

        def pipe_file(self, path: str, value: bytes, **_options: object) -> None:  # noqa: ARG002 - fsspec's signature
            """Fail, and tell where."""
            raise ConnectionRefusedError(said)

    fsspec.register_implementation("telling", Telling, clobber=True)
    location = parse_location(f"telling://me:{CANARY}@127.0.0.1:9/run-7")

    async def use() -> None:
        store = open_store(location, MirrorConfig())
        try:
            await store.put("tr_a.json.zst", b"{}", "0" * 32)
        finally:
            await store.aclose()

    with pytest.raises(StoreError) as refused:
        asyncio.run(use())
    assert "no connection to ***@127.0.0.1:9" in str(refused.value)
    assert CANARY not in location.shown
