"""The projects whose growth is measured, and the cases of each: a change, a command, and the text that it prints.

Each shape is one project. Its cases run in order, and a case that builds leaves nothing to do. So one first build
serves all cases of a shape.
"""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.tools.orch23 import FILE

# ---- projects -------------------------------------------------------------------------------------------


def _write(root: Path, stages: str) -> None:
    (root / FILE).write_text(
        f"version: 1\nname: growth\ndefaults: {{sandbox: off}}\nstages:\n{stages}", encoding="utf-8"
    )


def _sources(root: Path, count: int) -> None:
    (root / "in").mkdir()
    for number in range(count):
        (root / "in" / f"{number}.txt").write_text(f"{number}\n", encoding="utf-8")


def _literal(root: Path, count: int) -> None:
    lines = (
        f"  s{i}: {{shell: [cp, in/{i}.txt, out/{i}.txt], inputs: [in/{i}.txt], outputs: [out/{i}.txt]}}\n"
        for i in range(count)
    )
    _write(root, "".join(lines))


def _foreach(root: Path, items: str) -> None:
    _write(
        root,
        f"  s:\n    foreach: {{{items}, as: item}}\n"
        '    shell: [cp, "in/${{ item.v }}.txt", "out/${{ item.id }}.txt"]\n'
        '    inputs: ["in/${{ item.v }}.txt"]\n    outputs: ["out/${{ item.id }}.txt"]\n',
    )


def _items(count: int, changed: int = 0) -> str:
    """Return a list of items; with `changed`, the first one reads the file of another."""
    return json.dumps([{"id": str(i), "v": str(i or changed)} for i in range(count)])


def _listed(root: Path, count: int, changed: int = 0) -> None:
    _foreach(root, f"in: {_items(count, changed)}, key: id")


def _generated(root: Path, count: int) -> None:
    (root / "items.json").write_text(_items(count), encoding="utf-8")
    _foreach(root, 'from: "list.json#", key: id')
    with (root / FILE).open("a", encoding="utf-8") as file:
        file.write("  list: {shell: [cp, items.json, list.json], inputs: [items.json], outputs: [list.json]}\n")


def _with_sources(write: Callable[[Path, int], None]) -> Callable[[Path, int], None]:
    def write_all(root: Path, count: int) -> None:
        _sources(root, count)
        write(root, count)

    return write_all


def _existing(root: Path, count: int) -> None:
    (root / "list.json").write_text(_items(count), encoding="utf-8")
    _foreach(root, 'from: "list.json#", key: id')


# ---- changes --------------------------------------------------------------------------------------------


def _nothing(root: Path, number: int) -> None:
    del root, number


def _count(root: Path) -> int:
    return sum(1 for _ in (root / "in").iterdir())


def _edit(root: Path, number: int) -> None:
    (root / "in" / "1.txt").write_text(f"edit {number} {time.monotonic_ns()}\n", encoding="utf-8")


def _edit_stage(root: Path, number: int) -> None:
    """Have the first stage of the pipeline read another file."""
    path = root / FILE
    text = path.read_text(encoding="utf-8")
    before = text.partition("  s0: {")[2].partition("\n")[0]
    source = f"in/{5 + number}.txt"
    after = f"shell: [cp, {source}, out/0.txt], inputs: [{source}], outputs: [out/0.txt]}}"
    path.write_text(text.replace(before, after, 1), encoding="utf-8")


def _edit_listed(root: Path, number: int) -> None:
    _listed(root, _count(root), 5 + number)


def _edit_generated(root: Path, number: int) -> None:
    (root / "items.json").write_text(_items(_count(root), 5 + number), encoding="utf-8")


def _add_glob(root: Path, number: int) -> None:
    del number
    with (root / FILE).open("a", encoding="utf-8") as file:
        file.write('  all: {shell: "cat out/*.txt > all.txt", inputs: ["out/*.txt"], outputs: [all.txt]}\n')


def _delete_one(root: Path, number: int) -> None:
    del number
    (root / "out" / "1.txt").unlink()


def _delete_all(root: Path, number: int) -> None:
    del number
    shutil.rmtree(root / "out")


def _tamper(root: Path, number: int) -> None:
    (root / "out" / "1.txt").write_text(f"edit {number}\n", encoding="utf-8")


