"""The pages of checks and expressions are complete, and their examples are valid."""

import re
from pathlib import Path

import pytest
import yaml

from orch23.checks.check import CheckInput
from orch23.checks.registry import CHECKS
from orch23.load.pipeline import load_pipeline
from orch23.model.pipeline import Stage
from orch23.resolve.template_limits import COUNT_FILTER, SIZE_FILTER
from orch23.resolve.templates import TEMPLATE_GLOBALS, expression_environment, template_environment
from scripts.filter_reference import BLOCK_FILTERS, FILTERS, FUNCTIONS
from scripts.reference_pages import checks_page, expressions_page

ROOT = Path(__file__).parents[3]
GUARDS = {COUNT_FILTER, SIZE_FILTER}


def test_the_pages_in_the_docs_are_those_of_the_code() -> None:
    assert (ROOT / "docs/checks.md").read_text("utf-8") == checks_page()
    assert (ROOT / "docs/expressions.md").read_text("utf-8") == expressions_page()


def test_every_filter_and_function_is_described_and_no_other() -> None:
    assert expression_environment().filters.keys() - GUARDS == FILTERS.keys()
    assert template_environment().filters.keys() - GUARDS == FILTERS.keys() | BLOCK_FILTERS.keys()
    assert FUNCTIONS.keys() == TEMPLATE_GLOBALS


def test_the_results_of_the_examples_are_computed() -> None:
    page = expressions_page()
    assert r"| `under` | A directory before each path of a path, a condition or a list of these. |" in page
    assert r"""| `['a.py', 'b.py'] \| under('src')` | `["src/a.py", "src/b.py"]` |""" in page


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_describes_exactly_the_options_that_it_accepts(name: str) -> None:
    check = CHECKS[name]
    found = check.run(CheckInput(outputs={}, options={"no_such_option": 1}))
    (hint,) = (one.hint for one in found if one.code == "E315" and "no_such_option" in one.message)
    assert tuple(re.findall(r"`(\w+)`", hint or "")) == tuple(check.options)
    assert check.summary
    assert check.codes


@pytest.mark.parametrize("name", CHECKS)
def test_the_example_of_a_check_is_a_valid_step_with_options_of_the_right_types(name: str, tmp_path: Path) -> None:
    (step,) = yaml.safe_load(CHECKS[name].example)
    assert step["check"] == name
    stage = {"outputs": ["a.json", "src/app.py"], "shell": "true", "verify": [step]}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({"version": 1, "stages": {"a": stage}}))
    assert load_pipeline(tmp_path / "p.yaml", tmp_path).warnings == ()
    file = str(step["with"].get("file", "a.json"))
    found = CHECKS[name].run(
        CheckInput(outputs={file: b"{}", "src/app.py": b"main = Config = 1\n"}, options=step["with"])
    )
    # The schema of the example is no input here.
    assert [one.message for one in found if one.code == "E315"] == []


@pytest.mark.parametrize("page", ["checks", "expressions"])
def test_the_pipeline_at_the_beginning_of_a_page_is_valid(page: str, tmp_path: Path) -> None:
    text = re.findall(r"^```yaml\n(.*?)^```", (ROOT / f"docs/{page}.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    (tmp_path / "p.yaml").write_text(f"version: 1\n{text}")
    (stage,) = load_pipeline(tmp_path / "p.yaml", tmp_path).pipeline.stages
    assert isinstance(stage, Stage)
    if page == "expressions":
        assert stage.outputs == ("shop/model", "shop/view")
        assert getattr(stage.step, "command", None) == ("echo", "${{ not an expression }}")
