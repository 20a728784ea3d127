"""The template `layered_app`: its life, what feedback costs, what it leaves on disk, and what its prompts say."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.layered_app import (
    APP,
    DUE_DATE,
    LAYERS,
    OF_ENTITIES,
    PIPELINE,
    SPEC,
    answered,
    code,
    copied,
    ends,
    feedback,
    layers_asked,
    shipped,
    value,
)
from tests.e2e.pipelines import green
from tests.e2e.templates import HERE, asked
from tests.project import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("templates"),
    pytest.mark.usefixtures("prepared_pytest"),
]  # whole builds: `make test` runs them, `make check` does not

MODELS = ("intent", "architecture", *(f"layers@{name}" for name in LAYERS))
TODAY = """\
import json
from backend.app import App
from frontend.app import page

app = App()
status, task = app.call("POST", "/tasks", {"title": "Buy milk", "due": "2030-01-02"})
print(json.dumps([status, task, "2030-01-02" in page([task])]))
"""


@pytest.fixture
def app(project: Project) -> Project:
    return copied(project)


@pytest.fixture(scope="module")
def first_build(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Build the shipped project once for all tests that start after its first build."""
    project = copied(Project(tmp_path_factory.mktemp("first") / "project"))
    green(project.build(PIPELINE, "-j4"))
    return project


@pytest.fixture
def built(first_build: Project, tmp_path: Path) -> Project:
    """Return a copy of the project after its first build."""
    return first_build.copy(tmp_path / "project")


def used(project: Project) -> list[object]:
    """Use the app that was built, in a process of its own: give it a task with a due date."""
    source = project.root / APP / "src"
    ran = subprocess.run(
        [sys.executable, "-B", "-c", TODAY], cwd=source, capture_output=True, text=True, check=True, env={}
    )
    found: list[object] = json.loads(ran.stdout)
    return found


# ---- its life --------------------------------------------------------------------------------------


def test_the_life_of_it(app: Project) -> None:
    green(app.run("validate", PIPELINE))
    first = app.plan(PIPELINE)
    assert (first["intent"], first["layers"]) == ("run", "expand")
    green(app.build(PIPELINE))
    assert asked(app) == list(MODELS)
    assert used(app) == [201, {"id": 1, "title": "Buy milk", "done": False}, False]
    before = app.files()

    again = app.build(PIPELINE)
    assert (again.code, again.err) == (0, "layered_app: up to date (11 stages)\n")

    feedback(app)
    assert app.plan(PIPELINE) == {
        "scaffold": "fresh",
        **dict.fromkeys(("intent", "architecture"), "run"),
        **dict.fromkeys(("changes", "acceptance", "code_map"), "maybe"),
        "layers": "expand",
    }
    green(app.build(PIPELINE))
    task = {"id": 1, "title": "Buy milk", "done": False, "due": "2030-01-02"}
    assert used(app) == [201, task, True]
    assert set(app.plan(PIPELINE).values()) == {"fresh"}

    app.delete(DUE_DATE)
    assert "run" not in app.plan(PIPELINE).values()
    green(app.build(PIPELINE))
    assert asked(app) == []
    assert app.files() == before, "without the feedback all is as it was, and nobody was asked"


def test_what_a_due_date_for_tasks_costs_in_numbers(built: Project) -> None:
    """Four of five layers are written again: those that know the fields of a task. The fifth is proved again."""
    feedback(built)
    green(built.build(PIPELINE))
    calls = {e["role"]: e["data"]["calls"] for e in built.events_of("stage_finished") if e["role"] in MODELS}
    avoided = [name for name in MODELS if not calls[name]]
    ran = [name for name in LAYERS if calls[f"layers@{name}"]]
    sys.stdout.write(
        f'"add a due date to tasks": layers that ran: {", ".join(ran)}; '
        f"calls made: {sum(calls.values())}; calls avoided: {len(avoided)} ({', '.join(avoided)})\n"
    )
    assert ran == list(OF_ENTITIES)
    assert sum(calls.values()) == 6
    assert avoided == ["layers@backend_app"]
    assert ends(built)["layers@backend_app"] == "verified"
    assert ends(built)["scaffold"] == "fresh"


# ---- what is affected, before it is built ----------------------------------------------------------


def git(project: Project, *arguments: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *who, *arguments], cwd=project.root, env=env, capture_output=True, check=True)


def affected(project: Project) -> dict[str, str]:
    found = project.run("affected", PIPELINE, "--since", "HEAD", "--json").json()["stages"]
    return {one["stage"]: one["why"] for one in found}


