"""Each reader of events handles every type of them, or lists what it leaves out: a new event is ignored nowhere unseen.

If a test names a class here, handle the new event in it, or add its type to the `leaves_out` of the class.
"""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import orch23
from orch23.model import event as events
from orch23.model.event import EVENT_KINDS, Notice
from orch23.model.event_data import EventData
from orch23.model.sink import Sink

ROOT = Path(orch23.__file__).parent
# These pass on, write or count each event, of whatever type.
PASS_ALL = {
    "model.event.Observer": "the port",
    "model.sink.Sink": "the port",
    "report.formats.Fanout": "to several observers",
    "report.formats._WithFacts": "to a sink",
    "report.formats.RedactingObserver": "without secrets",
    "report.formats.Guarded": "until the other one fails",
    "report.live.LiveScreen": "to `TextScreen` and `RunningStages`",
    "report.jsonl.JournalCopy": "as the journal has it",
    "store.run_logs.Journal": "all lines of the journal",
    "store.run_state.StateFile": "to the fold of `state.json`, which has what a stage did last",
    "cli.idle_snapshot.IdleSnapshotWriter": "an event that it does not know is work",
    "features.cache.opening.HeldEvents": "when the run has a journal",
    "features.exports.github.GitHubScreen": "to `TextScreen`, and what failed comes from the facts of the run",
}


# Folds outside of these classes that read some types of events alone, and why none is missed.
PARTIAL = {
    "report.failures.failed_attempts": "a screen passes it those of attempts and their calls",
    "features.inspecting.runs._facts": "the message of each event is shown beside",
}


def classes() -> Iterator[tuple[str, ast.ClassDef, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        module, text = ".".join(path.relative_to(ROOT).with_suffix("").parts), path.read_text(encoding="utf-8")
        tree = ast.parse(text if "def notice(" in text or "leaves_out" in text else "")
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield f"{module}.{node.name}", node, tree


def reads_events(node: ast.ClassDef) -> bool:
    """Return whether a class gets events one by one."""
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "notice"]
    fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
    return bool(methods) or any(isinstance(one, ast.Name) and one.id == "leaves_out" for one in fields)


READERS = {name: tree for name, node, tree in classes() if reads_events(node)}


def named_types(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the classes that patterns and calls of `isinstance` name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.MatchClass):
            yield ast.unparse(node.cls)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            yield from (one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name))


def handled(tree: ast.AST) -> set[str]:
    """Return the types of the events that a module handles by their class, or by a base class of them."""
    found = [one for name in named_types(tree) if isinstance(one := getattr(events, name, None), type)]
    known = tuple(one for one in found if issubclass(one, EventData))
    return {kind for kind, one in EVENT_KINDS.items() if issubclass(one, known)}


@pytest.mark.parametrize("name", sorted(READERS.keys() - PASS_ALL.keys()))
def test_a_reader_handles_each_event_or_lists_it(name: str) -> None:
    module, _, class_name = name.rpartition(".")
    reader = getattr(import_module(f"orch23.{module}"), class_name)
    notices = [kind for kind, one in EVENT_KINDS.items() if issubclass(one, Notice)]
    left_out = [kind for word in reader.leaves_out.split() for kind in (notices if word == "notice" else [word])]
    # The facts of a run have its last event.
    by_facts = ["run_finished"] if getattr(reader, "finish", Sink.finish) is not Sink.finish else []
    assert sorted([*handled(READERS[name]), *by_facts, *left_out]) == sorted(EVENT_KINDS), name


def folds() -> Iterator[str]:
    """Yield each function that matches types of events, in a module without a reader."""
    modules = {name.rpartition(".")[0] for name in READERS}
    for path in sorted(ROOT.rglob("*.py")):
        module, text = ".".join(path.relative_to(ROOT).with_suffix("").parts), path.read_text(encoding="utf-8")
        if "match " not in text or module in modules:
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef):
                matches = [one for one in ast.walk(function) if isinstance(one, ast.Match)]
                if any(ast.unparse(one.subject).endswith("data") and handled(one) for one in matches):
                    yield f"{module}.{function.name}"


@pytest.mark.slow
def test_a_fold_without_a_reader_says_why_it_misses_no_event() -> None:
    # Readers of journals answer one question each.
    assert [one for one in folds() if not one.startswith("store.")] == sorted(PARTIAL)


def test_the_readers_that_pass_all_events_on_exist() -> None:
    missing = PASS_ALL.keys() - READERS.keys()
    assert {name for name in missing if (ROOT / "/".join(name.split(".")[:-1])).with_suffix(".py").exists()} == set()
