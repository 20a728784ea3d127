"""Find the declared outputs that a result lacks."""

from collections.abc import Iterator, Mapping

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.paths import is_glob, match_any
from orch23.model.pipeline import Stage


def missing_outputs(stage: Stage, result: Mapping[str, FileEntry]) -> Iterator[Diagnostic]:
    """Yield an error for each declared output that a result lacks: a file, or any file of a directory."""
    cause = "prompt" if stage.step.asks_model else "command"
    hint = f"a stage must write every path of its `outputs`: fix the {cause}, or remove the path from `outputs`"
    for pattern in stage.outputs:
        if is_glob(pattern) and not any(match_any((pattern,), path) for path in result):
            yield Diagnostic("E303", f"nothing was written below `{pattern}`", hint=hint)
        elif not is_glob(pattern) and pattern not in result:
            yield Diagnostic("E303", f"`{pattern}` was not written", hint=hint)
