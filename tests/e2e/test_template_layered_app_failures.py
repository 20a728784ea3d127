"""The template `layered_app` where something fails: how it ends, what is left, and what the next build has to ask."""

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.layered_app import (
    APP,
    DUE_DATE,
    LAYERS,
    PIPELINE,
    answer,
    answered,
    code,
    copied,
    ends,
    feedback,
    value,
)
from tests.e2e.pipelines import green
from tests.e2e.templates import asked
from tests.project import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("templates"),
    pytest.mark.usefixtures("prepared_pytest"),
]  # whole builds: `make test` runs them, `make check` does not

INTENT, ARCHITECTURE = f"{APP}/spec/intent.json", f"{APP}/spec/architecture.json"
ROUTES = "layers@backend_routes"


@pytest.fixture
def app(project: Project) -> Project:
    return copied(project)


@pytest.fixture(scope="module")
def first_build(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Build the shipped project once for all tests that start after its first build."""
    project = copied(Project(tmp_path_factory.mktemp("first") / "project"))
    green(project.build(PIPELINE))
    return project


@pytest.fixture
def built(first_build: Project, tmp_path: Path) -> Project:
    """Return a copy of the project after its first build."""
    return first_build.copy(tmp_path / "project")


def attempts(project: Project, stage: str) -> list[str]:
    """Return for each attempt of a stage in the newest run what was wrong with it."""
    found = (event for event in project.events_of("attempt_finished") if event["role"] == stage)
    return ["" if event["data"]["passed"] else event["data"]["kind"] for event in found]


def files(stage: str, **changed: Any) -> str:
    """Return the answer of a layer to the request, with other code or other paths."""
    return json.dumps({**json.loads(answer(stage)), **changed})


def broken(stage: str, remark: str = "") -> str:
    """Return the answer of a layer whose one file lacks everything."""
    (path,) = (one["path"] for one in json.loads(answer(stage))["writes"])
    return json.dumps({path: f'"""Nothing is here{remark}."""\n'})


# ---- the intent ------------------------------------------------------------------------------------


def test_an_intent_that_stays_invalid_ends_the_build_before_anything_is_planned(app: Project) -> None:
    intent = value("intent")
    no_type = {**intent, "entities": [{"name": "task", "fields": [{"name": "title"}]}]}
    answered(app, {"intent": [json.dumps(no_type), json.dumps({**intent, "app": {}}), "an app, then"]})
    outcome = app.build(PIPELINE)
    assert outcome.code == 1
    assert "[E201]" in outcome.err
    assert attempts(app, "intent") == ["llm_output_invalid"] * 3
    assert asked(app) == ["intent"] * 3
    assert set(app.files("workspace")) == {f"{APP}/README.md"}
    again = app.build(PIPELINE)
    assert (again.code, asked(app)) == (1, []), "a failure that nobody has mended costs nothing"


def test_an_intent_is_reported_exactly_what_is_wrong_and_may_fix_it(app: Project) -> None:
    wrong = {**value("intent"), "entities": [{"name": "Task", "fields": []}]}
    elsewhere = {**value("intent"), "history": [{"source": "elsewhere.md", "summary": "Other."}]}
    answered(app, {"intent": [json.dumps(wrong), json.dumps(elsewhere), answer("intent")]})
    green(app.build(PIPELINE))
    assert attempts(app, "intent") == ["llm_output_invalid", "verify_failed", ""]
    sent = app.run("show", PIPELINE, "intent", "--prompt", "--attempt", "2").out
    assert "entities[0].name: " in sent
    assert "entities[0].fields: " in sent
    sent = app.run("show", PIPELINE, "intent", "--prompt", "--attempt", "3").out
    assert "[E317]" in sent
    assert "write one entry for each of `specs/layered_app/todo/request.md`" in sent


def test_a_request_that_contradicts_itself_is_reported_so_and_not_asked_again(app: Project) -> None:
    answered(app, {"intent": ['{"status": "error", "reason": "the list shall be empty and full"}']})
    outcome = app.build(PIPELINE)
    assert outcome.code == 1
    assert "the list shall be empty and full" in outcome.err
    assert asked(app) == ["intent"]


# ---- the architecture ------------------------------------------------------------------------------


def unstable(how: str) -> str:
    """Return the architecture of the feedback, with one thing that an accepted layer may not do."""
    architecture = value("architecture", after_feedback=True)
    layers = architecture["execution_layers"]
    if how == "E343":
        del layers[-1]
    elif how == "E344":
        layers[-1]["kind"] = "app"
    elif how == "E345":
        layers[-1]["files"] = ["frontend/main.py"]
    elif how == "E346":
        layers[3]["purpose"] = "Puts routes and services together."
    elif how == "E340":
        layers[0]["depends_on"] = ["frontend_ui"]
    elif how == "E342":
        layers[1]["uses"] = ["backend/app.py"]
    elif how == "E824":
        layers[0]["intent"] = ["entities/[name=chore]"]
    return json.dumps(architecture)


@pytest.mark.parametrize("how", ["E340", "E342", "E343", "E344", "E345", "E346"])
def test_an_architecture_that_stays_unstable_changes_nothing_of_the_app(built: Project, how: str) -> None:
    before = built.files("workspace")
    feedback(built)
    answered(built, {"architecture": [unstable(how), unstable(how) + " ", unstable(how) + "\n"]})
    outcome = built.build(PIPELINE)
    assert outcome.code == 1
    assert f"[{how}]" in outcome.err
    assert attempts(built, "architecture") == ["verify_failed"] * 2, "the same one again ends it"
    assert asked(built) == ["intent", *["architecture"] * 2]
    assert built.files("workspace") == before, "the new intent is withheld, since no architecture fits it"
    assert ends(built)["intent"] == "held"


def test_each_attempt_gets_the_errors_of_the_first_step_that_finds_any(built: Project) -> None:
    purpose, path, pointer = (json.loads(unstable("E824")) for _ in range(3))
    purpose["execution_layers"][3]["purpose"] = "Puts routes and services together."
    for one in (purpose, path):
        one["execution_layers"][1]["files"].append("backend/../../evil.py")
    feedback(built)
    answered(built, {"architecture": [json.dumps(one) for one in (purpose, path, pointer)]})
    assert built.build(PIPELINE).code == 1
    ended = [one["data"]["excerpt"] for one in built.events_of("attempt_finished") if one["role"] == "architecture"]
    assert [sorted(set(re.findall(r"E\d{3}", text))) for text in ended] == [["E346"], ["E857"], ["E833"]]


def test_an_architecture_of_another_form_is_refused_before_it_is_compared(app: Project) -> None:
    other = {**value("architecture"), "remarks": "A key that its schema does not have."}
    answered(app, {"architecture": [json.dumps(other, indent=indent) for indent in (1, 2, 3)]})
    outcome = app.build(PIPELINE)
    assert outcome.code == 1
    assert "remarks" in outcome.err
    assert attempts(app, "architecture") == ["llm_output_invalid"] * 3
    assert asked(app) == ["intent", *["architecture"] * 3]


def test_a_line_of_feedback_releases_a_layer(built: Project) -> None:
    feedback(built, "Add a due date to tasks.\nRelease: backend_app\n")
    answered(built, {"architecture": [unstable("E346")]})
    green(built.build(PIPELINE))
    assert "layers@backend_app" in asked(built), "its entry has changed, if only by a word"
    assert built.plan(PIPELINE)["architecture"] == "fresh"
    sent = built.run("show", PIPELINE, "architecture", "--prompt").out
    assert "\nRelease: backend_app\n" in sent, "the architect knows what need not be kept"
    assert "Add a due date" not in sent.replace(value("intent", after_feedback=True)["history"][-1]["summary"], "")
    assert "W347" not in str(built.events())


def test_other_words_of_the_feedback_do_not_request_an_architecture_again(built: Project) -> None:
    feedback(built, "Add a due date to tasks.\n")
    green(built.build(PIPELINE))
    assert "architecture" in asked(built)
    built.edit(DUE_DATE, "Please add a due date to tasks.\n")
    green(built.build(PIPELINE))
    assert asked(built) == ["intent"], "the same intent, and the same request for an architecture"


@pytest.mark.parametrize(
    ("line", "warns"),
    [
        ("Release: backend_apq", "no layer or file has the name `backend_apq`"),
        ("Release: backend_app, backend/app2.py", "no layer or file has the name `backend/app2.py`"),
        ("Realease: backend_app", "is not a line `Release: NAME, NAME`"),
        ("- release: backend_app", "is not a line `Release: NAME, NAME`"),
        ("Release: backend/app.py", ""),
        ("Please: keep the rest.", ""),
    ],
)
def test_a_line_that_releases_nothing_is_reported_with_its_place(built: Project, line: str, warns: str) -> None:
    feedback(built, f"Add a due date to tasks.\n{line}\n")
    done = built.build(PIPELINE, "architecture")
    green(done)
    assert (f"[W347] {DUE_DATE}:2:1: {warns}" in done.err) == bool(warns)
    assert ("W347" in done.err) == bool(warns)


def test_a_warning_about_feedback_is_given_once_in_a_run_of_several_attempts(built: Project) -> None:
    feedback(built, "Add a due date to tasks.\nRelease: backend_apq\n")
    answered(built, {"architecture": [unstable("E345"), unstable("E343"), unstable("E346")]})
    failed = built.build(PIPELINE)
    assert (failed.code, attempts(built, "architecture")) == (1, ["verify_failed"] * 3)
    (warned,) = [line for line in failed.err.splitlines() if "W347" in line]
    assert warned.endswith("Fix: did you mean `backend_app`?")


def test_a_fixed_architecture_goes_on_from_the_intent_that_is_there(built: Project) -> None:
    feedback(built)
    answered(built, {"architecture": [unstable("E345"), unstable("E343"), unstable("E346")]})
    assert built.build(PIPELINE).code == 1
    answered(built, {"architecture": [unstable("E345"), answer("architecture", after_feedback=True)]})
    green(built.build(PIPELINE))
    assert "intent" not in asked(built)
    assert attempts(built, "architecture") == ["verify_failed", ""]
    sent = built.run("show", PIPELINE, "architecture", "--prompt", "--attempt", "2").out
    assert "[E345] frontend_ui: made `frontend/app.py`; no layer makes it now" in sent


def test_a_layer_that_points_at_no_part_of_the_intent_is_refused_with_the_architecture(app: Project) -> None:
    answered(app, {"architecture": [unstable("E824"), answer("architecture")]})
    green(app.build(PIPELINE))
    assert attempts(app, "architecture") == ["verify_failed", ""]
    sent = app.run("show", PIPELINE, "architecture", "--prompt", "--attempt", "2").out
    assert "no items match `/entities/[name=chore]`" in sent


# ---- a layer ---------------------------------------------------------------------------------------


def test_a_layer_is_asked_three_times_and_then_the_build_ends(app: Project) -> None:
    answered(app, {ROUTES: [broken(ROUTES, f" {number}") for number in range(4)]})
    outcome = app.build(PIPELINE)
    assert outcome.code == 1
    assert "cannot import name 'handle'" in outcome.err
    assert attempts(app, ROUTES) == ["acceptance_failed"] * 3
    assert asked(app).count(ROUTES) == 3
    finished = ends(app)
    assert [finished[f"layers@{name}"] for name in LAYERS] == ["held", "held", "failed", "blocked", "blocked"]
    assert (finished["code_map"], finished["acceptance"]) == ("blocked", "blocked")
    assert set(app.files("workspace")) == {f"{APP}/README.md"}, (
        "no result of the group is promoted before all are green"
    )

    answered(app, {ROUTES: [answer(ROUTES)]})
    green(app.build(PIPELINE))
    assert asked(app) == [ROUTES, "layers@backend_app", "layers@frontend_ui"], "what was green is not asked again"
    assert len(code(app)) == len(LAYERS)


def test_only_the_failing_layer_is_tried_again_and_is_reported_what_failed(app: Project) -> None:
    answered(app, {ROUTES: [broken(ROUTES), answer(ROUTES)]})
    green(app.build(PIPELINE))
    assert {name: asked(app).count(f"layers@{name}") for name in LAYERS} == {
        name: 2 if name == "backend_routes" else 1 for name in LAYERS
    }
    sent = app.run("show", PIPELINE, ROUTES, "--prompt", "--attempt", "2").out
    assert "That response failed: acceptance_failed" in sent
    assert "cannot import name 'handle'" in sent
    assert "Nothing is here" in sent, "the answer that failed is shown"
    assert sent.startswith(app.run("show", PIPELINE, ROUTES, "--prompt", "--attempt", "1").out.rstrip())


@pytest.mark.stride(4)
@pytest.mark.parametrize("path", ["backend/app.py", "../spec/intent.json", "backend/routes/more.py"])
def test_a_layer_that_writes_elsewhere_is_refused_whole_and_tried_again(app: Project, path: str) -> None:
    good = json.loads(answer(ROUTES))["writes"]
    answered(app, {ROUTES: [files(ROUTES, writes=[*good, {"path": path, "content": "X = 1\n"}]), answer(ROUTES)]})
    green(app.build(PIPELINE))
    assert attempts(app, ROUTES) == ["write_scope_violation", ""]
    assert json.loads(app.read(INTENT)) == value("intent")
    assert not app.exists(f"{APP}/src/backend/routes/more.py")


def test_a_layer_that_leaves_a_file_out_is_refused(app: Project) -> None:
    architecture = value("architecture")
    architecture["execution_layers"][2]["files"].append("backend/routes/more.py")
    answered(app, {"architecture": [json.dumps(architecture)], ROUTES: [answer(ROUTES)] * 3})
    outcome = app.build(PIPELINE)
    assert outcome.code == 1
    assert "`workspace/layered_app/todo/src/backend/routes/more.py` was not written" in outcome.err


def test_feedback_that_fails_in_one_layer_leaves_everything_as_it_was(built: Project) -> None:
    whole, before = built.files("workspace"), code(built)
    feedback(built)
    answered(built, {ROUTES: [broken(ROUTES, f" {number}") for number in range(3)]})
    assert built.build(PIPELINE).code == 1
    assert asked(built).count(ROUTES) == 3
    assert built.files("workspace") == whole, "intent, architecture, models and services are green, and are withheld"
    again = built.build(PIPELINE)
    assert (again.code, asked(built), code(built)) == (1, [], before)
    answered(built, {ROUTES: [answer(ROUTES, after_feedback=True)]})
    green(built.build(PIPELINE))
    assert asked(built) == [ROUTES, "layers@frontend_ui"]
    assert sum(code(built)[path] != before[path] for path in before) == len(LAYERS) - 1


# ---- the whole app ---------------------------------------------------------------------------------


def test_an_app_that_a_persons_tests_refuse_is_a_failed_build(app: Project) -> None:
    app.write({"specs/layered_app/todo/tests/test_more.py": "def test_a():\n    assert 1 == 2\n"})
    outcome = app.build(PIPELINE)
    assert outcome.code == 1
    assert "test_more.py::test_a" in outcome.err
    ways = " or ".join(f"`orch23 build {PIPELINE} --resample {name}`" for name in ("intent", "architecture"))
    assert f"  or {ways} or " in outcome.err, "no file says which of them it is"
    assert "has its model called again, with this failure" in outcome.err
    assert ends(app)["acceptance"] == "failed"
    assert set(app.files("workspace")) == {f"{APP}/README.md"}


def test_a_layer_that_the_users_tests_name_is_reported_what_failed_and_may_fix_it(app: Project) -> None:
    wrong = value("layers@backend_app")
    right = deepcopy(wrong)
    right["writes"][0]["content"] += "\n\nVERSION = 1\n"
    answered(app, {"layers@backend_app": [json.dumps(wrong), json.dumps(right)]})
    app.write({"specs/layered_app/todo/tests/test_more.py": "def test_a():\n    from backend.app import VERSION\n"})
    green(app.build(PIPELINE))
    assert [name for name in asked(app) if "layers" in name].count("layers@backend_app") == 2
    assert len(asked(app)) == 8, "no other layer is asked again"
    shown = app.run("show", PIPELINE, "layers@backend_app", "--prompt", "--attempt", "2").out
    assert "specs/layered_app/todo/tests/test_more.py::test_a" in shown
    assert "cannot import name" in shown
    assert "VERSION" in app.read(f"{APP}/src/backend/app.py")
    assert set(app.plan(PIPELINE).values()) == {"fresh"}


def test_feedback_that_the_users_tests_refuse_changes_no_file_and_is_not_paid_for_twice(built: Project) -> None:
    before = built.files("workspace")
    feedback(built)
    refusing = "def test_b():\n    from pathlib import Path\n    import backend.app as a\n"
    refusing += "    assert 'due' not in (Path(a.__file__).parent / 'models/task.py').read_text()\n"
    test = "specs/layered_app/todo/tests/test_more.py"
    built.write({test: refusing})
    assert built.build(PIPELINE).code == 1
    finished = ends(built)
    assert finished["acceptance"] == "failed", "it was given the new code, not that of the workspace"
    assert {finished[name] for name in ("intent", "architecture", "changes", "code_map")} == {"held"}
    assert built.files("workspace") == before
    built.delete(test)
    green(built.build(PIPELINE))
    assert asked(built) == []
    assert "due" in built.read(f"{APP}/src/backend/models/task.py")
    assert set(built.plan(PIPELINE).values()) == {"fresh"}
