"""Format commands for display, and check commands that a model wrote."""

import json
import posixpath
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from orch23.model.action import PYTHON
from orch23.model.diagnostic import Diagnostic, quoted_names
from orch23.model.digest import Json
from orch23.model.event import CommandRan
from orch23.model.parsing import parse_json
from orch23.model.paths import is_glob, match_any
from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import CommandsStep, SliceInput, Stage
from orch23.model.text import shell_signs, shorten_command

if TYPE_CHECKING:
    from orch23.model.fields import Problems
    from orch23.steps.llm.spec import LLMStep
    from orch23.steps.pytest.spec import PytestStep
    from orch23.steps.shell.spec import ShellStep


SHELL_COMMAND = ("bash", "-euo", "pipefail", "-c")
"""The program and options that run a command written as one text."""

# Words that neither a shell nor YAML reads as anything else; at the end or in a comment, `&&` would not join commands.
_PLAIN = lazy_pattern(r"[\w./][\w./+-]*(?:[ \t]+-*[\w./+=][\w./+=-]*)*")
_OPEN = lazy_pattern(r"(?s).*(?:#|[;&|\\]\s*$)")
REPORTER_MODULE = "orch23_reporter"
EMPTY_PYTEST_CONFIG = "orch23.ini"


def display_command(argv: tuple[str, ...]) -> str:
    """Return a command as a user would type it, without the options that orch23 adds to pytest."""
    if REPORTER_MODULE in argv:
        argv = (PYTHON, "-m", "pytest", *argv[argv.index("addopts=") + 1 :])
    return shlex.join(argv)


def typed_command(command: str) -> str:
    """Return a command as its author wrote it: for a text that bash runs, the text alone."""
    before = " ".join((*SHELL_COMMAND, ""))
    if not command.startswith(before):
        return command
    # `shlex.split` takes quadratic time for one long word.
    word, quote = command.removeprefix(before), "'\"'\"'"
    if len(word) > 1 and word[0] == word[-1] == "'" and "'" not in word[1:-1].replace(quote, ""):
        return word[1:-1].replace(quote, "'")
    return word if shlex.quote(word) == word else command


def command_ran(command: str, exit_code: int | None, took_s: float) -> CommandRan:
    """Return the event of a command, as its author wrote it; a long one is shortened."""
    typed = typed_command(command)
    text = typed if len(typed) <= MAX_COMMAND_LENGTH else shorten_command(typed)
    return CommandRan(command=text, exit_code=exit_code, duration_s=round(took_s, 3))


def missing_programs(stage: Stage, is_input: Callable[[str], bool]) -> Iterator[tuple[str, str, str]]:
    """Yield the place (empty: the step), message and hint of each missing program with a blank."""
    lists = {"format": stage.format, "verify": stage.verify.steps}
    below = ((f"{key}/{number}", step) for key, steps in lists.items() for number, step in enumerate(steps))
    for where, step in (("", stage.step), *below):
        kind = getattr(step, "kind", "")
        words: str | tuple[str, ...] = getattr(step, "command", ()) if kind in {"shell", "llm"} else ()
        if not isinstance(words, str) and any(map(str.isspace, "".join(words[:1]))) and words[0][0] != "/":
            path, own = posixpath.normpath(posixpath.join(stage.cwd, words[0])), (*stage.outputs, *stage.fence.write)
            # A file that it makes in a folder may have a blank, but the words of `bin/tool --all ./a` are arguments.
            is_line = path not in own and any(one[0] in "-./" and one != "-" for one in words[0].split()[1:])
            is_file = kind == "llm" or is_input(path) or (match_any(own, path) and not is_line)
            if "/" not in words[0] or not is_file:
                message = f"no program is named `{words[0]}`: a list is one program and its arguments"
                yield where, message, _way_out(words, is_shell=kind == "shell")


