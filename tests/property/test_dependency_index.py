"""What the dependency index says an edit reaches is what deciding everything finds, for every form of a stage."""

import os
import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orch23.cli.opening import open_stages
from orch23.entry import main as program
from tests.property import test_snapshot_agrees
from tests.property.test_snapshot_agrees import AHEAD_NS, Play, playing, put, wait_for_the_clock_of_the_files, whole

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
ALONE = "".join(
    f"  p{n}: {{inputs: [p/{n}.txt], outputs: [q/{n}.txt], shell: [cp, p/{n}.txt, q/{n}.txt]}}\n" for n in range(12)
)
PIPELINE = (
    """\
version: 1
name: forms
vars: {word: one}
stages:
  parts:
    foreach: {in: [a, b, c], as: name}
    inputs: ["src/${{ name }}.txt"]
    outputs: ["out/${{ name }}.txt"]
    shell: [cp, "src/${{ name }}.txt", "out/${{ name }}.txt"]
  listed:
    foreach: {from: "names.json#/names", as: name}
    inputs: [spec.md]
    outputs: ["made/${{ name }}.txt"]
    shell: [cp, spec.md, "made/${{ name }}.txt"]
  lister: {inputs: [words.json], outputs: [list.json], shell: [cp, words.json, list.json]}
  worded:
    foreach: {from: "list.json#/names", as: word}
    inputs: [spec.md]
    outputs: ["words/${{ word }}.txt"]
    shell: [cp, spec.md, "words/${{ word }}.txt"]
  chain:
    foreach: {in: [one, two], order: sequential}
    inputs: ["steps/${{ item }}.txt"]
    outputs: [acc.txt]
    shell: [sh, -c, 'cat steps/$0.txt >> acc.txt', "${{ item }}"]
  reader: {inputs: [acc.txt], outputs: [out/acc.txt], shell: [cp, acc.txt, out/acc.txt]}
  folder:
    inputs: ["src/*.txt"]
    outputs: [many/]
    shell: mkdir -p many; for one in src/*.txt; do cp $one many/; done
  all: {inputs: ["many/*.txt", "out/*.txt"], outputs: [all.txt], shell: 'cat many/*.txt out/*.txt > all.txt'}
  left: {inputs: [g.txt], outputs: [g1.txt], shell: [cp, g.txt, g1.txt], promote: both}
  right: {inputs: [h.txt], outputs: [g2.txt], shell: [cp, h.txt, g2.txt], promote: both}
  gen: {inputs: [e.txt], outputs: [src/gen.txt], shell: [cp, e.txt, src/gen.txt]}
  names: {inputs: [{list: "src/*.txt"}], outputs: [names.txt], render: {template: names.j2}}
  heap: {inputs: [f.txt], outputs: [heap/], shell: mkdir -p heap; cp f.txt heap/b.txt}
  heaped: {inputs: [{list: "heap/*.txt"}, y.txt], outputs: [heaped.txt], render: {template: names.j2}}
  off: {if: "${{ vars.word == 'two' }}", inputs: [spec.md], outputs: [off.txt], shell: [cp, spec.md, off.txt]}
  before: {inputs: [shared/x.txt, y.txt], outputs: [before.txt], shell: 'cat shared/x.txt y.txt > before.txt'}
  earlier: {inputs: [shared/x.txt], outputs: [earlier.txt], shell: [cp, shared/x.txt, earlier.txt]}
  shared:
    foreach: {in: [one, two], order: sequential}
    needs: [before, earlier]
    outputs: [shared/x.txt]
    shell: [sh, -c, 'echo $0 >> shared/x.txt', "${{ item }}"]
  first:
    inputs: [k.txt]
    edits: ["tree/**"]
    shell: 'cat k.txt >> tree/a.txt; cp k.txt tree/new.txt; rm -f tree/c.txt'
  between: {inputs: ["tree/*.txt", {list: tree/**}], outputs: [between.txt], shell: 'cat tree/*.txt > between.txt'}
  last:
    inputs: [l.txt]
    needs: [between]
    edits: ["tree/**"]
    shell: 'for f in $(cat l.txt); do echo l >> tree/$f.txt; done'
  after: {inputs: ["tree/*.txt"], outputs: [after.txt], shell: 'cat tree/*.txt > after.txt'}
"""
    + ALONE
)
GEN = "  gen: {inputs: [e.txt], outputs: [src/gen.txt], shell: [cp, e.txt, src/gen.txt]}\n"
FILES = {
    "pipeline.yaml": PIPELINE,
    "spec.md": "# One\n",
    "names.json": '{"names": ["x", "y"]}\n',
    "words.json": '{"names": ["v", "w"]}\n',
    "names.j2": "{% for one in inputs %}{{ one.text }}{% endfor %}",
    "g.txt": "g\n",
    "h.txt": "h\n",
    "e.txt": "e\n",
    "f.txt": "f\n",
    "y.txt": "y\n",
    "k.txt": "k\n",
    "l.txt": "a b new\n",
    "shared/x.txt": "x\n",
    **{f"tree/{name}.txt": f"{name}\n" for name in "abcd"},
    "steps/one.txt": "1\n",
    "steps/two.txt": "2\n",
    **{f"src/{name}.txt": f"{name}\n" for name in "abc"},
    **{f"p/{number}.txt": f"{number}\n" for number in range(12)},
}
TEXTS = {
    "src/a.txt": ("a\n", "other\n"),
    "src/new.txt": ("new\n",),
    "steps/one.txt": ("1\n", "one\n"),
    "steps/two.txt": ("2\n", "two\n"),
    "names.json": ('{"names": ["x", "y"]}\n', '{"names": ["x"]}\n', '{"names": ["y", "x", "z"]}\n', '{"names": "x"}\n'),
    "words.json": ('{"names": ["v", "w"]}\n', '{"names": ["w", "u"]}\n', '{"names": ["v",  "w"]}\n'),
    "spec.md": ("# One\n", "# Two\n"),
    "g.txt": ("g\n", "G\n"),
    "h.txt": ("h\n", "H\n"),
    "e.txt": ("e\n", "E\n"),
    "f.txt": ("f\n", "F\n"),
    "y.txt": ("y\n", "Y\n"),
    "k.txt": ("k\n", "K\n"),
    "l.txt": ("a b new\n", "b\n"),
    "tree/a.txt": ("a\n", "A\n"),
    "tree/d.txt": ("d\n", "D\n"),
    "tree/e.txt": ("e\n",),
    "shared/x.txt": ("x\n", "X\n"),
    "p/3.txt": ("3\n", "three\n"),
    "p/7.txt": ("7\n", "seven\n"),
    "names.j2": (FILES["names.j2"], "{{ inputs | length }}"),
    "pipeline.yaml": (
        PIPELINE,
        PIPELINE.replace("[cp, p/3.txt, q/3.txt]", "[cp, --, p/3.txt, q/3.txt]"),
        PIPELINE.replace("[cp, p/3.txt, q/3.txt]", "[cp, --, p/3.txt, q/3.txt]").replace(
            "p/5.txt, q/5", "./p/5.txt, q/5"
        ),
        PIPELINE.replace("[cp, p/3.txt, q/3.txt]", "[false]"),
        PIPELINE.replace("outputs: [q/3.txt]", "outputs: [q/33.txt]"),
        PIPELINE.replace("[cp, g.txt, g1.txt]", "[cp, --, g.txt, g1.txt]"),
        PIPELINE.replace("for one in src", "for  one in src"),
        PIPELINE.replace("in $(cat l.txt)", "in  $(cat l.txt)"),
        PIPELINE.replace("needs: [between]", "needs: [first, between]"),
        PIPELINE.replace("in: [a, b, c]", "in: [a, b]"),
        PIPELINE.replace("cat steps/$0.txt", "cat  steps/$0.txt"),
        PIPELINE.replace("word: one", "word: two"),
        PIPELINE.replace(GEN, ""),
        f"{PIPELINE}  more: {{inputs: [g.txt], outputs: [more.txt], shell: [cp, g.txt, more.txt]}}\n",
    ),
}
MADE = (
    *("acc.txt", "out/a.txt", "out/acc.txt", "made/x.txt", "many/b.txt", "all.txt", "g1.txt", "names.txt", "q/3.txt"),
    *("heap/b.txt", "before.txt", "heaped.txt", "tree/a.txt", "tree/new.txt", "between.txt"),
)