@pytest.mark.needs("metrics")
@pytest.mark.stride(2)
@pytest.mark.parametrize("ignored", [".orch23\nlogs\n", ".orch23\nlogs\nworkspace\n"])
def test_affected_names_the_layers_that_feedback_reaches_once_there_is_an_architecture(
    built: Project, ignored: str
) -> None:
    """Before that it says which stages may be; whether what was made is committed makes no difference."""
    built.write({".gitignore": ignored})
    git(built, "init", "-q")
    git(built, "add", "-A")
    git(built, "commit", "-q", "-m", "c")
    assert affected(built) == {}
    feedback(built)
    layers = [f"layers@{name}" for name in LAYERS]
    after = ("architecture", *layers, "code_map", "changes", "acceptance")
    # The feedback may release layers: the architecture is verified with it.
    assert affected(built) == {**dict.fromkeys(after, "downstream"), "intent": "changed", "architecture": "changed"}

    green(built.build(PIPELINE, "architecture"))
    assert asked(built) == ["intent", "architecture"]
    found = affected(built)
    assert found == {
        **dict.fromkeys(("intent", "architecture", "changes", "code_map"), "changed"),
        **{f"layers@{name}": "changed" for name in OF_ENTITIES},
        "layers@backend_app": "downstream",  # proved again, on other code below it
        "acceptance": "downstream",
    }
    planned = built.plan(PIPELINE)
    assert {name for name in layers if found[name] == "changed"} == {n for n in layers if planned[n] == "run"}
    assert planned["layers@backend_app"] == "maybe"
    green(built.build(PIPELINE))
    assert layers_asked(built) == set(OF_ENTITIES)
    assert affected(built) == dict.fromkeys(found, "changed")


# ---- what it leaves on disk ------------------------------------------------------------------------


def test_each_app_has_a_folder_with_its_spec_its_code_and_a_page_about_them(built: Project) -> None:
    assert set(built.files("workspace")) == {
        f"{APP}/{path}"
        for path in (
            "README.md",
            "spec/architecture.json",
            "spec/changes.log",
            "spec/code_map.json",
            "spec/intent.json",
            "src/backend/app.py",
            "src/backend/models/task.py",
            "src/backend/routes/task_routes.py",
            "src/backend/services/task_service.py",
            "src/frontend/app.py",
        )
    }
    assert built.read(f"{APP}/README.md").startswith("# todo\n")


def test_another_app_id_is_another_folder_from_another_request(app: Project) -> None:
    other = app.read(PIPELINE).replace("app_id: todo", "app_id: notes")
    app.write({"pipelines/notes.yaml": other, "specs/layered_app/notes/request.md": "A notebook.\n"})
    green(app.build(PIPELINE))
    mine = code(app)
    history = [{"source": "specs/layered_app/notes/request.md", "summary": "A notebook."}]
    answered(app, {"intent": [json.dumps({**value("intent"), "history": history})]})
    app.write({"specs/layered_app/notes/tests/test_app.py": app.read(f"{SPEC}/tests/test_app.py")})
    green(app.build("pipelines/notes.yaml"))
    assert set(app.files("workspace/layered_app/notes")) == {
        path.replace("/todo/", "/notes/") for path in app.files(APP)
    }
    assert code(app) == mine


def test_the_page_about_the_app_is_there_before_any_model_is_asked(built: Project) -> None:
    events = [(event["type"], event["role"]) for event in built.events()]
    assert events.index(("promoted", "scaffold")) < events.index(("llm_request", "intent"))


def test_the_code_map_says_which_files_each_layer_made(built: Project) -> None:
    mapped = json.loads(built.read(f"{APP}/spec/code_map.json"))
    promoted = {e["role"]: e["data"]["files"] for e in built.events_of("promoted") if e["role"].startswith("layers@")}
    assert {f"layers@{name}": [f"{APP}/src/{file}" for file in files] for name, files in mapped.items()} == promoted
    assert list(mapped) == list(LAYERS)


def test_the_log_of_changes_gains_a_line_with_each_feedback(built: Project) -> None:
    first = built.read(f"{APP}/spec/changes.log")
    assert first.splitlines() == [f"{SPEC}/request.md: A to-do list for one person: show tasks, add one, tick one off."]
    feedback(built)
    green(built.build(PIPELINE))
    assert built.read(f"{APP}/spec/changes.log") == first + f"{DUE_DATE}: Tasks may have a due date.\n"


# ---- order -----------------------------------------------------------------------------------------


def test_layers_are_made_in_the_order_of_what_they_depend_on(built: Project) -> None:
    edges = built.run("graph", PIPELINE, "--json").json()["edges"]
    needed = {(edge["from"], edge["to"]) for edge in edges if edge["why"].startswith("needs layers@")}
    spans: dict[str, list[int]] = {}
    for number, event in enumerate(built.events()):
        if event["role"].startswith("layers@") and event["type"] in ("attempt_started", "attempt_finished"):
            spans.setdefault(event["role"].removeprefix("layers@"), []).append(number)
    for layer in value("architecture")["execution_layers"]:
        for below in layer["depends_on"]:
            assert spans[below][1] < spans[layer["name"]][0]
            assert (f"layers@{below}", f"layers@{layer['name']}") in needed, "whether it reads a file of it or not"


@pytest.mark.thorough  # beside tests/e2e/test_same_keys.py
def test_the_same_files_give_the_same_order_questions_and_bytes(app: Project) -> None:
    def built(project: Project) -> tuple[list[str], list[str], dict[str, bytes]]:
        green(project.build(PIPELINE, "-j1"))
        feedback(project)
        green(project.build(PIPELINE, "-j1"))
        requests = [event["data"]["fingerprint"] for event in project.events_of("llm_request")]
        return project.ran(), requests, project.files()

    assert built(app) == built(copied(Project(app.root.parent / "other")))


