"""Decide why tests do not find a module that a stage was to write: another name, or another directory."""

import posixpath
from collections.abc import Iterable, Sequence

from orch23.model.diagnostic import nearest_names
from orch23.model.event_data import LikelyCause
from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import Stage
from orch23.verdict.package_cause import known_package
from orch23.verdict.unfixable_tests import MissingImport

_WORD = lazy_pattern(r"\w+")


def module_cause(
    missing: MissingImport, stage: Stage, tests: Iterable[str], python_path: Sequence[str], path_key: str
) -> LikelyCause | None:
    """Return the cause of an import in a test of a stage, or None if its outputs do not explain it.

    `tests` are the texts of the files that the stage cannot write, `python_path` and `path_key` the directories of
    modules and their key, empty if the pipeline has no place for it.
    """
    top = missing.module.partition(".")[0]
    outputs = {posixpath.basename(path)[:-3]: n for n, path in enumerate(stage.outputs) if path.endswith(".py")}
    if top in outputs:
        return _other_folder(top, stage.outputs[outputs[top]], stage.cwd, python_path, path_key)
    near = nearest_names(top, outputs)
    if known_package(top) or not (near or len(outputs) == 1):
        return None
    name = near[0] if near else next(iter(outputs))
    number, path = outputs[name], stage.outputs[outputs[name]]
    place = f"the import in {missing.path}:{missing.line}"
    text = f"no stage writes `{top}.py`; `{stage.family}` writes `{posixpath.basename(path)}`"
    if _is_imported(name, tests):
        # The output has the right name, so only a similar name is an error of this kind.
        return LikelyCause(kind="module", text=text, hint=f"correct {place}: did you mean `{name}`?") if near else None
    asked = f": did you mean `{name}`?" if near else f", for example to `{name}`"
    return LikelyCause(
        kind="module",
        text=text,
        key=f"outputs/{number}",
        value=posixpath.join(posixpath.dirname(path), f"{top}.py"),
        hint=f"or correct {place}{asked}",
    )


def _is_imported(name: str, tests: Iterable[str]) -> bool:
    lines = (line.lstrip() for text in tests if name in text for line in text.splitlines() if name in line)
    return any(
        line.startswith(("import ", "from ")) and name in _WORD.findall(line.partition("#")[0]) for line in lines
    )


def _other_folder(top: str, path: str, cwd: str, python_path: Sequence[str], path_key: str) -> LikelyCause:
    folder = posixpath.relpath(posixpath.dirname(path) or ".", cwd)
    listed = ", ".join(python_path)
    return LikelyCause(
        kind="python_path",
        text=f"`{top}` is in `{folder}`, where the tests do not look for modules (`pythonpath: [{listed}]`)",
        key=path_key,
        value=folder if path_key else "",
        appends=bool(path_key),
        hint="" if path_key else f"add `{folder}` to `pythonpath` of the pytest step",
    )
