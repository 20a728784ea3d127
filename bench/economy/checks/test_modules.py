"""Every module answers by its own names."""

import importlib
from pathlib import Path

import pytest

MODULES = sorted(path.stem for path in (Path(__file__).parent.parent / "src").glob("*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_each_function_gives_its_name(name: str) -> None:
    module = importlib.import_module(name)
    functions = [value for value in vars(module).values() if callable(value)]
    assert functions
    assert all(function() == function.__name__ for function in functions)