@contextmanager
def forms(selection: tuple[str, ...] = ()) -> Iterator[Play]:
    """Play with a project that has stages of all forms, and ask for some of them, or for all."""
    with (
        patch.object(test_snapshot_agrees, "FILES", FILES),
        patch.object(test_snapshot_agrees, "BUILD", ["build", "pipeline.yaml", *selection, "-j1"]),
        patch.object(test_snapshot_agrees, "PLAN", ["plan", "pipeline.yaml", *selection]),
        playing() as play,
    ):
        yield play


def edit(chance: random.Random) -> None:
    path = chance.choice(list(TEXTS))
    put(path, chance.choice(TEXTS[path]))


def by_hand(chance: random.Random) -> None:
    put(chance.choice(MADE), "by hand\n")


def remove(chance: random.Random) -> None:
    Path(chance.choice([*MADE, "src/new.txt", "p/7.txt"])).unlink(missing_ok=True)


def spoil(chance: random.Random) -> None:
    path = Path(".orch23/index.sqlite")
    if path.exists():
        data = bytearray(path.read_bytes())
        for _ in range(chance.choice([1, 50])):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)


def remove_index(chance: random.Random) -> None:
    Path(".orch23", chance.choice(["index.sqlite", "generation"])).unlink(missing_ok=True)


