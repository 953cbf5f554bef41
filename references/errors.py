"""The errors of the step index and its references, by what a caller does next.

ReferencesError            also a mirror.MirrorError: who uses both packages need not tell them apart
├── ConfigError            a setting is wrong: the sentence names it and what to write instead; a mirror.ConfigError
├── StepError              a step cannot be indexed as it was named, or for that run
├── BatchError             the trainer's batch does not say what it has to say
├── SourceError            the step indexes of a run cannot be read from where they should be
├── OutDirectoryError      what is pulled cannot be put where it should go
├── LinkError              W&B cannot be logged to
└── IndexFormatError       bytes are not a step index that this release can read
    └── UnknownVersionError  they are of another format version
"""

from __future__ import annotations

from mirror import errors


class ReferencesError(errors.MirrorError):
    """The base of all errors that this package raises."""


class ConfigError(ReferencesError, errors.ConfigError):
    """A setting is wrong; the message is one sentence that says what to do."""


class StepError(ReferencesError):
    """A step cannot be indexed as it was named, e.g. without a number, or logged to a run that is none."""


class BatchError(ReferencesError):
    """The trainer's batch does not say what it has to say: ids and loss masks do not fit together."""


class SourceError(ReferencesError):
    """The step indexes of a run cannot be read; the message says from where, and why."""


class OutDirectoryError(ReferencesError):
    """What is pulled cannot be put where it should go; the message says what to do."""


class LinkError(ReferencesError):
    """W&B cannot be logged to; the message says what to do."""


class IndexFormatError(ReferencesError):
    """Bytes are not a step index that this release can read."""


class UnknownVersionError(IndexFormatError):
    """The step index is of a format version that this release does not know.

    Attributes:
        version: the format version that was found.
    """

    def __init__(self, version: int) -> None:
        """Say which version was found and what to do about it."""
        super().__init__(f"the step index has format_version {version}, this release reads 1: install a newer one")
        self.version = version
