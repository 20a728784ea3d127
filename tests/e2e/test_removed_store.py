"""The store or the journals are removed while a build uses them, as `git clean -fdx` does."""

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.project import Project

PIPELINE = """\
version: 1
stages:
  a: {inputs: [i], outputs: [o/a], shell: "mkdir -p o; cp i o/a"}
  b: {inputs: [o/a], outputs: [o/b], shell: "cp o/a o/b"}
  r: {inputs: [o/b], outputs: [o/r], render: {template: t.j2}}
"""
_CALLS = ("open", "mkdir", "rename", "lstat", "stat", "unlink", "scandir", "fsync")


class _Remover:
    """Removes paths before the call number `at` that names a file; counts all such calls of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = self.count = 0
        self.paths: list[Any] = []
        for name in _CALLS:
            monkeypatch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self.at:
                for path in self.paths:
                    shutil.rmtree(path, ignore_errors=True)
            return real(*args, **options)

        return call


@pytest.fixture
def remover(monkeypatch: pytest.MonkeyPatch) -> _Remover:
    return _Remover(monkeypatch)


def _set_up(project: Project) -> None:
    for name in (".orch23", "logs", "o"):
        shutil.rmtree(project.root / name, ignore_errors=True)
    (project.root / "pipeline.lock").unlink(missing_ok=True)
    project.write({"pipeline.yaml": PIPELINE, "i": "1\n", "t.j2": "{{ inputs[0].text }}"})


_TRIES = 24 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 11


@pytest.mark.stride(5)
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "removed", [(".orch23",), (".orch23", "logs"), ("logs",), (".orch23/cas",), (".orch23/rooms",)]
)
def test_a_removal_at_any_call_is_named_or_harmless(
    project: Project, remover: _Remover, removed: tuple[str, ...]
) -> None:
    _set_up(project)
    remover.count = 0
    assert project.build("-j1").code == 0
    calls, seen = remover.count, set()
    for at in range(1, calls, max(1, calls // _TRIES)):
        _set_up(project)
        remover.count, remover.at, remover.paths = 0, at, [project.root / path for path in removed]
        ended = project.build("-j1")
        remover.at = 0
        seen.add(ended.code)
        assert ended.code in (0, 74), f"call {at} of {calls}: {ended.err}"
        assert "bug" not in ended.err
        if ended.code:
            assert "error[E651]" in ended.err, ended.err
            assert "was removed while orch23 used it" in ended.err
        again = project.build("-j1")
        assert again.code == 0, again.err
        assert project.read("o/r") == "1\n"
    assert seen == {0, 74} or removed == ("logs",)


def test_a_step_that_removes_the_store_is_not_taken_for_a_failure(project: Project) -> None:
    stages = f"stages:\n  a: {{outputs: [o], shell: 'rm -rf {project.root}/.orch23', sandbox: off}}\n"
    project.write({"pipeline.yaml": f"version: 1\n{stages}"})
    ended = project.build("--allow-unsandboxed")
    assert ended.code == 74, ended.err
    assert ended.err.rstrip().splitlines()[-2].endswith("`.orch23` was removed while orch23 used it")
    assert "git clean -fdx -e .orch23 -e logs" in ended.err


def test_a_failure_with_its_store_is_the_failure_of_the_stage(project: Project) -> None:
    project.write({"pipeline.yaml": "version: 1\nstages:\n  a: {outputs: [o], shell: 'exit 3'}\n"})
    ended = project.build()
    assert (ended.code, "E651" in ended.err) == (1, False)