STAGES = (
    *("parts@a", "parts", "listed@x", "lister", "worded@w", "chain@one", "chain@two", "reader", "folder", "all"),
    *(
        "left",
        "gen",
        "names",
        "heap",
        "heaped",
        "before",
        "earlier",
        "shared@one",
        "p1",
        "p3",
        "off",
        "none",
        "first",
        "last",
        "between",
    ),
)

CHANGES: tuple[Callable[[random.Random], None], ...] = (edit, edit, edit, edit, remove, by_hand, spoil, remove_index)
SELECTIONS = (
    (),
    (),
    ("all", "p3", "p4", "p5", "p6", "p7", "left", "right"),
    ("chain", "p3", "p4", "p7"),
    ("names", "p3", "p4", "p5"),
    ("before", "earlier", "p3", "p4", "p5", "p6"),
    ("before", "earlier", "heaped", "p3", "p4", "p5", "p6"),
    ("between", "p3", "p4", "p5", "p6"),
)


@given(st.tuples(st.integers(0, 2**32), st.integers(1, 5 if THOROUGH else 2), st.sampled_from(SELECTIONS)))
@settings(max_examples=1000 if THOROUGH else 1, deadline=None)
def test_what_an_edit_reaches_is_what_deciding_everything_finds(history: tuple[int, int, tuple[str, ...]]) -> None:
    seed, length, selection = history
    chance = random.Random(seed)
    with forms(selection) as play:
        play.build()
        play.build()
        for _ in range(length):
            wait_for_the_clock_of_the_files()
            for _ in range(chance.choice([1, 1, 1, 2])):
                chance.choice(CHANGES)(chance)
            play.ahead_ns += chance.choice([0, 0, AHEAD_NS])
            play.compare()
            explain(play, chance.sample(STAGES, 2))
            play.build()
            if chance.random() < 0.5:
                play.build("--force", chance.choice(STAGES))
            play.build()


OF_STAGES = (("explain",), ("explain", "--json"), ("show",), ("show", "--key"), ("show", "--diff", "--json"))
OF_ALL = (("status", "--all"), ("status", "--json"), ("plan", "-v"), ("plan", "--json", "--exit-code"))


def explain(play: Play, stages: Collection[str]) -> None:
    """Ask about stages, and all of them, with and without what is known of the last build: it is the same answer."""
    of_stages = [[command, "pipeline.yaml", name, *more] for command, *more in OF_STAGES for name in stages]
    for argv in (*of_stages, *([command, "pipeline.yaml", *more] for command, *more in OF_ALL)):
        assert play.ask(program, argv) == play.ask(whole, argv), argv


