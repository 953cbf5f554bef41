"""Filters: which steps, rows and files are wanted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from references.errors import ConfigError
from references.run_index import Row
from references.selection import Selection, parse_steps, reward_of

BOUNDS = st.none() | st.floats(allow_nan=False)
REWARDS = st.none() | st.booleans() | st.floats() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3)


def row(*, id: str = "tr", trained: bool | None = True, reward: object = 1.0) -> Row:  # noqa: A002 - a row's own word
    annotations = None if reward is None else {"reward": reward}
    return Row(
        id=id,
        instance_id="task",
        repetition_id=0,
        attempt=0,
        superseded=False,
        trained=trained,
        annotations=annotations,
    )


def test_everything_is_wanted_by_default() -> None:
    """No filter leaves anything out, be it untrained or without a reward."""
    everything = Selection()
    assert everything.wants_step("eval", 7)
    assert everything.wants_row(row(trained=None, reward=None))
    assert everything.wants_file("tr.novel.zst")


def test_steps_are_chosen_by_phase_and_number() -> None:
    """Both must fit; any container of numbers will do."""
    some = Selection(phases=["train"], steps=range(3, 6))
    assert [step for step in range(8) if some.wants_step("train", step)] == [3, 4, 5]
    assert not some.wants_step("eval", 3)


@pytest.mark.parametrize(("trained", "wanted"), [(True, True), (False, False), (None, False)])
def test_only_trained_means_what_is_known_to_have_trained(trained: bool | None, wanted: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Where the trainer did not say, nothing is taken for trained."""
    assert Selection(only_trained=True).wants_row(row(trained=trained)) is wanted


def test_records_are_chosen_by_id() -> None:
    """Others are not wanted."""
    some = Selection(ids={"tr_a"})
    assert some.wants_row(row(id="tr_a"))
    assert not some.wants_row(row(id="tr_b"))


@given(BOUNDS, BOUNDS, REWARDS)
def test_a_reward_range_has_its_bounds_and_no_row_without_a_number(
    low: float | None, high: float | None, reward: object
) -> None:
    """Both bounds belong to the range; with one, a row needs a finite number as its reward."""
    wanted = Selection(min_reward=low, max_reward=high).wants_row(row(reward=reward))
    value = reward_of(row(reward=reward))
    if low is None and high is None:
        assert wanted
    elif value is None:
        assert not wanted
    else:
        assert wanted == ((low is None or low <= value) and (high is None or value <= high))


@pytest.mark.parametrize("reward", [True, "1.0", [1.0], float("nan"), float("inf"), 10**400, None])
def test_what_is_no_finite_number_is_no_reward(reward: object) -> None:
    """An annotation may be anything."""
    assert reward_of(row(reward=reward)) is None


def test_kinds_restrict_sidecars_and_never_the_document() -> None:
    """A record without its document would be none."""
    some = Selection(kinds={"tokens"})
    names = ["tr.json.zst", "tr.tokens.zst", "tr.experts.zst"]
    assert [name for name in names if some.wants_file(name)] == names[:2]
    assert Selection(kinds=()).wants_file("tr.json.zst")


@given(st.lists(st.tuples(st.integers(0, 40), st.none() | st.integers(0, 40)), min_size=1, max_size=4))
def test_written_steps_are_the_steps_meant(parts: list[tuple[int, int | None]]) -> None:
    """Numbers and ranges with both ends, separated by commas."""
    parts = [(first, last if last is None else first + last) for first, last in parts]
    text = ", ".join(str(first) if last is None else f"{first}-{last}" for first, last in parts)
    meant = {step for first, last in parts for step in range(first, (first if last is None else last) + 1)}
    assert {step for step in range(100) if step in parse_steps(text)} == meant


def test_an_open_range_has_no_end() -> None:
    """From a step on, or up to one."""
    assert [step in parse_steps("5-") for step in (4, 5, 10**17)] == [False, True, True]
    assert [step in parse_steps("-5") for step in (0, 5, 6)] == [True, True, False]


def test_a_range_that_ends_before_it_begins_is_a_slip() -> None:
    """It would choose nothing, and a pull of nothing would look complete."""
    with pytest.raises(ConfigError, match="write 3-5"):
        parse_steps("1,5-3")


@pytest.mark.parametrize("text", ["", "-", "a", "1-2-3", "1,,2", "1 2", "1.5", "१"])
def test_what_is_no_step_is_refused(text: str) -> None:
    """One sentence says how steps are written."""
    with pytest.raises(ConfigError, match="steps must be like"):
        parse_steps(text)