def _way_out(words: tuple[str, ...], *, is_shell: bool) -> str:
    from orch23.resolve.expression_syntax import UNKNOWN_MARK  # noqa: PLC0415 - only for this error

    spaced, text = [any(map(str.isspace, one)) for one in words[1:]], " && ".join(map(str.strip, words))
    ways = ["write each word as an item"] if not is_shell else []
    is_plain = _PLAIN.fullmatch(" ".join(words)) is not None
    if is_plain and not any(spaced):
        ways = [f"write each word as an item: `[{', '.join(' '.join(words).split())}]`"]
    if is_shell and all(spaced) and not any(map(_OPEN.match, words)) and UNKNOWN_MARK not in text:
        ways.append(f"write commands as one text: `shell: {text if is_plain else json.dumps(text)}`")
    return "; or ".join(ways) or "write the whole command line as one text, such as `shell: cp a b && echo hi`"


MAX_COMMANDS = 32
MAX_COMMAND_LENGTH = 4000
E_REFUSED_COMMAND = "E835"

_NAME = lazy_pattern(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
# Programs that run another program: with one of them allowed, the list of allowed programs would mean nothing.
_SHELLS_TEXT = "sh bash dash zsh ksh fish csh tcsh busybox env xargs sudo nohup timeout eval exec"
_SHELLS = frozenset(_SHELLS_TEXT.split())
_CONTROL = lazy_pattern("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_OPERATORS = "|&;<>()"
# Not `-p`, `-c` or `-o`: they could load a model's code as a plugin, or another configuration.
_PYTEST_FLAGS = lazy_pattern(r"-[qvxsl]+|-r[A-Za-z]+|--(?:quiet|verbose|exitfirst|showlocals|no-header|no-summary)")
_PYTEST_VALUES = frozenset({"-k", "-m", "--tb", "--maxfail"})


def command_step(command: str, allow: Sequence[str]) -> "ShellStep | PytestStep | str":
    """Return the step that runs a command, or why it is refused. pytest is judged by its report."""
    if (refused := _text_fault(command)) is not None:
        return refused
    try:
        argv = shlex.split(command)
    except ValueError as error:
        return f"it cannot be split into arguments: {str(error).lower()}"
    if not argv:
        return "it is empty"
    # A path could lead to a program that a model wrote.
    if any(sign in argv[0] for sign in ("/", "\\", "..")):
        return f"the program `{argv[0]}` is a path; write its name alone"
    if argv[0] not in allow:
        return f"the program `{argv[0]}` is not allowed; allowed are {quoted_names(allow)}"
    # With the exit status alone, code under test could end the process with 0 before a test fails.
    if argv[0] == "pytest":
        return _pytest(argv[1:])
    if argv[:3] == ["python", "-m", "pytest"]:
        return _pytest(argv[3:])
    from orch23.steps.shell.spec import ShellStep  # noqa: PLC0415 - for pipelines with commands alone

    return ShellStep(tuple(argv))


def _text_fault(command: str) -> str | None:
    """Return an error for text that only a shell would interpret: operators, and substitutions even inside quotes."""
    if len(command) > MAX_COMMAND_LENGTH:
        return f"it has {len(command):,} characters; at most {MAX_COMMAND_LENGTH:,} are allowed"
    if _CONTROL.search(command):
        return "it has a control character"
    for sign in shell_signs(command):
        if sign.char == "`" or command.startswith("$(", sign.at):
            return f"it has {'a backtick' if sign.char == '`' else '`$(`'}, and no shell runs it"
        if not sign.quote and sign.char in _OPERATORS:
            return f"it has the shell operator `{sign.char}`, and no shell runs it"
        if not sign.quote and sign.char == "\n":
            return "it has more than one line"
    return None


def _pytest(words: Sequence[str]) -> "PytestStep | str":
    """Return a pytest step with the arguments of a model: paths, and options that cannot change a test result."""
    args: list[str] = []
    paths: list[str] = []
    rest = iter(words)
    for word in rest:
        name, sign, _ = word.partition("=")
        if not word.startswith("-"):
            path = word.partition("::")[0]
            if path.startswith(("/", "~")) or ".." in path.split("/") or is_glob(path.rstrip("/")):
                return f"`{path}` is not a plain path below the working directory"
            paths.append(word)
        elif _PYTEST_FLAGS.fullmatch(word) or (sign and name in _PYTEST_VALUES):
            args.append(word)
        elif word in _PYTEST_VALUES:
            value = next(rest, None)
            if value is None:
                return f"the option `{word}` needs a value"
            args += [word, value]
        else:
            return f"the option `{word}` of pytest is not allowed; allowed are -q -v -x -s -l -r -k -m --tb --maxfail"
    from orch23.steps.pytest.spec import PytestStep  # noqa: PLC0415 - likewise

    return PytestStep(args=tuple(args), paths=tuple(paths))


def read_commands(allow: tuple[str, ...], source: str | tuple[str, ...], at: "Problems") -> CommandsStep | None:
    """Return a `commands` step: the source of its commands, and the programs that they may run."""
    from orch23.model.fields import describe_value  # noqa: PLC0415 - only for such a step

    for number, name in enumerate(allow):
        if not _NAME.fullmatch(name) or name in _SHELLS:
            why = "runs other commands" if name in _SHELLS else "is not the plain name of a program"
            at.add(f"allow/{number}", "E812", f"`{name}` {why}", "allow programs such as python or pytest")
    if not isinstance(source, str):
        for place, text in _faults(source, allow):
            at.add(f"from{place}", E_REFUSED_COMMAND, text, "correct the data, or `allow`")
        return CommandsStep(allow=allow, commands=source)
    path, _, pointer = source.partition("#")
    if not pointer.startswith("/"):
        hint = "write a list, or name one: plan.json#/commands"
        at.add("from", "E812", f"`from` is {describe_value(source)}, which is not a list of commands", hint)
        return None
    literal = at.path_at("from", path)
    return None if literal is None else CommandsStep(allow=allow, source=SliceInput(literal, pointer.strip()))


def _faults(given: Json, allow: Sequence[str]) -> list[tuple[str, str]]:
    """Return why commands of a list are refused, each with its path below the list."""
    from orch23.model.fields import describe_value  # noqa: PLC0415 - as above

    if isinstance(given, str) or not isinstance(given, Sequence):
        return [("", f"the commands are {describe_value(given)}; they must be a list")]
    if len(given) > MAX_COMMANDS:
        return [("", f"there are {len(given)} commands; at most {MAX_COMMANDS} are allowed")]
    found = []
    for number, command in enumerate(given):
        refused = command_step(command, allow) if isinstance(command, str) else f"it is {describe_value(command)}"
        if isinstance(refused, str):
            found.append((f"/{number}", f"the command {describe_value(command)} is refused: {refused}"))
    return found


def command_steps(step: CommandsStep) -> "tuple[ShellStep | PytestStep, ...]":
    """Return the steps that run the commands of a step. Refused commands are left out: they are reported already."""
    found = (command_step(command, step.allow) for command in step.commands)
    return tuple(one for one in found if not isinstance(one, str))


def resolve_commands(stage: Stage, slices: Mapping[tuple[str, str], str]) -> tuple[Stage, list[Diagnostic]]:
    """Return a stage with the commands that its steps read from files, and errors for refused commands.

    `slices` are the texts of the inputs of its verification, by path and pointer. A missing one is reported elsewhere.
    """
    problems: list[Diagnostic] = []
    steps = list(stage.verify.steps)
    for number, step in enumerate(steps):
        if isinstance(step, CommandsStep) and (source := step.source) is not None:
            text = slices.get((source.path, source.selector))
            given = [] if text is None else parse_json(text)
            faults, hint = _faults(given, step.allow), f"correct `{source.path}`"
            problems += [Diagnostic(E_REFUSED_COMMAND, f"{source.text}{at}: {why}", hint=hint) for at, why in faults]
            if not faults and isinstance(given, Sequence):
                steps[number] = replace(step, commands=tuple(map(str, given)))
    if steps == list(stage.verify.steps):
        return stage, problems
    return replace(stage, verify=replace(stage.verify, steps=tuple(steps))), problems


def paths_outside(step: "LLMStep") -> tuple[str, ...]:
    """Return the paths of `read` that are outside of the project.

    They are part of neither key nor fingerprint: with them, no other machine would find a recorded response (ADR 65).
    """
    return tuple(one for one in step.read if one.startswith(("/", "~/")))


def programs_outside(step: "LLMStep") -> tuple[str, ...]:
    """Return the program and the paths of `read` that are outside of the project, so in neither key nor request."""
    program = (one for one in step.command[:1] if one.startswith("/") or "/" not in one)
    return (*program, *paths_outside(step))
