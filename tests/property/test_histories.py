"""Histories of a project, played through the real thing and through the oracle: both must do the same.

Programs and the model of the tiny language are functions here, so that a build takes milliseconds; everything else is
as the command line wires it. A crash is an exception at the n-th effect, after which no effect succeeds any more.
"""

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from orch23.cli import build_parts, build_run, project_loading
from orch23.cli.parameters import GivenOptions
from orch23.decide.dry_run import preview
from orch23.decide.open_pipeline import OpeningOptions
from orch23.model.action import Action, ActionOutcome, ActionResult, Completed, InputsChanged, Output
from orch23.model.digest import FileEntry
from orch23.model.errors import MissingBytesError, Orch23Error
from orch23.model.event import Event
from orch23.model.llm import Request, Response
from orch23.store.content_store import DiskContentStore
from orch23.store.exchanges import Exchanges
from orch23.store.lock_file import write_lock
from orch23.store.promotion import Promoter
from orch23.store.records import Records
from orch23.store.run_logs import Journal
from tests.property.oracle import (
    GROUPS,
    Forecast,
    Oracle,
    Sketch,
    answer,
    author_files,
    bodies,
    read_state,
    run_program,
    sha,
)

START = datetime(2026, 2, 15, 14, 30, 22, tzinfo=UTC)
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
RAM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
KEPT_OUT = (".orch23/", "logs/")


class CrashError(Exception):
    """The process dies here."""


@dataclass
class Fuse:
    """Counts effects, and dies at one of them and at every later one."""

    at: int | None = None
    seen: list[str] = field(default_factory=list)

    def __call__(self, what: str) -> None:
        self.seen.append(what)
        if self.at is not None and len(self.seen) > self.at:
            raise CrashError(what)


@dataclass
class Build:
    """What one build did."""

    code: int
    decisions: dict[str, str]
    ends: dict[str, str]
    calls: list[str]
    programs: list[tuple[str, ...]]
    problems: tuple[str, ...] = ()
    crashed: bool = False
    effects: int = 0


class _Screen:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def notice(self, event: Event) -> None:
        self.events.append(event)


