"""Find programs that the pipeline names and a step lacks: that is an error of the pipeline, which no attempt corrects.

A name counts if it is written in a command where a program is, and if it is missing where the step runs: output alone
decides nothing, since programs under test can print anything.
"""

import json
import posixpath
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import dropwhile
from pathlib import Path

from msgspec.structs import replace

from orch23.attempt.failures import Failure
from orch23.attempt.likely_cause import is_seen, unseen_program
from orch23.attempt.process_runner import PATH_HINT, Files, FinishedProcess, ProcessRunner
from orch23.execute.interpreters import has_module
from orch23.execute.process import NOT_FOUND
from orch23.model.action import PYTHON
from orch23.model.diagnostic import Diagnostic
from orch23.model.paths import match_any
from orch23.model.patterns import lazy_pattern
from orch23.model.step import VerifyStep
from orch23.model.text import shorten_command
from orch23.plan.nodes import writes_of
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
_ELSEWHERE = (
    "install it below /usr or in the project's environment, or copy it into the project and list it in `inputs`"
)
_WORD = lazy_pattern(r"[^\s:;'\"`]+")
_NPM = lazy_pattern(r"(?:npm|pnpm|yarn)(?: (?:-\S+|run|run-script))* (\w[\w:.-]*)")
_NOT_INSTALLED = "install the packages (`npm ci`), and list `node_modules/` in `inputs` of `verify`, or of the stage"
_FLAGS = frozenset(("-P", "-I", "-E", "-s", "-B", "-u"))
_PYTHON = lazy_pattern(r"python[\d.]*")
_NO_MODULE = 41
_FIND = f"import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None and {_NO_MODULE})"
_LOOK = 'echo "$PATH"; for one; do command -v -- "$one" >/dev/null || echo "$one"; done'


def unfound_programs(runner: ProcessRunner, key: str, steps: Iterable[VerifyStep]) -> tuple[Diagnostic, ...]:
    """Return an error for each step that would certainly fail since its first program is not where it runs.

    `key` is that of the steps. Names and absolute paths are looked up: another path may be a file of a response.
    """
    commands = [one.command for one in steps if isinstance(one, ShellStep)]
    first = dict.fromkeys(name for one in commands for name in _certain(one) if _NAME.fullmatch(name))
    unseen = [name for name in first if name != PYTHON and not is_seen(runner.facts.interpreter, name)]
    missing, looked = _missing(runner, unseen)
    facts, errors = runner.project() if runner.project is not None else None, list[Diagnostic]()
    for name in missing:
        text, hint = f"the program `{name}` of `{key}` was not found; no model was called", _hint(name, looked)
        if facts and (cause := unseen_program(facts, runner.facts.interpreter, "verify/inputs", name)):
            copied = f"{cause.hint}. Also list the copied file in `verify.inputs`"
            text, hint = f"{text}: {cause.text}", f"add `{name}` to `tools`" if cause.key == "tools" else copied
        errors.append(Diagnostic("E309", text, hint=hint))
    return tuple(errors)


def unfound_modules(
    runner: ProcessRunner, key: str, steps: Iterable[VerifyStep], files: Files
) -> tuple[Diagnostic, ...]:
    """Return an error for each step that would certainly fail since Python lacks the module of its `python -m`.

    The module is looked up where the step runs, with `files`. One that a stage may make is not an error.
    """
    named = dict.fromkeys(_module(one.command) for one in steps if isinstance(one, ShellStep))
    where, stage, found = Path(runner.facts.interpreter), runner.stage, list[Diagnostic]()
    scope = writes_of(stage)
    for name in (one for one in named if one and not has_module(where, one)):
        folders = (stage.cwd, *stage.env.get("PYTHONPATH", "").split(":"))
        ends = (".py", "/__init__.py", "/__main__.py")
        paths = [posixpath.normpath(f"{folder}/{name}{end}") for folder in folders for end in ends]
        if any(match_any(scope, path) or runner.trust().makers_of(path) for path in paths):
            continue
        ran = runner.run(ShellStep(command=(PYTHON, "-c", _FIND, name)), files)
        if isinstance(ran, Failure) and ran.feedback.exit_code == _NO_MODULE:
            text = f"the module `{name}` that `{key}` runs by `python -m` was not found; no model was called"
            found.append(Diagnostic("E309", text, hint=f"install it for {where}, or correct the name"))
    return tuple(found)


