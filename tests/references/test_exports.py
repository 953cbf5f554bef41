"""The package's public names are there, and cost nothing before they are used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import references

HEAVY = {"wandb", "torch", "numpy", "fsspec", "s3fs", "gcsfs", "asyncio", "msgspec", "rich", "click", "omegaconf"}


def modules_after(code: str) -> set[str]:
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", f"import json, sys; {code}; print(json.dumps(list(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("name", references.__all__)
def test_every_listed_name_resolves(name: str) -> None:
    """What ``__all__`` lists is given out, and is listed by ``dir``."""
    assert getattr(references, name).__module__.startswith("references.")
    assert name in dir(references)


def test_importing_the_package_loads_nothing_heavy() -> None:
    """A trainer that only imports the package pays for no client, store or array library."""
    assert not HEAVY & modules_after("import references")


def test_nothing_that_a_trainer_makes_loads_wandb_or_torch() -> None:
    """Every name can be taken, and a callback made, without W&B's client, torch, NumPy or a store's library."""
    code = (
        "import references; [getattr(references, name) for name in references.__all__]; "
        "references.make_record_index(references.RecordsConfig(), references.RecordLog())"
    )
    assert not {"wandb", "torch", "numpy", "s3fs", "gcsfs", "click"} & modules_after(code)


def test_functions_keep_their_names_beside_modules_of_those_names() -> None:
    """``references.pull`` is the function, whether or not the module ``references.pull`` was imported before."""
    names = ["pull", "link", "verify_run"]
    code = (
        "import references.pull, references.link, references.verify_run; "
        f"assert all(callable(getattr(references, name)) for name in {names})"
    )
    assert modules_after(code)
