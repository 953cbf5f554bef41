"""The corpora that the benchmarks copy: records of each profile in their real sizes, made once and used again.

``python -m benchmarks.corpus DIR text tokens moe`` makes them ahead of time.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from mirror.samples import ProfileName, write_corpus

SEED = 20_260
# Records enough for some seconds of work, so that neither its beginning nor its end is what is measured.
RECORDS: dict[ProfileName, int] = {"tiny": 2_000, "text": 6_000, "tokens": 600, "moe": 120}


def make_corpus(root: str | Path, profile: ProfileName, count: int | None = None) -> Path:
    """Return the directory of a profile's corpus below ``root``; made unless it is there.

    Raises:
        OSError: it cannot be written.
    """
    wanted = RECORDS[profile] if count is None else count
    directory = Path(root) / f"{profile}-{wanted}"
    if not directory.exists():
        unfinished = directory.with_name(f".{directory.name}.unfinished")
        write_corpus(unfinished, profile=profile, count=wanted, seed=SEED)
        unfinished.rename(directory)
    return directory


def main() -> None:
    """Make the corpora that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("profiles", nargs="+", choices=get_args(ProfileName))
    parser.add_argument("--records", type=int, help="per profile; by default " + str(RECORDS))
    arguments = parser.parse_args()
    for profile in arguments.profiles:
        print(make_corpus(arguments.root, profile, arguments.records))


if __name__ == "__main__":
    main()