def command_words(command: str | tuple[str, ...]) -> list[str]:
    """Return the words of a command, also of the text that a list has for a shell."""
    texts = [command] if isinstance(command, str) else [one for one in command if any(map(str.isspace, one))]
    inside = [word for text in texts for words, _ in simple_commands(text) for word in words]
    return inside if isinstance(command, str) else [*command, *inside]


def _module(command: str | tuple[str, ...]) -> str:
    """Return the module of a command that begins with `python -m`; an empty text if it may be found elsewhere."""
    parts = list(simple_commands(command)) if isinstance(command, str) else [([*command], "")]
    words = parts[0][0] if parts else []
    # The shell ignores that the first part fails, as in `a | b || c` and `a && b & c`.
    decides = next((end for _, end in parts if end not in {"|", "&&"}), "")
    if decides.startswith("||") or decides == "&":
        return ""
    program, *rest = [*_started(words), ""]
    name = "".join([*dropwhile(_FLAGS.__contains__, rest)][1:2]).partition(".")[0]
    is_python = _PYTHON.fullmatch(program.rpartition("/")[2]) and _certain(command)[:1] == [program]
    is_module = [*dropwhile(_FLAGS.__contains__, rest)][:1] == ["-m"] and name.isidentifier()
    return name if is_python and is_module and not any(one.startswith("PYTHONPATH=") for one in words) else ""


def with_missing_program(
    failure: Failure, step: ShellStep, runner: ProcessRunner, files: Files, printed: str
) -> Failure:
    """Add to the failure of a command that ended with 126 or 127 that a program was not found or could not be started.

    If the pipeline names this program, no further attempt may follow. A file that a stage may make, or that an earlier
    part of the command may have made, is not the pipeline's error.
    """
    if (error := _unfound(step, runner, files, printed)) is not None:
        return replace(failure, diagnostics=(error,), retryable=False, reason=error.message)
    command = shorten_command(step.command if isinstance(step.command, str) else shlex.join(step.command))
    hint = PATH_HINT if failure.feedback.exit_code == NOT_FOUND else _MODE
    if printed.rstrip().endswith(": Is a directory"):
        hint = "it is a directory: name a program in it"
    elif hint == _MODE:
        words = _WORD.findall(f"{command} {printed[-1000:]}")
        paths = {posixpath.normpath(f"{runner.stage.cwd}/{one}") for one in words} & files.keys()
        makers_of = runner.trust().makers_of
        makers = {path: makers_of(path) for path in sorted(paths)}
        hint += "".join(f"; stage `{names[0]}` makes `{path}`" for path, names in makers.items() if names)
    error = Diagnostic("E309", f"a program of `{command}` could not be started", hint=hint)
    return replace(failure, diagnostics=(error,))


def _unfound(step: ShellStep, runner: ProcessRunner, files: Files, printed: str) -> Diagnostic | None:
    """Return the error of a program that the command names, if it is certain."""
    lines = (line[:_MAX_LINE].rstrip() for line in printed.splitlines()[-_MAX_LINES:])
    said = {found[1]: line for line in lines if (found := _SAID.fullmatch(line))}
    named = [one for one in dict.fromkeys(_programs(step.command)) if one in said]
    for path in (one for one in named if "/" in one and not one.startswith("/")):
        place = posixpath.normpath(f"{runner.stage.cwd}/{path}")
        is_users = not files[place].executable if place in files else path in _certain(step.command)
        if is_users and not runner.trust().makers_of(place):
            if said[path].endswith(": Is a directory"):
                why, hint = "is a directory", "it is a directory: name a program in it"
            else:
                why = "is not executable" if place in files else "is not among the files of the step"
                hint = _MODE if place in files else "correct the path, or add the file to `inputs`"
            return Diagnostic("E309", f"the program `{path}` {why}", hint=hint)
    missing, looked = _missing(runner, [one for one in named if "/" not in one or one.startswith("/")])
    if not missing:
        named = [one for one in _script_programs(step.command, runner, files) if one in said]
        absent, _ = _missing(runner, named)
        text = "the program `{}` of a script in `package.json` was not found"
        return Diagnostic("E309", text.format(absent[0]), hint=_NOT_INSTALLED) if absent else None
    return Diagnostic("E309", f"the program `{missing[0]}` was not found", hint=_hint(missing[0], looked))


