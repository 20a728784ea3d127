"""The template `layered_app`: which change of the intent or of the architecture has which layers written again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.layered_app import (
    DUE_DATE,
    LAYERS,
    PIPELINE,
    answer,
    answered,
    code,
    copied,
    ends,
    feedback,
    layers_asked,
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

MODELS, SERVICES, ROUTES, APP_, UI = LAYERS
KNOW_FIELDS = {MODELS, SERVICES, ROUTES, UI}

Change = Callable[[Any], object]


def _fields(intent: Any) -> Any:
    return intent["entities"][0]["fields"]


# what changes of the intent -> how, and the layers that are written again: the table of impact
INTENT: dict[str, tuple[Change, set[str]]] = {
    "a field is added": (
        lambda i: _fields(i).append({"name": "note", "type": "text", "required": False}),
        KNOW_FIELDS,
    ),
    "a field is gone": (lambda i: _fields(i).pop(), KNOW_FIELDS),
    "a field has another type": (lambda i: _fields(i)[1].update(type="integer"), KNOW_FIELDS),
    "a field has another rule": (lambda i: _fields(i)[0].update(rule="It is one line."), KNOW_FIELDS),
    "an action is added": (lambda i: i["actions"].append({"name": "x", "does": "Nothing."}), {SERVICES, ROUTES}),
    "an action does something else": (lambda i: i["actions"][0].update(does="Other."), {SERVICES, ROUTES}),
    "a page shows something else": (lambda i: i["pages"][0].update(shows="Other."), {UI}),
    "a page is added": (lambda i: i["pages"].append({"name": "x", "shows": "Nothing."}), {UI}),
    "the app has another port": (lambda i: i["app"].update(port=8001), {APP_}),
    "an entity is added": (
        lambda i: i["entities"].append({"name": "x", "fields": [{"name": "y", "type": "text", "required": True}]}),
        KNOW_FIELDS,
    ),
    "only the summaries have changed": (lambda i: i["history"][0].update(summary="Other."), set()),
    "nothing has changed": (lambda i: i, set()),
}

MORE = {
    "name": "more",
    "kind": "models",
    "purpose": "One more.",
    "depends_on": [],
    "intent": ["app/name"],
    "files": ["backend/models/more.py"],
    "uses": [],
    "provides": ["X: int"],
    "relies_on": [],
    "constraints": ['python -c "from backend.models.more import X"'],
}

# what changes of the architecture, with the same intent -> how, and the layers that are written again
ARCHITECTURE: dict[str, tuple[Change, set[str]]] = {
    "a layer has another constraint": (
        lambda layers: layers[2]["constraints"].append('python -c "import backend.routes.task_routes"'),
        {ROUTES},
    ),
    "a layer knows another part of the intent": (lambda layers: layers[3]["intent"].append("pages"), {APP_}),
    "a layer knows less of the intent": (lambda layers: layers[3].update(intent=["app/title"]), {APP_}),
    "a layer is added": (lambda layers: layers.append(MORE), {"more"}),
    "a layer is added before all others": (lambda layers: layers.insert(0, MORE), {"more"}),
}


def planned_then_built(app: Project) -> None:
    """Hold the build to what the plan said, once the architecture was known."""
    green(app.build(PIPELINE, "architecture"))
    planned = app.plan(PIPELINE)
    will = {name.removeprefix("layers@") for name in planned if name.startswith("layers@") and planned[name] == "run"}
    green(app.build(PIPELINE))
    assert layers_asked(app) == will, "plan and build agree"


@pytest.fixture(scope="module")
def first_build(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Build the app without feedback; each layer's code is the same whatever the intent says."""
    project = copied(Project(tmp_path_factory.mktemp("first") / "project"))
    answered(project, {f"layers@{name}": [answer(f"layers@{name}")] for name in LAYERS})
    green(project.build(PIPELINE))
    return project


@pytest.fixture
def app(first_build: Project, tmp_path: Path) -> Project:
    """Return a copy of the app after its first build, with feedback."""
    project = first_build.copy(tmp_path / "project")
    feedback(project, "Change something.\n")
    return project


def evolved(intent: Any) -> Any:
    """Return an intent with the entry of its history that feedback brings."""
    entry = {"source": DUE_DATE, "summary": "Something changes."}
    return {**intent, "history": [*intent["history"], entry]}


@pytest.mark.parametrize("what", INTENT)
def test_a_change_of_the_intent_reaches_exactly_the_layers_that_know_it(app: Project, what: str) -> None:
    change, reached = INTENT[what]
    intent = value("intent")
    change(intent)
    answered(app, {"intent": [json.dumps(evolved(intent))], "architecture": [answer("architecture")]})
    before = code(app)
    planned_then_built(app)
    assert layers_asked(app) == reached
    finished = ends(app)
    untouched = {name for name in LAYERS if name not in reached}
    assert {finished[f"layers@{name}"] for name in untouched} <= {"fresh"}, "same bytes below: nothing to prove anew"
    assert code(app) == before


