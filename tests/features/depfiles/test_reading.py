"""Depfiles: what compilers write, what counts by it, and what is an error."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.features.depfiles.reading import tracked_inputs
from orch23.features.depfiles.syntaxes import READERS
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.pipeline import GlobInput, Input, PathInput, Stage
from orch23.steps.shell.spec import ShellStep

MADE = Path(__file__).parents[2] / "golden" / "depfiles"
ENTRY = FileEntry(digest_bytes(b"x"))
ODD = {"a b.h", "c$d.h", "e#f.h", "g:h.h", "i\\j.h", "k\\ l.h", "sub dir/m.h", "x y.c"}

# what each depfile of `tests/golden/depfiles` names of the project
NAMED: Mapping[str, set[str]] = {
    **{
        f"{cc}-{case}": names
        for cc in ("gcc", "clang")
        for case, names in (
            ("odd-names", ODD),
            ("absolute", ODD),
            ("phony", {"a.c", "a.h"}),
            ("two-sources", {"b.c", "b.h"}),
            ("system", {"a.c", "p.h"}),
        )
    },
    "gcc-all": {"a.c", "p.h", "sys/s.h"},
    "nasm": {"a b.asm"},
    "gfortran": {"b.f90", "c.inc", "am.mod"},
    "rustc": {"src/main.rs", "src/m.rs", "src/a b.txt"},
    "protoc": {"a b.proto", "d/c.proto"},
    "cython": {"my dir/mod.pyx", "my dir/in c.pxi"},
    "ninja": {"src/a.c", "src/h.h"},
    "esbuild": {"src/a.js", "src/b c.js"},
}


def stage_of(command: str | tuple[str, ...] = "true", *literal: str, syntax: str = "make", **more: Any) -> Stage:
    inputs: tuple[Input, ...] = (*[PathInput(one) for one in literal], GlobInput("**"))
    return Stage(name="a", step=ShellStep(command), inputs=inputs, depfile=(syntax, "$TMPDIR/deps.d"), **more)


def read(text: str | None, inputs: set[str], stage: Stage | None = None, reads: tuple[str, ...] | None = ()) -> Any:
    """Return the inputs that count, and the messages of the errors."""
    tracked, problems = tracked_inputs(stage or stage_of(), dict.fromkeys(inputs, ENTRY), text, reads)
    return tracked, [one.message for one in problems]


def test_each_depfile_that_a_program_made_has_an_entry() -> None:
    assert {one.stem for one in MADE.glob("*.json")} == NAMED.keys()


@pytest.mark.parametrize("name", NAMED)
def test_what_programs_write_names_the_files_that_they_say_to_have_read(name: str) -> None:
    made = json.loads((MADE / f"{name}.json").read_text())
    stage = stage_of(syntax=made["syntax"], outputs=("am.mod",))
    assert read(made["text"], {*made["inputs"]}, stage) == (NAMED[name], [])


def test_what_a_program_has_read_counts_though_its_depfile_omits_it() -> None:
    made = json.loads((MADE / "nasm.json").read_text())
    assert read(made["text"], {*made["inputs"]}, reads=("a b.asm", "m.inc")) == ({"a b.asm", "m.inc"}, [])


def test_without_the_reads_all_inputs_count() -> None:
    assert read("o: a.h\n", {"a.h", "b.h"}, reads=None) == (None, [])


@pytest.mark.parametrize(
    "command", ["gcc -MMD -MF $TMPDIR/deps.d a.c ./b.c -o ab", ("gcc", "-MMD", "-MF", "x.d", "a.c", "b.c", "-o", "ab")]
)
def test_a_source_that_the_depfile_of_several_omits_is_an_error(command: str | tuple[str, ...]) -> None:
    made = json.loads((MADE / "gcc-two-sources.json").read_text())
    _, problems = read(made["text"], {*made["inputs"]}, stage_of(command, "a.c", "b.c"))
    assert len(problems) == 1
    assert "has the argument `a.c`, which its depfile does not name" in problems[0]


def test_a_literal_input_that_is_the_program_or_not_an_argument_may_be_omitted() -> None:
    for command in ("python tools/gen.py a.h", "tools/gen.py a.h", "cc a.h < tools/gen.py; true", "cc a.h"):
        assert read("o: a.h", {"a.h", "tools/gen.py"}, stage_of(command, "a.h", "tools/gen.py"))[1] == []


def test_arguments_are_relative_to_the_working_directory() -> None:
    stage = stage_of("cc ../a.c b.c", "a.c", "src/b.c", cwd="src")
    (problem,) = read("o: b.c ../h.h", {"a.c", "src/b.c", "h.h"}, stage)[1]
    assert problem.startswith("the command has the argument `../a.c`, which its depfile does not name")


def test_a_path_that_is_no_input_is_an_error_with_its_line() -> None:
    text = "o: a.h \\\n build/made.h gone.h /usr/include/stdio.h ../../tmp/x.h \\\n /room/work/b.h\n"
    _, problems = read(text, {"a.h"}, stage_of(outputs=("build/",)))
    place = "the depfile `$TMPDIR/deps.d`, line"
    end = "which is not among the inputs of the stage"
    assert problems == [f"{place} 2, names `gone.h`, {end}", f"{place} 3, names `b.h`, {end}"]


def test_of_very_many_paths_that_are_no_inputs_the_first_are_named() -> None:
    _, problems = read(f"o: {' '.join(f'{number}.h' for number in range(1000))}\n", {"a.h"})
    assert [one.partition("names `")[2].partition("`")[0] for one in problems] == [f"{one}.h" for one in range(5)]


@pytest.mark.parametrize(
    ("syntax", "text", "why"),
    [
        ("make", None, "did not write it"),
        ("make", "", "names no file of the project"),
        ("make", "o:\n", "names no file of the project"),
        ("make", "o: /usr/include/stdio.h\n", "names no file of the project"),
        ("make", "# a comment\na.h b.h\n", "line 2 has no `TARGET: `: 'a.h b.h'"),
        ("ninja", "a.o: deps not found\n", "line 1 is not of `ninja -t deps`"),
        ("ninja", "", "names no file of the project"),
        ("json", "{", "cannot be used"),
        ("json", '{"inputs": 3}', "must be a list of paths"),
        ("json", '["a.h", 3]', "must be a list of paths"),
        ("json", "[]", "names no file of the project"),
        ("json", "[" * 100_000, "cannot be used"),
    ],
)
def test_a_depfile_that_cannot_be_read_is_an_error(syntax: str, text: str | None, why: str) -> None:
    tracked, problems = read(text, {"a.h", "b.h"}, stage_of(syntax=syntax))
    assert not tracked
    assert len(problems) == 1
    assert why in problems[0]


def test_a_name_with_blanks_that_are_not_escaped_is_one_if_it_is_an_input() -> None:
    assert read("o: a b.h\\\n c.h", {"a b.h", "c.h"}) == ({"a b.h", "c.h"}, [])
    assert read("o: a.h c.h", {"a.h", "c.h"}) == ({"a.h", "c.h"}, [])


NAMES = st.text(st.sampled_from("ab \\#$:é|\t'\"%~"), min_size=1, max_size=8)
GAPS = st.sampled_from([" ", "  ", "\t", " \\\n ", " \\\r\n\t"])


def escaped(name: str) -> str:
    """Return a name as GNU make reads it: backslashes are doubled before a blank and at the end."""
    found, slashes = "", 0
    for character in name:
        if character in " \t#":
            found += "\\" * (slashes + 1)
        found += "$$" if character == "$" else character
        slashes = slashes + 1 if character == "\\" else 0
    return found + "\\" * slashes


@given(st.lists(st.lists(st.tuples(NAMES, GAPS), min_size=1), min_size=1, max_size=4), st.booleans())
def test_each_name_that_is_escaped_for_make_is_read_again(rules: list[list[tuple[str, str]]], is_ended: bool) -> None:
    # Nothing escapes a colon: the backslashes before one are part of the name, or not.
    rules = [[(re.sub(r"\\+:", ":", name), gap) for name, gap in names] for names in rules]
    wanted = [[name for name, _ in names if name != "|"] for names in rules]
    texts = (
        f"t{number}.o x\\ y: " + "".join(f"{escaped(name)}{gap}" for name, gap in names) + "z"
        for number, names in enumerate(rules)
    )
    text = "\n".join(texts) + ("\n" if is_ended else "")
    found = [word for _, _, words in READERS["make"](text) for word in words]
    assert found == [name for names in wanted for name in (*names, "z")]


@pytest.mark.parametrize(
    "command", ["python -u gen.py a.c", "timeout 60 python gen.py a.c", "env X=1 python -B gen.py a.c"]
)
def test_the_script_of_an_interpreter_is_not_a_source(command: str) -> None:
    inputs = {"gen.py", "a.c", "a.h"}
    assert read("o: a.c a.h\n", inputs, stage_of(command, "gen.py", "a.c")) == ({"a.c", "a.h"}, [])
    assert "`a.c`" in read("o: a.h\n", inputs, stage_of(command, "gen.py", "a.c"))[1][0]
