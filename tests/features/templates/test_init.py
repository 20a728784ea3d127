"""`init`: a template becomes files of a project, in an empty folder or beside what is there, and they run."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from orch23.cli.console import Console
from orch23.cli.doctor_finding import provider_finding
from orch23.features.templates import actions as template
from orch23.features.templates.rendering import builtin_templates
from scripts.copier_template import describe, descriptions
from tests.project import Outcome, Project
from tests.sandbox.users import ROOT
from tests.template_repository import PIPELINE, TemplateRepository, git, house

HERE = Path(__file__).parents[3]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prepared_copier")]
NAMES = sorted(path.name.removesuffix(".template.yaml") for path in (HERE / "pipelines").glob("*.template.yaml"))
NOBODY = {"XDG_DATA_HOME": "/nonexistent"}  # no model is installed there
SCHEMA_LINE = re.compile(rb"# yaml-language-server: \$schema=(\S+)\n")


def init(project: Project, *argv: str, env: dict[str, str] | None = None) -> Outcome:
    return project.run("init", *argv, "--defaults", env={**NOBODY, **(env or {})})


class Initialized:
    """Projects that `init` made with default answers. Each template is rendered once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, tuple[Project, Outcome]] = {}

    def copy(self, name: str, root: Path) -> tuple[Project, Outcome]:
        """Return a copy of the project of a template, and what `init` printed."""
        if name not in self._made:
            first = Project(self._folder / name)
            outcome = init(first, name)
            assert outcome.code == 0, outcome.err
            self._made[name] = first, outcome
        first, outcome = self._made[name]
        return first.copy(root), outcome


@pytest.fixture(scope="module")
def initialized(tmp_path_factory: pytest.TempPathFactory) -> Initialized:
    return Initialized(tmp_path_factory.mktemp("initialized"))


def everything(project: Project) -> dict[str, bytes]:
    return {path.as_posix(): path.read_bytes() for path in sorted(project.root.rglob("*")) if path.is_file()}


# ---- what comes with orch23 ------------------------------------------------------------------------


@pytest.mark.stride(5)
@pytest.mark.parametrize("name", NAMES)
def test_an_empty_folder_gets_the_runnable_pipeline_as_it_stands_at_the_top_level(
    initialized: Initialized, tmp_path: Path, name: str
) -> None:
    project, made = initialized.copy(name, tmp_path / "project")
    files = project.files()
    assert made.err.startswith("next: `orch23 build")
    named = set(re.findall(r"(?:specs|pipelines)/[\w./-]*\w", made.err))
    assert {f"pipelines/{name}.yaml", SPECS[name][0]} <= named <= files.keys()
    for path in builtin_templates()[name].files:
        first = SCHEMA_LINE.match(files[path])
        # A project does not have the other pages.
        there = re.sub(rb"\[([^]]+)\]\(\.\./[^)]+\)", rb"\1", (HERE / path).read_bytes())
        assert files[path].removeprefix(first.group() if first else b"") == there, path
    assert files.keys() - set(builtin_templates()[name].files) == {
        ".gitattributes",
        "orch23.toml",
        f".orch23-{name}.answers.yml",
    }


@pytest.mark.stride(5)
@pytest.mark.parametrize("name", NAMES)
def test_every_path_that_the_head_of_the_pipeline_names_is_created(
    initialized: Initialized, tmp_path: Path, name: str
) -> None:
    project, _ = initialized.copy(name, tmp_path / "project")
    head = project.read(f"pipelines/{name}.yaml").partition("version: 1")[0].partition("\n")[2]
    named = set(re.findall(r"(?:pipelines|prompts|specs|docs)/[\w./-]*\w/?", head))
    added = {"specs/layered_app/todo/feedback/0001-due-date.md", "specs/layered_app/APP_ID/"}  # by the user
    assert [path for path in sorted(named - added) if not project.exists(path)] == []
    pages = {path for path in project.files() if path.startswith("docs/")}
    assert pages == ({f"docs/templates/{name}.md"} if (HERE / f"docs/templates/{name}.md").exists() else set())
    assert pages <= named
    assert not any("](../" in project.read(path) for path in pages)


@pytest.mark.stride(7)
@pytest.mark.parametrize("name", NAMES)
def test_it_builds_without_a_warning_and_is_then_up_to_date_without_a_call(
    initialized: Initialized, tmp_path: Path, name: str
) -> None:
    project, _ = initialized.copy(name, tmp_path / "project")
    pipeline = f"pipelines/{name}.yaml"
    assert "run" in project.plan(pipeline, env=NOBODY).values()
    shown = [project.run(command, pipeline, env=NOBODY) for command in ("validate", "plan", "build")]
    assert [one.code for one in shown] == [0, 0, 0], shown[-1].err
    assert [one for one in shown if "warning" in one.out + one.err] == []
    assert [one for one in project.events_of("warning") if one["level"] != "info"] == []
    before = project.files()
    again = project.build(pipeline, env=NOBODY)
    assert (again.code, "up to date" in again.err) == (0, True)
    assert project.files() == before
    assert not project.events_of("llm_request")