def _script_programs(command: str | tuple[str, ...], runner: ProcessRunner, files: Files) -> list[str]:
    """Return the programs of the scripts that a command runs by npm, if they and their packages are the user's."""
    cwd, makers_of = runner.stage.cwd, runner.trust().makers_of
    place, lock = (posixpath.normpath(f"{cwd}/{one}") for one in ("package.json", "package-lock.json"))
    if place not in files or makers_of(place) or makers_of(lock):
        return []
    with suppress(ValueError, AttributeError, RecursionError):
        scripts = json.loads(runner.tree.read(place, files[place])).get("scripts", {})
        commands, found = [command], dict[str, None]()
        for number, one in enumerate(commands):  # which grows
            programs = [*_programs(one)]
            found.update(dict.fromkeys(programs) if number else {})
            parts = [words for words, _ in simple_commands(one)] if isinstance(one, str) else [[*one]]
            runs = [_NPM.match(" ".join(words)) for words in map(_started, parts) if words and words[0] in programs]
            names = [f"{before}{run[1]}" for run in runs if run for before in ("pre", "", "post")]
            new = (scripts[name] for name in names if isinstance(scripts.get(name), str))
            commands += [text for text in new if text not in commands][: max(0, _MAX_SCRIPTS - len(commands))]
        bins = {name: f"node_modules/.bin/{name}" for name in found if _NAME.fullmatch(name)}
        is_there = {one.rpartition("node_modules/")[2] for one in files if "node_modules/.bin/" in one}
        return [name for name, one in bins.items() if f".bin/{name}" not in is_there and not makers_of(one)]
    return []


def _hint(name: str, looked: str) -> str:
    return _ELSEWHERE if "/" in name else f"{PATH_HINT} to {looked}"


def _missing(runner: ProcessRunner, names: Sequence[str]) -> tuple[list[str], str]:
    """Return the programs that are missing where the step runs, and the directories that were searched there."""
    names = [one for one in names if one != "bash"]  # which looks up the others
    ran = runner.run(ShellStep(command=("bash", "-c", _LOOK, "bash", *names)), {}) if names else None
    if not isinstance(ran, FinishedProcess):
        return [], ""
    path, *missing = ran.result.output.text.splitlines() or [""]
    return [one for one in names if one in missing], ", ".join(path.split(":"))


def _certain(command: str | tuple[str, ...]) -> list[str]:
    """Return the program that runs first, if the command fails without it; else an empty list."""
    if not isinstance(command, str):
        return [*command[:1]]
    parts = list(simple_commands(command))
    ends = [end for _, end in parts]
    # In `a && b; c`, the shell ignores that `a` fails.
    is_list = "&&" in ends[:1] and not all(end in {"&&", "|", ""} for end in ends)
    first = [] if is_list or not parts or "(" in ends[0] else _started(parts[0][0])[:1]
    return [one for one in first if one in _programs(command)]


def _programs(command: str | tuple[str, ...], depth: int = 0) -> Iterator[str]:
    """Yield the programs of a command whose failure the shell does not ignore."""
    parts = list(simple_commands(command)) if isinstance(command, str) else [([*command], "")]
    ignored, counted = False, list[list[str]]()
    for words, end in reversed(parts):
        # What `|` and `&&` join has the end of the last part.
        ignored = ignored if end in {"|", "&&"} else end.startswith("||") or end == "&"
        counted += [] if ignored or "(" in end else [words]  # `name ()` is a function
    for whole in reversed(counted):
        words = _started(whole)
        name = words[0].rpartition("/")[2] if words else ""
        if name in _DEFINING or any(one.startswith("PATH=") for one in whole):
            return
        if name in _CONDITIONS:
            continue
        yield from words if name in _STARTERS else words[:1]
        if name in _SHELLS | _STARTERS and depth < _MAX_DEPTH:
            for text in (one for one in words if any(map(str.isspace, one)) or "-c" in words):
                yield from _programs(text, depth + 1)


def _started(words: list[str]) -> list[str]:
    """Return the words of a simple command from its program on."""
    return [*dropwhile(lambda one: one in _OPENING or _ASSIGNED.match(one), words)]


def simple_commands(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield the words of each simple command of a text for a shell, and the operator after it."""
    reader = shlex.shlex(_COMMENT.sub("", text[:_MAX_TEXT]), posix=True, punctuation_chars=_OPERATORS)
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
