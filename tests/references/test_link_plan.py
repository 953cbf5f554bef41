"""What a waiting step needs: ``references/link_plan.py``."""

from __future__ import annotations

import pytest

from references.link_plan import Verdict, judge
from references.wandb_client import Found


def found(index_hash: str | None, created_at_s: float | None = 100.0) -> Found:
    return Found(
        version="v0", step=1, index_hash=index_hash, num_referenced=0, num_pending=0, created_at_s=created_at_s
    )


@pytest.mark.parametrize(
    ("history", "written_at_s", "expected"),
    [
        ([], 50.0, Verdict.LOG),
        ([found("mine")], 50.0, Verdict.THERE),
        ([found("other"), found("mine")], 50.0, Verdict.THERE),
        ([found("mine"), found("other")], 500.0, Verdict.OLDER),
        ([found("other")], 99.0, Verdict.OLDER),
        ([found("other")], 101.0, Verdict.LOG),
        ([found("other")], None, Verdict.LOG),
        ([found("other", None)], 99.0, Verdict.LOG),
        ([found("another", 300.0), found("other", 100.0)], 101.0, Verdict.LOG),
        ([found(None)], 101.0, Verdict.LOG),
    ],
)
def test_of_two_contents_of_a_step_the_later_one_counts(
    history: list[Found], written_at_s: float | None, expected: Verdict
) -> None:
    """What W&B had before is older, what it never had is newer unless the clock says otherwise."""
    assert judge(history, "mine", written_at_s) is expected
