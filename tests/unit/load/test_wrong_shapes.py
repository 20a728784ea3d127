"""Messages about values of a wrong shape: each has a place, what was found, what is expected, and an exact way out."""

import pytest

from orch23.load.pipeline import parse_pipeline
from orch23.model.diagnostic import errors
from orch23.report.diagnostics import render_diagnostics
from tests.gold import FOLDER, Golden
from tests.wrong_shapes import FILE, IS_WHOLE, Case, cases, drawn, example_in, keys, table, text_with, with_fix

pytestmark = pytest.mark.needs("fetch", "cache")

# A plugin that is not installed, and a key that needs `edits` beside it.
_NOT_HERE = {("The file", "plugins"), ("A stage", "once")}
# Codes of wrong forms. After a corrected form, the meaning of the value may be wrong, which another error says.
_FORMS = {"E811", "E812", "E814", "E815"}


@pytest.mark.slow
@pytest.mark.timeout(300)  # a minute if other programs use the processors
def test_the_table_of_wrong_shapes(golden: Golden) -> None:
    if IS_WHOLE:
        golden.check("shapes.txt", table())
        return
    wanted = (FOLDER / "shapes.txt").read_text(encoding="utf-8").rstrip("\n").split("\n\n")
    assert [one.partition("\n")[0] for one in wanted] == [f"## {section}: {key}" for section, key in keys()]
    found = table().rstrip("\n").split("\n\n")
    assert [one for one in found if one not in wanted] == [], "if it is meant: make regold"


@pytest.mark.slow
def test_each_message_has_a_place_and_a_way_out() -> None:
    found = [(one, each) for one in cases() for each in one.errors]
    assert len(found) > (3_000 if IS_WHOLE else 500)
    assert [(one.section, one.key, one.shape) for one, each in found if each.location is None or not each.hint] == []


@pytest.mark.slow
def test_the_example_in_a_message_loads() -> None:
    examples = {(one.section, one.key, example_in(each.hint or "")) for one in cases() for each in one.errors}
    own = [(section, key, found[1]) for section, key, found in examples if found and found[0] == key]
    assert len({(section, key) for section, key, _ in own}) > (180 if IS_WHOLE else 30)
    refused = [one for one in own if errors(parse_pipeline(text_with(*one), FILE).diagnostics)]
    assert {(section, key) for section, key, _ in refused} <= _NOT_HERE


@pytest.mark.slow
def test_a_corrected_line_loads() -> None:
    fixed = [(one, each) for one in cases() for each in one.errors if each.fix and each.code in _FORMS]
    assert len(fixed) > (350 if IS_WHOLE else 50)
    for one, each in fixed:
        after = parse_pipeline(with_fix(one, each), FILE).diagnostics
        assert each.message not in [other.message for other in after], one.rendered()


@pytest.mark.slow
def test_messages_drawn_at_random_have_a_way_out() -> None:
    # An example, a corrected line, or what to do in words, which quote a key, a value or a name.
    vague = [
        one.rendered()
        for one in drawn(60)
        for each in one.errors
        if not (each.fix or example_in(each.hint or "") or "`" in (each.hint or ""))
    ]
    assert len(vague) <= 2, "\n".join(vague)


@pytest.mark.parametrize(
    ("written", "fixed"),
    [
        ("needs: [a: b]", 'needs: ["a: b"]'),
        ("scratch: [x, out: y]", 'scratch: [x, "out: y"]'),
        ("inputs: [Note: a.md]", 'inputs: ["Note: a.md"]'),
        ("tools: [gcc:]", None),
        ("pools: [7]", 'pools: ["7"]'),
        ("cwd: [web]", "cwd: web"),
        ("inputs: src/app py", 'inputs: ["src/app py"]'),
        ("inputs: [src\\app.py]", "inputs: [src/app.py]"),
        ("inputs: [src/../app.py]", "inputs: [app.py]"),
        ("limits: {processes: 10 minutes}", None),
        ("requires: /src/app.py", None),
    ],
)
def test_a_corrected_line_is_shown_where_the_meaning_is_known(written: str, fixed: str | None) -> None:
    text = f"version: 1\nstages:\n  s:\n    shell: x\n    {written}\n"
    # Before it is tried: the other files and stages are not here.
    shown = render_diagnostics(parse_pipeline(text, FILE).diagnostics, {FILE: text})
    assert (f"5 +     {fixed}\n" in shown) if fixed else ("5 + " not in shown), shown


def test_an_unquoted_colon_in_a_list_of_lines_is_named_and_quoted() -> None:
    text = 'version: 1\nstages:\n  s:\n    shell:\n      - echo\n      - done: "1" of 2\n'
    shown = Case("", "", "", text.replace('"1"', "1")).rendered()
    assert "item 2 of `shell` is a mapping, since `: ` begins one; it must be a string or a number" in shown
    assert '6 +       - "done: 1 of 2"' in shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("sandbox: true", "5 +     sandbox: on"),
        ("sandbox: false", "5 +     sandbox: off"),
        ("llm: {cache: '3'}", "`cache` is the string `3`; it must be `off` or a mapping"),
        ("llm: {cache: of}", "allowed is `off`"),
        ("shell: []", "write it as in `shell: [python, -m, build]`. One program and its arguments"),
        ("pytest: [null]", "write it as in `pytest: [-x, tests]`. One argument"),
    ],
)
def test_a_message_is_about_the_form_that_is_meant(written: str, shown: str) -> None:
    step = "" if ":" in written and not written.startswith("sandbox") else "\n    shell: x"
    text = f"version: 1\nstages:\n  s:\n    desc: One.\n    {written}{step}\n"
    assert shown in Case("", "", "", text).rendered()


def test_a_foreach_without_a_valid_name_has_no_errors_of_that_name() -> None:
    text = """version: 1
stages:
  s:
    foreach: {in: [a], as: [task]}
    outputs: ["src/${{ task }}", "src/${{ vars.none }}"]
    desc: "${{ [] }}."
    shell: "x ${{ task.name }} ${{ item }}"
"""
    found = [one.message for one in Case("", "", "", text).errors]
    assert found == [
        "`as` is a list; it must be a string",
        "`vars` has no `none`",
        "`[]` is a list; a longer text can only contain strings, numbers and booleans",
    ]
