"""The verdict on one file: a pure function of receipt, listing and hash."""

from __future__ import annotations

import string

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.judging import Finding, FindingKind, Pairing, Standing, judge
from mirror.receipts.manifest import ExpectedFile
from mirror.store import ObjectInfo

HASH = "0" * 32
OTHER_HASH = "f" * 32
EXPECTED = ExpectedFile("tr_1.json.zst", 10, HASH, "etag-1")
FOUND = ObjectInfo(key="tr_1.json.zst", size_bytes=10, etag="etag-1")


def kind_of(verdict: Finding | Standing) -> FindingKind | Standing:
    return verdict.kind if isinstance(verdict, Finding) else verdict


@pytest.mark.parametrize(
    ("found", "digest", "verdict"),
    [
        (None, None, FindingKind.MISSING),
        (FOUND._replace(size_bytes=9), None, FindingKind.WRONG_SIZE),
        (FOUND._replace(size_bytes=9), HASH, FindingKind.WRONG_SIZE),
        (FOUND, None, Standing.PRESENT),
        (FOUND, HASH, Standing.INTACT),
        (FOUND, OTHER_HASH, FindingKind.CHANGED),
        (FOUND._replace(etag="etag-2"), None, FindingKind.CHANGED),
        (FOUND._replace(etag=None), None, Standing.PRESENT),
    ],
)
def test_verdicts(found: ObjectInfo | None, digest: str | None, verdict: FindingKind | Standing) -> None:
    """Size, identity and hash are compared as far as both sides have them, and no more is claimed than was checked."""
    assert kind_of(judge(EXPECTED, found, digest)) is verdict


def test_an_object_with_the_right_bytes_and_another_identity_is_changed() -> None:
    """Somebody replaced it: references that carry the receipt's identity no longer resolve."""
    assert kind_of(judge(EXPECTED, FOUND._replace(etag="etag-2"), HASH)) is FindingKind.CHANGED


def test_a_version_decides_alone() -> None:
    """A GCS etag changes with an object's metadata, its generation only with its bytes."""
    expected = msgspec.structs.replace(EXPECTED, version_id="1")
    assert judge(expected, FOUND._replace(version_id="1", etag="moved")) is Standing.PRESENT
    assert kind_of(judge(expected, FOUND._replace(version_id="2"))) is FindingKind.CHANGED


def test_every_finding_but_an_unchecked_file_is_damage() -> None:
    """Where nothing is known, nothing is called wrong."""
    findings = [Finding(kind=kind, name="tr_1.json.zst", record_id="tr_1", detail="") for kind in FindingKind]
    assert {finding.kind for finding in findings if not finding.is_damage} == {FindingKind.UNCHECKED}


facts = st.one_of(
    st.none(),
    st.builds(
        ObjectInfo,
        key=st.just(EXPECTED.name),
        size_bytes=st.sampled_from([9, 10]),
        etag=st.sampled_from([None, "etag-1", "etag-2"]),
        version_id=st.sampled_from([None, "1"]),
    ),
)


@given(found=facts, digest=st.sampled_from([None, HASH, OTHER_HASH]))
def test_intact_is_never_claimed_without_the_hash(found: ObjectInfo | None, digest: str | None) -> None:
    """Whatever the facts: intact means that the hash was computed and is the receipt's."""
    verdict = judge(EXPECTED, found, digest)
    if verdict is Standing.INTACT:
        assert digest == HASH
        assert found is not None
        assert found.size_bytes == EXPECTED.size_bytes
    if found is None:
        assert kind_of(verdict) is FindingKind.MISSING


names = st.text(alphabet=string.ascii_lowercase[:4] + ".-ü\U0001f600\ue000", min_size=1, max_size=4)


@given(expected=st.sets(names), found=st.sets(names), page=st.integers(1, 5))
def test_every_name_of_either_side_is_paired_once(expected: set[str], found: set[str], page: int) -> None:
    """However the listing is cut into pages, each name comes once, with all that is known of it."""

    def by_bytes(name: str) -> bytes:
        return name.encode()

    wanted = [ExpectedFile(name, 1, HASH) for name in sorted(expected, key=by_bytes)]
    listed = [ObjectInfo(key=name, size_bytes=1) for name in sorted(found, key=by_bytes)]
    pairing = Pairing(iter(wanted))
    pairs = [pair for start in range(0, len(listed), page) for pair in pairing.page(listed[start : start + page])]
    pairs += pairing.rest()
    seen = {(left.name if left else None, right.key if right else None) for left, right in pairs}
    assert len(pairs) == len(expected | found)
    assert seen == {(name if name in expected else None, name if name in found else None) for name in expected | found}
