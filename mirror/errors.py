"""The errors of the mirror, by what a caller does next.

MirrorError
├── ConfigError              a setting is wrong: the sentence names it and what to write instead
├── RecordError              a local record cannot be copied as it is
│   ├── BadNameError         a file name that the mirror refuses
│   ├── RecordGoneError      its document is not (or no longer) there
│   └── RecordChangedError   it was written again while it was being copied: copy it again
├── ReceiptError             a line is not a receipt
├── EmptyMirrorError         where a mirror should be there is none
└── StoreError               the store did not do what it was asked
    ├── TryAgainError        passing: the same call may succeed later
    │   ├── ThrottledError   the store asks for fewer requests
    │   ├── CredentialsError expired or absent credentials: read them again, then try again
    │   │   └── CredentialsAbsentError  there are none
    │   └── DeadlineError    our own deadline ended the call
    ├── FileRefusedError     this file never, others go on
    │   └── DoubtfulRefusalError  refused for this file, perhaps for all
    │       └── AccessDeniedError
    ├── NotFoundError        no such object
    └── StoreRefusedError    nothing gets through until somebody acts
"""

from __future__ import annotations


class MirrorError(Exception):
    """The base of all errors that this package raises."""


class ConfigError(MirrorError):
    """A setting is wrong; the message is one sentence that says what to do."""


class RecordError(MirrorError):
    """A local record cannot be copied as it is."""


class BadNameError(RecordError):
    """A file name that the mirror refuses."""


class RecordGoneError(RecordError):
    """The record's document is not (or no longer) in the directory."""


class RecordChangedError(RecordError):
    """The record was written again while it was being copied."""


class ReceiptError(MirrorError):
    """A line is not a receipt that this release can read."""


class EmptyMirrorError(MirrorError):
    """Where a mirror should be, nothing speaks of one: there is nothing to check."""

    def __init__(self, url: str) -> None:
        """Say so; ``url``: the mirror's, without credentials."""
        super().__init__(f"no mirror at {url}: it has no receipts and no record files; check the URL")


class StoreError(MirrorError):
    """The store did not do what it was asked.

    Attributes:
        operation: what was asked, e.g. ``put``.
        key: the object below the mirror's URL, or "" when none is concerned.
        reason: the store's own words, without credentials.
    """

    def __init__(self, operation: str, key: str, reason: str) -> None:
        """Say what was asked of which object and what the store answered."""
        super().__init__(f"{operation} {key}: {reason}" if key else f"{operation}: {reason}")
        self.operation = operation
        self.key = key
        self.reason = reason


class TryAgainError(StoreError):
    """A passing failure: the same call may succeed later.

    Attributes:
        retry_after_s: how long the store asks to wait, in seconds, or None.
    """

    def __init__(self, operation: str, key: str, reason: str, retry_after_s: float | None = None) -> None:
        """Carry the store's own wish for a pause along."""
        super().__init__(operation, key, reason)
        self.retry_after_s = retry_after_s


class ThrottledError(TryAgainError):
    """The store asks for fewer requests."""


class CredentialsError(TryAgainError):
    """The credentials are expired, skewed or absent: read them again, then try again."""


class CredentialsAbsentError(CredentialsError):
    """There are no credentials; nothing passes before somebody sets some, unless reading them again finds any."""


class DeadlineError(TryAgainError):
    """Our own deadline ended the call."""


class FileRefusedError(StoreError):
    """The store will never take this file; others go on."""


class DoubtfulRefusalError(FileRefusedError):
    """The store will not take this file, and perhaps none at all."""


class AccessDeniedError(DoubtfulRefusalError):
    """Access was denied, for this object or for all of them."""


class NotFoundError(StoreError):
    """There is no such object."""


class StoreRefusedError(StoreError):
    """Nothing gets through until somebody acts: no such bucket, bad name, quota full."""