# ---- what its prompts say --------------------------------------------------------------------------

BLOCK = re.compile(
    r'^--- begin (\w+): "([^"]+)"(?: path="([^"]+)")?(?: slice="([^"]+)")?[^\n]* ---\n(.*?)\n--- end \1 ---$',
    re.DOTALL | re.MULTILINE,
)


def prompt(project: Project, stage: str, *argv: str) -> str:
    shown = project.run("show", PIPELINE, stage, "--prompt", *argv)
    assert shown.code == 0, shown.err
    return shown.out


def blocks(text: str) -> list[tuple[str, str]]:
    """Return place and text of each block of data."""
    return [(f"{path}#{part}" if part else path or kind, body) for _, kind, path, part, body in BLOCK.findall(text)]


RULE_OF_A_KIND = re.compile(r"^- (?:Models|Services|Routes|The app|Escape).*?(?=^$)", re.DOTALL | re.MULTILINE)


def test_a_layer_is_asked_with_its_slices_of_the_intent_and_its_entry_and_nothing_else(built: Project) -> None:
    """Its request holds these blocks; what is no data is the same for all layers, but for the rule of a kind."""
    files = {event["role"]: event["data"]["files"] for event in built.events_of("llm_request")}
    bare = set()
    for entry in value("architecture")["execution_layers"]:
        name = entry["name"]
        slices = [(f"{APP}/spec/architecture.json", f"/execution_layers/[name={name}]")]
        given = ["app" if entry["kind"] == "app" else "entities", *entry["intent"]]
        slices += [(f"{APP}/spec/intent.json", f"/{pointer}") for pointer in dict.fromkeys(given)]
        sent = prompt(built, f"layers@{name}")
        assert [place for place, _ in blocks(sent)] == [f"{path}#{part}" for path, part in slices]
        assert json.loads(blocks(sent)[0][1]) == entry
        said = [(one["path"], one["slice"]) for one in files[f"layers@{name}"]]
        assert said == [*slices, ("prompts/layered_app/layer.md.j2", "")], "so says the egress manifest"
        rest = BLOCK.sub("", sent)
        assert RULE_OF_A_KIND.search(rest)
        bare.add(re.sub(r"\n+", "\n", RULE_OF_A_KIND.sub("", rest)))
    assert len(bare) == 1
    assert not re.search(r"milk|due|To-do|task|history|request\.md", bare.pop())


def test_all_layers_share_the_instructions(built: Project) -> None:
    asked = [prompt(built, f"layers@{name}") for name in LAYERS]
    head, mark, _ = asked[0].partition("# This layer\n")
    assert "# Response" in head
    assert all(text.startswith(head + mark) for text in asked)


def test_the_first_intent_is_made_of_the_request_alone(built: Project) -> None:
    sent = prompt(built, "intent")
    assert "MODE: CREATE" in sent
    assert "MODIFY" not in sent
    assert [place for place, _ in blocks(sent)] == ["schema", f"{SPEC}/request.md"]
    assert "architecture that was accepted last" not in prompt(built, "architecture")


def test_feedback_evolves_the_accepted_intent_and_architecture(built: Project) -> None:
    accepted = built.read(f"{APP}/spec/intent.json"), built.read(f"{APP}/spec/architecture.json")
    built.write({f"{SPEC}/feedback/0002-later.md": "Only due dates, no times.\n"})
    feedback(built)
    intent = value("intent", after_feedback=True)
    later = {"source": f"{SPEC}/feedback/0002-later.md", "summary": "No times."}
    answered(built, {"intent": [json.dumps({**intent, "history": [*intent["history"], later]})]})
    green(built.build(PIPELINE))
    sent = prompt(built, "intent")
    assert "MODE: MODIFY" in sent
    places = [place for place, _ in blocks(sent)]
    assert places == [
        "schema",
        f"{SPEC}/request.md",
        DUE_DATE,
        f"{SPEC}/feedback/0002-later.md",
        f"{APP}/spec/intent.json",
    ]
    assert dict(blocks(sent))[f"{APP}/spec/intent.json"].strip() == accepted[0].strip()
    sent = prompt(built, "architecture")
    assert [place for place, _ in blocks(sent)] == [
        "schema",
        f"{APP}/spec/intent.json",
        f"{APP}/spec/architecture.json",
    ]
    assert blocks(sent)[2][1].strip() == accepted[1].strip()


# ---- its page --------------------------------------------------------------------------------------


def test_the_picture_of_its_page_is_what_graph_prints(app: Project) -> None:
    page = (HERE / "docs/templates/layered_app.md").read_text()
    picture = app.run("graph", PIPELINE, "--format", "mermaid").out
    assert f"```mermaid\n{picture}```\n" in page


def test_what_init_replaces_stands_once_in_its_file() -> None:
    template = yaml.safe_load((HERE / "pipelines/layered_app.template.yaml").read_text())
    for one in template["replace"]:
        assert (HERE / one["file"]).read_text().count(one["find"]) == 1
    assert set(shipped()) == set(MODELS)
