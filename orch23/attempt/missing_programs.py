"""Find programs that the pipeline names and a step lacks: that is an error of the pipeline, which no attempt corrects.

A name counts if it is written in a command where a program is, and if it is missing where the step runs: output alone
decides nothing, since programs under test can print anything.
"""

import json
import posixpath
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, dropwhile
from pathlib import Path

from msgspec.structs import replace

from orch23.attempt.failures import Failure
from orch23.attempt.likely_cause import is_seen, unseen_program
from orch23.attempt.process_runner import PATH_HINT, Files, FinishedProcess, ProcessRunner
from orch23.execute.interpreters import has_module
from orch23.execute.process import NOT_FOUND
from orch23.model.action import PYTHON
from orch23.model.diagnostic import Diagnostic
from orch23.model.patterns import lazy_pattern
from orch23.model.text import shorten_command
from orch23.resolve.commands import typed_command
from orch23.steps.shell.spec import ShellStep

_MAX_TEXT, _MAX_LINES, _MAX_LINE, _MAX_DEPTH, _MAX_SCRIPTS = 64_000, 100, 500, 3, 20
_NAME = lazy_pattern(r"\w[\w.+-]*|/.*")
_ASSIGNED = lazy_pattern(r"\w+=")
_COMMENT = lazy_pattern(r"(?m)^[ \t]*#.*$")
_OPERATORS = ";&|()<>\n"
_OPENING = frozenset(("then", "do", "else", "{"))
# The shell ignores that these fail.
_CONDITIONS = frozenset(("if", "elif", "while", "until", "!"))
# What follows may be a function of a sourced file, or in a directory that the command added to PATH.
_DEFINING = frozenset(("source", ".", "eval"))
_SHELLS = frozenset(("bash", "sh", "dash"))
_STARTERS = frozenset(("env", "timeout", "nice", "nohup", "setsid", "stdbuf", "xargs", "time", "exec", "command"))
# How bash, dash, coreutils and the executor say that they could not start a program.
_SAID = lazy_pattern(
    r"(?:(?:\S*/)?(?:(?:ba|da)?sh: (?:line )?\d+: |(?:env|timeout|nice|nohup|setsid|stdbuf|xargs): (?:[a-z ]+ )?))?"
    "['\u2018]?([^:'\u2018\u2019\\s]+)['\u2019]?: (?:command not found|not found|not executable|Is a directory|"
    "No such file or directory|Permission denied|cannot execute.*)"
)
_MODE = (
    "make the file executable (`chmod +x FILE`; if a shell stage makes it, in the command of that stage), with a "
    "program in its `#!` line that steps see; or run `sh FILE`"
)
_IN_DIRECTORY = "it is a directory: name a program in it"
_ELSEWHERE = (
    "install it below /usr or in the project's environment, or copy it into the project and list it in `inputs`"
)
_WORD = lazy_pattern(r"[^\s:;'\"`]+")
_NPM = lazy_pattern(r"(?:npm|pnpm|yarn)(?: (?:-\S+|run|run-script))* (\w[\w:.-]*)")
_NOT_INSTALLED = "install the packages (`npm ci`), and list `node_modules/` in `inputs` of `verify`, or of the stage"
_RUN_MODULE = lazy_pattern(r"(?:\S*/)?python[\d.]*(?: -[PIEsBu])* -m ([^\W\d]\w*)(?:[. ]|$)")
_NO_MODULE = 41
_FIND = f"import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None and {_NO_MODULE})"
_LOOK = 'echo "$PATH"; for one; do command -v -- "$one" >/dev/null || echo "$one"; done'


def unfound_errors(runner: ProcessRunner, files: Files) -> tuple[Diagnostic, ...]:
    """Return an error for each command of `format` and `verify` that would certainly fail: its program is missing.

    That is its first program, or the module of its `python -m`. Both are looked up where the step runs, with `files`.
    """
    stage, found = runner.stage, list[Diagnostic]()
    for key, steps in (("format", stage.format), ("verify", stage.verify.steps)):
        first = [words for one in steps if isinstance(one, ShellStep) if (words := _first(one.command))]
        found += _unfound_programs(runner, key, dict.fromkeys(word for words in first for word in _started(words)[:1]))
        found += _unfound_modules(runner, key, dict.fromkeys(map(_module, first)), files)
    return tuple(found)


