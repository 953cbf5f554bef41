"""What somebody who means harm may put anywhere: names, texts, JSON, bytes that are nearly right."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

BOUNDED = settings(
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)

EVIL_NAMES = (
    *("", ".", "..", "../evil.json.zst", "a/../../evil.json.zst", "/etc/passwd", "//evil/share", "index/../evil"),
    *("C:\\evil.json.zst", "C:evil.json.zst", "..\\evil.json.zst", "\\\\evil\\share", "~root/evil", "-rf", "$(id)"),
    *("evil\x00.json.zst", "evil\n.json.zst", "evil\r\nerror: gone", "evil\x1b[2J.json.zst", "\u2028", "\u202egnp.exe"),
    *(".evil.json.zst", "x" * 300 + ".json.zst", "TR_A.json.zst", "tr_a.JSON.ZST", "tr_a.json.zst/", "tr_a..json.zst"),
    *("CON", "nul.json.zst", "tr_a.json.zst:stream", "%2e%2e%2fevil", "tr_a%00.json.zst", "file:///etc/passwd"),
)

names = st.sampled_from(EVIL_NAMES) | st.text(max_size=40)

numbers = st.sampled_from([0, -1, -5, 2**31, 2**63 - 1, 2**63, 2**70, 10**300, 1e308, -0.0, 0.5]) | st.integers()

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)

# Bytes that are no JSON, or only nearly; and bombs.
BAD_JSON = (
    *(
        b"",
        b"{",
        b"null",
        b"[]",
        b"5",
        b"NaN",
        b'{"v": NaN}',
        b'{"v": 1e400}',
        b'{"v": -Infinity}',
        b"\xff\xfe",
        b"\x00",
    ),
    *(
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"v": ' + b"9" * 10_000 + b"}",
        b'"' + b"\\ud800" + b'"',
        b"\x28\xb5\x2f\xfd",
    ),
    b'{"v": 1, "v": 2}',
)


def changed_json(valid: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Return what is left of a valid JSON object when any of its values, at any depth, became another or went away."""
    return st.builds(_change, st.just(valid), st.data()) | st.sampled_from(BAD_JSON) | _cut_or_flipped(valid)


def _change(valid: dict[str, Any], data: st.DataObject) -> bytes:
    changed = json.loads(json.dumps(valid))
    for _ in range(data.draw(st.integers(1, 3))):
        inner = changed
        while True:
            keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
            key: Any = data.draw(st.sampled_from(keys)) if keys else None
            if key is None or (data.draw(st.booleans()) and isinstance(inner[key], dict | list)):
                if key is None:
                    break
                inner = inner[key]
                continue
            if data.draw(st.booleans()):
                inner[key] = data.draw(json_values)
            elif isinstance(inner, dict):
                del inner[key]
            else:
                inner.append(inner[key])  # a duplicate
            break
    return json.dumps(changed).encode()


def _cut_or_flipped(valid: dict[str, Any]) -> st.SearchStrategy[bytes]:
    whole = json.dumps(valid).encode()

    def flip(at: int, to: int) -> bytes:
        return whole[:at] + bytes([to]) + whole[at + 1 :]

    return st.integers(0, len(whole) - 1).map(lambda end: whole[:end]) | st.builds(
        flip, st.integers(0, len(whole) - 1), st.integers(0, 255)
    )


def only(*errors: type[Exception]) -> Callable[[Callable[[], object]], Exception | None]:
    """Return how to call something that may fail by these errors alone; it gives the error."""

    def call(function: Callable[[], object]) -> Exception | None:
        try:
            function()
        except errors as error:
            return error
        return None

    return call
