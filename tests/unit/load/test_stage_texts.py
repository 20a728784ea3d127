"""The stages of a text, parsed one by one, are those of the whole text, or the text is not split."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.load.pipeline import parse_pipeline
from orch23.load.stage_texts import are_valid_alone, edit_between, split_stages

TEXT = """\
version: 1
name: pieces
vars: {word: one}
# the stages
stages: # here
  # of a
  a: {shell: [make, a], outputs: [a]}

  "b":
    shell: [make, "${{ vars.word }}"]
    outputs: [b]
  'c':
    shell: |+
      make c
        more

    outputs: [c]
  d:
    shell: "make
      d: e"
    outputs: [d]
  e: {if: false, shell: [make, e], outputs: [e]}
defaults: {timeout: 9s}
# the end
jobs: 2
pools: {gpu: {size: 2, executor: dask, resources: {gpu: 1}}}
"""
LINES = (
    *(
        '    desc: "',
        '    desc: "it: {',
        "    desc: 'x",
        "  f:",
        "  f: {shell: [make, f]}",
        "    shell: |",
        "    desc: >-",
        "  a: 3",
    ),
    *(
        '  " b: c"',
        "# note",
        "",
        "    - x",
        "    timeout: 3s",
        "  d: e",
        "---",
        "...",
        "stages:",
        "    {",
        "    }",
        "    [",
        "'",
        '"',
    ),
    *(
        "\tx: y",
        "      deep: z",
        "  g: *x",
        "  h: &x y",
        "name: other",
        "    outputs: [z]",
        "  'a':",
        "  ? k",
        "    desc: |-",
    ),
)


def test_a_text_is_cut_at_its_stages_and_comments_go_with_the_piece_before() -> None:
    pieces = split_stages(TEXT)
    assert pieces is not None
    assert list(pieces.stages) == ["a", "b", "c", "d", "e"]
    assert pieces.stages["a"] == "  # of a\n  a: {shell: [make, a], outputs: [a]}\n\n"
    assert pieces.head.endswith("\nstages: # here\n")
    assert pieces.tail.startswith("defaults: {timeout: 9s}\n")
    assert pieces.alone(tuple(pieces.stages)) == TEXT
    assert are_valid_alone(pieces, tuple(pieces.stages))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "stages:\n",
        "stages: {a: {shell: x}}\n",
        "stages:\n  a: {}\nstages:\n  b: {}\n",
        "stages:\n  a: {}\n  a: {}\n",
        "stages:\n  ? a\n  : {}\n",
        "stages:\r\n  a: {}\r\n",
        "stages:\n- a\n",
    ],
)
def test_what_is_written_in_another_way_is_not_cut(text: str) -> None:
    assert split_stages(text) is None


def test_a_scalar_that_looks_like_a_stage_is_not_valid_alone() -> None:
    text = 'stages:\n  a:\n    shell: "x\n  b: y"\n'
    assert parse_pipeline(f"version: 1\n{text}", "p").pipeline is not None
    pieces = split_stages(text)
    assert pieces is not None
    assert list(pieces.stages) == ["a", "b"]
    assert not are_valid_alone(pieces, ("a",))
    assert not are_valid_alone(pieces, ("b", "a"))


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_stage_keeps_the_line_break_at_its_end(end: str) -> None:
    text = "version: 1\nname: p\nstages:\n  a:\n    shell: |\n      make a\n  b:\n    shell: |\n      make b\n  c:"
    for more in ("", "\ndefaults: {timeout: 9s}"):
        after = f"{text} {{shell: x}}{more}{end}"
        edit = edit_between(after.replace("make a", "make").replace("make b", "make"), after)
        assert edit is not None
        assert edit.names == ("a", "b")
        alone, whole = (parse_pipeline(one, "p").pipeline for one in (edit.after.alone(edit.names), after))
        assert alone is not None
        assert whole is not None
        assert alone.stages == whole.stages[:2]


def changed(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    for _ in range(chance.choice([1, 1, 2])):
        at = chance.randrange(len(lines))
        match chance.randrange(4):
            case 0:
                lines[at] = chance.choice(LINES)
            case 1:
                lines.insert(at, chance.choice(LINES))
            case 2:
                del lines[at]
            case _:
                spot = chance.randrange(len(lines[at]) + 1)
                lines[at] = (
                    lines[at][:spot]
                    + chance.choice(["x", '"', "'", "{", "}", ":", "#", " ", "[", "]", "|"])
                    + lines[at][spot:]
                )
        lines = lines or [""]
    return "\n".join(lines)


@given(st.integers(0, 2**32))
def test_pieces_that_differ_read_alone_are_what_the_whole_says_of_them(seed: int) -> None:
    chance = random.Random(seed)
    before, text = TEXT, TEXT
    for _ in range(3):
        text = changed(before, chance)
        old, new = split_stages(before), split_stages(text)
        whole = parse_pipeline(before, "p")
        edit = edit_between(before, text)
        names = edit.names if edit is not None and list(edit.before.stages) == list(edit.after.stages) else None
        known = {stage.name for stage in (*whole.pipeline.stages, *whole.pipeline.skipped)} if whole.pipeline else set()
        if not names or new is None or old is None or set(old.stages) != known or not are_valid_alone(new, names):
            continue
        alone, after = parse_pipeline(new.alone(names), "p"), parse_pipeline(text, "p")
        assert (alone.pipeline is None) == (after.pipeline is None), text
        if alone.pipeline is None or after.pipeline is None or whole.pipeline is None:
            continue
        found = {stage.name: stage for stage in (*whole.pipeline.stages, *whole.pipeline.skipped)}
        for name in names:
            del found[name]
        found |= {stage.name: stage for stage in (*alone.pipeline.stages, *alone.pipeline.skipped)}
        assert found == {stage.name: stage for stage in (*after.pipeline.stages, *after.pipeline.skipped)}, text
        before = text
