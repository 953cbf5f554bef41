"""Times and sizes as people write them."""

from __future__ import annotations

import pytest

from mirror.measures import parse_bytes, parse_seconds, show_bytes, show_seconds


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("67108864", 64 << 20),
        ("64MiB", 64 << 20),
        ("64M", 64 << 20),
        ("64 mib", 64 << 20),
        ("64MB", 64_000_000),
        ("1.5k", 1536),
        ("2kB", 2000),
        ("10B", 10),
        ("1T", 1 << 40),
    ],
)
def test_a_size_is_a_number_with_a_unit(text: str, size_bytes: int) -> None:
    """A B behind the letter is for thousands, as in what this program prints; without it, or with iB, for 1,024s."""
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "M", "-1", "64X", "1e3", "64MBit"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """The sentence shows how one is written."""
    with pytest.raises(ValueError, match=r"is not a size such as 67108864, 64MiB or 64MB"):
        parse_bytes(text)


@pytest.mark.parametrize("size_bytes", [0, 1, 1023, 1024, 1536, 64 << 20, 1_000_000, 1 << 40])
def test_what_is_shown_can_be_given(size_bytes: int) -> None:
    """A default in the help is written as an option takes it."""
    assert parse_bytes(show_bytes(size_bytes)) == size_bytes
    for seconds in (0.0, 0.5, 60.0, 86_400.0):
        assert parse_seconds(show_seconds(seconds)) == seconds