def test_the_first_line_of_the_pipeline_leads_an_editor_to_the_schema(initialized: Initialized, tmp_path: Path) -> None:
    project, _ = initialized.copy("quickstart", tmp_path / "project")
    pipeline = project.root / "pipelines/quickstart.yaml"
    found = SCHEMA_LINE.match(pipeline.read_bytes())
    assert found is not None
    schema = json.loads((pipeline.parent / found[1].decode()).read_text())
    assert schema == project.run("schema").json()


def test_the_answers_hold_an_address_that_is_the_same_on_every_machine(project: Project) -> None:
    init(project, "quickstart", "--data", "name=four")
    answers = project.read(".orch23-quickstart.answers.yml")
    assert "_src_path: https://orch23.invalid/templates/quickstart.git\n" in answers
    assert "name: four\n" in answers
    assert str(project.root.parent) not in answers
    assert str(HERE) not in answers
    assert "name: four\n" in project.read("pipelines/quickstart.yaml")


ADDRESS = "http://127.0.0.1:9/v1"  # no server listens at the port of discard
SERVER = ("--data", f"base_url={ADDRESS}", "--data", "model=qwen2.5:7b")


def test_blank_is_the_smallest_pipeline_a_stage_with_a_model_and_a_test(
    initialized: Initialized, tmp_path: Path
) -> None:
    project, _ = initialized.copy("blank", tmp_path / "project")
    (stage,) = yaml.safe_load(project.read("pipelines/blank.yaml"))["stages"].values()
    assert stage.keys() == {"desc", "inputs", "outputs", "llm", "verify", "retry"}
    assert [next(iter(step)) for step in stage["verify"]["steps"]] == ["check", "pytest"]
    assert project.build("pipelines/blank.yaml").code == 0
    test = "from count_words import count_words\n\n\ndef test_it():\n    assert not count_words('a')\n"
    project.edit("specs/blank/test_count_words.py", test)
    refused = project.build("pipelines/blank.yaml")
    assert refused.code == 5
    assert "error[E404]" in refused.err  # the failure of the new test is in the request


OFFERED = [(name, choice) for name in NAMES for choice in builtin_templates()[name].questions["provider"]["choices"]]


@pytest.mark.stride(17)
@pytest.mark.parametrize(("name", "provider"), OFFERED)
def test_every_provider_that_is_offered_makes_a_valid_pipeline(project: Project, name: str, provider: str) -> None:
    more = {"server": SERVER, "command": ("--data", "command=tools/ask.py")}.get(provider, ())
    init(project, name, "--data", f"provider={provider}", *more)
    valid = project.run("validate", f"pipelines/{name}.yaml")
    assert valid.code == 0, valid.err
    stated = {
        "server": f"openai\n    base_url: {ADDRESS}\n",
        "command": 'command\n    command: ["tools/ask.py"]\n',
    }.get(provider, f"{provider}\n")
    assert f"    provider: {stated}" in project.read(f"pipelines/{name}.yaml")
    assert f"provider: {provider}\n" in project.read(f".orch23-{name}.answers.yml")
    assert project.exists(f"pipelines/{name}.answers.yaml") == (provider == "scripted")


# What a user edits first in each template, and a text in it.
SPECS = {
    "blank": ("specs/blank/spec.md", "at white space"),
    "layered_app": ("specs/layered_app/todo/request.md", "to-do"),
    "planner_coder_tester": ("specs/planner_coder_tester/goal.md", "mean number of logins"),
    "quickstart": ("specs/quickstart.md", "counts the vowels"),
    "tdd_loop": ("specs/tdd_loop/spec.yaml", "in lower case"),
    "work_orders": ("specs/work_orders/spec.md", "two decimals"),
}


def test_every_template_has_a_spec_to_edit() -> None:
    assert list(SPECS) == NAMES


@pytest.mark.stride(11)
@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_after_an_edit_of_the_spec_no_scripted_or_recorded_response_is_used(
    initialized: Initialized, tmp_path: Path, name: str, is_built: bool
) -> None:
    project, _ = initialized.copy(name, tmp_path / "project")
    pipeline, (spec, text) = f"pipelines/{name}.yaml", SPECS[name]
    if is_built:
        assert project.build(pipeline, env=NOBODY).code == 0
    before = project.files("workspace")
    project.replace(spec, text, "another thing")
    built = project.build(pipeline, env=NOBODY)
    assert built.code not in {0, 6}, built.err
    if name == "quickstart":
        assert "orch23 model install smollm2" in built.err
    else:
        assert "error[E404]" in built.err
        assert "were written for other requests" in built.err
        assert "orch23 template update --data provider=anthropic" in built.err
        assert "`provider: local` and `model: smollm2`" in built.err
    if is_built:
        assert project.files("workspace") == before
        project.replace(spec, "another thing", text)
        assert project.build(pipeline, env=NOBODY).code == 0


