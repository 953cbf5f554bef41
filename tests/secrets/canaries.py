"""Secrets that no one may ever see again: where they are put, where they might come out, and what looks for them."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from mirror.testing import Reply

KEY = "AKIACANARYACCESSKEY1"
SECRET = "canary/S3+secret=Key/42"  # noqa: S105 - of nobody; with signs that URLs escape
TOKEN = "canarySessionToken//==77"  # noqa: S105 - likewise
ENV_SECRET = "canary-env-secret-0123"  # noqa: S105 - likewise
ENV_TOKEN = "canary-env-session-0123"  # noqa: S105 - likewise
WANDB_KEY = "canary0wandb0key0canary0wandb0key0canary"
PROXY_PASSWORD = "canary-proxy-password"  # noqa: S105 - likewise
URL_PASSWORD = "canary-url-password"  # noqa: S105 - likewise
GCS_TOKEN = "ya29.canary-gcs-access-token"  # noqa: S105 - likewise
PRIVATE_KEY = "canaryPRIVATEkeyMIIEvQIBADANBg"
SIGNATURE = "canarysignature0123456789abcdef"
ALL = (
    *(KEY, SECRET, TOKEN, ENV_SECRET, ENV_TOKEN, WANDB_KEY, PROXY_PASSWORD, URL_PASSWORD),
    *(GCS_TOKEN, PRIVATE_KEY, SIGNATURE),
)
ENVIRONMENT = {
    "AWS_SECRET_ACCESS_KEY": ENV_SECRET,
    "AWS_SESSION_TOKEN": ENV_TOKEN,
    "WANDB_API_KEY": WANDB_KEY,
    "FETCH_RAW_TOKEN_EXPIRY": "false",  # or gcsfs asks Google about a token
}


def s3_options(endpoint: str, **more: object) -> dict[str, Any]:
    """Return options for S3 with a secret at every depth that both drivers take."""
    client = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    return {"key": KEY, "secret": SECRET, "token": TOKEN, "client_kwargs": client, **more}


def deep_s3_options(endpoint: str) -> dict[str, Any]:
    """Return options for S3 whose secrets stand below others, which s3fs alone takes."""
    client = {
        "endpoint_url": endpoint,
        "region_name": "us-east-1",
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_session_token": TOKEN,
    }
    return {"client_kwargs": client, "s3_additional_kwargs": {"SSECustomerKey": PRIVATE_KEY[:32]}}


def gcs_options(endpoint: str) -> dict[str, Any]:
    """Return options for GCS that hold an access token."""
    return {"token": GCS_TOKEN, "endpoint_url": endpoint}


def gcs_account_options(endpoint: str) -> dict[str, Any]:
    """Return options for GCS with a service account whose key is none, and that ours cannot be used with."""
    account = {
        "type": "service_account",
        "private_key": f"-----BEGIN PRIVATE KEY-----\n{PRIVATE_KEY}\n-----END PRIVATE KEY-----\n",
        "client_email": "robot@project.iam.gserviceaccount.com",
        "token_uri": f"{endpoint}/token",
    }
    return {"token": account, "endpoint_url": endpoint}


def echo(status: int, code: str, path: str, headers: Mapping[str, str], known: str) -> Reply:
    """Return a refusal that repeats what it was asked with, and the secrets in ``known``, as stores' debug pages do."""
    shown = f"{path} {dict(headers)} " + " ".join(
        f"{form} token={form} Authorization: Bearer {form} https://u:{form}@h/x?X-Amz-Signature={form}"
        for secret in [*filter(known.__contains__, ALL), ENV_SECRET, ENV_TOKEN, WANDB_KEY]
        for form in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret))
    )
    text = shown.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    body = f"<Error><Code>{code}</Code><Message>{text}</Message><RequestId>{SIGNATURE}</RequestId></Error>"
    if "/storage/v1/" in path:
        body = json.dumps({"error": {"code": status, "message": shown, "errors": [{"reason": code}]}})
    return Reply(status=status, body=body.encode())


def found_in(text: str) -> list[str]:
    """Return the secrets that a text holds, in any form in which one may be written."""
    return [
        secret
        for secret in ALL
        if any(form in text for form in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret)))
    ]


def told_by(error: BaseException) -> str:
    """Return all that an error tells to anybody who looks: its traceback, and what it came from, hidden or not."""
    return "\n".join(["".join(traceback.format_exception(error)), *_links(error, set())])


def _links(error: BaseException | None, seen: set[int]) -> Iterator[str]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield from (str(error), repr(error), repr(error.args))
    yield from _links(error.__cause__, seen)
    yield from _links(error.__context__, seen)


def files_below(*folders: Path) -> str:
    """Return the names and the contents of all files, as text."""
    paths = [path for folder in folders for path in folder.rglob("*")]
    return "\n".join(
        f"{path}\n{path.read_bytes().decode(errors='replace') if path.is_file() else ''}" for path in sorted(paths)
    )
