"""The package's public names are there, and cost nothing before they are used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import mirror


def in_a_fresh_interpreter(code: str) -> object:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own code
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", mirror.__all__)
def test_every_listed_name_resolves(name: str) -> None:
    """What ``__all__`` lists is given out, and is listed by ``dir``."""
    assert getattr(mirror, name).__module__.startswith("mirror.")
    assert name in dir(mirror)


def test_importing_the_package_loads_nothing_heavy() -> None:
    """A program that only imports the package pays for no event loop, store or client library."""
    loaded = in_a_fresh_interpreter("import json, sys, mirror; print(json.dumps(sorted(sys.modules)))")
    assert isinstance(loaded, list)
    assert not {"asyncio", "fsspec", "s3fs", "gcsfs", "msgspec", "sqlite3", "rich"} & set(loaded)


@pytest.mark.parametrize("url", ["s3://bucket/run", "gs://bucket/run"])
def test_making_a_mirror_loads_no_client_library(url: str) -> None:
    """Who has nothing to ask a store, such as a trainer or a restart that finds all done, pays for no client."""
    code = f"import json, sys, mirror; mirror.RecordMirror({url!r}); print(json.dumps(sorted(sys.modules)))"
    loaded = in_a_fresh_interpreter(code)
    assert isinstance(loaded, list)
    assert not {"aiohttp", "botocore", "gcsfs", "obstore", "s3fs"} & set(loaded)


def test_a_function_keeps_its_name_beside_a_module_of_that_name() -> None:
    """``mirror.verify`` is the function, whether or not the module ``mirror.verify`` was imported before."""
    code = (
        "import json, mirror.repairing.repair, mirror.verify; from mirror import repair, verify; "
        "print(json.dumps([callable(repair), callable(verify), callable(mirror.verify)]))"
    )
    assert in_a_fresh_interpreter(code) == [True, True, True]


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A name that is not exported says so as any module does."""
    with pytest.raises(AttributeError, match="module 'mirror' has no attribute 'nonsense'"):
        _ = mirror.nonsense  # type: ignore[attr-defined] # it does not exist