# ---- cases ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """One command that is measured, the change before it, the text that it must print, and its exit status.

    A `settled` case starts some seconds after the last change, after a build with nothing to do. A case that is `once`
    is not repeated.
    """

    name: str
    command: tuple[str, ...]
    prepare: Callable[[Path, int], None] = _nothing
    expected: str = ""
    code: int = 0
    settled: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """A form of pipeline: write its project with so many items, then repeat the cases of each part."""

    name: str
    write: Callable[[Path, int], None]
    parts: tuple[tuple[Case, ...], ...]


def name_of(shape: str, case: str) -> str:
    """Return the name of a case in the results."""
    return f"{shape}: {case}"


VALIDATE, PLAN, BUILD = ("validate", FILE), ("plan", FILE), ("build", FILE, "-j2")
REPAIR = (*BUILD, "--overwrite-edited")
UP_TO_DATE = "up to date"
LITERAL, GENERATED = "literal stages", "foreach over a generated list"
FIRST_PLAN, SETTLED, AT_ONCE = "first plan", "nothing to do", "nothing to do at once"
STATUS, EXPLAIN, FORCED = "status", "explain", "build --force of one stage"
WITH_GLOB, EDITED_LINE, EDITED_ITEM = ", one glob", "one YAML line edited", "one item edited"
INVALID = 65
NEW = (
    Case("validate", VALIDATE, expected="ok:"),
    Case(FIRST_PLAN, PLAN, expected="would write"),
)
FIRST = (
    Case("first build", BUILD, expected="built", once=True),
    Case(AT_ONCE, BUILD, expected=UP_TO_DATE, once=True),
)
IDLE = (
    Case(SETTLED, BUILD, expected=UP_TO_DATE, settled=True),
    Case("plan, nothing to do", PLAN, expected=UP_TO_DATE),
)
EDITED = (
    Case("plan, one input edited", PLAN, _edit, "1 of"),
    Case("build, one input edited", BUILD, _edit, "1 built"),
    Case("nothing to do, after an edit", BUILD, expected=UP_TO_DATE),
)
DELETED = (
    Case("build, one output deleted", BUILD, _delete_one, "1 restored"),
    Case("build, all outputs deleted", BUILD, _delete_all, " restored"),
    Case("nothing to do, after restoring all", BUILD, expected=UP_TO_DATE),
    Case("build, one output edited", REPAIR, _tamper, "1 restored"),
)
QUERIES = (
    Case("validate, built", VALIDATE, expected="ok:"),
    Case(STATUS, ("status", FILE), expected=UP_TO_DATE),
    Case(EXPLAIN, ("explain", FILE, "s1"), expected="fresh"),
    Case(FORCED, ("build", FILE, "--force", "s1"), expected="1 built"),
    Case("status, one input edited", ("status", FILE), _edit),
    Case("explain, one input edited", ("explain", FILE, "s1"), _edit),
    Case("build, one input edited, after status", BUILD, _edit, "1 built"),
    Case("show --key", ("show", FILE, "s1", "--key")),
    Case("graph", ("graph", FILE)),
    Case("runs", ("runs",)),
    Case("log", ("log",)),
    Case("cache stats", ("cache", "stats")),
    Case("cache verify", ("cache", "verify")),
    Case("gc --dry-run", ("gc", "-n")),
)
LAST = (
    Case("edited output reported", BUILD, _tamper, "1 edited", code=6, once=True),
    Case("accept", ("accept", FILE, "s1", "--allow-unsandboxed"), expected="1 verified", once=True),
    Case("build after accept", BUILD, expected="1 built", once=True),
    Case("clean", ("clean", FILE, "--force"), expected="removed", once=True),
    Case("build after clean", BUILD, expected="restored", once=True),
    Case("reset", ("reset", FILE), once=True),
    Case("plan after reset", PLAN, once=True),
)
GLOB = (
    Case("plan, one glob", PLAN, _add_glob, "1 of", once=True),
    Case("build, one glob", BUILD, expected="1 built", once=True),
    Case("build, one input edited, one glob", BUILD, _edit, "2 built"),
    Case(f"{AT_ONCE}{WITH_GLOB}", BUILD, expected=UP_TO_DATE),
    Case(f"{SETTLED}{WITH_GLOB}", BUILD, expected=UP_TO_DATE, settled=True),
    Case("build, one output deleted, one glob", BUILD, _delete_one, "1 restored"),
    Case("build, all outputs deleted, one glob", BUILD, _delete_all, " restored"),
    Case("nothing to do, after restoring all, one glob", BUILD, expected=UP_TO_DATE),
)


def _edits(edit: Callable[[Path, int], None], what: str, built: str) -> tuple[Case, ...]:
    """Return the cases of one edit that changes one stage."""
    return (
        Case(f"plan, {what}", PLAN, edit),
        Case(f"build, {what}", BUILD, edit, built),
        Case(f"{AT_ONCE}, {what}", BUILD, expected=UP_TO_DATE),
    )


MISSING = (Case("validate", VALIDATE, code=INVALID), Case("plan", PLAN, code=INVALID))
SHAPES = (
    Shape("missing inputs", _literal, (MISSING,)),
    Shape("missing inputs, foreach over a list", _listed, (MISSING,)),
    Shape("missing inputs, foreach over a file", _existing, (MISSING,)),
    Shape(
        LITERAL,
        _with_sources(_literal),
        (
            NEW,
            FIRST,
            (*IDLE, *EDITED, *_edits(_edit_stage, EDITED_LINE, "1 built"), *DELETED),
            QUERIES,
            GLOB,
            LAST,
        ),
    ),
    Shape(
        "foreach over a list",
        _with_sources(_listed),
        (NEW, FIRST, (*IDLE, *EDITED, *_edits(_edit_listed, EDITED_ITEM, "1 built"), *DELETED)),
    ),
    Shape(
        GENERATED,
        _with_sources(_generated),
        (NEW, FIRST, (*IDLE, *EDITED, *_edits(_edit_generated, EDITED_ITEM, "2 built"), *DELETED)),
    ),
)
