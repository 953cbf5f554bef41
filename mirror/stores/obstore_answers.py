"""What obstore says when something fails, taken apart: it tells the store's answer in its text alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NoReturn

from mirror.errors import FileRefusedError
from mirror.stores.translate import raise_alone, translating

_STATUS = re.compile(r"non-2xx status code: (\d{3})[^:]*: ?(.*)", re.DOTALL)
_CODE = re.compile(r"<Code>\s*([^<\s]+)\s*</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
# What reqwest's page of causes holds: an error of the operating system, or of a resolver or TLS.
_CAUSES = re.compile(r'message: "([^"\n]{1,200})"|error: "([^"\n]{1,200})"')
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
_PLACE = re.compile(r"(https?://[^/\s?@]+)[/\s?]")
_GENERIC = re.compile(r"Generic \w+ error: ")
_REDIRECT = "Received redirect without LOCATION"
_BAD_KEYS = ("Could not parse path", "Encountered object with invalid path")


class UnnamedError(FileRefusedError):
    """A key that obstore cannot name."""


class AnswerError(Exception):
    """A store's answer that is no success."""

    def __init__(self, status: int, code: str | None, message: str) -> None:
        """Keep what the answer said; ``code`` is the store's own word, if it said one."""
        super().__init__(f"{message} ({code or status})")
        self.status = status
        self.error_code = code


class answers(AbstractContextManager[None]):  # noqa: N801 - read as a word; a generator costs several times as much
    """Raise what obstore raises as a StoreError that says what to do next, without secrets."""

    __slots__ = ("_key", "_operation", "_redact")

    def __init__(self, operation: str, key: str, redact: Callable[[str], str]) -> None:
        """Say what is being done, for the error."""
        self._operation = operation
        self._key = key
        self._redact = redact

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Translate what went wrong.

        Raises:
            StoreError: the foreign error, translated.
        """
        if isinstance(error, Exception):
            with translating(self._operation, self._key, self._redact):
                self._raise(error)

    def _raise(self, error: Exception) -> NoReturn:
        if str(error).startswith(_BAD_KEYS):
            reason = "obstore takes no such name: set the option driver to fsspec"
            raise_alone(UnnamedError(self._operation, self._key, reason))
        said = understand(error)
        if said is None:
            raise error
        raise_alone(said)  # the original's text is a page of Rust's


def understand(error: Exception) -> Exception | None:
    """Return the answer that an error of obstore stands for, or what went wrong without one; None: not obstore's."""
    text = str(error).partition("\n\nDebug source")[0]
    found = _STATUS.search(text)
    if found is not None:
        code, message = _CODE.search(found[2]), _MESSAGE.search(found[2])
        said = message[1].partition("\nRequestId:")[0].strip(". \n") if message else "the store refused"
        return AnswerError(int(found[1]), code[1] if code else None, said)
    if _REDIRECT in text:
        return AnswerError(301, "PermanentRedirect", "the bucket is in another region")
    if not type(error).__module__.startswith("obstore"):
        return None
    causes = [cause for match in _CAUSES.finditer(str(error)) for cause in match.groups() if cause]
    refused = _CERTIFICATE.search(str(error))
    if refused is not None:
        causes.append(f"the server's certificate is not accepted, {refused[1]}")
    place = _PLACE.search(text)
    cause = causes[-1] if causes else _GENERIC.sub("", text.rpartition(" - ")[2], count=1)
    return ConnectionError(f"{cause} ({place[1]}): check the endpoint and the network" if place else cause)
