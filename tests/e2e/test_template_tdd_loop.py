"""The template `tdd_loop`: its life, its spec, and what its prompts say."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.pipelines import green
from tests.e2e.tdd_loop import ANSWERS, PIPELINE, PLACE, RED, SPEC, code_answers, shown_request
from tests.e2e.templates import HERE, answered, asked, copied
from tests.project import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("templates"),
    pytest.mark.usefixtures("prepared_pytest"),
]  # whole builds: `make test` runs them, `make check` does not

ORDER = "The words come in lower case, in the order of the text."
HYPHEN = "A hyphen between two letters is part of the word."
ALL = ["tests@words", "tests@stats", "tests@cli", "code", "code"]


@pytest.fixture
def tdd(project: Project) -> Project:
    return copied(project, "tdd_loop")


@pytest.fixture(scope="module")
def first_build(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Build the shipped project once for all tests that start after its first build."""
    project = copied(Project(tmp_path_factory.mktemp("first") / "project"), "tdd_loop")
    green(project.build(PIPELINE))
    return project


@pytest.fixture
def built(first_build: Project, tmp_path: Path) -> Project:
    """Return a copy of the project after its first build."""
    return first_build.copy(tmp_path / "project")


def actions(project: Project) -> dict[str, str]:
    return project.plan(PIPELINE)


# ---- its life --------------------------------------------------------------------------------------


def test_the_life_of_it(tdd: Project) -> None:
    green(tdd.run("validate", PIPELINE))
    first = actions(tdd)
    assert [first[name] for name in ("skeleton@words", "tests@words", "code", "own_tests")] == [*["run"] * 3, "skipped"]
    green(tdd.build(PIPELINE))
    assert asked(tdd) == ALL
    assert [e["data"]["passed"] for e in tdd.events_of("attempt_finished") if e["role"] == "code"] == [False, True]
    assert set(tdd.files(f"{PLACE}/src")) == {f"{PLACE}/{path}" for path in RED}
    before = tdd.files()

    again = tdd.build(PIPELINE)
    assert (again.code, again.err) == (0, "tdd_loop: up to date (7 stages, 1 skipped)\n")

    tdd.replace(SPEC, ORDER, f"{ORDER}\n          - {HYPHEN}")
    edited = {name for name, action in actions(tdd).items() if action == "run"}
    assert edited == {"skeleton@words", "tests@words", "code"}
    green(tdd.build(PIPELINE))
    assert asked(tdd) == ["tests@words", "code"]
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from textstats.words import words; print(words('a well-done'))"
    )
    ran = subprocess.run(
        [sys.executable, "-B", "-c", program, tdd.root / PLACE / "src"], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "['a', 'well-done']\n"

    tdd.replace(SPEC, f"\n          - {HYPHEN}", "")
    assert set(actions(tdd).values()) == {"fresh", "restore", "skipped"}
    green(tdd.build(PIPELINE))
    assert asked(tdd) == []
    assert {path: data for path, data in tdd.files().items() if path.startswith(PLACE)} == {
        path: data for path, data in before.items() if path.startswith(PLACE)
    }


def test_tests_by_hand_stand_in_the_place_of_written_ones(tdd: Project) -> None:
    by_hand = (PIPELINE, "--set", "write_tests=false")
    planned = tdd.plan(*by_hand)
    assert {name.partition("@")[0] for name, action in planned.items() if action == "skipped"} == {"tests"}
    green(tdd.build(*by_hand))
    assert asked(tdd) == ["code", "code"]
    assert list(tdd.files(f"{PLACE}/tests")) == [f"{PLACE}/tests/test_textstats.py"]


def test_tests_of_another_package_are_not_in_the_way_and_a_wrong_package_costs_no_call(tdd: Project) -> None:
    tdd.edit(SPEC, tdd.read(SPEC).replace("path: textstats/", "path: roman/"))
    mine = "specs/tdd_loop/tests/roman/test_roman.py"
    tdd.write({mine: "from roman.words import words\n\n\ndef test_words():\n    assert words('a') == ['a']\n"})
    by_hand = (PIPELINE, "--set", "write_tests=false")
    for options in (by_hand, (PIPELINE,)):
        refused = tdd.build(*options)
        assert refused.code == 1
        assert f"file_exists {PLACE}/skeleton/textstats/words.py: it is not there" in refused.err
        assert asked(tdd) == []
    tdd.build(*by_hand, "--set", "package=roman", "own_tests")
    assert list(tdd.files(f"{PLACE}/tests")) == [f"{PLACE}/tests/test_roman.py"]


def test_its_picture_is_the_one_in_its_page(tdd: Project) -> None:
    page = (HERE / "docs/templates/tdd_loop.md").read_text()
    (picture,) = re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL)
    assert tdd.run("graph", PIPELINE, "--format", "mermaid").out == picture


def test_what_init_replaces_is_there_exactly_once() -> None:
    template = yaml.safe_load((HERE / "pipelines/tdd_loop.template.yaml").read_text())
    for one in template["replace"]:
        assert (HERE / one["file"]).read_text().count(one["find"]) == 1, one["find"]


