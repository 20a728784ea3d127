"""Tabs that indent lines, and values that need quotes: what to write is shown."""

import pytest

from orch23.load import yaml_errors
from orch23.load.yaml_text import parse_yaml


def reported(text: str) -> list[tuple[int, int]]:
    """Return line and number of spaces of each tab, and check that the changes make a valid text."""
    found = parse_yaml(text, "p.yaml").diagnostics
    lines = text.split("\n")
    for one in found:
        assert (one.code, one.fix is not None) == ("E801", True)
        assert one.location is not None
        assert one.fix is not None
        old, new = one.fix
        assert lines[one.location.line - 1].startswith(old)
        lines[one.location.line - 1] = new + lines[one.location.line - 1][len(old) :]
    assert parse_yaml("\n".join(lines), "p.yaml").diagnostics == ()
    return [(one.location.line, len(one.fix[1])) for one in found if one.location and one.fix]


@pytest.mark.parametrize(
    ("text", "spaces"),
    [
        ("a:\n\tb: 1\n", [(2, 2)]),
        ("a:\n    b: 1\n    \tc: 2\n", [(3, 4)]),
        ("a:\n\tb: 1\n    c: 2\n", [(2, 4)]),
        ("a:\n\tb:\n\t\tc: 1\n\td: 2\n", [(2, 2), (3, 4), (4, 2)]),
        ("a: # x\n\t- b\n\t- c\n", [(2, 2), (3, 2)]),
        ("a: |\n  x\n  \ty\nb:\n\tc: 1\n", [(5, 2)]),
        ("a:\n\n\t# x\n\tb: 1\n", [(3, 2), (4, 2)]),
    ],
)
def test_each_tab_has_the_spaces_that_replace_it(text: str, spaces: list[tuple[int, int]]) -> None:
    assert reported(text) == spaces


def test_a_large_text_has_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_errors, "_MOST_TABBED_CHARACTERS", 60)
    assert len(parse_yaml("a:\n" + "\tb: 1\n" * 5, "p.yaml").diagnostics) == 1


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("desc: a: b", ("a: b", '"a: b"')),
        ("desc: a:", ("a:", '"a:"')),
        ("desc:   it's: x  # c", ("it's: x", '"it\'s: x"')),
        ('shell: say "x": \\d', ('say "x": \\d', '"say \\"x\\": \\\\d"')),
        ("- a: b: c", ("a: b: c", 'a: "b: c"', '"a: b: c"')),
        ("- - a: b: c", ("a: b: c", 'a: "b: c"', '"a: b: c"')),
    ],
)
def test_a_value_with_a_colon_has_the_line_with_quotes(line: str, fix: tuple[str, ...]) -> None:
    (one,) = parse_yaml(f"{line}\n", "p.yaml").diagnostics
    assert (one.code, one.fix) == ("E801", fix)
    place = one.location
    assert place is not None
    assert line[place.column - 1 : place.column - 1 + place.length] == fix[0]
    for after in fix[1:]:
        assert parse_yaml(line.replace(fix[0], after), "p.yaml").diagnostics == ()


@pytest.mark.parametrize(
    "text",
    [
        'a: "x": y',
        "a: b\n  c: d",
        "a: b\n  c: d: e",
        "a: : b",
        "password: hunter2hunter2: x",
        "- password: hunter2hunter2: x",
        "- : a: b",
        "a: [x]: y",
    ],
)
def test_a_colon_without_a_value_to_quote_has_no_fix(text: str) -> None:
    assert [one.fix for one in parse_yaml(f"{text}\n", "p.yaml").diagnostics] in ([None], [])
