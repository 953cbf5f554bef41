"""What gives access to an account of Azure is never seen in anything that this package says, by either driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from mirror import MirrorConfig, MirrorError, RecordMirror, verify
from mirror.samples import write_corpus
from mirror.status import read_mirror
from mirror.testing import FaultProxy, Reply
from mirror.testing.servers import azure_connection_string
from tests.mirror.tls_fronts import TlsFronts
from tests.references.publishing import wait_until
from tests.secrets import canaries

KEY = "Y2FuYXJ5LWF6dXJlLWFjY291bnQta2V5Lytr/+=="
NO_KEY = "canary/that+is=no_base64"
SIGNATURE = "canary/azure+signature=Key%2F42"
SECRETS = (KEY, NO_KEY, SIGNATURE, quote(SIGNATURE, safe=""))
ACCOUNTS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "connection string": lambda url: {"connection_string": azure_connection_string(url, key=KEY)},
    "no key": lambda url: {"connection_string": azure_connection_string(url, key=NO_KEY)},
    "key": lambda url: {"account_name": "acc", "account_host": url.partition("//")[2], "account_key": KEY},
    "signature": lambda url: {
        "account_name": "acc",
        "account_host": url.partition("//")[2],
        "sas_token": f"sv=2024-01-01&sig={quote(SIGNATURE, safe='')}",
    },
}


@dataclass
class Echo:
    """A store that refuses everything, and repeats what it was asked with and every secret that it may know."""

    status: int = 403
    code: str = "AuthenticationFailed"

    def __call__(self, _method: str, path: str, headers: Mapping[str, str], _body: bytes) -> Reply:
        forms = {form for secret in SECRETS for form in (secret, quote(secret), quote_plus(secret), f"sig={secret}")}
        text = f"{' '.join(sorted(forms))} {path} {dict(headers)}".replace("&", "&amp;").replace("<", "&lt;")
        body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{self.code}</Code><Message>{text}</Message></Error>'
        told = {"Content-Type": "application/xml", "x-ms-error-code": self.code}
        return Reply(status=self.status, body=body.encode(), headers=told)


@pytest.fixture
def echo() -> Iterator[tuple[Echo, FaultProxy]]:
    """Such a store, and where it answers."""
    echo = Echo()
    with FaultProxy("http://127.0.0.1:9", check_request=echo) as proxy:
        yield echo, proxy


@pytest.mark.parametrize(
    ("status", "code"), [(403, "AuthenticationFailed"), (404, "ContainerNotFound"), (503, "ServerBusy"), (200, "OK")]
)
@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
@pytest.mark.parametrize("account", ACCOUNTS)
def test_no_error_holds_a_secret_of_azure(
    account: str,
    driver: str,
    status: int,
    code: str,
    echo: tuple[Echo, FaultProxy],
    tls_fronts: TlsFronts,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither its sentence, nor its traceback, nor the errors that it came from; nor the log at its most talkative."""
    server, proxy = echo
    server.status, server.code = status, code
    caplog.set_level(logging.DEBUG, logger="mirror")
    options = ACCOUNTS[account](tls_fronts.of(proxy.url))
    config = MirrorConfig(attempts=2, backoff_s=0.01, timeout_s=5, driver=driver, storage_options=options)
    told = [repr(config)]
    for call in (lambda: verify("az://box/run-7", config=config), lambda: read_mirror("az://box/run-7", config)):
        try:
            told.append(repr(call()))
        except MirrorError as error:
            told.append(canaries.told_by(error))
    assert_none_in("\n".join([*told, caplog.text]), options)


@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
@pytest.mark.parametrize("account", ACCOUNTS)
def test_no_mirror_tells_a_secret_of_azure(
    account: str,
    driver: str,
    echo: tuple[Echo, FaultProxy],
    tls_fronts: TlsFronts,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In its log, its stats, its repr, or anything that it writes beside the records."""
    _, proxy = echo
    caplog.set_level(logging.DEBUG, logger="mirror")
    write_corpus(tmp_path, profile="tiny", count=3, seed=1)
    options = ACCOUNTS[account](tls_fronts.of(proxy.url))
    mirror = RecordMirror(
        "az://box/run-7", storage_options=options, driver=driver, attempts=2, backoff_s=0.01, rescan_s=0.2
    )
    mirror.start()
    mirror.scan(tmp_path)
    wait_until(lambda: bool(mirror.stats()["last_error"]))
    told = [repr(mirror), repr(mirror.stats()), repr(mirror.config), repr(mirror.left()), mirror.url]
    mirror.close(0.1)
    assert_none_in("\n".join([*told, caplog.text, canaries.files_below(tmp_path)]), options)


def assert_none_in(text: str, options: Mapping[str, Any]) -> None:
    """Fail with the secret and the place; what the options do not hold is no secret here."""
    for secret in SECRETS:
        if any(form in str(options) for form in (secret, quote(secret, safe=""))) and secret in text:
            at = text.index(secret)
            raise AssertionError(f"{secret!r} is in: ...{text[max(0, at - 300) : at + 100]}...")
