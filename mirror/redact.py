"""No secret leaves in a message: URLs lose their user info and query, known secret values become ``***``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import quote, quote_plus

HIDDEN = "***"
_MIN_SECRET_CHARS = 4  # shorter values would blank ordinary words
_MIN_LINE_CHARS = 16  # of a key in several lines
_MIN_VARIABLE_CHARS = 8  # of a variable whose value may well be a placeholder
_SECRET_NAME = re.compile(r"(?i)key|secret|token|pass|pwd|sas|credential|signature|auth|connection_string|cookie")
_USER_INFO = re.compile(r"(?<=://)[^/@\s\"']+@|(?<=://)[^/@:\s\"']+:[^@\s\"']+@|(?<=:/)[^/@:\s\"']+:[^/@\s\"']+@")
_QUERY = re.compile(r"(?<=\S)\?[^\s\"'<>]*=[^\s\"'<>]*")
_ASSIGNED = re.compile(
    r"(?i)\b(authorization|x-amz-security-token|x-amz-signature|signature|aws_secret_access_key|password|secret|token|"
    r"accountkey|sharedaccesssignature|sig)"
    r"([\"']?\s*[=:]\s*[\"']?)(?:(?:bearer|basic|aws4-hmac-sha256)\s+)?[^\s\"'&,;}]+"
)
# Names of environment variables by which stores are given secrets; their values never leave either.
_SECRET_VARIABLE = re.compile(r"_(SECRET_ACCESS_KEY|SESSION_TOKEN|API_KEY|PASSWORD|SECRET|ACCOUNT_KEY|SAS_TOKEN)$")


def redact_url(text: str) -> str:
    """Blank user info and query strings of every URL in ``text``, and values assigned to secret-looking names."""
    text = _USER_INFO.sub(HIDDEN + "@", text)
    text = _QUERY.sub("?" + HIDDEN, text)
    return _ASSIGNED.sub(lambda found: found[1] + found[2] + HIDDEN, text)


class Redactor:
    """Redacts what a store says, with the secrets of that store's options and of the environment in mind."""

    def __init__(
        self, options: Mapping[str, object] | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """Remember every value that stands under a secret-looking name, at any depth, and how URLs write it."""
        whole = _secrets(options or {}, under_secret=False)
        found = whole + [line for value in whole for line in value.splitlines() if len(line) >= _MIN_LINE_CHARS]
        for name, value in (os.environ if environment is None else environment).items():
            if _SECRET_VARIABLE.search(name) and len(value) >= _MIN_VARIABLE_CHARS:
                found.append(value)
        forms = {form for value in found for form in (value, quote(value), quote(value, safe=""), quote_plus(value))}
        self._secrets = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return ``text`` without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return redact_url(text)


def redact_text(text: str) -> str:
    """Blank what ``redact_url`` blanks, and every secret of the environment as well."""
    return Redactor()(text)


def _secrets(value: object, *, under_secret: bool) -> list[str]:
    if isinstance(value, Mapping):
        return [
            secret
            for name, inner in value.items()
            for secret in _secrets(inner, under_secret=under_secret or bool(_SECRET_NAME.search(str(name))))
        ]
    if isinstance(value, list | tuple | set):
        return [secret for inner in value for secret in _secrets(inner, under_secret=under_secret)]
    if (
        under_secret
        and isinstance(value, str)
        and len(value) >= _MIN_SECRET_CHARS
        and value not in {"anon", "anonymous"}
    ):
        return [value]
    return []