@pytest.mark.stride(3)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "quickstart"])
def test_an_edit_of_a_prompt_makes_scripted_responses_meaningless_too(
    initialized: Initialized, tmp_path: Path, name: str
) -> None:
    project, _ = initialized.copy(name, tmp_path / "project")
    prompt = next(path for path in sorted(project.files("prompts")) if re.search(r"plan|intent|_tests|module", path))
    project.edit(prompt, "Write it in verse.\n" + project.read(prompt))
    built = project.build(f"pipelines/{name}.yaml")
    assert "error[E404]" in built.err
    assert built.code != 0


def test_the_way_out_is_one_command(initialized: Initialized, tmp_path: Path) -> None:
    project, _ = initialized.copy("layered_app", tmp_path / "project")
    project.replace("specs/layered_app/todo/request.md", "to-do", "shopping")
    refused = project.build("pipelines/layered_app.yaml")
    found = re.search(r"`orch23 (template update --data provider=\S+ --data model=\S+)`", refused.err)
    assert found is not None, refused.err
    assert project.run(*found[1].split()).code == 0
    pipeline = project.read("pipelines/layered_app.yaml")
    assert "    provider: anthropic\n    model: claude-opus-4-8\n" in pipeline
    assert "answers:" not in pipeline
    assert project.run("validate", "pipelines/layered_app.yaml").code == 0


@pytest.mark.parametrize("name", ["tdd_loop", pytest.param("layered_app", marks=pytest.mark.thorough)])
def test_another_name_of_the_pipeline_leaves_its_responses(project: Project, name: str) -> None:
    init(project, name, "--data", "name=mine")
    assert project.build(f"pipelines/{name}.yaml").code == 0


# The question for the application, an answer, and what the pipeline has of it.
APPLICATIONS = {
    "layered_app": ("app_id=shop", "  app_id: shop\n"),
    "planner_coder_tester": ("package=roman", "  packages: [roman] "),
    "tdd_loop": ("package=roman", "  package: roman "),
    "work_orders": ("app=ledger", "name: work_orders\n"),
}


@pytest.mark.stride(2)
@pytest.mark.parametrize("name", APPLICATIONS)
def test_an_application_of_another_name_has_nothing_of_the_example(project: Project, name: str) -> None:
    answer, stated = APPLICATIONS[name]
    made = init(project, name, "--data", answer)
    assert made.code == 0
    assert made.err.startswith(f"next: write {SPECS[name][0].replace('/todo/', '/shop/')}"), made.err
    assert stated in project.read(f"pipelines/{name}.yaml")
    example = describe(HERE, name).example
    assert example["files"]
    assert [path for path in example["files"] if project.exists(path)] == []
    spec, _ = SPECS[name]
    refused = project.build(f"pipelines/{name}.yaml")
    assert refused.code != 0
    assert spec.replace("/todo/", "/shop/") in refused.err
    assert project.journals() == [], "no call is made before there is a spec"


def test_a_command_that_responds_has_to_be_named(project: Project) -> None:
    refused = init(project, "blank", "--data", "provider=command")
    assert (refused.code, "error[E674]" in refused.err, '"command" is required' in refused.err) == (64, True, True)
    assert init(project, "blank", "--data", "command=ask.py").code == 64


@pytest.mark.stride(5)
@pytest.mark.parametrize(
    ("name", "answer", "place"),
    [
        ("work_orders", ".", "."),
        ("work_orders", "root", "."),  # an answer of earlier versions
        ("work_orders", "./src", "./src"),
        ("planner_coder_tester", ".", "."),
        ("planner_coder_tester", "./src", "./src"),
    ],
)
def test_a_template_may_work_on_the_repository_itself(project: Project, name: str, answer: str, place: str) -> None:
    assert init(project, name, "--data", f"project={answer}").code == 0
    shown = project.run("vars", f"pipelines/{name}.yaml", "--json").json()
    assert shown["vars"]["project"]["value"] == place
    assert project.run("plan", f"pipelines/{name}.yaml").code == 0


@pytest.mark.stride(7)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param("python3 tools/model.py --level=1", ["python3", "tools/model.py", "--level=1"], id="arguments"),
        pytest.param("/usr/bin/env agent -p 1 true", ["/usr/bin/env", "agent", "-p", "1", "true"], id="absolute path"),
        pytest.param('["my tools/a", "say: #1, [x]"]', ["my tools/a", "say: #1, [x]"], id="spaces, as JSON"),
    ],
)
def test_a_command_is_a_program_with_its_arguments_and_may_cost_nothing(
    project: Project, name: str, answer: str, words: list[str]
) -> None:
    asked = ("--data", "provider=command", "--data", f"command={answer}", "--data", "free=true")
    assert init(project, name, *asked).code == 0
    document = yaml.safe_load(project.read(f"pipelines/{name}.yaml"))
    assert document["defaults"]["llm"]["command"] == words
    assert document["prices"] == {"default": 0}
    assert project.run("validate", f"pipelines/{name}.yaml").code == 0
    assert "up to date" in project.run("template", "update", name).err


@pytest.mark.stride(7)
@pytest.mark.parametrize("answer", ["say 'a b'", "-x", '["a" "b"]', "[a]", "a\\b", "a\nb", " ", '["]'])
def test_a_command_that_would_be_read_otherwise_is_refused(project: Project, answer: str) -> None:
    refused = init(project, "blank", "--data", "provider=command", "--data", f"command={answer}")
    assert (refused.code, "must be a program and its arguments" in refused.err) == (64, True), refused.err
    assert init(project, "blank", "--data", "provider=openai", "--data", "free=true").code == 64


