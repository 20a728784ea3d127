"""Which stages need what git has not checked out."""

import pytest

from orch23.decide.ownership import check_left_out
from orch23.decide.unmatched_inputs import left_out_errors
from orch23.load.pipeline import parse_pipeline
from orch23.model.errors import InvalidInputError
from orch23.model.pipeline import Pipeline
from tests.unit.engine.rig import MemoryGit

TEXT = """\
version: 1
defaults: {llm: {provider: scripted, model: m, answers: a.yaml, transcripts: tr}}
stages:
  a: {inputs: ["lib/**/*.c", "!lib/old/**", one.txt], outputs: [out/], shell: make}
  r: {inputs: [{list: "docs/*"}], outputs: [r.txt], render: {template: p.j2}}
  each:
    foreach: {from: items.json, key: id}
    inputs: ["data/${{ item.id }}"]
    outputs: ["e/${{ item.id }}"]
    shell: [make]
  l: {inputs: [one.md], outputs: [l.py], llm: {prompt: l.j2, returns: code}, verify: {steps: [], inputs: [v.md]}}
"""


def pipeline() -> Pipeline:
    found = parse_pipeline(TEXT, "p/x.yaml").pipeline
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("path", "needed"),
    [
        ("lib/x/y.c", "stage `a`"),
        ("lib/x/y.h", ""),
        ("lib/old/y.c", ""),
        ("lib/old/", ""),
        ("lib/new/", "stage `a`"),
        ("lib/", "stage `a`"),
        ("li", ""),
        ("one.txt", "stage `a`"),
        ("out/x", "stage `a`"),
        ("docs/x", "stage `r`"),
        ("docs/x/y", ""),
        ("p.j2", "stage `r`"),
        ("r.txt", "stage `r`"),
        ("items.json", "stage `each`"),
        ("data/x", "stage `each`"),
        ("l.j2", "stage `l`"),
        ("l.py", "stage `l`"),
        ("v.md", "stage `l`"),
        ("p/x.lock", "the records"),
        ("tr/x.json", "the records"),
    ],
)
def test_a_path_that_git_left_out_is_an_error_where_it_is_needed(path: str, needed: str) -> None:
    found = left_out_errors(pipeline(), pipeline().stages, {"0": "no", path: "git get it", "z/": "no"})
    assert [(one.code, one.hint) for one in found] == ([("E698", "run `git get it`")] if needed else [])
    assert all(f"of `{path}`: " in one.message and f"of {needed} " in one.message for one in found)


def test_other_stages_do_not_count_and_few_paths_are_shown() -> None:
    git = MemoryGit()
    git.left_out = {f"lib/{number}.c": f"get {number % 2}" for number in range(5)}
    stages = {stage.name: stage for stage in pipeline().stages}
    check_left_out(git, pipeline(), [stages["r"]])
    with pytest.raises(InvalidInputError) as refused:
        check_left_out(git, pipeline(), [stages["a"], stages["r"]])
    (error,) = refused.value.diagnostics
    assert "`lib/0.c`, `lib/1.c`, `lib/2.c`: " in error.message
    assert error.hint == "run `get 0`, `get 1`"
    assert str(error.location) == "p/x.yaml:4:16"
