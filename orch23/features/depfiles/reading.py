"""Read a depfile: which inputs count, and the errors of a depfile that omits inputs or names other files."""

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import dropwhile, islice

from orch23.attempt.failures import relative_path
from orch23.attempt.missing_programs import simple_commands
from orch23.execute.sandbox_tree import INSIDE_PATH, scratch_matcher
from orch23.features.depfiles.syntaxes import READERS
from orch23.model.action import MAX_RESULTS_BYTES
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.paths import match_any
from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import Stage

_TREE = f"{INSIDE_PATH}/work/"
_INTERPRETER = lazy_pattern(r"(?:.*/)?(?:python[\d.]*|node|perl|ruby|bash|dash|sh|lua|php|Rscript)")
_MOST, _LONGEST = 5, 1_024
_HINT = "add it to `inputs`, or let the program name only files that it has read"


def tracked_inputs(
    stage: Stage, inputs: Mapping[str, FileEntry], text: str | None, read: tuple[str, ...] | None
) -> tuple[frozenset[str] | None, tuple[Diagnostic, ...]]:
    """Return the inputs that count by the text of a depfile, None for all, and errors.

    `read` are those that the program may have read. Only with them the others are known to be unused: nasm and
    `gcc -MMD -isystem` omit files.
    """
    syntax, place = stage.depfile or ("", "")
    try:
        if text is None:
            message = f"the step did not write it, or more than {MAX_RESULTS_BYTES >> 20} MiB"
            raise ValueError(message)  # noqa: TRY301 - all faults of its text end in the same place
        names = {path: number for number, path in _paths(READERS[syntax](text), stage.cwd, inputs)}
    except ValueError as fault:
        hint = "let the program write it there, as `gcc -MMD -MF FILE` does, or name its `syntax`"
        return None, (Diagnostic("E337", f"the depfile `{place}` cannot be used: {fault}", hint=hint),)
    problems = [*islice(_undeclared(stage, names, inputs), _MOST), *_omitted(stage, names)]
    if not names:
        hint = "let the program name each file that it has read"
        problems = [Diagnostic("E337", f"the depfile `{place}` names no file of the project", hint=hint)]
    return None if read is None else frozenset((*names, *read)), tuple(problems[:_MOST])


def _paths(
    lines: Iterable[tuple[int, str, tuple[str, ...]]], cwd: str, inputs: Mapping[str, FileEntry]
) -> Iterator[tuple[int, str]]:
    """Yield the paths of the project in a depfile, each with its line."""
    slashed = {path.replace("\\", "/"): path for path in inputs if "\\" in path}  # clang turns them
    for number, whole, words in lines:
        is_one = len(words) > 1 and _inside(whole, cwd) in inputs  # with blanks that are not escaped
        for word in (whole,) if is_one else words:
            if (path := _inside(word, cwd)) is not None:
                yield number, path if path in inputs else slashed.get(path, path)


def _inside(name: str, cwd: str) -> str | None:
    """Return a path of the project; None if it is elsewhere, as system headers are."""
    path = posixpath.normpath(posixpath.join(_TREE, cwd, name))
    return path.removeprefix(_TREE) if path.startswith(_TREE) else None


def _undeclared(stage: Stage, names: Mapping[str, int], inputs: Mapping[str, FileEntry]) -> Iterator[Diagnostic]:
    """Yield an error for each path that is neither an input nor a file that the program may write."""
    is_scratch, place = scratch_matcher(stage.scratch), stage.depfile and stage.depfile[1]
    for path in (one for one in names if one not in inputs):
        # Projects have no longer paths, and patterns take time.
        if len(path) > _LONGEST or not (match_any(stage.outputs, path) or is_scratch(path)):
            at = f"`{place}`, line {names[path]}," if names[path] else f"`{place}`"
            message = f"the depfile {at} names `{path[:_LONGEST]}`, which is not among the inputs of the stage"
            yield Diagnostic("E337", message, hint=_HINT)


def _omitted(stage: Stage, named: Collection[str]) -> Iterator[Diagnostic]:
    """Yield an error for each literal input that is an argument of the command, and that the depfile omits.

    With several sources and one `-o`, gcc and clang write a depfile of the last source alone.
    """
    parts = [words for words, _ in simple_commands(getattr(stage.step, "command", ()))]
    # Neither the program nor the script of an interpreter, which options may precede.
    started = ([*dropwhile(lambda one: not _INTERPRETER.fullmatch(one), words)] for words in parts)
    scripts = {next((one for one in words[1:] if not one.startswith("-")), "") for words in started}
    given = {_inside(word, stage.cwd) for words in parts for word in {*words[1:]} - scripts}
    for path in sorted((stage.literal_inputs & given).difference(named)):
        message = f"the command has the argument `{relative_path(path, stage.cwd)}`, which its depfile does not name"
        hint = "use a stage for each source (`foreach`), or a depfile for each, and join them: `cat a.d b.d > deps.d`"
        yield Diagnostic("E337", f"{message}: the depfile may belong to another source", hint=hint)
