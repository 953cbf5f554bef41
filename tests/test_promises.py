"""The README's table of promises names a test for each, and every one of those tests exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = re.findall(
    r"^\| (?P<promise>[^|]+) \| `(?P<file>tests/[\w/]+\.py)::(?P<test>\w+)` \|$",
    (ROOT / "README.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


@pytest.mark.parametrize(("promise", "file", "test"), ROWS)
def test_each_promise_has_its_test(promise: str, file: str, test: str) -> None:
    """The test is a function of that file, and its docstring says what holds."""
    functions = {
        node.name: ast.get_docstring(node)
        for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert functions.get(test), promise


def test_no_row_is_left_out() -> None:
    """Every line of the table with a test in it is understood."""
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("What is promised")[2].partition("</details>")[0]
    assert len(ROWS) == table.count("::") > 50
