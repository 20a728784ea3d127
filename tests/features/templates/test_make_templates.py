"""The templates that are shipped are made from the runnable pipelines; how they are made, and what is refused."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from orch23.features.templates.rendering import TEMPLATES_FOLDER as SHIPPED
from scripts.copier_template import (
    Blob,
    Description,
    TemplateError,
    catalogue_entry,
    describe,
    descriptions,
    project_files,
    template_files,
)
from scripts.make_templates import ROOT, git, make_all, make_bundle, opened, write_tree
from scripts.scripted_requests import with_requests, without_requests

pytestmark = pytest.mark.slow  # templates are made

NAMES = [one.name for one in descriptions(ROOT)]


def last_tree(bundle: Path, folder: Path) -> str:
    """Return the name of the tree of a bundle's last version, in a new repository."""
    folder.mkdir()
    return git(folder, "rev-parse", f"v{opened(bundle, folder)}^{{tree}}")


# ---- what is shipped -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_last_version_in_a_bundle_is_what_the_top_level_says(name: str, tmp_path: Path) -> None:
    shipped = last_tree(SHIPPED / f"{name}.bundle", tmp_path / "shipped")
    made = write_tree(tmp_path / "shipped", template_files(ROOT, describe(ROOT, name)))
    assert made == shipped, "run `make templates`, and commit what it writes"


def test_the_catalogue_is_what_the_top_level_says(tmp_path: Path) -> None:
    shipped = json.loads((SHIPPED / "catalogue.json").read_text())
    assert [one["name"] for one in shipped["templates"]] == NAMES
    assert sorted(path.stem for path in SHIPPED.glob("*.bundle")) == NAMES
    for number, one in enumerate(descriptions(ROOT)):
        (tmp_path / str(number)).mkdir()
        version = f"v{opened(SHIPPED / f'{one.name}.bundle', tmp_path / str(number))}"
        assert shipped["templates"][number] == catalogue_entry(one, project_files(ROOT, one), version)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_asked_has_a_default_and_free_text_a_guard(name: str) -> None:
    settings = json.loads(template_files(ROOT, describe(ROOT, name))["copier.yml"].data)
    questions = {key: reported for key, reported in settings.items() if not key.startswith("_")}
    assert all("default" in reported and reported.get("help") for reported in questions.values())
    assert all(
        "choices" in reported or "validator" in reported for reported in questions.values() if reported["type"] == "str"
    )


# ---- how it is made --------------------------------------------------------------------------------

PIPELINE = "version: 1\nname: small\nstages: {}\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "pipelines").mkdir(parents=True)
    (root / "prompts/small").mkdir(parents=True)
    (root / "pipelines/small.yaml").write_text(PIPELINE)
    (root / "prompts/small/a.md.j2").write_text("{{ spec }} and {% if x %}y{% endif %}\n")
    (root / "prompts/small/tool.py").write_text("print(a[[1]])\n")
    (root / "prompts/small/tool.py").chmod(0o755)
    (root / "prompts/small/__pycache__").mkdir()
    (root / "prompts/small/__pycache__/tool.pyc").write_text("x")
    return root


def described(root: Path, **keys: object) -> Description:
    reported = {"summary": "Small.", "files": ["pipelines/small.yaml", "prompts/small/"], "next": "go on", **keys}
    (root / "pipelines/small.template.yaml").write_text(json.dumps(reported))
    return describe(root, "small")


def test_prompts_go_over_as_they_are_and_only_what_is_replaced_is_rendered(source: Path) -> None:
    replace = [{"file": "pipelines/small.yaml", "find": "name: small", "with": "name: [[ name ]]"}]
    made = template_files(source, described(source, replace=replace, questions={"name": {"default": "small"}}))
    assert made["project/prompts/small/a.md.j2"].data == (source / "prompts/small/a.md.j2").read_bytes()
    assert made["project/prompts/small/tool.py"] == Blob(b"print(a[[1]])\n", executable=True)
    text = made["project/pipelines/small.yaml.jinja"].data.decode()
    assert text.endswith("version: 1\nname: [[ name ]]\nstages: {}\n")
    assert text.startswith("# yaml-language-server: $schema=../.orch23/")
    assert not any("pyc" in path for path in made)


