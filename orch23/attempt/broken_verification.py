"""Decide whether a verification that fails on the base cannot pass with any answer: a closed list of causes (ADR 95).

Output only says what to look for, since code under test can print anything. A cause counts if a fact confirms it: a
further run without the obstacle, the exit code of a runner, or a check where the step runs.
"""

import posixpath
from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec.structs import replace

from orch23.attempt.base_verification import StepRun, keep_results, known_result, run_on_base, step_run
from orch23.attempt.failures import Failure
from orch23.attempt.missing_programs import simple_commands
from orch23.attempt.process_runner import Files, ProcessRunner
from orch23.model.action import Completed
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.file_policy import sealed_reason, secret_file_reason
from orch23.model.paths import escape_pattern, is_glob, match_any
from orch23.model.patterns import lazy_pattern
from orch23.model.plugins import load_object
from orch23.model.step import ProcessStep, describe_step
from orch23.model.text import join_first
from orch23.plan.nodes import writes_of
from orch23.resolve.commands import display_command
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.shell.spec import ShellStep
from orch23.store.safe_files import read_regular
from orch23.text.excerpt import normalise, shorten_tree_paths

_MAX_TEXT, _MAX_NAMES, _MAX_FILES, _MAX_BYTES, _INTERNAL = 200_000, 20, 20, 2_000_000, 3
_NAME = lazy_pattern(r"\w+")
# The exit codes by which a runner says that it could not run: its own documentation is the source of each.
_CRASHES: Final = {"pytest": (3, 4), "ruff": (2,), "eslint": (2,), "pylint": (32,), "shellcheck": (3, 4)}
_UNFOUND = lazy_pattern(r"(?:file or directory not found|not found): (\S+)")
_WORD = lazy_pattern(r"[^\s:;,'\"`()\[\]<>=]+")
_MODULE = lazy_pattern(r"No module named '?([\w.]+)")
# Without `./`, a name is of a package.
_NODE = lazy_pattern(r"Cannot find (?:module|package) '([./][^'\n]+)'")
_HEADER = lazy_pattern(r"fatal error: '?([\w./+-]+)'?(?:: No such file|\s+file not found)")
_LACKS = lazy_pattern(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'")
_NO_CALL = "no model was called"
_OFF = "with `first: off` in `verify`, the model is called anyway"
# Where a module or header may be: `pkg/a` is `src/pkg/a.py`, `a.js` or `a.h`.
_ENDS = ("", ".*", "/__init__.*", "/index.*")


def base_errors(resolved: ResolvedStage, runner: ProcessRunner) -> tuple[Diagnostic, ...]:
    """Return why the verification fails with any answer, if that is certain. Called before a model is called.

    Each step runs at most once on a base: its result is kept in the store.

    Raises:
        As `ProcessRunner.run`.
    """
    files = resolved.verified_files(resolved.base)
    steps = resolved.stage.verify.programs if resolved.base else _without_outputs(resolved, runner, files)
    new = [one for one in steps if known_result(resolved, runner, one) is None]
    if not new:
        return ()
    runs = run_on_base(runner, files, new)
    errors = tuple(error for one in runs for error in _errors(one, runner, files))
    if not errors:
        keep_results(resolved, runner, runs)
    return errors


def _without_outputs(resolved: ResolvedStage, runner: ProcessRunner, files: Files) -> tuple[ProcessStep, ...]:
    """Return the steps that do not name what the stage makes: they can be tried before its files are there."""
    stage, patterns = resolved.stage, writes_of(resolved.stage)
    names = {name for path in patterns for name in _NAME.findall(path.rpartition("/")[2].partition(".")[0])}
    size = sum(entry.digest.size_bytes for entry in files.values())
    if stage.item or size > _MAX_BYTES or any(is_glob(one) or one.endswith("/") for one in patterns):
        return ()
    texts = [runner.tree.read(path, entry).decode("utf-8", "replace") for path, entry in files.items()]
    steps = stage.verify.programs if names.isdisjoint(_NAME.findall("\n".join(texts))) else ()
    return tuple(one for one in steps if names.isdisjoint(_NAME.findall(str(one.declared))))


def _errors(run: StepRun, runner: ProcessRunner, files: Files) -> tuple[Diagnostic, ...]:
    """Return why a step that failed on the base fails with any answer; nothing if that is not certain."""
    failure = run.failure
    if failure is None or failure.safety:
        return ()
    if not failure.retryable and failure.diagnostics:  # by the rules for answers: ADR 92, E325
        first, cause = failure.diagnostics[0], failure.cause
        message = f"{first.message}: {cause.text}" if cause else first.message
        hint = (cause.hint if cause else "") or first.hint
        return (replace(first, message=f"{message}; {_NO_CALL}", hint=hint),)
    found = [*_refused_writes(run, failure, runner, files), *_undeclared(run, failure, runner, files)]
    return tuple(found or _crash(run, failure, runner, files))


def _error(code: str, run: StepRun, runner: ProcessRunner, text: str, hint: str) -> Diagnostic:
    message = f"`{describe_step(run.step)}` of `verify` {text}; {_NO_CALL}"
    return Diagnostic(code, message, hint=f"{hint}; {_OFF}", subject=runner.stage.name)


# ---- a further run without the obstacle -------------------------------------------------------


def _refused_writes(run: StepRun, failure: Failure, runner: ProcessRunner, files: Files) -> Iterator[Diagnostic]:
    """Yield the error of a step that passes, or fails with fewer tests, where it may write its tree, and writes it."""
    if all(one.code != "E323" for one in failure.diagnostics):
        return
    how, action = load_object(run.step.run), runner.action_of(run.step, files, verifies=True)
    folders = tuple(one for one in action.writable or () if one.endswith("/"))
    outcome = runner.executor.run(replace(action, writable=None, output_folders=folders), None)
    if not isinstance(outcome, Completed) or not (written := [*outcome.result.written, *outcome.result.removed]):
        return
    command, printed = display_command(action.argv), runner.redact(outcome.result.output.text)
    then = step_run(run.step, how.judge(run.step, runner, files, command, outcome.result, printed))
    if then.passed or (run.failed and then.failed < run.failed):
        hint = "let it write nothing (`ruff check --no-fix`), write below TMPDIR, or list the path in `scratch`"
        wrote = f"writes {join_first(sorted(written), 3)}, and its tree is read-only"
        yield _error("E323", run, runner, wrote, hint)


def _undeclared(run: StepRun, failure: Failure, runner: ProcessRunner, files: Files) -> Iterator[Diagnostic]:
    """Yield an error for the files that the project has, and that the step imports and does not get.

    With them, the step must no longer miss them: a name that a test only prints is printed again.
    """
    names = _missing_names(failure)
    # A step with access to the network gets only what its author declared.
    if not names or runner.stage.network:
        return
    found = _project_files(runner, names, files)
    more = {path: entry for paths in found.values() for path, entry in paths.items()}
    ran = runner.run(run.step, {**files, **more}, verifies=True) if more else None
    left = _missing_names(ran) if isinstance(ran, Failure) else set()
    if proven := dict.fromkeys(f"`{path}`" for name, paths in found.items() if name not in left for path in paths):
        text = f"imports {join_first([*proven], 3)}, which the project has and the step does not get"
        hint = "add it to `verify.inputs` by its whole path: a pattern leaves out what git ignores"
        yield _error("E325", run, runner, text, hint)


def _output(failure: Failure, cwd: str) -> str:
    return shorten_tree_paths(normalise(f"{failure.feedback.excerpt}\n{failure.printed or ''}"[-_MAX_TEXT:]), cwd)


def _missing_names(failure: Failure) -> set[str]:
    """Return the ends of paths of the modules and headers that an output says are missing, without suffix."""
    text = _output(failure, ".")
    named = [name.strip(".").replace(".", "/") for name in _MODULE.findall(text)[:_MAX_NAMES]]
    named += [f"{module.replace('.', '/')}/{name}" for name, module in _LACKS.findall(text)[:_MAX_NAMES]]
    named += [posixpath.normpath(one).removeprefix("../") for one in _NODE.findall(text)[:_MAX_NAMES]]
    return {one.strip("/") for one in (*named, *_HEADER.findall(text)[:_MAX_NAMES])} - {"", "."}


def _project_files(runner: ProcessRunner, names: set[str], staged: Files) -> dict[str, dict[str, FileEntry]]:
    """Return the files of the project, also ignored ones, that may be behind a name and that the step does not get."""
    store, found = runner.trust().state.store, dict[str, dict[str, FileEntry]]()
    paths = [path for path in store.workspace.writable_files("**") if path not in staged]
    for name in names:
        patterns = tuple(f"**/{escape_pattern(name)}{end}" for end in _ENDS)
        shown = islice((one for one in paths if match_any(patterns, one) and _may_get(runner, one)), _MAX_FILES)
        texts = {path: data for path in shown if (data := read_regular(store.root / path)) is not None}
        found[name] = {path: FileEntry(runner.contents.put(data)) for path, data in texts.items()}
    return found


def _may_get(runner: ProcessRunner, path: str) -> bool:
    """Return whether the stage may have a file as an input of its verification."""
    stage, state, facts = runner.stage, runner.trust().state, runner.project()
    if secret_file_reason(path) or sealed_reason(path) or facts is None:
        return False
    # In the write scope, there may be an earlier result of the stage, which is not its base.
    entry = state.store.workspace.entry(path) if match_any(writes_of(stage), path) else None
    return not state.ownership.is_known(path, entry) if entry else facts.may_read(stage.name, path)


# ---- runners that could not run ---------------------------------------------------------------


def _crash(run: StepRun, failure: Failure, runner: ProcessRunner, files: Files) -> Iterator[Diagnostic]:
    """Yield the error of a runner that could not run; not if its output names a file that the stage may write."""
    code, cwd = failure.feedback.exit_code or 0, runner.stage.cwd
    text = _output(failure, cwd)
    wanted = {posixpath.normpath(f"{cwd}/{one.partition('::')[0]}") for one in _UNFOUND.findall(text)}
    named = {posixpath.normpath(f"{cwd}/{one}") for one in _WORD.findall(text)} & files.keys()
    is_own = any(match_any(writes_of(runner.stage), path) for path in wanted | named)
    if not is_own and _has_crashed(run.step, code, text):
        last = next((line.strip() for line in reversed(text.splitlines()) if "error" in line.lower()), "")
        said = f"exited with {code} and could not run ({last[:200]})"
        yield _error("E320", run, runner, said, "correct the command or its configuration")


def _has_crashed(step: ProcessStep, code: int, text: str) -> bool:
    """Return whether a step ended by an exit code of the table, for a reason that no answer can remove."""
    given = step.command if isinstance(step, ShellStep) else ()
    texts = (given,) if isinstance(given, str) else given
    words = [word.rpartition("/")[2] for one in texts for part, _ in simple_commands(one) for word in part]
    name = step.kind if step.kind in _CRASHES else next((one for one in words if one in {*_CRASHES, "jest"}), "")
    if name == "pytest":  # a test can end it with 3; an answer may correct what a conftest.py imports
        is_certain = (code != _INTERNAL or "INTERNALERROR>" in text) and "while loading conftest" not in text
    else:  # `ruff format` exits with 2 for a syntax error, which an answer can correct
        is_certain = name != "ruff" or "check" in words
    return "the step wrote no file" in text if name == "jest" else is_certain and code in _CRASHES.get(name, ())