EXAMPLES = [(one.name, number) for one in descriptions(HERE) for number in range(len(one.examples))]


@pytest.mark.stride(5)
@pytest.mark.parametrize(("name", "number"), EXAMPLES)
def test_the_edits_that_its_responses_were_written_for_build(
    initialized: Initialized, tmp_path: Path, name: str, number: int
) -> None:
    project, _ = initialized.copy(name, tmp_path / "project")
    options: list[str] = []
    for edit in describe(HERE, name).examples[number]:
        if "set" in edit:
            options += ["--set", edit["set"]]
        elif "text" in edit:
            project.write({edit["file"]: edit["text"]})
        else:
            project.replace(edit["file"], edit["find"], edit["with"])
    built = project.build(f"pipelines/{name}.yaml", *options)
    assert built.code == 0, built.err


@pytest.mark.stride(6)
@pytest.mark.parametrize("name", NAMES)
def test_the_model_of_a_server_is_free_only_if_the_answer_says_so(project: Project, name: str) -> None:
    pipeline = f"pipelines/{name}.yaml"
    server = ("--data", "provider=server", *SERVER)
    assert init(project, name, *server).code == 0
    assert "prices:" not in project.read(pipeline)
    refused = project.build(pipeline, "--budget", "1")
    assert "error[E424]" in refused.err  # nothing is sent: a proxy on loopback may cost money
    changed = project.run("template", "update", name, "--data", "free=true")
    assert changed.code == 0, changed.err
    assert "prices:\n  qwen2.5:7b: 0\n" in project.read(pipeline)
    built = project.build(pipeline, "--budget", "1", env={"OPENAI_API_KEY": ""})
    assert "E424" not in built.err
    before = everything(project)
    again = project.run("template", "update", name)
    assert (again.code, again.out) == (0, ""), again.err
    assert everything(project).keys() == before.keys()
    assert f"base_url: {ADDRESS}\n" in project.read(f".orch23-{name}.answers.yml")


@pytest.mark.stride(4)
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (("provider=server",), "E674"),
        (("provider=server", "model=m"), "E674"),
        (("provider=server", f"base_url={ADDRESS}"), "E674"),
        (("provider=server", "model=m", "base_url=127.0.0.1:9"), "E675"),
        (("provider=server", "model=m", "base_url=http://127.0.0.1:9/v1 #"), "E675"),
        (("provider=server", "model=m", "base_url=http://127.0.0.1:9/v1\n    effort: high"), "E675"),
        (("provider=openai", f"base_url={ADDRESS}"), "E675"),
        (("provider=openai", "free=true"), "E675"),
    ],
)
def test_answers_about_a_server_are_complete_valid_and_only_for_a_server(
    project: Project, data: tuple[str, ...], code: str
) -> None:
    refused = init(project, "quickstart", *(part for one in data for part in ("--data", one)))
    assert refused.code == 64
    assert f"error[{code}]" in refused.err
    assert everything(project) == {}


def test_a_key_that_is_there_is_reported_and_decides_nothing(project: Project) -> None:
    made = init(project, "quickstart", env={"OPENAI_API_KEY": "sk-not-a-real-key-0123456789"})
    command = "orch23 init quickstart --defaults --overwrite --data provider=openai"
    assert f"openai is available here; to use it: `{command}`" in made.err
    assert "provider: local\n" in project.read("pipelines/quickstart.yaml")
    assert project.run(*command.split()[1:]).code == 0
    assert "provider: openai\n" in project.read("pipelines/quickstart.yaml")


@pytest.mark.needs("doctor")
def test_the_only_pipeline_is_the_default_one(project: Project) -> None:
    assert init(project, "blank").code == 0
    assert [line for line in project.run("doctor").out.splitlines() if line.endswith("blank.yaml")]
    assert project.run("validate").code == 0
    built = [project.run("build") for _ in range(2)]
    assert [outcome.code for outcome in built] == [0, 0], built[0].err
    assert "up to date" in built[1].err
    project.write({"pipelines/other.yaml": "version: 1\n"})
    (line,) = [line for line in project.run("doctor").out.splitlines() if "there is no pipeline.yaml" in line]
    assert line.startswith("! ")
    assert "`orch23 doctor pipelines/blank.yaml`" in line