class _Executor:
    """Runs the programs of the tiny language on the bytes that a sandbox directory would be placed with."""

    sandbox = "none"

    def __init__(self, sources: Any, contents: Any, ran: list[tuple[str, ...]]) -> None:
        self._sources, self._contents, self._ran = sources, contents, ran
        self._turned_away = 0

    def run(self, action: Action, hear: Callable[[str], None] | None = None) -> ActionOutcome:
        files, lost = {}, []
        for path, entry in action.inputs.items():
            try:
                files[path] = self._sources.read(path, entry).decode()
            except MissingBytesError:
                lost.append(path)
        if lost:
            self._turned_away += 1
            assert self._turned_away < 3, f"asked again and again for {lost}, which nobody has"
            return InputsChanged(tuple(lost))
        if action.argv[0] == "bash":  # looks up the programs of `verify`: all of them are there
            return Completed(ActionResult(exit_code=0, written={}, output=Output("/usr/bin\n")))
        self._ran.append(action.argv)
        code, written = run_program(action.argv, files)
        entries = {path: FileEntry(self._contents.put(text.encode())) for path, text in written.items()}
        entries = {path: entry for path, entry in entries.items() if action.inputs.get(path) != entry}
        return Completed(ActionResult(exit_code=code, written=entries, output=Output("")))

    def cancel(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class _Model:
    asked: list[str]

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        self.asked.append(request.fingerprint())
        return Response(text=answer(json.loads(request.messages[-1].content)))


class Rig:
    """A project of the tiny language and the real thing on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.ticks = 0

    def author(self, sketch: Sketch) -> None:
        for path, text in author_files(sketch).items():
            self.write(path, text)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def files(self) -> dict[str, str]:
        """Return all files but those that orch23 keeps for itself."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if path.is_file() and not name.startswith(KEPT_OUT):
                found[name] = path.read_text()
        return found

    def everything(self) -> dict[str, bytes]:
        return {
            p.relative_to(self.root).as_posix(): p.read_bytes() for p in sorted(self.root.rglob("*")) if p.is_file()
        }

    def _open(self) -> project_loading.Project:
        self.ticks += 1
        settings = project_loading.ProjectSettings(
            root=self.root,
            pipeline_path=self.root / "pipeline.yaml",
            environ={"PATH": "/usr/bin:/bin", "ORCH23_TRUST": "1"},
            clock=lambda: START + timedelta(seconds=self.ticks),
        )
        return project_loading.open_project(settings)

    def plan(self, **asked: Any) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return what a plan says of each stage, and the dead files."""
        with _quick():
            try:
                opened = project_loading.open_for_reading(self._open(), OpeningOptions(**asked))
                seen = preview(opened)
            except Orch23Error as error:
                return {"!": str(int(error.exit_code))}, ()
        return {name: decision.label for name, decision in seen.decisions.items()}, seen.obsolete

    def build(self, *, crash_at: int | None = None, **asked: Any) -> Build:
        screen, fuse = _Screen(), Fuse(crash_at)
        calls: list[str] = []
        programs: list[tuple[str, ...]] = []
        crashed = False
        problems: tuple[str, ...] = ()
        with _quick(), _doubled(calls, programs), _fused(fuse):
            try:
                code = build_run.run_build(
                    self._open(), build_parts.BuildRequest(keep_going=True, given=GivenOptions(**asked)), screen
                )
            except CrashError:
                code, crashed = -1, True
                if fuse.seen[fuse.at or 0] == "keep an answer" and calls:
                    calls.pop()  # it arrived, and the machine died before it could be written
            except Orch23Error as error:
                code, problems = int(error.exit_code), tuple(str(d) for d in error.diagnostics)
        decisions = {e.role: str(e.facts()["decision"]) for e in screen.events if e.type == "stage_decided"}
        ends = {e.role: str(e.facts()["status"]) for e in screen.events if e.type == "stage_finished"}
        ended = [e for e in screen.events if e.type == "stage_finished"]
        problems += tuple(str(e.facts()["failure"]) for e in ended if e.facts()["failure"])
        return Build(code, decisions, ends, calls, programs, problems, crashed, len(fuse.seen))


@contextmanager
def _quick() -> Iterator[None]:
    """No durability where the machine does not really die."""
    with patch("os.fsync", lambda _fd: None), patch("orch23.store.promotion.sync_filesystem", lambda _p: None):
        yield


@contextmanager
def _doubled(calls: list[str], programs: list[tuple[str, ...]]) -> Iterator[None]:
    def executor(*, sandbox_dirs: Any, contents: Any, **_: Any) -> _Executor:
        return _Executor(sandbox_dirs.sources, contents, programs)

    with (
        patch.object(build_run, "LocalExecutor", executor),
        patch("orch23.providers.command.CommandAdapter.make", lambda *_: _Model(calls)),
    ):
        yield


@contextmanager
def _fused(fuse: Fuse) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, label in (
            (DiskContentStore, "put", "keep bytes"),
            (Records, "put", "keep a record"),
            (Exchanges, "put", "keep an answer"),
            (Exchanges, "put_original", "keep a version 0"),
            (Promoter, "_write", "promote a file"),
            (Promoter, "_remove", "remove a file"),
            (Promoter, "_apply", "promote"),
            (Journal, "notice", "write a line of the journal"),
        ):
            stack.enter_context(patch.object(owner, name, _guarded(fuse, label, getattr(owner, name))))
        guarded = _guarded(fuse, "write the lock", write_lock)
        stack.enter_context(patch("orch23.decide.open_pipeline.write_lock", guarded))
        yield


def _guarded(fuse: Fuse, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Any:
        fuse(name)
        return inner(*args, **kwargs)

    return guarded


# ---- histories -------------------------------------------------------------------------------------

SOURCES = {
    "src/a.txt": ("a", "b", "abc"),
    "src/b.txt": ("ab", "b", "", "cd"),
    "src/items.txt": ("x:p y:pq z:q", "x:p z:q", "y:pq x:p", "x:p", "w:r x:p y:pq", "z:q y:pq x:p"),
    "src/pars.json": ('["m","n"]', '["n"]', '["n","o","m"]', "[]"),
    "spec.md": ("# One\nuno\n# Two\ndos\n", "# One\nuno\n# Two\ndue\n", "# One\nun\n# Two\ndos\n"),
}
TESTS = {
    "tests/all.txt": ("", "T(", "Tc"),
    "tests/solo.txt": ("", "!", "b", "nowhere"),
    "tests/code.txt": ("", "!", "due", "nowhere", "1x"),
    "tests/par.txt": ("", "m(", "n(", "U"),
}
EDITABLE = (
    "build/a.txt",
    "build/h.txt",
    "build/all.txt",
    "alone/solo.txt",
    "work/p.txt",
    "work/q.txt",
    "work/r.txt",
    "build/split/a.txt",
    "build/plan.json",
    "out/n.txt",
    "build/fin.txt",
    "build/page.txt",
)
CHANGES = (
    *("edit_source", "edit_source", "edit_source", "edit_test", "retag", "reprompt", "rename", "toggle", "gather"),
    *("edit_output", "delete_output", "keep_branch", "switch_branch", "lose_store", "lose_lock"),
)
HOW = ("build", "build", "build", "build", "overwrite", "force", "crash")
TAGGED = ("upper", "split", "all", "par", "fin")
NAMED = ("upper", "all", "solo", "plan", "code", "par", "fin")


class Histories(RuleBasedStateMachine):
    """A project, what people do to it, and what a build then does."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="history", dir=RAM))
        self.rig = Rig(self.folder / "p")
        self.asked: set[str] = set()
        self.branches: dict[str, dict[str, str]] = {}
        self.sketches: dict[str, Sketch] = {}
        self.green = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(groups=st.sets(st.sampled_from(sorted(GROUPS)), min_size=1), data=st.data(), transcripts=st.booleans())
    def start(self, groups: set[str], data: st.DataObject, transcripts: bool) -> None:
        together = data.draw(st.frozensets(st.sampled_from(["par", "code"])), label="together")
        self.sketch = Sketch(frozenset(groups), transcripts=transcripts, together=together)
        for path, texts in (SOURCES | TESTS).items():
            self.rig.write(path, texts[0])
        for path in data.draw(st.sets(st.sampled_from(["alone/solo.txt", "work/p.txt", "work/q.txt", "work/own.txt"]))):
            self.rig.write(path, f"<{path[5]}>")
        self.rig.author(self.sketch)

    # ---- one round: something changes, then somebody builds ----

    @rule(data=st.data(), changes=st.lists(st.sampled_from(CHANGES), max_size=3), how=st.sampled_from(HOW))
    def live(self, data: st.DataObject, changes: list[str], how: str) -> None:
        for change in changes:
            note(f"  {change}")
            getattr(self, f"_{change}")(data)
        match how:
            case "crash":
                at = data.draw(st.integers(0, 80), label="crash at effect")
                self._note(self.rig.build(crash_at=at, overwrite_edited=data.draw(st.booleans(), label="overwrite")))
                for change in data.draw(
                    st.lists(st.sampled_from(["edit_source", "edit_test", "edit_output"]), max_size=1)
                ):
                    getattr(self, f"_{change}")(data)
                self._build()
            case "force":
                self._build(forced=(self.sketch.name(data.draw(st.sampled_from(NAMED), label="force")),))
            case "overwrite":
                self._build(overwrite_edited=True)
            case _:
                self._build()

    def _edit_source(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(SOURCES)), label="path")
        self.rig.write(path, data.draw(st.sampled_from(SOURCES[path]), label="text"))

    def _edit_test(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(TESTS)), label="path")
        self.rig.write(path, data.draw(st.sampled_from(TESTS[path]), label="text"))

    def _retag(self, data: st.DataObject) -> None:
        stage = data.draw(st.sampled_from(TAGGED), label="stage")
        self._resketch(tags={**self.sketch.tags, stage: data.draw(st.sampled_from("TU"), label="tag")})

    def _reprompt(self, data: st.DataObject) -> None:
        rev, page = (
            data.draw(st.sampled_from(["r1", "r2"]), label="rev"),
            data.draw(st.sampled_from("12"), label="page"),
        )
        self._resketch(rev=rev, page=page)

    def _rename(self, data: st.DataObject) -> None:
        stage = data.draw(st.sampled_from(NAMED), label="stage")
        prefix = data.draw(st.sampled_from(["", "a-", "z-"]), label="prefix")
        self._resketch(names={**self.sketch.names, stage: prefix + stage})

    def _toggle(self, data: st.DataObject) -> None:
        gone = self.sketch.gone ^ {
            data.draw(st.sampled_from(["split", "page", "solo", "par", "code", "fin"]), label="stage")
        }
        if bodies(dataclasses.replace(self.sketch, gone=gone)):
            self._resketch(gone=gone)

    def _gather(self, data: st.DataObject) -> None:
        self._resketch(together=data.draw(st.frozensets(st.sampled_from(["par", "code"])), label="together"))

    def _resketch(self, **changed: Any) -> None:
        self.sketch = dataclasses.replace(self.sketch, **changed)
        self.rig.author(self.sketch)

    def _edit_output(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(EDITABLE), label="path")
        self.rig.write(path, data.draw(st.sampled_from(["hand", "HAND"]), label="text"))

    def _delete_output(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(EDITABLE), label="path")
        if (self.rig.root / path).exists():
            self.rig.remove(path)

    def _keep_branch(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(["one", "two"]), label="branch")
        self.branches[name] = {p: t for p, t in self.rig.files().items() if not p.startswith("kept/")}
        self.sketches[name] = self.sketch

    def _switch_branch(self, data: st.DataObject) -> None:
        if not self.branches:
            return
        name = data.draw(st.sampled_from(sorted(self.branches)), label="branch")
        for path in self.rig.files():
            if not path.startswith("kept/"):
                self.rig.remove(path)
        for path, text in self.branches[name].items():
            self.rig.write(path, text)
        self.sketch = self.sketches[name]

    def _lose_store(self, _data: st.DataObject) -> None:
        shutil.rmtree(self.rig.root / ".orch23", ignore_errors=True)
        if not self.sketch.transcripts:
            self.asked.clear()

    def _lose_lock(self, _data: st.DataObject) -> None:
        (self.rig.root / "pipeline.lock").unlink(missing_ok=True)

    # ---- what a build does ----

    def _note(self, done: Build) -> None:
        again = [one for one in done.calls if one in self.asked]
        assert not again, f"asked twice: {again}"
        assert len(done.calls) == len(set(done.calls)), "asked twice in one build"
        self.asked.update(done.calls)

    def _build(self, **asked: Any) -> None:
        before = self.rig.files()
        half_promoted = (self.rig.root / ".orch23/promote.json").exists()
        planned, dead = self.rig.plan(**asked)
        foreseen = None
        if not half_promoted:
            overwrite = bool(asked.get("overwrite_edited"))
            state = read_state(self.rig.root, before)
            foreseen = Oracle(self.sketch, state, forced=asked.get("forced", ()), overwrite=overwrite).run()
            note(f"foreseen {foreseen.decisions} {foreseen.ends} calls {foreseen.calls}")
        done = self.rig.build(**asked)
        note(f"planned {planned} dead {dead}")
        note(f"done {done}")
        assert done.code in (0, 1, 6, 65), done
        self._note(done)
        self._as_planned(planned, done)
        after = self.rig.files()
        if foreseen is not None:
            self._as_foreseen(foreseen, done, after)
        owned = ("build/", "work/", "alone/", "out/", "kept/", "pipeline.lock")
        for path in before.keys() | after.keys():
            if not path.startswith(owned):
                assert before.get(path) == after.get(path), path
        assert before.get("work/own.txt") == after.get("work/own.txt")
        if done.code == 0:
            self._settled(after)

    def _as_planned(self, planned: dict[str, str], done: Build) -> None:
        for name, said in planned.items():
            did = done.decisions.get(name) or done.ends.get(name, "")
            if name == "!":
                assert done.code == int(said), (planned, done.code)
            elif said == "maybe":
                assert did in {"fresh", "restore", "verify", "run", "blocked"}, (name, said, did)
            elif said not in {"expand", did}:
                assert did == "blocked", f"{name}: plan said {said}, build did {did}"
                assert self._unforeseen(planned, done), f"{name}: plan said {said}, build did {did}"

    def _as_foreseen(self, foreseen: Forecast, done: Build, after: dict[str, str]) -> None:
        assert done.decisions == foreseen.decisions
        assert done.ends == foreseen.ends
        assert len(done.calls) == foreseen.calls
        assert sorted(done.programs) == sorted(foreseen.programs)
        there = {p: sha(t) for p, t in self._comparable(after).items()}
        wanted = self._comparable(foreseen.files)
        differing = sorted(p for p in there.keys() | wanted.keys() if there.get(p) != wanted.get(p))
        assert not differing, f"{differing}: {[after.get(p) for p in differing]}"

    def _unforeseen(self, planned: dict[str, str], done: Build) -> bool:
        """Say whether something failed, or an item was edited that the plan could not know of yet."""
        expanded = {name for name, end in done.ends.items() if end in ("edited", "blocked") and name not in planned}
        return "failed" in done.ends.values() or bool(expanded)

    def _settled(self, after: dict[str, str]) -> None:
        planned, dead = self.rig.plan()
        if [name for name, said in planned.items() if said != "fresh"] == ["page"]:
            # A listing cannot wait for the items of a foreach: a file that a person edited, and that then lost its
            # item in this very build, is that person's only from the next one on.
            assert self.rig.build().decisions["page"] in ("run", "restore")
            planned, dead = self.rig.plan()
            after = self.rig.files()
        assert set(planned.values()) <= {"fresh"}, f"a plan after a green build: {planned}"
        assert not dead
        again = self.rig.build()
        note(f"again {again}")
        assert not again.calls
        assert not again.programs
        assert set(again.decisions.values()) <= {"fresh"}, again
        assert again.code == 0
        assert self.rig.files() == after
        self.green += 1
        if THOROUGH or self.green % 3 == 1:
            self._clean(after)

    def _clean(self, after: dict[str, str]) -> None:
        """A clean build with the same transcripts and lock gives the same bytes, and asks no one."""
        if not self.sketch.transcripts:
            return
        clean = Rig(self.folder / "clean")
        made = {
            path for one in json.loads(after["pipeline.lock"])["records"].values() if one for path in one["outputs"]
        }
        for path in after.keys() - made:
            clean.write(path, after[path])
        done = clean.build()
        note(f"clean {done}")
        found = clean.files()
        shutil.rmtree(clean.root)
        assert done.code == 0, done
        assert not done.calls
        assert self._comparable(found) == self._comparable(after)

    def _comparable(self, files: dict[str, str]) -> dict[str, str]:
        return {p: t for p, t in files.items() if not p.startswith("kept/") and p != "pipeline.lock"}


