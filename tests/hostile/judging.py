"""Run a real pytest over some files, in any tier of the sandbox, and judge it as a build does."""

from collections.abc import Callable, Mapping
from pathlib import Path

from orch23.attempt.process_runner import changed_tree_error, writable_paths
from orch23.execute.launch import NO_SANDBOX, Launcher
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.pytest_report import reporter_files
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.model.action import Action, ActionResult, Completed
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.pipeline import DEFAULT_SCRATCH, Stage
from orch23.runners.pytest import pytest_command
from orch23.steps.pytest.spec import PytestStep
from orch23.verdict.pytest_discovery import expected_tests
from orch23.verdict.verdict import Verdict, judge_pytest
from tests.doubles import memory


class Source:
    """Contents by path, as a dict."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def copy_into(self, path: str, entry: FileEntry, target: str) -> bool:
        Path(target).write_text(self.files[path])
        return digest_bytes(Path(target).read_bytes()) == entry.digest


class Judge:
    """Run pytest over some files and judge it."""

    def __init__(self, folder: Path, launcher: Launcher = NO_SANDBOX, redact: Callable[[str], str] = str) -> None:
        self.source = Source()
        rooms = SandboxDirs(folder, self.source)
        self.contents = memory()
        self.tools = {name: FileEntry(self.contents.put(data)) for name, data in reporter_files().items()}
        self.executor = LocalExecutor(
            sandbox_dirs=rooms, contents=self.contents, workers=1, launcher=launcher, redact=redact
        )

    def run(self, files: Mapping[str, str], step: PytestStep, **more: object) -> ActionResult:
        self.source.files = dict(files)
        command = pytest_command(step)
        fields: dict[str, object] = {
            "argv": command.argv,
            "env": command.env,
            "inputs": {p: FileEntry(digest_bytes(text.encode())) for p, text in files.items()},
            "scratch": DEFAULT_SCRATCH,
            "timeout_s": 60.0,
            "tools": self.tools,
            "reports": True,
            "writable": writable_paths(Stage(name="code", step=step), step, files.keys(), verifies=True),
            **more,
        }
        outcome = self.executor.run(Action(**fields))  # type: ignore[arg-type]  # spelled above
        assert isinstance(outcome, Completed), outcome
        return outcome.result

    def report(self, result: ActionResult) -> bytes | None:
        return None if result.report is None else self.contents.get(result.report)

    def verdict(self, files: Mapping[str, str], step: PytestStep | None = None) -> Verdict:
        step = step or PytestStep(args=("-q",))
        result = self.run(files, step)
        if result.touched:
            return Verdict(passed=False, diagnostics=tuple(map(changed_tree_error, result.touched)), parts=("changed",))
        expected = step.expect or expected_tests(files, step.paths)
        return judge_pytest(result.exit_code, self.report(result), expected, result.output.text)
