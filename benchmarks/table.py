"""From measures to the tables that are printed: medians, and medians of the ratios within each repeat."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.measure import MEGABYTE, Measure

Value = Callable[[Measure], float]


@dataclass(frozen=True, slots=True)
class Column:
    """One profile of records at one latency."""

    profile: str
    latency_ms: float

    @property
    def title(self) -> str:
        """What stands above it."""
        return f"{self.profile} {self.latency_ms:g} ms"


Results = Mapping[Column, Mapping[str, Sequence[Measure]]]  # by contender, a measure a repeat, in the same order


def records_per_s(measure: Measure) -> float:
    """Return the speed."""
    return measure.records_per_s


def cpu_s_per_1000_files(measure: Measure) -> float:
    """Return the CPU seconds of the client for each 1,000 files."""
    return measure.cpu_s_per_1000_files


def peak_megabytes(measure: Measure) -> float:
    """Return the client's peak of resident memory."""
    return measure.peak_rss_bytes / MEGABYTE


def submit_us(measure: Measure) -> float:
    """Return how many microseconds handing over a record kept the caller."""
    return (measure.submit_s or 0.0) * 1e6


def median(measures: Sequence[Measure], value: Value) -> float:
    """Return the median of a value."""
    return statistics.median(map(value, measures))


def ratio(mine: Sequence[Measure], theirs: Sequence[Measure]) -> float:
    """Return the median of how many times as fast ``mine`` was in the same repeat."""
    return statistics.median(m.records_per_s / t.records_per_s for m, t in zip(mine, theirs, strict=True))


def tables(results: Results, baseline: str, mirrors: Sequence[str], rivals: Sequence[str]) -> Iterator[str]:
    """Yield the lines of all tables.

    Args:
        results: what was measured.
        baseline: the contender that all are compared with.
        mirrors: the contenders that are this product.
        rivals: those that it is compared with besides.
    """
    names = list(next(iter(results.values())))
    runs = list(results.values())

    def medians(value: Value, form: str, of: Sequence[str] = names) -> dict[str, list[str]]:
        return {name: [format(median(run[name], value), form) for run in runs] for name in of}

    def ratios(mine: Sequence[str], to: Sequence[str]) -> dict[str, list[str]]:
        pairs = [(a, b) for a in mine for b in to if a in names and b in names and a != b]
        return {f"{a} / {b}": [f"{ratio(run[a], run[b]):.2f}" for run in runs] for a, b in pairs}

    submitting = [name for name in names if name in {baseline, *mirrors}]
    for title, rows in (
        ("records/s", medians(records_per_s, ",.0f")),
        ("times as fast", ratios(names, [baseline])),
        ("times as fast", ratios(mirrors, rivals)),
        ("CPU s per 1,000 files", medians(cpu_s_per_1000_files, ".2f")),
        ("peak MB", medians(peak_megabytes, ",.0f")),
        ("handing over a record, us", medians(submit_us, ".1f", submitting)),
    ):
        yield f"\n{title:34}" + "".join(f"{column.title:>14}" for column in results)
        yield from (f"{name:34}" + "".join(f"{cell:>14}" for cell in cells) for name, cells in rows.items())