def history_settings(*, examples: int, steps: int) -> settings:
    """Return how many histories of how many steps are played on each run; all of them are longer in `make thorough`."""
    return settings(
        deadline=None,
        derandomize=not THOROUGH,
        database=None,
        max_examples=400 if THOROUGH else examples,
        stateful_step_count=10 if THOROUGH else steps,
        phases=(Phase.generate, Phase.shrink),  # explaining traces every line, and makes a build ten times as slow
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        print_blob=True,
    )


TestHistories = pytest.mark.slow(pytest.mark.timeout(7200 if THOROUGH else 300)(Histories.TestCase))
TestHistories.settings = history_settings(examples=2, steps=4)


# ---- histories that were found, and stay fixed ----------------------------------------------------


def built_chain(root: Path) -> Rig:
    """Return a project with a chain, a page and shell stages, after its first build."""
    rig = Rig(root)
    for path, texts in (SOURCES | TESTS).items():
        rig.write(path, texts[0])
    rig.author(Sketch(frozenset({"chain", "page", "shells"})))
    assert rig.build().code == 0
    return rig


@pytest.fixture
def chain(tmp_path: Path) -> Rig:
    return built_chain(tmp_path / "p")


@pytest.mark.slow
def test_a_changed_verification_is_run_on_bytes_that_are_made_again_from_the_answers(chain):
    shutil.rmtree(chain.root / ".orch23")
    chain.write("tests/code.txt", "[r1")
    done = chain.build()
    assert done.decisions["code@x"] == "verify"
    assert done.ends["code@x"] == "verified"
    assert not done.calls