# what an architect may write of the ui -> how; whatever it is, changed fields reach the ui
POINTERS: dict[str, Change] = {
    "no entity": lambda ui: ui.update(intent=["app/title", "pages"]),
    "nothing": lambda ui: ui.update(intent=[]),
    "a part of an entity": lambda ui: ui.update(intent=["entities/[name=task]/name", "pages"]),
    "another kind": lambda ui: ui.update(intent=["pages"], kind="app"),
    "another kind, and nothing": lambda ui: ui.update(intent=[], kind="app"),
    "all entities": lambda ui: ui.update(intent=["entities", "pages"]),
}


@pytest.mark.parametrize("what", POINTERS)
def test_whatever_pointers_a_model_wrote_changed_fields_reach_models_services_routes_and_ui(
    project: Project, what: str
) -> None:
    architecture = value("architecture")
    POINTERS[what](architecture["execution_layers"][-1])
    answers = {"intent": [answer("intent")], "architecture": [json.dumps(architecture)]}
    answered(copied(project), answers | {f"layers@{name}": [answer(f"layers@{name}")] for name in LAYERS})
    green(project.build(PIPELINE))
    feedback(project, "Tasks have a note.\n")
    intent = value("intent")
    _fields(intent).append({"name": "note", "type": "text", "required": False})
    answered(project, answers | {"intent": [json.dumps(evolved(intent))]})
    planned_then_built(project)
    assert layers_asked(project) == KNOW_FIELDS


# what an architect may write of a layer of kind `app` in `backend/` that is an interface
INTERFACES: dict[str, list[str]] = {
    "it shows pages": ["app", "pages"],
    "it shows one page": ["app/title", "pages/[name=tasks]"],
    "it is a command line": ["actions"],
    "it names an entity": ["app", "entities/[name=task]/name"],
}


@pytest.mark.parametrize("what", INTERFACES)
def test_an_app_that_is_an_interface_is_reached_by_changed_fields(project: Project, what: str) -> None:
    architecture = value("architecture")
    architecture["execution_layers"][3]["intent"] = INTERFACES[what]
    answers = {"intent": [answer("intent")], "architecture": [json.dumps(architecture)]}
    answered(copied(project), answers | {f"layers@{name}": [answer(f"layers@{name}")] for name in LAYERS})
    green(project.build(PIPELINE))
    feedback(project, "Tasks have a note.\n")
    intent = value("intent")
    _fields(intent).append({"name": "note", "type": "text", "required": False})
    answered(project, answers | {"intent": [json.dumps(evolved(intent))]})
    planned_then_built(project)
    assert layers_asked(project) == set(LAYERS)


@pytest.mark.stride(5)
@pytest.mark.parametrize("what", ARCHITECTURE)
def test_a_change_of_the_architecture_reaches_exactly_the_layers_whose_entry_changed(app: Project, what: str) -> None:
    change, reached = ARCHITECTURE[what]
    architecture = value("architecture")
    change(architecture["execution_layers"])
    answered(
        app,
        {
            "intent": [json.dumps(evolved(value("intent")))],
            "architecture": [json.dumps(architecture)],
            "layers@more": [json.dumps({"backend/models/more.py": "X = 1\n"})],
        },
    )
    planned_then_built(app)
    assert layers_asked(app) == reached


def test_only_layers_that_changed_or_stand_on_changed_files_are_verified(app: Project) -> None:
    """The app and the ui stand on the routes; models and services do not."""
    routes = json.loads(answer(f"layers@{ROUTES}"))
    routes["writes"][0]["content"] += "\n# another version\n"
    intent = value("intent")
    intent["actions"][0]["does"] = "Other."
    answered(
        app,
        {
            "intent": [json.dumps(evolved(intent))],
            "architecture": [answer("architecture")],
            f"layers@{ROUTES}": [json.dumps(routes)],
        },
    )
    green(app.build(PIPELINE))
    assert asked(app) == ["intent", "architecture", f"layers@{SERVICES}", f"layers@{ROUTES}"]
    finished = {name: ends(app)[f"layers@{name}"] for name in LAYERS}
    assert finished == {MODELS: "fresh", SERVICES: "built", ROUTES: "built", APP_: "verified", UI: "verified"}
    verified = {event["role"].removeprefix("layers@") for event in app.events_of("check_result")}
    assert verified & set(LAYERS) == {SERVICES, ROUTES, APP_, UI}
