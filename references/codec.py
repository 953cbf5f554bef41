"""``step.json`` as bytes: deterministic to write, and untrusted to read."""

from __future__ import annotations

import msgspec

from mirror.errors import BadNameError
from mirror.names import check_name
from references.errors import IndexFormatError, UnknownVersionError
from references.run_index import FORMAT_VERSION, StepIndex

MAX_BYTES = 1 << 28  # a million rows without annotations
MAX_VALUES = 20_000_000  # likewise; each may take a hundred times its own bytes once it is read
_BEFORE_VALUES = (b",", b"[", b"{")


class _Versioned(msgspec.Struct):
    format_version: int


_encoder = msgspec.json.Encoder(order="deterministic")
_version_decoder = msgspec.json.Decoder(_Versioned)
_decoder = msgspec.json.Decoder(StepIndex)


def encode(index: StepIndex) -> bytes:
    """Return the bytes of ``step.json``: the same for equal indexes, whatever the order of their annotations' keys."""
    return _encoder.encode(index)


def decode(data: bytes) -> StepIndex:
    """Read a ``step.json`` that anybody may have written; fields that this release does not know are ignored.

    Raises:
        UnknownVersionError: it is of another format version.
        IndexFormatError: it is too large, holds too many values, is no JSON, lacks a field, has one of a wrong type,
            or names a file by what is no plain file name.
    """
    if len(data) > MAX_BYTES:
        raise IndexFormatError(f"the step index has {len(data)} bytes, more than the {MAX_BYTES} that are read")
    if sum(data.count(sign) for sign in _BEFORE_VALUES) > MAX_VALUES:
        raise IndexFormatError(f"the step index has more than the {MAX_VALUES} values that are read")
    try:
        version = _version_decoder.decode(data).format_version
        if version != FORMAT_VERSION:
            raise UnknownVersionError(version)
        index = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise IndexFormatError(f"this is not a step index: {error}") from error
    for row in index.rows:
        if row.record is not None:
            _check_files(row.id, row.record.files or ())
    return index


def _check_files(row_id: str, names: tuple[str, ...]) -> None:
    try:
        for name in names:
            check_name(name)
    except BadNameError as error:
        raise IndexFormatError(f"this is not a step index: in the row of {row_id!r}, {error}") from error