@pytest.mark.slow
def test_a_listing_does_not_change_where_the_lock_is_lost(chain):
    (chain.root / "pipeline.lock").unlink()
    assert set(chain.build().decisions.values()) == {"fresh"}


@pytest.mark.slow
def test_a_plan_counts_with_what_it_restores(chain):
    chain.remove("work/p.txt")
    planned, _ = chain.plan()
    assert (planned["code@y"], planned["code@z"]) == ("restore", "fresh")
    assert chain.build().decisions == planned


@pytest.mark.slow
def test_a_model_may_write_over_its_own_file_where_the_lock_is_lost(chain):
    (chain.root / "pipeline.lock").unlink()
    chain.author(Sketch(frozenset({"chain", "page", "shells"}), rev="r2"))
    assert chain.build().code == 0


@pytest.mark.slow
def test_a_lost_version_that_a_later_item_needs_is_made_again(chain):
    shutil.rmtree(chain.root / ".orch23")
    shutil.rmtree(chain.root / "kept")
    chain.write("spec.md", SOURCES["spec.md"][1])
    assert chain.build().code == 0


def test_a_file_that_no_one_knows_is_left_in_a_folder_that_a_stage_owns(tmp_path):
    rig = Rig(tmp_path / "p")
    for path, texts in (SOURCES | TESTS).items():
        rig.write(path, texts[0])
    rig.author(Sketch(frozenset({"shells"})))
    rig.write("build/split/a.txt", "mine")
    done = rig.build()
    assert (done.code, done.ends["split"]) == (6, "edited")
    assert rig.files()["build/split/a.txt"] == "mine"