def test_brackets_that_copier_would_read_are_kept_from_it(source: Path) -> None:
    replace = [{"file": "prompts/small/tool.py", "find": "print", "with": "[[ name ]]"}]
    made = template_files(source, described(source, replace=replace))
    assert made["project/prompts/small/tool.py.jinja"].data == b"[[ name ]][% raw %](a[[1]])\n[% endraw %]"


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"replace": [{"file": "pipelines/small.yaml", "find": "nowhere", "with": "x"}]}, "has 0 places"),
        ({"replace": [{"file": "pipelines/small.yaml", "find": "s", "with": "x"}]}, "places that read 's', not one"),
        ({"replace": [{"file": "other.yaml", "find": "s", "with": "x"}]}, "must be among `files`"),
        (
            {
                "replace": [
                    {"file": "pipelines/small.yaml", "find": "name: small", "with": "x"},
                    {"file": "pipelines/small.yaml", "find": "small\nstages", "with": "y"},
                ]
            },
            "overlap",
        ),
        ({"files": ["nothing.md"]}, "no file"),
        ({"files": ["nothing/"]}, "no folder with files"),
    ],
)
def test_what_cannot_be_made_is_refused(source: Path, keys: dict[str, object], error: str) -> None:
    with pytest.raises(TemplateError, match=re.escape(error)):
        template_files(source, described(source, **keys))


def test_an_unknown_key_is_refused(source: Path) -> None:
    with pytest.raises(TemplateError, match="takes example, examples, files, next, questions, replace, summary"):
        described(source, question={})


def test_a_name_that_copier_would_read_is_refused(source: Path) -> None:
    (source / "prompts/small/[[x]].md").write_text("x")
    with pytest.raises(TemplateError, match="means something to copier"):
        template_files(source, described(source))