@pytest.mark.stride(11)
@pytest.mark.parametrize("stage", ["p3", "gen", "parts@a", "listed@x", "chain@one", "left", "heap", "before", "worded"])
def test_a_stage_that_is_named_is_explained_and_forced_with_what_it_reaches(stage: str) -> None:
    with forms() as play:
        play.build()
        play.build()
        for text in (None, "three\n"):
            if text is not None:
                wait_for_the_clock_of_the_files()
                put("p/3.txt", text)
            with patch("orch23.cli.opening.open_stages", wraps=open_stages) as opened:
                explain(play, [stage])
            # A foreach needs the whole pipeline.
            assert opened.call_count == (10 if stage == "worded" else 5)
        play.build("--force", stage)
        answered = play.answered
        play.build()
        assert play.answered == answered + 1


def built_and_edited(play: Play, path: str, text: str) -> None:
    """Build, edit a file, ask both ways what would be done, and build again."""
    play.build()
    wait_for_the_clock_of_the_files()
    put(path, text)
    play.compare()
    play.build()


@pytest.mark.stride(17)
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/a.txt", "other\n"),
        ("src/new.txt", "new\n"),
        ("steps/one.txt", "one\n"),
        ("steps/two.txt", "two\n"),
        ("spec.md", "# Two\n"),
        ("g.txt", "G\n"),
        ("p/3.txt", "three\n"),
        ("names.j2", "{{ inputs | length }}"),
        ("k.txt", "K\n"),
        ("l.txt", "b\n"),
        ("pipeline.yaml", TEXTS["pipeline.yaml"][1]),
        ("pipeline.yaml", TEXTS["pipeline.yaml"][2]),
        ("pipeline.yaml", TEXTS["pipeline.yaml"][6]),
        ("pipeline.yaml", TEXTS["pipeline.yaml"][7]),
    ],
)
def test_of_each_form_an_edit_is_built_by_what_it_reaches(path: str, text: str) -> None:
    with forms() as play:
        built_and_edited(play, path, text)
        assert play.parts == 1
        play.build()
        assert play.answered == 1


def test_of_some_stages_that_are_named_an_edit_is_built_by_what_it_reaches() -> None:
    with forms(SELECTIONS[2]) as play:
        built_and_edited(play, "p/3.txt", "three\n")
        assert play.parts == 1


def test_all_readers_of_a_file_that_a_chain_may_write_are_reached_although_the_chain_is_not_built() -> None:
    with forms(SELECTIONS[6]) as play:
        built_and_edited(play, "shared/x.txt", "X\n")
        assert Path("before.txt").read_text() == "X\ny\n"
        assert Path("earlier.txt").read_text() == "X\n"
        assert play.parts == 1


def test_a_reader_of_a_file_as_it_was_before_a_chain_that_is_not_built_again_is_given_it_like_that() -> None:
    with forms(SELECTIONS[6]) as play:
        play.ask(program, ["build", "pipeline.yaml", "-j1"])
        assert Path("shared/x.txt").read_text() == "x\none\ntwo\n"
        built_and_edited(play, "y.txt", "Y\n")
        assert Path("before.txt").read_text() == "x\nY\n"
        assert play.parts == 1


def test_what_a_stage_that_is_not_built_again_made_and_a_user_edited_is_not_listed() -> None:
    with forms(SELECTIONS[6]) as play:
        play.ask(program, ["build", "pipeline.yaml", "-j1"])
        put("heap/b.txt", "by hand\n")
        built_and_edited(play, "y.txt", "Y\n")
        assert Path("heaped.txt").read_text() == "Y\n"
        assert play.parts == 1


@pytest.mark.stride(3)
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("names.json", '{"names": ["x"]}\n'),
        ("words.json", '{"names": ["w", "u"]}\n'),
        ("pipeline.yaml", TEXTS["pipeline.yaml"][9]),
    ],
)
def test_of_another_list_only_what_it_affects_is_decided(path: str, text: str) -> None:
    with forms() as play:
        built_and_edited(play, path, text)
        assert play.parts == 1
