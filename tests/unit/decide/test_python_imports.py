"""Which distributions a project depends on."""

import pytest

from orch23.decide.python_imports import dependencies
from orch23.model.parsing import MAX_TOML_KEY_PARTS

TOO_DEEP = {
    "a key that the parser would read in quadratic time": f'{"a." * MAX_TOML_KEY_PARTS}dependencies = ["lib"]\n',
    "a key that is deeper than the stack": f'{"a." * 5000}dependencies = ["lib"]\n',
    "lists": f"dependencies = {'[' * 5000}{']' * 5000}\n",
}


@pytest.mark.parametrize("how", TOO_DEEP)
def test_a_file_that_is_too_deep_names_no_dependency(how: str) -> None:
    assert dependencies("pyproject.toml", TOO_DEEP[how]) == frozenset()


def test_a_dependency_may_be_in_any_table() -> None:
    assert dependencies("pyproject.toml", 'a.dependencies = ["lib"]\n') == {"lib"}