@pytest.mark.needs("local")
def test_a_provider_without_its_server_is_not_called_available(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr("orch23.features.local.local_model.installed_weights", lambda _name, _data: tmp_path / "m.gguf")
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    console = Console(here=tmp_path, environ=environ)
    template.create_project(
        console,
        template="blank",
        data=(),
        defaults=True,
        dry_run=True,
        ref=None,
        keep=False,
        overwrite=False,
    )
    offer = capsys.readouterr().err
    assert "is available here" not in offer
    assert f"its server is not installed (`{provider_finding('local', environ).hint}`)" in offer
    assert "`orch23 init blank --defaults --overwrite --data provider=local`" in offer


def test_without_a_template_and_without_a_terminal_the_list_is_reported(project: Project) -> None:
    asked = project.run("init")
    assert asked.code == 64
    assert all(name in asked.err for name in builtin_templates())
    assert everything(project) == {}


def test_without_a_terminal_the_questions_are_named_and_nothing_is_written(project: Project) -> None:
    asked = project.run("init", "quickstart", "--data", "name=four")
    assert asked.code == 64
    assert "error[E674]" in asked.err
    assert "provider (Provider that writes the code" in asked.err
    assert "model (Name of the model) [smollm2]" in asked.err
    assert "--defaults" in asked.err
    assert " name (" not in asked.err
    assert everything(project) == {}


def test_all_answers_given_are_answers_enough(project: Project) -> None:
    data = [part for one in ("name=four", "provider=local", "model=smollm2") for part in ("--data", one)]
    assert project.run("init", "quickstart", *data).code == 0


# ---- where it goes, and what is there --------------------------------------------------------------


def test_a_dry_run_says_all_and_writes_nothing(project: Project) -> None:
    reported = init(project, "quickstart", "--dry-run")
    assert (reported.code, everything(project)) == (0, {})
    # Also orch23.toml, .gitattributes and the answers.
    assert reported.out.count(" create ") == len(builtin_templates()["quickstart"].files) + 3
    assert project.run("init", "quickstart", "--dry-run").out == reported.out  # there is no terminal to ask
    assert init(project, "quickstart").out == reported.out


def test_a_file_that_says_something_else_is_in_the_way_and_nothing_is_written(project: Project) -> None:
    project.write({"specs/quickstart.md": "mine\n", "src/app.py": "x = 1\n"})
    before = everything(project)
    refused = init(project, "quickstart")
    assert refused.code == 6
    assert "error[E676]" in refused.err
    assert "specs/quickstart.md" in refused.err
    assert " conflict   specs/quickstart.md\n" in refused.out
    assert everything(project) == before
    assert not project.exists(".orch23")


def test_what_is_in_the_way_is_kept_or_replaced_as_the_user_says(project: Project) -> None:
    project.write({"specs/quickstart.md": "mine\n"})
    kept = init(project, "quickstart", "--keep")
    assert (kept.code, project.read("specs/quickstart.md")) == (0, "mine\n")
    assert " keep       specs/quickstart.md\n" in kept.out
    assert project.exists("pipelines/quickstart.yaml")
    replaced = init(project, "quickstart", "--overwrite")
    assert replaced.code == 0
    assert " overwrite  specs/quickstart.md\n" in replaced.out
    assert project.read("specs/quickstart.md") == (HERE / "specs/quickstart.md").read_text()


def test_the_two_ways_out_contradict_each_other(project: Project) -> None:
    assert init(project, "quickstart", "--keep", "--overwrite").code == 64


def test_the_same_again_changes_nothing(initialized: Initialized, tmp_path: Path) -> None:
    project, _ = initialized.copy("quickstart", tmp_path / "project")
    before = everything(project)
    again = init(project, "quickstart")
    assert (again.code, everything(project)) == (0, before)
    assert " create " not in again.out


def test_a_project_that_has_the_template_is_led_to_the_update(initialized: Initialized, tmp_path: Path) -> None:
    project, _ = initialized.copy("quickstart", tmp_path / "project")
    project.edit("specs/quickstart.md", "mine\n")
    assert "orch23 template update quickstart" in init(project, "quickstart").err


@pytest.mark.usefixtures("copier_as_ever")
def test_nothing_is_written_through_a_link(project: Project, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (project.root / "specs").symlink_to(elsewhere)
    (project.root / "pipelines").mkdir()
    (project.root / "pipelines/quickstart.yaml").symlink_to(elsewhere / "x.yaml")
    refused = init(project, "quickstart", "--overwrite")
    assert refused.code == 6
    assert "specs/quickstart.md (a folder above it is a link)" in refused.err
    assert "pipelines/quickstart.yaml (is a link)" in refused.err
    assert list(elsewhere.iterdir()) == []


def test_a_folder_or_a_file_in_a_folders_place_is_in_the_way(project: Project) -> None:
    project.write({"prompts": "a file\n", "specs/quickstart.md/x": "y"})
    refused = init(project, "quickstart", "--overwrite")
    assert refused.code == 6
    assert "specs/quickstart.md (is a folder)" in refused.err
    assert "prompts/quickstart/function.md.j2 (a folder above it is a file)" in refused.err


def test_the_root_is_marked_so_that_every_folder_below_finds_it(project: Project) -> None:
    git(project.root.parent, "init", "--quiet")  # a repository around it is not the project
    init(project, "quickstart")
    assert project.exists("orch23.toml")
    (project.root / "src").mkdir()
    inside = Project(project.root / "src").run("validate", "../pipelines/quickstart.yaml")
    assert inside.code == 0, inside.err


def test_a_project_that_is_marked_is_not_marked_again(project: Project) -> None:
    project.write({"pyproject.toml": "[tool.orch23]\n", "src/x.py": ""})
    git(project.root, "init", "--quiet")
    below = Project(project.root / "src")
    assert init(below, "quickstart").code == 0
    assert project.exists("pipelines/quickstart.yaml")
    assert not project.exists("orch23.toml")
    assert not below.exists("pipelines")


def test_what_orch23_keeps_for_itself_is_ignored_by_git_without_a_line_of_the_users(project: Project) -> None:
    git(project.root, "init", "--quiet")
    project.write({".gitignore": "*.log\n"})
    init(project, "quickstart")
    assert project.read(".gitignore") == "*.log\n"
    untracked = git(project.root, "status", "--porcelain", "--untracked-files=all")
    assert "pipelines/quickstart.yaml" in untracked
    assert ".orch23/" not in untracked


def test_a_folder_that_may_not_be_written_is_reported_without_a_traceback(project: Project) -> None:
    (project.root / ".orch23").write_text("in the way\n")
    refused = init(project, "quickstart")
    assert refused.code == 3
    assert "error[E692]" in refused.err
    assert [Path(path).name for path in everything(project)] == [".orch23"]


# ---- answers ---------------------------------------------------------------------------------------


@pytest.mark.stride(4)
@pytest.mark.parametrize("question", ["name", "model"])
@pytest.mark.parametrize("value", ["a\nstages: {}", "[[ name ]]", ""])
def test_no_answer_can_be_more_than_one_plain_word_of_yaml(project: Project, question: str, value: str) -> None:
    refused = init(project, "quickstart", "--data", f"{question}={value}")
    assert refused.code == 64
    assert "error[E675]" in refused.err
    assert everything(project) == {}


@pytest.mark.stride(2)
@pytest.mark.parametrize("value", ["qwen2.5:7b", "org/model@2"])
def test_names_of_models_are_plain_words(project: Project, value: str) -> None:
    assert init(project, "quickstart", "--data", f"model={value}").code == 0
    shown = project.run("vars", "pipelines/quickstart.yaml", "--json").out
    assert value in shown


def test_a_choice_that_is_none_is_refused_with_the_choices(project: Project) -> None:
    refused = init(project, "quickstart", "--data", "provider=nobody")
    assert refused.code == 64
    assert "'local', 'anthropic', 'openai'" in refused.err


def test_an_answer_to_no_question_is_refused(project: Project) -> None:
    refused = init(project, "quickstart", "--data", "colour=red")
    assert (refused.code, everything(project)) == (64, {})
    assert "`quickstart` has no question `colour`" in refused.err
    assert init(project, "quickstart", "--data", "colour").code == 64


def test_an_unknown_template_is_refused_with_the_nearest(project: Project) -> None:
    refused = init(project, "quikstart")
    assert refused.code == 66
    assert "did you mean `quickstart`?" in refused.err


# ---- git -------------------------------------------------------------------------------------------


def test_without_git_that_is_what_is_reported(project: Project, tmp_path: Path) -> None:
    nothing = tmp_path / "bin"
    nothing.mkdir()
    refused = init(project, "quickstart", env={"PATH": str(nothing)})
    assert refused.code == 78
    assert "error[E482]: `git` was not found" in refused.err
    assert everything(project) == {}


@pytest.mark.usefixtures("copier_as_ever")
def test_no_configuration_of_the_users_git_decides_anything(project: Project, tmp_path: Path) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    witness = tmp_path / "witness"
    for name in ("post-checkout", "reference-transaction", "pre-commit", "post-commit"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {witness}\n")
        (hooks / name).chmod(0o755)
    config = (
        f"[core]\n\tautocrlf = true\n\thooksPath = {hooks}\n\tfsmonitor = touch {witness}\n"
        '[commit]\n\tgpgsign = true\n[protocol "file"]\n\tallow = never\n[init]\n\ttemplateDir = /nonexistent\n'
        '[url "https://elsewhere.invalid/"]\n\tinsteadOf = https://orch23.invalid/\n[user]\n\tuseConfigOnly = true\n'
    )
    project.home.mkdir(exist_ok=True)
    (project.home / ".gitconfig").write_text(config)
    of_a_hook = {"GIT_DIR": str(tmp_path / "no.git"), "GIT_INDEX_FILE": str(tmp_path / "no.index")}
    made = init(project, "quickstart", env=of_a_hook)
    assert made.code == 0, made.err
    assert b"\r" not in (project.root / "specs/quickstart.md").read_bytes()
    assert not witness.exists()


@pytest.mark.usefixtures("copier_as_ever")
def test_nothing_is_left_in_the_users_home_or_in_the_folder_for_temporary_files(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    shutil.rmtree(project.home)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    init(project, "quickstart")
    assert list(temporary.iterdir()) == []
    assert not project.home.exists()


def test_a_git_url_brings_the_newest_version_of_a_company_template(project: Project, tmp_path: Path) -> None:
    repository = house(tmp_path / "house-template")
    repository.version({"pipelines/house.yaml.jinja": PIPELINE, "notes.md": "ten\n"}, "1.10")
    repository.version({"pipelines/house.yaml.jinja": PIPELINE, "notes.md": "nine\n"}, "1.9")
    made = init(project, repository.url, "--data", "word=ahoy")
    assert made.code == 0, made.err
    assert made.out.startswith("house-template 1.10\n")
    assert project.read("notes.md") == "ten\n"
    answers = project.read(".orch23-house-template.answers.yml")
    assert f"_src_path: git+{repository.url}\n" in answers
    built = project.build("pipelines/house.yaml")
    assert (built.code, project.read("said.txt")) == (0, "ahoy\n")


def test_a_version_can_be_named(project: Project, tmp_path: Path) -> None:
    repository = house(tmp_path / "house").version({"notes.md": "two\n"}, "2.0")
    assert init(project, repository.url, "--ref", "1.0").code == 0
    assert project.read("notes.md") == "one\n"
    missing = init(project, repository.url, "--ref", "9.9")
    assert missing.code == 66
    assert "error[E672]" in missing.err


def test_a_repository_without_tags_is_taken_as_it_is_and_quietly(project: Project, tmp_path: Path) -> None:
    repository = TemplateRepository(tmp_path / "house").version({"notes.md": "now\n"})
    made = init(project, repository.url)
    assert (made.code, made.err) == (0, "")
    assert project.read("notes.md") == "now\n"


def test_a_path_is_as_good_as_a_url(project: Project, tmp_path: Path) -> None:
    house(tmp_path / "house")
    assert init(project, "../house").code == 0
    assert project.read("notes.md") == "one\n"


def test_a_template_that_keeps_no_answers_gets_them_kept(project: Project, tmp_path: Path) -> None:
    repository = TemplateRepository(tmp_path / "house").version({"notes.md": "one\n"}, "1.0", answers=False)
    assert init(project, repository.url, "--data", "name=x").code == 0
    repository.version({"notes.md": "two\n"}, "2.0", answers=False)
    updated = project.run("template", "update")
    assert (updated.code, project.read("notes.md")) == (0, "two\n"), updated.err


@pytest.mark.parametrize("url", ["file:///nonexistent/repository", "https://user:secret@127.0.0.1/x.git"])
def test_a_repository_that_cannot_be_had_is_reported(project: Project, url: str) -> None:
    refused = init(project, url)
    assert refused.code == 66
    assert "error[E672]" in refused.err
    assert "secret" not in refused.err


@pytest.mark.parametrize("path", ["../" + "x" * 300, "~nobody-of-this-name/x"])
def test_a_path_that_cannot_be_is_no_template(project: Project, path: str) -> None:
    assert "error[E671]" in init(project, path).err


def test_a_repository_of_a_very_long_name_is_kept_under_a_shorter_one(project: Project, tmp_path: Path) -> None:
    assert init(project, house(tmp_path / ("x" * 250)).url).code == 0
    assert project.exists(f".orch23-{'x' * 100}.answers.yml")


@pytest.mark.parametrize("url", ["ext::sh -c touch% /tmp/x", "--upload-pack=touch", "file://x --upload-pack=y"])
def test_a_url_runs_nothing(project: Project, url: str) -> None:
    assert project.run("init", "--defaults", "--", url).code == 66
    assert everything(project) == {}


# ---- what no template may ----------------------------------------------------------------------------


@pytest.mark.usefixtures("copier_as_ever")
@pytest.mark.stride(5)
@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"_tasks": ["touch WITNESS"]}, "tasks"),
        ({"_jinja_extensions": ["os.system"]}, "jinja_extensions"),
        ({"_tasks": ["touch WITNESS"], "_migrations": ["touch WITNESS"]}, "tasks"),
    ],
)
def test_a_template_that_would_run_code_is_refused(
    project: Project, tmp_path: Path, settings: dict[str, list[str]], word: str
) -> None:
    witness = tmp_path / "witness"
    named = {key: [text.replace("WITNESS", str(witness)) for text in texts] for key, texts in settings.items()}
    repository = TemplateRepository(tmp_path / "house").version({"notes.md": "one\n"}, "1.0", settings=named)
    trusting = project.home / ".config/copier"  # not even a user of copier who trusts it has said so to orch23
    trusting.mkdir(parents=True)
    (trusting / "settings.yml").write_text(f"trust: ['git+{repository.url}', '{repository.url}', '/']\n")
    refused = init(project, repository.url)
    assert refused.code == 2
    assert "error[E673]" in refused.err
    assert word in refused.err
    assert not witness.exists()
    assert everything(project) == {}