def _unfound_programs(runner: ProcessRunner, key: str, names: Iterable[str]) -> Iterator[Diagnostic]:
    # Another path may be a file of a response.
    named = (name for name in names if _NAME.fullmatch(name) and name != PYTHON)
    facts, interpreter = runner.project(), runner.facts.interpreter
    for name, way in _missing(runner, [name for name in named if not is_seen(interpreter, name)]).items():
        text, hint = f"the program `{name}` of `{key}` was not found; no model was called", way
        if facts and (cause := unseen_program(facts, interpreter, "verify/inputs", name)):
            copied = f"{cause.hint}. Also list the copied file in `verify.inputs`"
            text, hint = f"{text}: {cause.text}", f"add `{name}` to `tools`" if cause.key == "tools" else copied
        yield Diagnostic("E309", text, hint=hint)


def _unfound_modules(runner: ProcessRunner, key: str, names: Iterable[str], files: Files) -> Iterator[Diagnostic]:
    where, folders = Path(runner.facts.interpreter), (".", *runner.stage.env.get("PYTHONPATH", "").split(":"))
    for name in filter(None, names):
        if has_module(where, name) or runner.trust().may_make_module(name, folders):
            continue
        ran = runner.run(ShellStep(command=(PYTHON, "-c", _FIND, name)), files)
        if isinstance(ran, Failure) and ran.feedback.exit_code == _NO_MODULE:
            text = f"the module `{name}` that `{key}` runs by `python -m` was not found; no model was called"
            yield Diagnostic("E309", text, hint=f"install it for {where}, or correct the name")


def _module(words: Sequence[str]) -> str:
    """Return the module that a simple command runs by `python -m`; an empty text if it may be found elsewhere."""
    found = _RUN_MODULE.match(" ".join(_started(words)))
    return found[1] if found and not any(one.startswith("PYTHONPATH=") for one in words) else ""


def with_missing_program(
    failure: Failure, step: ShellStep, runner: ProcessRunner, files: Files, printed: str
) -> Failure:
    """Add to the failure of a command that ended with 126 or 127 that a program was not found or could not be started.

    If the pipeline names this program, no further attempt may follow. A file that a stage may make, or that an earlier
    part of the command may have made, is not the pipeline's error.
    """
    if error := next(_unfound(step, runner, files, printed), None):
        return replace(failure, diagnostics=(error,), retryable=False, reason=error.message)
    command = shorten_command(typed_command(failure.feedback.command))
    hint = PATH_HINT if failure.feedback.exit_code == NOT_FOUND else _MODE
    if printed.rstrip().endswith(": Is a directory"):
        hint = _IN_DIRECTORY
    elif hint == _MODE:
        words = _WORD.findall(f"{command} {printed[-1000:]}")
        paths = {posixpath.normpath(f"{runner.stage.cwd}/{one}") for one in words} & files.keys()
        makers_of = runner.trust().makers_of
        makers = {path: makers_of(path) for path in sorted(paths)}
        hint += "".join(f"; stage `{names[0]}` makes `{path}`" for path, names in makers.items() if names)
    error = Diagnostic("E309", f"a program of `{command}` could not be started", hint=hint)
    return replace(failure, diagnostics=(error,))


def _unfound(step: ShellStep, runner: ProcessRunner, files: Files, printed: str) -> Iterator[Diagnostic]:
    """Yield the errors of programs that the command names, if they are certain."""
    lines = (line[:_MAX_LINE].rstrip() for line in printed.splitlines()[-_MAX_LINES:])
    said = {found[1]: line for line in lines if (found := _SAID.fullmatch(line))}
    named = [one for one in dict.fromkeys(_programs(step.command)) if one in said]
    for path in (one for one in named if one.find("/") > 0):  # a relative path
        place = posixpath.normpath(f"{runner.stage.cwd}/{path}")
        is_there = place in files
        is_users = not files[place].executable if is_there else path in _started(_first(step.command))[:1]
        if is_users and not runner.trust().makers_of(place):
            why, hint = "is not among the files of the step", "correct the path, or add the file to `inputs`"
            if said[path].endswith(": Is a directory"):
                why, hint = "is a directory", _IN_DIRECTORY
            elif is_there:
                why, hint = "is not executable", _MODE
            yield Diagnostic("E309", f"the program `{path}` {why}", hint=hint)
    for name, hint in _missing(runner, [one for one in named if one.find("/") <= 0]).items():
        yield Diagnostic("E309", f"the program `{name}` was not found", hint=hint)
    for name in _missing(runner, [one for one in _script_programs(step.command, runner, files) if one in said]):
        text = f"the program `{name}` of a script in `package.json` was not found"
        yield Diagnostic("E309", text, hint=_NOT_INSTALLED)


