"""Diagnostics as text and data."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Location, Related, Severity
from orch23.model.text import visible
from orch23.report.diagnostics import render_diagnostics

SOURCE = "stages:\n  test:\n    need: [generate]\n"
ONE = Diagnostic("E802", "unknown key `need` in stage `test`", Location("p.yaml", 3, 5, 4), "did you mean `needs`?")


def test_the_full_style_shows_the_line_a_caret_and_the_hint():
    assert render_diagnostics([ONE], {"p.yaml": SOURCE}) == (
        "error[E802]: unknown key `need` in stage `test`\n"
        " --> p.yaml:3:5\n"
        "  |\n"
        "3 |     need: [generate]\n"
        "  |     ^^^^\n"
        "  = help: did you mean `needs`?\n"
    )


def test_related_places_are_shown_with_their_messages_and_aligned():
    two = Diagnostic(
        "E803", "twice", Location("p.yaml", 10, 1, 1), related=(Related("first here", Location("p.yaml", 2, 3, 4)),)
    )
    source = "a\n  test:\n" + "x\n" * 7 + "b: 1\n"
    assert render_diagnostics([two], {"p.yaml": source}) == (
        "error[E803]: twice\n"
        "  --> p.yaml:10:1\n"
        "   |\n"
        "10 | b: 1\n"
        "   | ^\n"
        "  ::: p.yaml:2:3\n"
        "   |\n"
        " 2 |   test:\n"
        "   |   ^^^^ first here\n"
    )


def test_a_fix_is_shown_as_the_line_before_and_after_it():
    fixed = replace(ONE, fix=("need", "needs"))
    assert render_diagnostics([fixed], {"p.yaml": SOURCE}).endswith(
        "  = help: did you mean `needs`?\n  |\n3 -     need: [generate]\n3 +     needs: [generate]\n"
    )
    (whole,) = json.loads(render_diagnostics([fixed], {}, style="json"))
    assert whole["fix"] == {"old": "need", "new": "needs"}


@pytest.mark.parametrize(
    ("fix", "place"),
    [
        (("generate", "x"), Location("p.yaml", 3, 5, 4)),  # not in the underlined text
        (("need", "needs"), Location("p.yaml", 9, 5, 4)),  # no such line
        (("need", "needs"), Location("other.yaml", 3, 5, 4)),
        (("need", "x" * 200), Location("p.yaml", 3, 5, 4)),
        (("need", "needs # all"), Location("p.yaml", 3, 5, 4)),  # would be a comment
        (("need", "*.md"), Location("p.yaml", 3, 5, 4)),  # would be an alias
        (("need", "needs"), None),
    ],
)
def test_a_fix_of_a_text_that_is_not_at_the_place_is_not_shown(fix, place):
    shown = render_diagnostics([replace(ONE, location=place, fix=fix)], {"p.yaml": SOURCE})
    assert " - " not in shown
    assert shown.endswith("= help: did you mean `needs`?\n")


def test_a_fix_may_be_at_a_related_place():
    var = Related("set here", Location("p.yaml", 1, 1, 6))
    shown = render_diagnostics([replace(ONE, related=(var,), fix=("stages", "jobs"))], {"p.yaml": SOURCE})
    assert shown.endswith("  |\n1 - stages:\n1 + jobs:\n")


def test_of_many_related_places_some_are_shown_and_the_others_counted():
    related = tuple(Related(f"`s{n}` too", Location("p.yaml", n, 1)) for n in range(1, 1001))
    reported = render_diagnostics([Diagnostic("E830", "no", Location("p.yaml", 1, 1), "mend it", related=related)], {})
    assert reported.count("::: p.yaml:") == 9
    assert reported.endswith(" ::: p.yaml:9:1\n  = note: and 991 more places\n  = help: mend it\n")
    few = render_diagnostics([Diagnostic("E830", "no", Location("p.yaml", 1, 1), related=related[:9])], {})
    assert few.count("::: p.yaml:") == 9
    assert "more place" not in few
    (whole,) = json.loads(render_diagnostics([Diagnostic("E830", "no", related=related)], {}, style="json"))
    assert len(whole["related"]) == 1000


def test_without_a_source_or_a_place_the_rest_is_shown():
    assert (
        render_diagnostics([ONE], {})
        == "error[E802]: unknown key `need` in stage `test`\n --> p.yaml:3:5\n  = help: did you mean `needs`?\n"
    )
    nowhere = Diagnostic("W801", "m", severity=Severity.WARNING, subject="s", related=(Related("because", None),))
    assert render_diagnostics([nowhere], {}) == "warning[W801]: s: m\n  = note: because\n"
    assert render_diagnostics([], {}) == ""


def test_diagnostics_are_separated_by_an_empty_line():
    assert render_diagnostics([ONE, ONE], {}).count("\n\nerror[E802]") == 1


def test_a_place_outside_of_the_source_has_no_excerpt():
    far = Diagnostic("E801", "m", Location("p.yaml", 99, 1))
    assert render_diagnostics([far], {"p.yaml": SOURCE}) == "error[E801]: m\n  --> p.yaml:99:1\n"


def test_wide_and_combining_characters_keep_the_caret_under_what_is_meant():
    text = render_diagnostics([Diagnostic("E1", "m", Location("p", 1, 4, 2))], {"p": "日e\u0301xy"})
    assert text.splitlines()[-2:] == ["1 | 日e\u0301xy", "  |    ^^"]


def test_a_long_line_is_cut_around_the_place():
    line = "a" * 5000 + "HERE" + "b" * 5000
    shown, caret = render_diagnostics([Diagnostic("E1", "m", Location("p", 1, 5001, 4))], {"p": line}).splitlines()[-2:]
    assert len(shown) < 200
    assert shown[caret.index("^") : caret.rindex("^") + 1] == "HERE"


def test_colors_are_used_only_on_request():
    assert "\x1b" not in render_diagnostics([ONE], {"p.yaml": SOURCE})
    assert "\x1b[1;31merror[E802]\x1b[0m" in render_diagnostics([ONE], {"p.yaml": SOURCE}, color=True)


HOSTILE = "\x1b]0;title\x07\x9b31m\u202e\u200b\u2066\ufeff\r\x00\udc80\U000e0041"


@pytest.mark.parametrize("style", ["full", "concise", "json", "github", "sarif"])
def test_nothing_that_is_echoed_steers_a_terminal(style):
    bad = Diagnostic(
        "E1",
        HOSTILE,
        Location(f"p{HOSTILE}", 1, 3, 2),
        HOSTILE,
        related=(Related(HOSTILE, Location(f"p{HOSTILE}", 1, 1)),),
        subject=HOSTILE,
    )
    text = render_diagnostics([bad], {f"p{HOSTILE}": f"x {HOSTILE} y\n"}, style=style)
    assert text
    assert all(c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") for c in text)
    text.encode("utf-8")


@given(st.text(max_size=40))
def test_visible_text_is_harmless_and_stays_so(text):
    once = visible(text)
    assert all(c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") for c in once)
    assert visible(once) == once


@given(st.text(max_size=30), st.integers(1, 5), st.integers(1, 40), st.integers(0, 40))
def test_no_place_makes_rendering_raise(source, line, column, length):
    for style in ("full", "concise", "json", "github", "sarif"):
        render_diagnostics([Diagnostic("E1", "m", Location("p", line, column, length))], {"p": source}, style=style)


def test_the_concise_style_is_one_line():
    assert render_diagnostics([ONE], {}, style="concise") == f"{ONE}\n"
    assert render_diagnostics([Diagnostic("E1", "a\nb")], {}, style="concise") == "error[E1]: a b\n"


def test_json_has_the_same_keys_for_every_diagnostic():
    one, two = json.loads(render_diagnostics([ONE, Diagnostic("E1", "m")], {}, style="json"))
    assert set(one) == set(two)
    assert one["location"] == {"file": "p.yaml", "line": 3, "column": 5, "length": 4}
    assert two["location"] is None


def test_github_annotations_are_quoted():
    odd = Diagnostic("E1", "50% a,b: c\nd", Location("a,b.yaml", 1, 2, 3), severity=Severity.NOTE)
    assert render_diagnostics([odd], {}, style="github") == (
        "::notice title=E1,file=a%2Cb.yaml,line=1,endLine=1,col=2,endColumn=5::50%25 a,b: c%0Ad\n"
    )


def test_sarif_names_rules_places_and_levels():
    log = json.loads(render_diagnostics([ONE, Diagnostic("W801", "m", severity=Severity.WARNING)], {}, style="sarif"))
    (run,) = log["runs"]
    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["E802", "W801"]
    assert [result["level"] for result in run["results"]] == ["error", "warning"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "p.yaml"}
    assert place["region"] == {"startLine": 3, "startColumn": 5, "endColumn": 9}


def test_of_many_diagnostics_errors_are_shown_first_and_the_others_counted_by_code():
    warnings = [Diagnostic("E222", f"w{n}", severity=Severity.WARNING) for n in range(100)]
    errors = [Diagnostic("E111", f"e{n}") for n in range(15)]
    text = render_diagnostics([*warnings, *errors], {})
    assert [f": e{n}\n" in text for n in range(15)] == [True] * 15
    assert [n for n in range(100) if f": w{n}\n" in text] == list(range(35))
    assert text.endswith("\nnote: 65 more are not shown: 65 E222\n")
    assert render_diagnostics([*warnings, *errors], {}, style="concise").count("\n") == 115


def test_a_message_of_any_length_fits_a_screen():
    related = (Related("r" * 5_000, Location("f", 1, 1)),)
    found = Diagnostic("E111", "m" * 5_000, Location("f", 1, 1), "h" * 5_000, subject="s" * 5_000, related=related)
    assert len(render_diagnostics([found], {"f": "x"})) < 4 * 1_700


def test_a_source_is_split_once_for_all_its_diagnostics():
    class Text(str):
        __slots__ = ()
        splits = 0

        def removeprefix(self, prefix):
            return Text(super().removeprefix(prefix))

        def split(self, *args):
            Text.splits += 1
            return super().split(*args)

    render_diagnostics([Diagnostic("E111", "m", Location("f", n, 1)) for n in range(1, 10)], {"f": Text("a\n" * 10)})
    assert Text.splits == 1
