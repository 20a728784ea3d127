"""Find where a value of a stage comes from, if not from the place where the stage uses it."""

import re

from orch23.model.diagnostic import Location, Related
from orch23.model.pipeline import Pipeline, Stage, family_of
from orch23.steps.registry import is_llm

_VAR = re.compile(r"\$\{\{\s*vars\.(\w+)\s*\}\}")


def model_places(pipeline: Pipeline, name: str, place: Location, source: str) -> tuple[Related, ...]:
    """Return where the model of a stage is set: at a var, or outside of the file; nothing if it is at the place.

    `place` is the place of `llm.model`, `source` the text of its file.
    """
    stage = next((one for one in pipeline.stages if one.name == family_of(name)), None)
    if not isinstance(stage, Stage) or not is_llm(stage.step):
        return ()
    model, used = stage.step.model, _text_at(source, place)
    if used in ("", model):
        return ()
    var = _VAR.fullmatch(used)
    set_at = None if var is None else pipeline.locate("vars", var[1])
    if var is not None and set_at is not None and _text_at(source, set_at) == model:
        return (Related(f"`vars.{var[1]}` is set here", set_at),)
    ways = f"`--model`, `ORCH23_MODEL`{'' if var is None else ', `--set` or a file of `--vars`'}"
    return (Related(f"`{model}` comes from outside of this file: from {ways}", None),)


def _text_at(source: str, place: Location) -> str:
    lines = source.removeprefix("\ufeff").split("\n")
    line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
    return line[place.column - 1 : place.column - 1 + place.length].strip("\"'")
