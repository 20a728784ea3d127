"""TOML for which `tomllib` would take quadratic time is refused by its longest key, and no other."""

import tomllib

import pytest

from orch23.model.parsing import MAX_TOML_KEY_PARTS, LongTomlKeyError, parse_toml


def dotted(number: int, by: str = ".", part: str = "a") -> str:
    return by.join([part] * number)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{dotted(90_000)} = 1", 1),
        (f"\n[{dotted(65)}]\n", 2),
        (f"[[{dotted(65)}]]", 1),
        (f"a = {{{dotted(65)} = 1}}", 1),
        (f"{dotted(65, ' . ')} = 1", 1),
        (dotted(65, part='"b.c"') + " = 1", 1),
        ("x = '''\n\n'''\n" + dotted(65, part="'b'") + " = 1", 4),
        (f'x = """\n\\"""\n"""\n{dotted(65)} = 1', 4),
    ],
)
def test_a_long_key_is_refused_at_its_line(text: str, line: int) -> None:
    with pytest.raises(LongTomlKeyError, match="more than 64 parts") as caught:
        parse_toml(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    "text",
    [
        f"{dotted(MAX_TOML_KEY_PARTS)} = 1",
        f'a = "{dotted(100)}"',
        f"a = '{dotted(100)}'",
        f'a = """\n{dotted(100)}\n"""',
        f"a = '''\n{dotted(100)}\n'''",
        f"# {dotted(100)}\na = 1",
        "\n".join(f"a{n}.b = 1.5" for n in range(100)),
        f'"{dotted(100)}" = 1',
        f'a = "\\"{dotted(100)}"',
    ],
)
def test_dots_that_join_no_key_do_not_count(text: str) -> None:
    assert parse_toml(text) == tomllib.loads(text)


@pytest.mark.parametrize("text", ['a = """' + "a.\\" * 40_000, "a = '" + "a." * 40_000, '\\"""' * 40_000 + "." * 70])
def test_what_does_not_end_is_an_error_of_toml(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml(text)
