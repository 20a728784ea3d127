"""Python source is parsed by one thread at a time: the warning filters belong to the process."""

import ast
from typing import Any

import pytest

from orch23.checks.check import CheckInput
from orch23.checks.python_syntax import PYTHON_SYNTAX
from orch23.text.source_syntax import WARNING_FILTERS_LOCK, python_tree


def test_all_readers_of_python_source_share_one_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    locked, parse = [], ast.parse

    def recorded(*args: Any, **options: Any) -> ast.AST:
        locked.append(WARNING_FILTERS_LOCK.locked())
        tree: ast.AST = parse(*args, **options)
        return tree

    monkeypatch.setattr(ast, "parse", recorded)
    assert isinstance(python_tree("x = 1\n"), ast.Module)
    assert PYTHON_SYNTAX.run(CheckInput(outputs={"a.py": b"x = 1\n"}, options={})) == ()
    assert locked == [True, True]
    assert not WARNING_FILTERS_LOCK.locked()