# ---- the spec --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("product: textstats\n", "product: textstats\nauthor: me\n", "author"),
        ("    purpose: Split a text into words.\n", "    purpose: Split a text into words.\n    owner: me\n", "owner"),
        ("product: textstats\n", "", "product"),
        ("product: textstats\n", "product: [\n", "E8"),
    ],
    ids=["unknown_field", "unknown_field_below", "missing_field", "no_yaml"],
)
def test_a_spec_that_does_not_fit_its_schema_is_refused_before_anything_runs(
    tdd: Project, old: str, new: str, said: str
) -> None:
    tdd.replace(SPEC, old, new)
    refused = tdd.build(PIPELINE)
    assert refused.code == 65
    assert said in refused.err
    assert not tdd.exists("workspace")


def test_the_spec_may_be_json(tdd: Project) -> None:
    tdd.write({"specs/tdd_loop/spec.json": json.dumps(yaml.safe_load(tdd.read(SPEC)))})
    green(tdd.build(PIPELINE, "--set", "spec=specs/tdd_loop/spec.json"))


# ---- what the models are asked -----------------------------------------------------------------------


def test_whichever_user_writes_tests_sees_the_rules_of_the_module_and_no_other(built: Project) -> None:
    text = shown_request(built, "tests@words", 1)
    assert all(one in text for one in (ORDER, "textstats.words", "tests/test_words.py"))
    assert "most_common" not in text
    assert "src/" not in text


def test_the_first_request_of_code_holds_spec_and_tests_and_no_failure(built: Project) -> None:
    text = shown_request(built, "code", 1)
    assert built.read(SPEC) in text
    assert all(built.read(path) in text for path in built.files(f"{PLACE}/tests"))
    assert not any(one in text for one in ("has failed", "AssertionError", "def most_common(words: list"))


def test_a_patch_is_asked_for_with_spec_current_files_and_the_output_of_the_tests(built: Project) -> None:
    text = shown_request(built, "code", 2)
    assert built.read(SPEC) in text
    assert all(built.read(path) in text for path in built.files(f"{PLACE}/tests"))
    for path, content in RED.items():
        assert content in text, path
        assert f'path="{PLACE}/{path}"' in text
        assert hashlib.sha256(content.encode()).hexdigest() in text
    assert "test_equally_frequent_words_come_in_alphabetical_order" in text
    assert "AssertionError: assert [('pear', 2)" in text, "what pytest has said: it says it on stdout, not on stderr"


def test_all_modules_share_the_instructions_for_tests(built: Project) -> None:
    asked = [shown_request(built, f"tests@{name}", 1) for name in ("words", "stats", "cli")]
    head, mark, _ = asked[0].partition("# Module\n")
    assert "# Response" in head
    assert all(text.startswith(head + mark) for text in asked)


def test_a_patch_begins_with_the_first_request(built: Project) -> None:
    first, second = (shown_request(built, "code", attempt) for attempt in (1, 2))
    assert second.startswith(first.rstrip())
    assert second.count(built.read(SPEC)) == second.count(RED["src/textstats/stats.py"]) == 1, "nothing is there twice"


def test_no_diff_is_asked_for_and_none_is_taken(built: Project) -> None:
    assert all("no diffs" in shown_request(built, "code", attempt) for attempt in (1, 2))
    code_answers(built, "--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-a\n+b\n")
    assert built.build(PIPELINE).code == 1
    assert "E2" in built.events_of("attempt_finished")[-1]["data"]["excerpt"]


def test_tests_that_are_green_without_code_are_sent_back(tdd: Project) -> None:
    empty = "```python\nimport textstats.words\n\n\ndef test_nothing():\n    pass\n```\n"
    good = ANSWERS["tests@words"][-1]["answers"][0]
    answered(tdd, "tdd_loop", {"tests@words": [empty, good]})
    green(tdd.build(PIPELINE, "tests"))
    assert asked(tdd).count("tests@words") == 2
    assert "[E322]: tests/test_words.py::test_nothing: passed without the code" in shown_request(tdd, "tests@words", 2)


def test_one_real_test_does_not_cover_for_those_that_are_green_without_code(tdd: Project) -> None:
    vacuous = (
        "\n\ndef test_nothing():\n    pass\n\n\n@pytest.mark.skip\ndef test_never():\n    assert False\n"
        "\n\n@pytest.mark.xfail\ndef test_expected():\n    assert False\n"
        "\n\n@pytest.mark.parametrize('case', [1, 2])\ndef test_case(case):\n"
        "    if case == 1:\n        textstats.words.words('a')\n"
    )
    real = "\n\ndef test_real():\n    assert textstats.words.words('a b') == ['a', 'b']\n"
    mixed = f"```python\nimport pytest\n\nimport textstats.words\n{real}{vacuous}```\n"
    good = ANSWERS["tests@words"][-1]["answers"][0]
    answered(tdd, "tdd_loop", {"tests@words": [mixed, good]})
    green(tdd.build(PIPELINE, "tests"))
    assert asked(tdd).count("tests@words") == 2
    reported = shown_request(tdd, "tests@words", 2)
    for name in ("test_nothing", "test_never", "test_expected", "test_case[2]"):
        assert f"[E322]: tests/test_words.py::{name}:" in reported
    assert "::test_real" not in reported
    assert "test_case[1]" not in reported


def test_tests_that_cannot_be_collected_are_sent_back(tdd: Project) -> None:
    wrong = "```python\nfrom textstats.words import no_such_name\n\n\ndef test_a():\n    assert no_such_name()\n```\n"
    answered(tdd, "tdd_loop", {"tests@words": [wrong] * 2})
    assert tdd.build(PIPELINE, "tests", "-k").code == 1
    assert "no_such_name" in shown_request(tdd, "tests@words", 2)
    assert not tdd.exists(f"{PLACE}/tests/test_words.py")
