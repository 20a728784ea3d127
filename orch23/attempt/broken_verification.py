"""Decide whether a verification that fails on the base cannot pass with any answer: a closed list of causes (ADR 95).

Output only says what to look for, since code under test can print anything. A cause counts if a fact confirms it: a
further run without the obstacle, the exit code of a runner, or a check where the step runs.
"""

import os
import posixpath
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from orch23.attempt.base_run import StepRun, step_run
from orch23.attempt.failures import Failure
from orch23.attempt.likely_cause import ProjectFacts
from orch23.attempt.missing_programs import command_words
from orch23.attempt.process_runner import Files, ProcessRunner
from orch23.model.action import Completed
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.file_policy import sealed_reason, secret_file_reason
from orch23.model.paths import IGNORED_NAMES, match_any
from orch23.model.patterns import lazy_pattern
from orch23.model.plugins import load_object
from orch23.model.step import ProcessStep, describe_step
from orch23.model.text import join_first
from orch23.plan.nodes import writes_of
from orch23.resolve.commands import display_command
from orch23.steps.shell.spec import ShellStep
from orch23.store.safe_files import read_regular
from orch23.text.excerpt import normalise, shorten_tree_paths

_MAX_TEXT, _MAX_NAMES, _MAX_FILES, _MAX_PROJECT, _INTERNAL = 200_000, 20, 20, 100_000, 3
# The exit codes by which a runner says that it could not run: its own documentation is the source of each.
_CRASHES: Final = {"pytest": (3, 4), "ruff": (2,), "eslint": (2,), "pylint": (32,), "shellcheck": (3, 4)}
_UNFOUND = lazy_pattern(r"(?:file or directory not found|not found): (\S+)")
_WORD = lazy_pattern(r"[^\s:;,'\"`()\[\]<>=]+")
_MODULE = lazy_pattern(r"No module named '?([\w.]+)")
_NODE = lazy_pattern(r"Cannot find (?:module|package) '([^'\n]+)'")
_HEADER = lazy_pattern(r"fatal error: '?([\w./+-]+)'?(?:: No such file|\s+file not found)")
_LACKS = lazy_pattern(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'")
_NO_CALL = "no model was called"
_OFF = "with `first: off` in `verify`, the model is called anyway"


def verification_errors(run: StepRun, runner: ProcessRunner, files: Files) -> tuple[Diagnostic, ...]:
    """Return why a step that failed on these files of the base fails with any answer; nothing if that is not certain.

    Raises:
        As `ProcessRunner.run`.
    """
    failure = run.failure
    if failure is None or failure.safety:
        return ()
    if not failure.retryable and failure.diagnostics:  # by the rules for answers: ADR 92, E325
        first, cause = failure.diagnostics[0], failure.cause
        message = f"{first.message}: {cause.text}" if cause else first.message
        hint = (cause.hint if cause else "") or first.hint
        return (replace(first, message=f"{message}; {_NO_CALL}", hint=hint),)
    found = _refused_writes(run, runner, files) if any(one.code == "E323" for one in failure.diagnostics) else ()
    found += _undeclared(run.step, _missing_names(failure), runner, files)
    return found or _crash(run, failure, runner, files)


# ---- a further run without the obstacle -------------------------------------------------------


def _refused_writes(run: StepRun, runner: ProcessRunner, files: Files) -> tuple[Diagnostic, ...]:
    """Return the error of a step that passes, or fails with fewer tests, where it may write its tree, and writes it."""
    step, how = run.step, load_object(run.step.run)
    action = runner.action_of(step, files, verifies=True)
    folders = tuple(one for one in action.writable or () if one.endswith("/"))
    outcome = runner.executor.run(replace(action, writable=None, output_folders=folders), None)
    if not isinstance(outcome, Completed) or not (written := [*outcome.result.written, *outcome.result.removed]):
        return ()
    printed = runner.redact(outcome.result.output.text)
    then = step_run(step, how.judge(step, runner, files, display_command(action.argv), outcome.result, printed))
    if not then.passed and not (run.failed and then.failed < run.failed):
        return ()
    wrote = join_first(sorted(written), 3)
    text = f"`{describe_step(step)}` of `verify` writes {wrote}, and its tree is read-only; {_NO_CALL}"
    hint = f"let it write nothing (`ruff check --no-fix`), write below TMPDIR, or list the path in `scratch`; {_OFF}"
    return (Diagnostic("E323", text, hint=hint, subject=runner.stage.name),)


def _undeclared(step: ProcessStep, names: set[str], runner: ProcessRunner, files: Files) -> tuple[Diagnostic, ...]:
    """Return an error for the files with these names that the project has, and that the step imports and does not get.

    With them, the step must no longer miss them: a name that a test only prints is printed again.
    """
    # A step with access to the network gets only what its author declared.
    if not names or runner.project is None or runner.stage.network:
        return ()
    found = _project_files(runner, runner.project(), names, files)
    more = {path: entry for paths in found.values() for path, entry in paths.items()}
    ran = runner.run(step, {**files, **more}, verifies=True) if more else None
    left = _missing_names(ran) if isinstance(ran, Failure) else set()
    proven = dict.fromkeys(f"`{path}`" for name, paths in found.items() if name not in left for path in paths)
    if not proven:
        return ()
    listed = join_first([*proven], 3)
    text = f"`{describe_step(step)}` of `verify` imports {listed}, which the project has and the step does not get"
    hint = f"add it to `verify.inputs` by its whole path: a pattern leaves out what git ignores; {_OFF}"
    return (Diagnostic("E325", f"{text}; {_NO_CALL}", hint=hint, subject=runner.stage.name),)


def _output(failure: Failure, cwd: str) -> str:
    return shorten_tree_paths(normalise(f"{failure.feedback.excerpt}\n{failure.printed or ''}"[-_MAX_TEXT:]), cwd)


def _missing_names(failure: Failure) -> set[str]:
    """Return the ends of paths of the modules and headers that an output says are missing, without suffix."""
    text = _output(failure, ".")
    named = [name.strip(".").replace(".", "/") for name in _MODULE.findall(text)[:_MAX_NAMES]]
    named += [f"{module.replace('.', '/')}/{name}" for name, module in _LACKS.findall(text)[:_MAX_NAMES]]
    # Without `./`, a name is of a package.
    node = [one for one in _NODE.findall(text)[:_MAX_NAMES] if one.startswith((".", "/"))]
    named += [posixpath.normpath(one).removeprefix("../") for one in node]
    return {one.strip("/") for one in (*named, *_HEADER.findall(text)[:_MAX_NAMES])} - {"", "."}


def _project_files(
    runner: ProcessRunner, facts: ProjectFacts, names: set[str], staged: Files
) -> dict[str, dict[str, FileEntry]]:
    """Return the files of the project, also ignored ones, that may be behind a name and that the step does not get."""
    stage, state, found = runner.stage, runner.trust().state, {name: dict[str, FileEntry]() for name in names}
    scope = writes_of(stage)
    for path in islice(_walk(facts.root), _MAX_PROJECT):
        name = next((one for one in names if _is_named(path, one)), "")
        if not name or path in staged or len(found[name]) >= _MAX_FILES:
            continue
        # In the write scope, there may be an earlier result of the stage, which is not its base.
        entry = state.store.workspace.entry(path) if match_any(scope, path) else None
        may_read = not state.ownership.is_known(path, entry) if entry else facts.may_read(stage.name, path)
        is_private = secret_file_reason(path) or sealed_reason(path) or not may_read
        if not is_private and (data := read_regular(facts.root / path)) is not None:
            found[name][path] = FileEntry(runner.contents.put(data))
    return found


def _is_named(path: str, name: str) -> bool:
    """Return whether a module or header of this name may be at a path: `pkg/a` for `src/pkg/a.py`, `a.js`, `a.h`."""
    folder, _, file = path.rpartition("/")
    stem = file.partition(".")[0]
    whole = [path, f"{folder}/{stem}".lstrip("/"), *([folder] if stem in ("__init__", "index") else [])]
    return any(one == name or one.endswith(f"/{name}") for one in whole)


def _walk(root: Path) -> Iterator[str]:
    for above, folders, names in os.walk(root):
        folders[:] = sorted({*folders} - IGNORED_NAMES)
        yield from ((Path(above).relative_to(root) / name).as_posix() for name in sorted(names))


# ---- runners that could not run ---------------------------------------------------------------


def _crash(run: StepRun, failure: Failure, runner: ProcessRunner, files: Files) -> tuple[Diagnostic, ...]:
    """Return the error of a runner that could not run; not if its output names a file that the stage may write."""
    stage, code = runner.stage, failure.feedback.exit_code or 0
    text = _output(failure, stage.cwd)
    scope = writes_of(stage)
    named = {posixpath.normpath(f"{stage.cwd}/{one}") for one in _WORD.findall(text)}
    wanted = {posixpath.normpath(f"{stage.cwd}/{one.partition('::')[0]}") for one in _UNFOUND.findall(text)}
    is_own = any(match_any(scope, path) for path in wanted | (named & files.keys()))
    if is_own or not _has_crashed(run.step, code, text):
        return ()
    last = next((line.strip() for line in reversed(text.splitlines()) if "error" in line.lower()), "")
    message = f"`{describe_step(run.step)}` of `verify` exited with {code} and could not run ({last[:200]}); {_NO_CALL}"
    return (Diagnostic("E320", message, hint=f"correct the command or its configuration; {_OFF}", subject=stage.name),)


def _has_crashed(step: ProcessStep, code: int, text: str) -> bool:
    """Return whether a step ended by an exit code of the table, for a reason that no answer can remove."""
    words = [one.rpartition("/")[2] for one in command_words(step.command)] if isinstance(step, ShellStep) else []
    name = step.kind if step.kind in _CRASHES else next((one for one in words if one in {*_CRASHES, "jest"}), "")
    if name == "pytest":  # a test can end it with 3; an answer may correct what a conftest.py imports
        is_certain = (code != _INTERNAL or "INTERNALERROR>" in text) and "while loading conftest" not in text
    else:  # `ruff format` exits with 2 for a syntax error, which an answer can correct
        is_certain = name != "ruff" or "check" in words
    return "the step wrote no file" in text if name == "jest" else is_certain and code in _CRASHES.get(name, ())
