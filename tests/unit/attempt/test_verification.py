"""What a result must pass: its outputs, checks, processes on copies of it, conditions, and its lists on trial."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from orch23.attempt.failures import Failure
from orch23.attempt.process_runner import Files, ProcessRunner
from orch23.attempt.run_events import Reporter
from orch23.attempt.verification import Verifier, first_errors, undeclared_writes
from orch23.checks.check import Check, CheckInput
from orch23.model.action import Action, ActionOutcome, ActionResult, Completed, Output, TimedOut
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.digest import FileEntry
from orch23.model.event import CheckResult, Event, Warned
from orch23.model.pipeline import CheckStep, CommandsStep, Condition, Stage, Verify, WriteScope
from orch23.model.plugins import Registry, type_validator
from orch23.model.step import VerifyStep
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.shell.spec import ShellStep
from orch23.text.secrets import Secrets
from tests.doubles import FakeExecutor, MemoryContents, completed
from tests.unit.engine.rig import FACTS, entry, model

Judge = Callable[[CheckInput], tuple[Diagnostic, ...]]


def process(name: str) -> ShellStep:
    return ShellStep(("test", name))


class Bench:
    """A verifier over files in memory. A process fails if `failing` has its name, and writes into its tree."""

    def __init__(self, *steps: VerifyStep, checks: Mapping[str, Judge] | None = None, **more: Any) -> None:
        facts: dict[str, Any] = {"step": ShellStep(("x",)), "outputs": ("out",), "fence": WriteScope(("out",)), **more}
        run_all = facts.pop("run_all", False)
        self.resolved = ResolvedStage(
            stage=Stage(name="s", verify=Verify(steps, run_all=run_all), **facts),
            manifest={},
            key="k",
            core="c",
            identity="",
            facts=FACTS,
            files={},
            base={},
            verify_files={},
            given=(),
        )
        self.contents = MemoryContents()
        own = {name: Check(name, 1, run) for name, run in (checks or {}).items()}
        self.checks = Registry(own, "", (), type_validator(Check))
        self.failing: set[str] = set()
        self.late: set[str] = set()
        self.beyond: set[str] = set()
        self.executor = FakeExecutor(self._run)
        self.events: list[Event] = []
        self.artifacts: dict[str, str] = {}
        self.tried: list[Files] = []
        self.wrong_items: tuple[Diagnostic, ...] = ()
        self.previous: Files = {}

    def files(self, **texts: str) -> Files:
        return {path: FileEntry(self.contents.put(text.encode())) for path, text in texts.items()}

    def verify(self, result: Files | None = None, tree: Files | None = None, attempt: int = 1) -> Failure | None:
        result = self.files(out="made") if result is None else result
        report = Reporter(
            observer=self, artifacts=cast("Any", self), redact=Secrets({"T": "wunderbar-4711"}).redact
        ).of_stage("s")
        runner = ProcessRunner(
            stage=self.resolved.stage,
            facts=FACTS,
            executor=self.executor,
            contents=self.contents,
            tree=cast("Any", self),
            redact=str,
            trust=lambda: cast("Any", SimpleNamespace(refused=lambda *_: ())),
            report=report,
        )
        verifier = Verifier(
            resolved=self.resolved,
            runner=runner,
            trial=self.trial,
            previous=self.previous,
        )
        with patch("orch23.checks.registry.available_checks", lambda _plugins: self.checks):
            return verifier.verify(result, result if tree is None else tree, attempt)

    def ran(self) -> list[str]:
        return [action.argv[-1] for action in self.executor.actions]

    def reported(self) -> list[tuple[str, bool]]:
        return [(one.data.step, one.data.passed) for one in self.events if isinstance(one.data, CheckResult)]

    def trial(self, files: Files) -> tuple[Diagnostic, ...]:
        self.tried.append(files)
        return self.wrong_items

    def _run(self, action: Action) -> ActionOutcome:
        name = action.argv[-1]
        if name in self.late:
            return TimedOut(output=Output(""), timeout_s=1.0)
        if name in self.beyond:
            return Completed(ActionResult(exit_code=0, written={}, violations=(Diagnostic("E305", "made a link"),)))
        return completed(int(name in self.failing), written={"litter": "x"}, text=f"{name} says wunderbar-4711")

    # as an observer, as what keeps artifacts, and as a tree
    def notice(self, event: Event) -> None:
        self.events.append(event)

    def keep(self, _stage: str, attempt: int, name: str, text: str) -> None:
        self.artifacts[f"{attempt}/{name}"] = text

    def read(self, _path: str, wanted: FileEntry) -> bytes:
        return self.contents.get(wanted.digest)


def says(code: str, severity: Severity = Severity.ERROR) -> Judge:
    return lambda _given: (Diagnostic(code, "the check says so", severity=severity),)


def codes(failure: Failure | None) -> list[str]:
    return [] if failure is None else [one.code for one in failure.diagnostics]


# ---- outputs ----------------------------------------------------------------------------------------


def test_a_missing_output_fails_before_any_verification_step_runs() -> None:
    bench = Bench(process("one"), outputs=("out", "dir/", "also"))
    failure = bench.verify(bench.files(out="x"))
    assert failure is not None
    assert [one.message for one in failure.diagnostics] == [
        "nothing was written below `dir/`",
        "`also` was not written",
    ]
    assert bench.ran() == []


def test_a_program_may_leave_an_output_as_its_base_is_and_a_model_may_not() -> None:
    bench = Bench()
    tree = bench.files(out="as it was")
    assert bench.verify({}, tree) is None
    bench.resolved = replace(bench.resolved, stage=replace(bench.resolved.stage, step=model()))
    assert codes(bench.verify({}, tree)) == ["E303"]


# ---- steps ------------------------------------------------------------------------------------------


def test_checks_come_before_processes_and_the_first_failure_is_the_last_step() -> None:
    bench = Bench(process("one"), CheckStep("c"), process("two"), checks={"c": lambda _given: ()})
    bench.failing = {"one"}
    failure = bench.verify()
    assert bench.reported() == [("check c", True), ("test one", False)]
    assert failure is not None
    assert (failure.kind, failure.feedback.exit_code, failure.summary) == ("verify_failed", 1, "verify: exited with 1")
    assert bench.tried == [], "the items of its lists are looked at last"


def test_with_all_every_step_runs_and_their_failures_are_one() -> None:
    bench = Bench(
        process("one"), process("two"), process("three"), CheckStep("c"), run_all=True, checks={"c": says("E9")}
    )
    bench.failing = {"one", "three"}
    failure = bench.verify()
    assert bench.ran() == ["one", "two", "three"]
    assert failure is not None
    assert failure.feedback.command == "check c; test one; test three"
    assert failure.summary.endswith("(and 2 more failed)")
    assert codes(failure) == ["E9"]


def test_of_several_failures_the_gravest_decides_whether_there_is_a_further_attempt() -> None:
    bench = Bench(process("one"), process("two"), run_all=True)
    bench.failing, bench.beyond = {"one"}, {"two"}
    failure = bench.verify()
    assert failure is not None
    assert (failure.kind, failure.safety, failure.retryable) == ("write_scope_violation", True, False)


def test_each_process_gets_a_copy_of_its_own_of_the_result_and_its_inputs() -> None:
    bench = Bench(process("one"), process("two"))
    given = bench.files(i="input")
    former = bench.files(out="base", kept="base", deleted="base")
    bench.resolved = replace(bench.resolved, files={**given, **former}, verify_files=bench.files(t="test"), base=former)
    result = bench.files(out="made")
    assert bench.verify(result, {**result, "kept": former["kept"]}) is None
    one, two = [dict(action.inputs) for action in bench.executor.actions]
    assert one == two == {**given, **bench.files(t="test", out="made"), "kept": former["kept"]}
    assert all(action.writable is not None for action in bench.executor.actions), "the tree is read-only"


def test_output_of_a_passing_process_is_kept_without_secrets() -> None:
    bench = Bench(process("one"))
    bench.verify(attempt=3)
    assert list(bench.artifacts) == ["3/verify-1.txt"]
    assert "one says" in bench.artifacts["3/verify-1.txt"]
    assert "wunderbar" not in bench.artifacts["3/verify-1.txt"]


def test_a_check_sees_the_result_the_last_one_and_the_inputs() -> None:
    seen: list[CheckInput] = []

    def look(given: CheckInput) -> tuple[Diagnostic, ...]:
        seen.append(given)
        return ()

    bench = Bench(CheckStep("c", {"most": 3}), checks={"c": look})
    bench.resolved = replace(bench.resolved, files=bench.files(i="input"), listings={"l/*": ("l/1",)})
    bench.previous = bench.files(out="last")
    assert bench.verify() is None
    assert seen == [
        CheckInput(
            outputs={"out": b"made"},
            previous={"out": b"last"},
            inputs={"i": b"input"},
            listings={"l/*": ("l/1",)},
            options={"most": 3},
        )
    ]


def test_a_warning_of_a_check_is_reported_and_fails_nothing() -> None:
    bench = Bench(CheckStep("c"), checks={"c": says("W9", Severity.WARNING)})
    assert bench.verify() is None
    assert [one.data.code for one in bench.events if isinstance(one.data, Warned)] == ["W9"]


@pytest.mark.parametrize(
    ("condition", "broken"),
    [
        (Condition("file_exists", "out"), ""),
        (Condition("file_exists", "gone"), "file_exists gone: it is not there"),
        (Condition("file_absent", "out"), "file_absent out: it is there"),
        (Condition("file_absent", "gone"), ""),
        (Condition("file_exists", "d"), "file_exists d: it is a folder"),
        (Condition("file_exists", "d/"), ""),
    ],
)
def test_conditions_are_checked_against_the_whole_tree(condition: Condition, broken: str) -> None:
    bench = Bench(ensures=(condition,))
    result = bench.files(out="made")
    failure = bench.verify(result, {**result, "d/f": entry("")})
    assert ([] if failure is None else [one.message for one in failure.diagnostics]) == ([broken] if broken else [])


def test_all_commands_of_a_model_run_and_the_failure_has_their_output() -> None:
    bench = Bench(CommandsStep(allow=("python",), commands=("python one", "python two", "python three")))
    bench.failing = {"one", "three"}
    failure = bench.verify()
    assert bench.ran() == ["one", "two", "three"]
    assert failure is not None
    assert (failure.kind, failure.summary) == ("acceptance_failed", "verify: exited with 1 (and 1 more failed)")
    order = [failure.feedback.excerpt.index(f"{name} says") for name in ("one", "three", "two")]
    assert order == sorted(order), "those that failed come first"


def test_a_command_that_is_late_is_that_failure_and_no_further_one_runs() -> None:
    bench = Bench(CommandsStep(allow=("python",), commands=("python one", "python two", "python three")))
    bench.failing, bench.late = {"one"}, {"two"}
    failure = bench.verify()
    assert failure is not None
    assert (failure.kind, bench.ran()) == ("timeout", ["one", "two"])


def test_a_list_with_wrong_items_does_not_pass_for_its_maker() -> None:
    bench = Bench(process("one"))
    bench.wrong_items = (Diagnostic("E825", "item 0 has no usable key"),)
    assert codes(bench.verify()) == ["E825"]
    assert bench.tried == [bench.files(out="made")]


# ---- where a step may write -----------------------------------------------------------------------------


def no_links(_: str) -> tuple[str, ...]:
    return ()


def test_a_program_may_write_only_outputs_and_the_write_scope() -> None:
    fence = WriteScope(("work/",), protect=("work/keep/",))
    stage = Stage(name="s", step=ShellStep(("x",)), outputs=("out",), fence=fence)
    changed = {
        "out": entry("1"),
        "work/a": entry("1"),
        "work/keep/b": entry("1"),
        "elsewhere": entry("1"),
        "in": None,
        "p.lock": entry("1"),
    }
    wrong = undeclared_writes(stage, changed, {"in": entry("0")}, no_links, ("p.lock",))
    assert {path: one.message for path, one in wrong.items()} == {
        "elsewhere": "the step wrote `elsewhere`: it is outside the fence",
        "in": "the step removed `in`: it is an input of the stage",
        "p.lock": "the step wrote `p.lock`: it is outside the fence",
        "work/keep/b": "the step wrote `work/keep/b`: it is protected",
    }
    inside = replace(stage, fence=WriteScope(("**",)))
    assert list(undeclared_writes(inside, {"p.lock": entry("1")}, {}, no_links, ("p.lock",))) == ["p.lock"]


def test_of_many_wrong_paths_the_first_are_reported_and_the_rest_counted() -> None:
    stage = Stage(name="s", step=ShellStep(("x",)), outputs=("out",))
    wrong = undeclared_writes(stage, {f"f{n:02}": entry("") for n in range(25)}, {}, no_links)
    short = first_errors(wrong)
    assert (len(short), short[-1].message) == (21, "so it did with 5 more paths")
