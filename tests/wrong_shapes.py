"""Wrong values for each key of the pipeline language, and what orch23 says about them.

`python -m tests.wrong_shapes --seed N` prints 60 messages drawn at random, to be read as a new user would.
"""

import os
import random
import re
import sys
import tempfile
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import yaml

from orch23.cli.project_loading import ProjectSettings, open_project
from orch23.language.schema import document_classes
from orch23.load.pipeline import parse_pipeline
from orch23.model.diagnostic import Diagnostic, errors
from orch23.model.plan import InvalidPipelineError
from orch23.report.diagnostics import render_diagnostics
from scripts.pipeline_reference import keys_by_name, reference_sections
from tests.unit.load.test_reference import ALWAYS, BESIDE, document_with

FILE = "p.yaml"
SHAPES = {
    "null": "null",
    "bool": "true",
    "number": "7",
    "zero": "0",
    "negative": "-1",
    "fraction": "1.5",
    "large": "9999999999999999",
    "quoted number": "'3'",
    "empty string": "''",
    "string": "some text",
    "unit": "10 minutes",
    "backslash": "src\\app.py",
    "absolute": "/src/app.py",
    "list": "[one, two]",
    "empty list": "[]",
    "list of mappings": "[some: text]",
    "list of null": "[null]",
    "list of lists": "[[one]]",
    "list of numbers": "[-1]",
    "mapping": "{one: two}",
    "empty mapping": "{}",
    "mapping of lists": "{one: [two]}",
}
# The files that the pipelines read.
_FILES = {"p.md": "Write it.\n", "l.json": '["a"]', "a.json": "{}", "a": "", "build/plan.json": '{"checks": []}'}
_MOST_OF_HINT = 150
_MARK = "VALUE-OF-THE-KEY"
IS_WHOLE = os.environ.get("HYPOTHESIS_PROFILE") == "thorough" or os.environ.get("REGOLD") == "1"
_STRIDE = 1 if IS_WHOLE else 6
_ALONE = {("`foreach`", "in"), ("An input", "list")}


@dataclass(frozen=True)
class Case:
    """A pipeline with a wrong value of a key of a section of the reference page."""

    section: str
    key: str
    shape: str
    text: str

    @cached_property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What `orch23 validate` reports: of the corrected lines those that were tried."""
        found = parse_pipeline(self.text, FILE).diagnostics
        # Others are not changed by a trial, which takes ten times as long.
        return tried(self.text) if any(one.fix for one in errors(found)) else found

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """What orch23 refuses."""
        return errors(self.diagnostics)

    def rendered(self) -> str:
        """What a user sees."""
        return render_diagnostics(list(self.diagnostics), {FILE: self.text})


def keys() -> list[tuple[str, str]]:
    """Return each section of the reference page with each of its keys."""
    return [
        (section, key) for section, name, _ in reference_sections() for key in keys_by_name(document_classes()[name])
    ]


@cache
def cases() -> tuple[Case, ...]:
    """Return every sixth key with each shape; in `make thorough`, and for the golden file, every key."""
    return tuple(
        Case(section, key, shape, text_with(section, key, written))
        for section, key in keys()[::_STRIDE]
        for shape, written in SHAPES.items()
    )


def tried(text: str) -> tuple[Diagnostic, ...]:
    """Return what a command reports of a pipeline that is refused, in a project that has the other files."""
    with tempfile.TemporaryDirectory() as folder:
        for path, written in {**_FILES, FILE: text}.items():
            place = Path(folder, path)
            place.parent.mkdir(exist_ok=True)
            place.write_text(written)
        settings = ProjectSettings(root=Path(folder), pipeline_path=Path(folder, FILE), environ={"HOME": folder})
        try:
            open_project(settings)
        except InvalidPipelineError as error:
            return error.diagnostics
    raise AssertionError(text)


def text_with(section: str, key: str, written: str) -> str:
    """Return a pipeline that is sound but for the value of a key."""
    beside = {} if (section, key) in _ALONE else {**ALWAYS.get(section, {}), **BESIDE.get((section, key), {})}
    whole: dict[str, Any] = document_with(section, {**beside, key: _MARK})
    text = yaml.safe_dump(whole, sort_keys=False, width=10_000).replace(f"{{{{ {_MARK} }}}}", "{{ task }}")
    assert text.count(_MARK) == 1, text
    return text.replace(_MARK, written)


def with_fix(case: Case, found: Diagnostic) -> str:
    """Return the pipeline with the corrected line that a message shows."""
    place, fix = found.location, found.fix
    assert place is not None
    assert fix is not None
    lines = case.text.split("\n")
    line = lines[place.line - 1]
    at = line.index(fix[0], place.column - 1)
    lines[place.line - 1] = line[:at] + fix[1] + line[at + len(fix[0]) :]
    return "\n".join(lines)


def example_in(hint: str) -> tuple[str, str] | None:
    """Return the key and the value of the line that a hint gives as an example."""
    found = re.search(r"as in `(\w+): (.*?)`(?:\. |, or |; |$)", hint)
    return None if found is None else (found[1], found[2])


def drawn(seed: int, count: int = 60) -> list[Case]:
    """Return refused cases, drawn at random."""
    order = list(cases())
    random.Random(seed).shuffle(order)
    return list(islice((one for one in order if one.errors), count))


def table() -> str:
    """Return the messages of all keys and shapes. Shapes with the same message are in one line."""
    lines: list[str] = []
    for (section, key), group in groupby(cases(), lambda one: (one.section, one.key)):
        lines.append(f"\n## {section}: {key}")
        same: dict[str, list[str]] = {}
        for one in group:
            said = " + ".join(_line(each) for each in one.diagnostics) or "taken"
            same.setdefault(said, []).append(one.shape)
        lines += [f"{', '.join(shapes)}: {said}" for said, shapes in same.items()]
    return "\n".join(lines).lstrip() + "\n"


def _line(one: Diagnostic) -> str:
    place = one.location
    where = "" if place is None else f" {place.line}:{place.column}"
    hint = (one.hint or "")[:_MOST_OF_HINT]
    fix = "" if one.fix is None else f" | {one.fix[0]} -> {one.fix[1]}"
    # The value has the shape.
    message = re.sub(
        r" is (?:the string |an? |)(?:`[^`]*`|list|mapping|empty string|empty \(null\));", " ...;", one.message
    )
    return f"{one.code}{where} {message} | {hint}{fix}"


def main() -> None:
    """Print messages drawn at random."""
    for number, one in enumerate(drawn(int(sys.argv[sys.argv.index("--seed") + 1])), 1):
        sys.stdout.write(f"--- {number}: {one.section} {one.key}, {one.shape}\n{one.rendered()}\n")


if __name__ == "__main__":
    main()
