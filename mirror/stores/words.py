"""What a store's library says, in one sentence for people, with what to do next where that is known."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from mirror.stores.new_file import TEMPORARY

MAX_REASON_CHARS = 500

_BOTOCORE = re.compile(
    r"An error occurred \((?P<code>[^)]*)\) when calling the \w+ operation"
    r"(?: \(reached max retries: \d+\))?: ?(?P<text>.*)"
)
_AZURE = re.compile(r"(?P<text>.*?) ?RequestId:\S+ Time:\S+ ErrorCode:(?P<code>\w+)")
_BAD_BUCKET = re.compile(r"Parameter validation failed: (Invalid bucket name \"[^\"]*\")")
_UNKNOWN_OPTION = re.compile(r"unexpected keyword argument '([^']+)'")

_NUMBER = re.compile(r"\[Errno -?\d+\] ")

# By the store's code, by the name of the error's class, or by that of a file system's errno.
ADVICE: Mapping[str, str] = {
    "NoSuchBucket": "create the bucket, or correct the URL",
    "ContainerNotFound": "create the container, or correct the URL",
    **dict.fromkeys(["InvalidBucketName", "ParamValidationError"], "correct the bucket's name in the URL"),
    **dict.fromkeys(["InvalidAccessKeyId", "SignatureDoesNotMatch"], "check the access key and its secret"),
    **dict.fromkeys(
        ["AccessDenied", "AllAccessDisabled", "forbidden"], "give these credentials the right to it, or use others"
    ),
    "AuthenticationFailed": "check the account's key or token, and this machine's clock",
    **dict.fromkeys(
        ["NoAuthenticationInformation", "CredentialUnavailableError"],
        "set AZURE_STORAGE_CONNECTION_STRING, or run `az login`",
    ),
    **dict.fromkeys(
        ["AuthorizationFailure", "AuthorizationPermissionMismatch"],
        "check the account's key, its firewall, and that the role has the right to blob data",
    ),
    "ProfileNotFound": "correct AWS_PROFILE, or add the profile to ~/.aws/config",
    "NoCredentialsError": "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "PartialCredentialsError": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, both",
    "ENOTDIR": "a part of this path is a file, correct it",
    "EROFS": "make it writable, or name another place",
    **dict.fromkeys(["EACCES", "EPERM"], "give this user the right to it, or name another place"),
    **dict.fromkeys(["ENOSPC", "EDQUOT"], "make room there, or name another place"),
    "DefaultCredentialsError": "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`",
}


def in_words(text: str, names: Iterable[str]) -> str:
    """Return what a library said in the words of the store, with advice.

    Args:
        text: the error's text, on one line and without secrets.
        names: the store's codes and the names of the error's classes, the most telling first.
    """
    framed = _BOTOCORE.search(text) or _AZURE.match(text)
    if framed is not None:
        said = framed["text"].rstrip(". ") or "refused"
        text = f"{said} ({framed['code']})"
    bucket = _BAD_BUCKET.search(text)
    if bucket is not None:
        text = bucket[1]
    text = text[:MAX_REASON_CHARS]
    advice = next((ADVICE[name] for name in names if name in ADVICE), None)
    return f"{text}: {advice}" if advice else text


def of_file_system(error: OSError) -> str:
    """Return what a file system says, and of which path where it names one; of a temporary file it is the directory."""
    if not (isinstance(error.filename, str) and error.strerror):
        return _NUMBER.sub("", str(error), count=1)
    path = Path(error.filename)
    return f"{error.strerror} ({path.parent if TEMPORARY.fullmatch(path.name) else path})"


def names_of_errno(error: OSError) -> Iterator[str]:
    """Yield what an errno is called where a file system says it; stores' libraries borrow some for what they mean."""
    if error.filename is not None and error.errno is not None:
        yield errno.errorcode.get(error.errno, "")


def about_options(text: str) -> str:
    """Return what a library said about options that it cannot be opened with."""
    unknown = _UNKNOWN_OPTION.search(text)
    if unknown is not None:
        return f"the store's library knows no storage option {unknown[1]!r}: correct its name, or leave it out"
    if text.startswith("Invalid endpoint: "):
        endpoint = text.removeprefix("Invalid endpoint: ")
        return f"the endpoint {endpoint!r} is no URL: write http://HOST:PORT or https://HOST"
    return f"it cannot be opened with these storage_options: {text[:MAX_REASON_CHARS]}"