@pytest.mark.usefixtures("copier_as_ever")
@pytest.mark.stride(5)
@pytest.mark.parametrize("path", [".git/hooks/post-commit", "sub/.GIT/config", ".orch23/VERSION", "[[ '.git' ]]/x"])
def test_a_template_writes_nothing_into_the_folders_of_git_and_orch23(
    project: Project, tmp_path: Path, path: str
) -> None:
    repository = TemplateRepository(tmp_path / "house")
    repository.version({"notes.md": "one\n"}, settings={"_exclude": []})
    # git itself refuses to add such a path: only a rendered name can lead there
    name = "/".join(f"[[ '{part}' ]]" if part.lower() in {".git", ".orch23"} else part for part in path.split("/"))
    target = repository.folder / "files" / name
    target.parent.mkdir(parents=True)
    target.write_text("x\n")
    repository.commit("1.0")
    refused = init(project, repository.url)
    assert refused.code == 2
    assert "error[E670]" in refused.err
    assert everything(project) == {}


@pytest.mark.usefixtures("copier_as_ever")
def test_a_template_brings_no_links(project: Project, tmp_path: Path) -> None:
    repository = TemplateRepository(tmp_path / "house")
    repository.version({"notes.md": "one\n"}, settings={"_preserve_symlinks": True})
    (repository.folder / "files/link").symlink_to("/etc/passwd")
    repository.commit("1.0")
    refused = init(project, repository.url)
    assert refused.code == 2
    assert "'link', which is not a regular file" in refused.err


