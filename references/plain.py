"""Whatever a generator hands over, as plain values that JSON has.

Nothing here raises, since a strange annotation must not fail a rollout, and everything is copied, since what was logged
must not change afterwards.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from itertools import count, islice
from typing import Any

MAX_DEPTH = 32  # deeper is a cycle or a mistake
MAX_VALUES = 100_000  # of one value; more is a tensor by mistake, or a cycle that branches
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class _TooManyValuesError(Exception):
    """A value holds more than is taken."""


def field(thing: object, name: str) -> Any:  # noqa: ANN401 - what a foreign object holds; narrowed by the callers
    """Return an attribute or, of a mapping, an item; None when there is none or it cannot be read."""
    try:
        value = getattr(thing, name, None)
        return thing.get(name) if value is None and isinstance(thing, Mapping) else value
    except Exception:  # noqa: BLE001 - a property of a foreign object may raise anything
        return None


def whole_number(value: object) -> int:
    """Return ``value`` as an int of 64 bits, NumPy's integers included; 0 for what is none."""
    try:
        number = int(operator.index(value))  # type: ignore[arg-type] # refused below when it is none
    except Exception:  # noqa: BLE001 - the __index__ of a foreign object may raise anything
        return 0
    return number if _LEAST <= number <= _MOST else 0


def text(value: object) -> str | None:
    """Return ``value`` as text that UTF-8 has; None for None."""
    if value is None or (type(value) is str and value.isascii()):
        return value
    if isinstance(value, Enum):
        return text(value.value)
    try:
        return str(value).encode("utf-8", "backslashreplace").decode()
    except Exception:  # noqa: BLE001 - the __str__ of a foreign object may raise anything
        return _name(value)


def plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Return a copy of ``value`` made of what JSON has.

    Numbers that are not finite become None, integers beyond 64 bits text, arrays and tensors lists, sets sorted lists.
    What has no plain form, or holds more than ``MAX_VALUES`` values, becomes the name of its type: neither an address
    nor a secret is written by accident. In a mapping each item is judged by itself.
    """
    if not isinstance(value, Mapping):
        return _bounded(value, 0)
    try:
        return {text(key) or "": _bounded(item, 1) for key, item in islice(value.items(), MAX_VALUES)}
    except Exception:  # noqa: BLE001 - a foreign object may raise anything
        return _name(value)


def _bounded(value: object, depth: int) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return _plain(value, depth, count(1))
    except Exception:  # noqa: BLE001 - a foreign object may raise anything
        return _name(value)


def _plain(value: object, depth: int, values: Iterator[int]) -> Any:  # noqa: ANN401 - any JSON value
    if next(values) > MAX_VALUES:
        raise _TooManyValuesError
    if isinstance(value, Enum):
        return _plain(value.value, depth, values)
    if value is None or isinstance(value, bool | int | float | str):
        return _scalar(value)
    return _container(value, depth, values) if depth < MAX_DEPTH else _name(value)


def _container(value: object, depth: int, values: Iterator[int]) -> Any:  # noqa: ANN401 - a list, a dict, or what becomes of the rest
    if isinstance(value, Mapping):
        return {text(key) or "": _plain(item, depth + 1, values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1, values) for item in value]
    if isinstance(value, AbstractSet):
        return sorted((_plain(item, depth + 1, values) for item in value), key=repr)
    to_list = field(value, "tolist")
    return _plain(to_list(), depth + 1, values) if callable(to_list) else _name(value)


def _scalar(value: bool | float | str | None) -> bool | int | float | str | None:  # noqa: FBT001 - any scalar
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, int):
        return int(value) if _LEAST <= value <= _MOST else str(value)
    return float(value) if math.isfinite(value) else None


def _name(value: object) -> str:
    return f"<{type(value).__name__}>"
