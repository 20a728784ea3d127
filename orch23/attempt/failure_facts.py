"""Look up what may explain the failure of a step: undeclared files, programs, variables, modules.

Nothing here is noted as an input of the stage: a build would be stale because of a file that its output named.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from orch23.attempt.outcomes import Failure
from orch23.execute.interpreters import SYSTEM_PATH, editable_install, has_module
from orch23.execute.launch import refused_variables
from orch23.execute.sandbox.visible_paths import SYSTEM_FOLDERS
from orch23.model.action import Action
from orch23.model.digest import FileEntry
from orch23.model.event_data import LikelyCause
from orch23.model.file_policy import sealed_reason, secret_file_reason
from orch23.model.paths import IGNORED_NAMES, is_own_file
from orch23.model.pipeline import Stage
from orch23.model.step import ProcessStep
from orch23.resolve.commands import typed_command
from orch23.text.secrets import is_secret_name
from orch23.verdict.likely_cause import FailedStep, likely_cause, limit_cause

_OVER_LIMIT = "E620"
_MOST_FILES = 1_000
# What is there is of the machine, and of no use for a project.
_OF_THE_SYSTEM = ("/boot", "/etc", "/proc", "/run", "/sys", "/var")


class ProjectFacts(Struct, frozen=True, kw_only=True):
    """The project and the machine that all steps of a build run on.

    `environ` are the variables of the user. `is_isolated` returns whether steps run in a sandbox, `may_read` whether
    a stage may have a file as an input: no later stage makes it. `is_made` returns whether a stage makes a file that a
    pattern matches.
    """

    root: Path
    environ: Mapping[str, str]
    is_isolated: Callable[[], bool]
    may_read: Callable[[str, str], bool]
    is_made: Callable[[str], bool] = lambda _pattern: False


class StepFacts(Struct, frozen=True):
    """The facts for one step: implements `KnownFacts`."""

    project: ProjectFacts
    stage: Stage
    staged: Mapping[str, FileEntry]
    interpreter: str

    @property
    def is_orch23s_interpreter(self) -> bool:
        """Return whether the interpreter is the one that orch23 is installed in, for lack of another."""
        is_own = self.interpreter == sys.executable and not self.project.environ.get("VIRTUAL_ENV")
        return is_own and not Path(self.interpreter).is_relative_to(self.project.root)

    @property
    def has_uv(self) -> bool:
        """Return whether the user has `uv` on PATH."""
        return self._on_path("uv") is not None

    def inside(self, path: str) -> str | None:
        """Return the path that a step uses for an absolute one, or one from `~`, of the project; None for others."""
        place = self._place(path)
        if place is None or place == self.project.root or not place.is_relative_to(self.project.root):
            return None
        return os.path.relpath(place, self.project.root / self.stage.cwd)

    def unseen_file(self, path: str) -> Literal["program", "file"] | None:
        """Return what is at a path, absolute or from `~`, that no step can see; None if it is nothing or private."""
        place = self._place(path)
        if place is None or (not path.startswith("~") and not self.project.is_isolated()):
            return None
        seen = (*SYSTEM_FOLDERS, Path(self.interpreter).parent.parent, self.project.root)
        if any(place.is_relative_to(folder) for folder in (*seen, *_OF_THE_SYSTEM)) or _is_private(str(place)[1:]):
            return None
        if not place.is_file():
            return None
        if os.access(place, os.X_OK):
            return "program"
        return "file" if place.is_relative_to(self.project.environ.get("HOME") or self.project.root) else None

    def undeclared_input(self, path: str) -> str | None:
        """Return the entry of `inputs` for a file or directory that the step did not get, or None."""
        inside = self._path(path)
        if inside is None or _is_private(inside) or self.is_staged(path):
            return None
        if not self._is_here(inside):
            made = (one for one in (inside, f"{inside}/**") if self.project.is_made(one))
            found = next((one for one in made if self.project.may_read(self.stage.name, one)), None)
            return None if found is None else found.removesuffix("**")
        if not self.project.may_read(self.stage.name, inside):
            return None
        place = self.project.root / inside
        if place.is_file():
            return None if is_own_file(inside, place.read_bytes) else inside
        return f"{inside}/" if place.is_dir() and _has_only_ordinary_files(place, inside) else None

    def is_staged(self, path: str) -> bool:
        """Return whether the step got a file, or files below a directory."""
        inside = self._path(path)
        if inside is None:
            return False
        return inside in self.staged or any(one.startswith(f"{inside}/") for one in self.staged)

    def program(self, name: str) -> str | None:
        """Return the path of a program on the PATH of the user that no step can find, or None."""
        seen = (str(Path(self.interpreter).parent), *SYSTEM_PATH)
        return None if any(os.access(Path(folder, name), os.X_OK) for folder in seen) else self._on_path(name)

    def _on_path(self, name: str) -> str | None:
        path = self.project.environ.get("PATH", "")
        for folder in filter(os.path.isabs, path.split(os.pathsep)):
            place = Path(folder, name)
            if place.is_file() and os.access(place, os.X_OK):
                return str(place)
        return None

    def variable(self, name: str) -> Literal["settable", "refused"] | None:
        """Return whether `env` can set a variable; None if the user has not set it, or the step has it."""
        if name not in self.project.environ or name in self.stage.env:
            return None
        return "refused" if is_secret_name(name) or refused_variables({name: ""}) else "settable"

    def has_module(self, name: str) -> bool:
        """Return whether the interpreter of the step has a module."""
        return has_module(Path(self.interpreter), name)

    def editable(self, name: str) -> tuple[str, str, str] | None:
        """Return the file or link that leads to an editable module, and its folder: for a step, and to show."""
        found = editable_install(Path(self.interpreter), name)
        if found is None or not found[1].is_relative_to(self.project.root):
            return None if found is None else (found[0], str(found[1]), str(found[1]))
        root = self.project.root
        return found[0], os.path.relpath(found[1], root / self.stage.cwd), os.path.relpath(found[1], root)

    def python_path(self, folder: str) -> str:
        """Return the value of PYTHONPATH with one more folder; empty if it has it."""
        now = list(filter(None, self.stage.env.get("PYTHONPATH", "").split(":")))
        return "" if folder in map(os.path.normpath, now) else ":".join((*now, folder))

    def _place(self, path: str) -> Path | None:
        """Return the path on this machine of an absolute path, or of one from `~` of the user; None for others."""
        home = Path(self.project.environ.get("HOME", ""))
        if path.startswith("~/"):
            return Path(os.path.normpath(home / path[2:])) if home.is_absolute() else None
        return Path(os.path.normpath(path)) if path.startswith("/") else None

    def _path(self, path: str) -> str | None:
        """Return a path of the step relative to the root of the project; None if it leads out of it."""
        inside = os.path.normpath(f"{self.stage.cwd}/{path}")
        return None if inside == "." or inside.startswith(("../", "/")) or inside == ".." else inside

    def _is_here(self, path: str) -> bool:
        """Return whether the project has something at a path, and no part of the path is a link."""
        place = self.project.root / path
        return os.path.lexists(place) and os.path.realpath(place) == str(
            Path(os.path.realpath(self.project.root)) / path
        )


def cause_of_failure(
    project: ProjectFacts | None,
    stage: Stage,
    interpreter: str,
    step: ProcessStep,
    action: Action,
    failure: Failure,
    printed: str,
    *,
    verifies: bool,
) -> LikelyCause | None:
    """Return why a step probably failed, if the facts confirm it."""
    if failure.safety:
        exceeded = next((one.message for one in failure.diagnostics if one.code == _OVER_LIMIT), "")
        return limit_cause(exceeded, action.limits)
    if project is None:
        return None
    failed = FailedStep(
        output=f"{failure.feedback.excerpt}\n{printed}",
        command=typed_command(failure.feedback.command or ""),
        exit_code=failure.feedback.exit_code,
        network=action.network or not (action.sandbox and project.is_isolated()),
        inputs_key="verify/inputs" if verifies else "inputs",
        python_path=getattr(step, "pythonpath", ()),
        python_path_key="pytest/pythonpath" if step.kind == "pytest" and not verifies else "",
        is_pytest=step.kind == "pytest",
    )
    return likely_cause(failed, StepFacts(project, stage, action.inputs, interpreter))


def _is_private(path: str) -> bool:
    """Return whether orch23 never proposes a path as an input: of secrets, of git, of a tool, or its own."""
    hidden = any(name.startswith(".") or name in IGNORED_NAMES for name in path.split("/"))
    return hidden or secret_file_reason(path) is not None or sealed_reason(path) is not None


def _has_only_ordinary_files(folder: Path, path: str) -> bool:
    """Return whether a directory may be proposed as an input: it has files, not too many, and none is private."""
    count = 0
    for above, folders, files in os.walk(folder):
        below = Path(path, Path(above).relative_to(folder)).as_posix()
        folders[:] = [name for name in folders if name not in IGNORED_NAMES]
        count += len(files)
        if count > _MOST_FILES or any(secret_file_reason(f"{below}/{name}") for name in (*folders, *files)):
            return False
    return count > 0