@pytest.mark.usefixtures("copier_as_ever")
def test_a_template_brings_nothing_of_another_repository_of_the_machine(project: Project, tmp_path: Path) -> None:
    private = house(tmp_path / "private")
    repository = TemplateRepository(tmp_path / "house").version({"notes.md": "one\n"})
    git(repository.folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", private.url, "files/sub")
    repository.commit("1.0")
    refused = init(project, repository.url)
    assert refused.code == 65
    assert "error[E678]: the template `house` cannot be rendered: it has submodules" in refused.err
    assert everything(project) == {}


@pytest.mark.usefixtures("copier_as_ever")
def test_the_last_words_of_a_template_steer_no_terminal(project: Project, tmp_path: Path) -> None:
    says = {"_message_after_copy": "first\n\x1b[2Jsecond"}
    repository = TemplateRepository(tmp_path / "house").version({"notes.md": "one\n"}, "1.0", settings=says)
    assert init(project, repository.url).err == "first\n\\x1b[2Jsecond\n"


def test_the_last_words_of_a_template_may_depend_on_answers(project: Project, tmp_path: Path) -> None:
    for words, code, shown in (("hello [[ word ]]", 0, "hello world\n"), ("[[ 1 / 0 ]]", 65, "error[E678]")):
        settings = {"word": {"type": "str", "default": "world"}, "_message_after_copy": words}
        repository = TemplateRepository(tmp_path / f"house-{len(words)}")
        repository.version({"notes.md": "one\n"}, "1.0", settings=settings)
        made = init(project, repository.url, "--overwrite")
        assert (made.code, made.err[: len(shown)]) == (code, shown)


def test_the_schema_is_not_written_through_a_link(project: Project, tmp_path: Path) -> None:
    init(project, "quickstart")
    schema = project.root / ".orch23/pipeline.schema.json"
    text = schema.read_text()
    schema.unlink()
    (tmp_path / "elsewhere").write_text("mine\n")
    schema.symlink_to(tmp_path / "elsewhere")
    assert init(project, "quickstart").code == 0
    assert ((tmp_path / "elsewhere").read_text(), schema.is_symlink(), schema.read_text()) == ("mine\n", False, text)


@pytest.mark.stride(2)
@pytest.mark.parametrize("text", ["a: [", "name: {type: nonsense, default: 1}", "_envops: {undefined: os.system}"])
def test_a_template_with_a_fault_is_reported_without_a_traceback(project: Project, tmp_path: Path, text: str) -> None:
    repository = TemplateRepository(tmp_path / "house").version({"notes.md": "one\n"})
    (repository.folder / "copier.yml").write_text(text)
    repository.commit("1.0")
    refused = init(project, repository.url)
    assert refused.code == 65
    assert "error[E678]" in refused.err
    assert everything(project) == {}


def test_a_question_without_a_default_is_named(project: Project, tmp_path: Path) -> None:
    asks = {"needed": {"type": "str", "help": "Which?"}}
    repository = TemplateRepository(tmp_path / "house").version({"notes.md": "one\n"}, "1.0", settings=asks)
    refused = init(project, repository.url)
    assert refused.code == 64
    assert "needed" in refused.err
    assert init(project, repository.url, "--data", "needed=this").code == 0


def test_two_templates_live_in_one_project(project: Project, tmp_path: Path) -> None:
    assert init(project, "quickstart").code == 0
    assert init(project, house(tmp_path / "house").url).code == 0
    shutil.rmtree(tmp_path / "house")
    assert sorted(path.name for path in project.root.glob(".orch23-*")) == [
        ".orch23-house.answers.yml",
        ".orch23-quickstart.answers.yml",
    ]


KILLED = """
import os, sys
rename = os.rename
def second(*paths, **where):
    if where and (os.path.exists("specs") or os.path.exists("prompts") or os.path.exists("pipelines")):
        os._exit(9)
    rename(*paths, **where)
os.rename = second
from orch23.cli.main import main
main(["-C", ".", "init", "quickstart", "--defaults"])
"""


def test_what_a_killed_init_left_half_written_is_removed_by_the_next_command(project: Project) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=project.root, env=environ, check=False)
    assert done.returncode == 9
    assert [path.name for path in project.root.rglob(".orch23-*.tmp")] != []
    assert project.run("init", "quickstart", "--defaults", "--keep").code == 0
    assert [path.name for path in project.root.rglob(".orch23-*.tmp")] == []