def _script_programs(command: str | tuple[str, ...], runner: ProcessRunner, files: Files) -> list[str]:
    """Return the programs of the scripts that a command runs by npm, if they and their packages are the user's."""
    cwd, makers_of = runner.stage.cwd, runner.trust().makers_of
    place, lock = (posixpath.normpath(f"{cwd}/{one}") for one in ("package.json", "package-lock.json"))
    if place not in files or makers_of(place) or makers_of(lock):
        return []
    texts = list[str]()
    with suppress(ValueError, AttributeError, RecursionError):
        scripts = json.loads(runner.tree.read(place, files[place])).get("scripts", {})
        for one in chain([command], texts):  # which grows
            ran = [found[1] for words in _counted(one) if (found := _NPM.match(" ".join(_started(words))))]
            new = (scripts.get(f"{before}{name}") for name in ran for before in ("pre", "", "post"))
            texts += [text for text in new if isinstance(text, str) and text not in texts][: _MAX_SCRIPTS - len(texts)]
    names = dict.fromkeys(name for text in texts for name in _programs(text) if _NAME.fullmatch(name))
    is_there = {one.rpartition("node_modules/")[2] for one in files if "node_modules/.bin/" in one}
    return [one for one in names if f".bin/{one}" not in is_there and not makers_of(f"node_modules/.bin/{one}")]


def _missing(runner: ProcessRunner, names: Iterable[str]) -> dict[str, str]:
    """Return the programs that are missing where the step runs, each with a hint."""
    names = [one for one in names if one != "bash"]  # which looks up the others
    ran = runner.run(ShellStep(command=("bash", "-c", _LOOK, "bash", *names)), {}) if names else None
    if not isinstance(ran, FinishedProcess):
        return {}
    path, *missing = ran.result.output.text.splitlines() or [""]
    hint = f"{PATH_HINT} to {', '.join(path.split(':'))}"
    return {one: _ELSEWHERE if "/" in one else hint for one in names if one in missing}


def _first(command: str | tuple[str, ...]) -> list[str]:
    """Return the words of the simple command that runs first, if the command fails without it; else an empty list."""
    parts = [*simple_commands(command)]
    # In `a && b; c`, the shell ignores that `a` fails.
    is_list = [end for _, end in parts[:1]] == ["&&"] and not all(end in {"&&", "|", ""} for _, end in parts)
    words = next(_counted(command), [])
    return words if [words] == [one for one, _ in parts[:1]] and not is_list else []


def _counted(command: str | tuple[str, ...]) -> Iterator[list[str]]:
    """Yield the words of the simple commands whose failure the shell does not ignore, and whose names are known."""
    ignored, counted = False, list[list[str]]()
    for words, end in reversed([*simple_commands(command)]):
        # What `|` and `&&` join has the end of the last part.
        ignored = ignored if end in {"|", "&&"} else end.startswith("||") or end == "&"
        counted += [] if ignored or "(" in end else [words]  # `name ()` is a function
    for words in reversed(counted):
        name = "".join(_started(words)[:1]).rpartition("/")[2]
        if name in _DEFINING or any(one.startswith("PATH=") for one in words):
            return
        if name not in _CONDITIONS:
            yield words


def _programs(command: str | tuple[str, ...], depth: int = 0) -> Iterator[str]:
    """Yield the programs of a command whose failure the shell does not ignore."""
    for words in map(_started, _counted(command)):
        name = "".join(words[:1]).rpartition("/")[2]
        yield from words if name in _STARTERS else words[:1]
        if name in _SHELLS | _STARTERS and depth < _MAX_DEPTH:
            for text in (one for one in words if any(map(str.isspace, one)) or "-c" in words):
                yield from _programs(text, depth + 1)


def _started(words: Sequence[str]) -> list[str]:
    """Return the words of a simple command from its program on."""
    return [*dropwhile(lambda one: one in _OPENING or _ASSIGNED.match(one), words)]


def simple_commands(command: str | tuple[str, ...]) -> Iterator[tuple[list[str], str]]:
    """Yield the words of each simple command of a text for a shell, and the operator after it; a tuple is one."""
    if not isinstance(command, str):
        yield [*command], ""
        return
    reader = shlex.shlex(_COMMENT.sub("", command[:_MAX_TEXT]), posix=True, punctuation_chars=_OPERATORS)
    reader.whitespace, reader.whitespace_split, reader.commenters = " \t\r", True, ""
    words, skips, is_comment = list[str](), False, False
    with suppress(ValueError):  # an open quote, as in a comment with an apostrophe
        for word in reader:
            is_operator = not word.strip(_OPERATORS) and word != ""
            is_comment = not (is_operator and "\n" in word) and (is_comment or word.startswith("#"))
            if is_comment:
                continue
            if not is_operator:
                words += [] if skips else [word]
                skips = False
            elif "<" in word or (">" in word and not word.endswith("(")):
                skips = True  # the file of a redirection
            else:
                if words:
                    yield words, word.strip("\n") or "\n"
                words = []
    if words:
        yield words, ""
