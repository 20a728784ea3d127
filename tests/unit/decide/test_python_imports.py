"""Which distributions a project depends on."""

from orch23.decide.python_imports import dependencies
from orch23.model.parsing import MAX_TOML_KEY_PARTS


def test_a_long_dotted_key_is_not_parsed() -> None:
    """The parser would take time that is quadratic in its parts."""
    text = f'{"a." * MAX_TOML_KEY_PARTS}dependencies = ["lib"]\n'
    assert dependencies("pyproject.toml", text) == frozenset()
    assert dependencies("pyproject.toml", 'a.dependencies = ["lib"]\n') == {"lib"}