def test_a_version_is_added_only_if_a_file_has_changed_and_none_is_ever_lost(source: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "small.bundle"
    assert make_bundle(bundle, described(source), template_files(source, described(source))) == ("v1", True)
    first = bundle.read_bytes()
    assert make_bundle(bundle, described(source), template_files(source, described(source))) == ("v1", False)
    assert bundle.read_bytes() == first
    (source / "prompts/small/tool.py").chmod(0o644)
    assert make_bundle(bundle, described(source), template_files(source, described(source))) == ("v2", True)
    (tmp_path / "r").mkdir()
    assert opened(bundle, tmp_path / "r") == 2
    assert git(tmp_path / "r", "ls-tree", "v1", "project/prompts/small/tool.py").startswith("100755")
    assert git(tmp_path / "r", "ls-tree", "v2", "project/prompts/small/tool.py").startswith("100644")


def test_the_same_files_give_the_same_bytes(source: Path, tmp_path: Path) -> None:
    described(source)
    bundles = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        make_all(source, tmp_path / name)
        bundles.append((tmp_path / name / "small.bundle").read_bytes())
    assert bundles[0] == bundles[1]


def test_an_edit_of_a_pipeline_that_was_not_made_into_a_template_is_seen(source: Path, tmp_path: Path) -> None:
    described(source)
    shutil.copytree(source, tmp_path / "repository")
    make_all(source, tmp_path)
    (source / "prompts/small/a.md.j2").write_text("another\n")
    shipped = last_tree(tmp_path / "small.bundle", tmp_path / "r")
    assert write_tree(tmp_path / "r", template_files(source, describe(source, "small"))) != shipped
    same = tmp_path / "repository"
    assert write_tree(tmp_path / "r", template_files(same, describe(same, "small"))) == shipped


# ---- the guard of free answers -----------------------------------------------------------------------

_WORDS = {"claude-opus-4-8", "qwen2.5:7b", "org/model@2", "Meta-Llama_3", "a", "gpt-5.2", "x" * 64, "./tools/ask.py"}
_OTHERS = {
    *("a\nstages: {}", "a: b", "a:", "a # b", "'a'", '"a"', "[[ name ]]", "{a}", "*a", "&a", "!a", "- a", "-a", "a b"),
    *("a\t", "", "true", "No", "null", "~", "1e3", "12", "../../etc", "a/../b", "a//b", "a\x1b[31m", "é", "a\n", "a,b"),
    *(".", "./", "..", "./../a", ".//a", ".a", "./.a", ".5", "./a/../b"),
}


def guard(name: str, root: Path) -> re.Pattern[str]:
    question = {name: {"help": "?", "default": "x"}}
    settings = json.loads(template_files(root, described(root, questions=question))["copier.yml"].data)
    pattern = re.search(r"regex_search\('(.*)'\)\)", settings[name]["validator"])
    assert pattern is not None
    return re.compile(pattern[1].replace("\\\\", "\\"))  # as Jinja reads the literal


@pytest.mark.parametrize("value", sorted(_OTHERS))
def test_what_yaml_could_read_otherwise_is_no_answer(source: Path, value: str) -> None:
    assert not guard("model", source).search(value)
    assert not guard("name", source).search(value)


@pytest.mark.parametrize("value", sorted(_WORDS))
def test_a_plain_word_is_an_answer(source: Path, value: str) -> None:
    assert guard("model", source).search(value)


@pytest.mark.parametrize("value", [".", "./", "src", "src/", "./src", "./src/a"])
def test_a_project_may_be_the_directory_of_the_pipelines_root(source: Path, value: str) -> None:
    assert guard("project", source).search(value)


@pytest.mark.parametrize("value", [*sorted(_OTHERS - {".", "./"}), ".:a", "./\n", ".\n"])
def test_a_project_outside_of_the_root_is_no_answer(source: Path, value: str) -> None:
    assert not guard("project", source).search(value)


def test_a_name_is_one_that_a_pipeline_may_have(source: Path) -> None:
    assert guard("name", source).search("my_app-2.x")
    assert not guard("name", source).search("a/b")
    assert not guard("name", source).search("x" * 65)


# ---- for which requests scripted responses are -------------------------------------------------------

RESPONSES = """# Written by hand.
plan:
  - when: "a date"
    requests: ["1"]
    answers:
      - |
        requests: [mine]
  - requests: []
    answers: [plain]
say: [anything]
"""


def test_the_requests_of_each_case_are_those_that_it_responded_to() -> None:
    seen = [("plan", "b", "plain"), ("plan", "a", "plain"), ("plan", "c", "requests: [mine]\n"), ("say", "d", "x")]
    written = with_requests(without_requests(RESPONSES), [*seen, seen[0]])
    assert written == RESPONSES.replace('["1"]', '["c"]').replace("requests: []", 'requests: ["a", "b"]')
    assert without_requests(written) == RESPONSES.replace('["1"]', "[]")


def test_a_case_that_no_example_needs_is_refused() -> None:
    with pytest.raises(TemplateError, match="a case of `plan` responded in no example: a date"):
        with_requests(RESPONSES, [("plan", "a", "plain")])


@pytest.mark.parametrize("name", NAMES)
def test_every_scripted_response_of_a_template_is_for_known_requests(name: str) -> None:
    path = ROOT / f"pipelines/{name}.answers.yaml"
    if path.exists():
        cases = [one for entry in yaml.safe_load(path.read_text()).values() for one in entry]
        # Those of the tester report on tests, which have run on what was just built.
        assert all(one["requests"] for one in cases if isinstance(one, dict))
        assert sum(isinstance(one, str) for one in cases) == (2 if name == "planner_coder_tester" else 0)
