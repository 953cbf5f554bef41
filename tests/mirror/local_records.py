"""Records on a local disk for tests: written as a capture server writes them, with the bytes that a test wants."""

from __future__ import annotations

from pathlib import Path

import xxhash
from hypothesis import strategies as st

from mirror.names import document_name, sidecar_name
from mirror.receipts.receipt import FileReceipt, Receipt
from mirror.record import FileState, read_state


def write_files(directory: Path, record_id: str, document: bytes = b"{}", **sidecars: bytes) -> list[str]:
    """Write a record, sidecars first, each file renamed into place; return the names, the document last."""
    names = [sidecar_name(record_id, kind) for kind in sidecars]
    for name, data in zip(names, sidecars.values(), strict=True):
        replace_file(directory / name, data)
    replace_file(directory / document_name(record_id), document)
    return [*names, document_name(record_id)]


def replace_file(path: Path, data: bytes) -> None:
    """Write a file under a temporary name and rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:100]}.tmp")
    temporary.write_bytes(data)
    temporary.rename(path)


def state_of(path: Path) -> FileState:
    """Return the state of a file that is there."""
    state = read_state(path.parent, path.name)
    assert state is not None
    return state


def receipt_of(
    directory: Path, record_id: str, *kinds: str, at: float = 1.0, excluded: tuple[str, ...] = (), writer: str = "w"
) -> Receipt:
    """Return the receipt that a copy of the record as it is on disk would have."""
    names = [*(sidecar_name(record_id, kind) for kind in sorted(kinds)), document_name(record_id)]
    return Receipt(
        id=record_id,
        at=at,
        writer=writer,
        host="node",
        path=str(directory / names[-1]),
        files=tuple(_file_receipt(directory / name) for name in names),
        excluded=excluded,
    )


def _file_receipt(path: Path) -> FileReceipt:
    state = state_of(path)
    return FileReceipt(
        name=path.name,
        size=state.size_bytes,
        xxh3_128=xxhash.xxh3_128_hexdigest(path.read_bytes()),
        ctime_ns=state.ctime_ns,
        inode=state.inode,
    )


# Letters of many scripts, and every sign that some store, shell or URL treats in its own way.
CHARACTERS = st.one_of(
    st.sampled_from("abcXYZ019#?%+ []:*&=;,@!~'\"()$^|<>üß中🎉_-."),
    st.characters(exclude_categories=["C", "Zl", "Zp"], exclude_characters="/\\"),
)
KINDS = st.text("abcdefghijklmnopqrstuvwxyz_0123456789", min_size=1, max_size=12).filter(lambda kind: kind != "json")
RECORD_IDS = st.text(CHARACTERS, min_size=1, max_size=20).filter(lambda text: not text.startswith("."))
_OPTIONAL_TEXT = st.none() | st.text(max_size=40)


@st.composite
def receipts(draw: st.DrawFn) -> Receipt:
    """Any receipt that a copy may make."""
    record_id = draw(RECORD_IDS)
    kinds = draw(st.lists(KINDS, max_size=4, unique=True))
    names = [*(sidecar_name(record_id, kind) for kind in kinds), document_name(record_id)]
    files = tuple(
        FileReceipt(
            name=name,
            size=draw(st.integers(0, 1 << 50)),
            xxh3_128=draw(st.text("0123456789abcdef", min_size=32, max_size=32)),
            etag=draw(_OPTIONAL_TEXT),
            version_id=draw(_OPTIONAL_TEXT),
            md5=draw(st.none() | st.text("0123456789abcdef", min_size=32, max_size=32)),
            ctime_ns=draw(st.none() | st.integers(0, 1 << 62)),
            inode=draw(st.none() | st.integers(0, (1 << 64) - 1)),
        )
        for name in names
    )
    return Receipt(
        id=record_id,
        at=draw(st.floats(0, 1e10)),
        writer=draw(st.text(max_size=20)),
        host=draw(st.text(max_size=20)),
        path=draw(st.text(max_size=60)),
        files=files,
        excluded=tuple(draw(st.lists(KINDS, max_size=3, unique=True))),
    )


def tree(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory, hidden ones included, by path."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def flip_byte(path: Path) -> None:
    """Have another byte in the middle of a file, which stays as long as it was."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
