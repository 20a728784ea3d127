"""Metrics: compared with a commit or a run, and shown on the page of a run."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from orch23.cli.console import Console
from tests.e2e.pipelines import green
from tests.project import Outcome, Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("steps_reach_outside"),  # steps of tests run without a sandbox
]

PIPELINE = """\
version: 1
name: scores
stages:
  train: {inputs: [train.json], outputs: [train.json.out, scores.json], metrics: [scores.json],
    shell: "cp train.json scores.json; cp train.json train.json.out"}
  more: {inputs: [more.yaml], outputs: [out/], metrics: [out/more.yaml], shell: "mkdir -p out; cp more.yaml out"}
  each:
    foreach: {from: list.json, as: t}
    inputs: ["in/${{ t }}.json"]
    outputs: ["each/${{ t }}.json"]
    metrics: ["each/${{ t }}.json"]
    shell: [cp, "in/${{ t }}.json", "each/${{ t }}.json"]
"""
FILES = {
    "pipeline.yaml": PIPELINE,
    "train.json": '{"accuracy": 0.8, "loss": {"train": 2}, "name": "one", "list": [1]}',
    "more.yaml": "count: 1\n",
    "list.json": '["a", "b"]',
    "in/a.json": '{"n": 1}',
    "in/b.json": '{"n": 2}',
}


def git(project: Project, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    ended = subprocess.run(
        ["git", *who, *arguments], cwd=project.root, env=env, capture_output=True, text=True, check=True
    )
    return ended.stdout.strip()


def commit(project: Project) -> str:
    git(project, "add", "-A")
    git(project, "commit", "-qm", "state")
    return git(project, "rev-parse", "HEAD")


@pytest.fixture
def built(project: Project) -> Project:
    green(project.write(FILES).build())
    git(project, "init", "-q")
    return project


def changes(outcome: Outcome) -> dict[str, tuple[Any, Any, Any]]:
    """Return before, now and difference of the values that are not the same."""
    assert outcome.code == 0, outcome.err
    return {
        f"{one['file']}:{one['metric']}": (one["before"], one["now"], one["change"])
        for one in outcome.json()["metrics"]
        if one["status"] != "same"
    }


def run_of(project: Project) -> str:
    return project.journals()[-1].stem


# ---- commits ------------------------------------------------------------------------------------


def test_the_workspace_is_compared_with_head(built: Project) -> None:
    sha = commit(built)
    short = f"HEAD ({sha[:12]})"
    assert built.run("diff").out == f"scores: no metric changed between {short} and the workspace\n"
    built.edit("train.json", '{"accuracy": 0.84, "loss": {"train": 1.5}, "name": "two"}')
    built.edit("in/b.json", '{"n": 5}')
    green(built.build())
    outcome = built.run("diff")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        f"scores: 4 of 6 metrics changed between {short} and the workspace",
        "  file         metric      before   now  change        %",
        "  scores.json  accuracy       0.8  0.84   +0.04    +5.0%",
        "  scores.json  loss.train       2   1.5    -0.5   -25.0%",
        "  scores.json  name           one   two",
        "  each/b.json  n                2     5      +3  +150.0%",
    ]
    everything = built.run("diff", "--all").out.splitlines()
    assert everything[0] == outcome.out.splitlines()[0]
    assert len(everything) == 2 + 6
    assert "  out/more.yaml  count            1     1" in everything


def test_a_markdown_table_shows_texts_as_they_are(built: Project) -> None:
    commit(built)
    built.edit("scores.json", '{"accuracy": 0.9, "a|b <b> @team": 1}')
    lines = built.run("diff", "--md").out.splitlines()
    assert lines[0].startswith("scores&#58; 4 of 7 metrics changed between HEAD")
    assert lines[1:5] == [
        "",
        "| file | metric | before | now | change | % |",
        "|---|---|--:|--:|--:|--:|",
        "| scores.json | accuracy | 0.8 | 0.9 | +0.1 | +12.5&#37; |",
    ]
    assert lines[5] == "| scores.json | a&#124;b &#60;b&#62; &#64;team | - | 1 |  |  |"
    outcome = built.run("diff", "--md", "--json")
    assert (outcome.code, outcome.out, "E641" in outcome.err) == (64, "", True)


def test_branches_and_two_states(built: Project) -> None:
    first = commit(built)
    git(built, "branch", "old")
    built.edit("more.yaml", "count: 4\nfresh: 1\n")
    green(built.build())
    second = commit(built)
    assert changes(built.run("diff", "--json")) == {}
    wanted = {"out/more.yaml:count": (1, 4, 3), "out/more.yaml:fresh": (None, 1, None)}
    for names in (["old"], ["HEAD~1"], [first[:10]], ["old", "HEAD"], [first, second]):
        assert changes(built.run("diff", *names, "--json")) == wanted, names
    assert changes(built.run("diff", "HEAD", "old", "--json")) == {
        "out/more.yaml:count": (4, 1, -3),
        "out/more.yaml:fresh": (1, None, None),
    }
    document = built.run("diff", "old", "--json").json()
    assert document["before"] == {"kind": "revision", "name": "old", "id": first}
    assert document["now"] == {"kind": "workspace", "name": "", "id": ""}


def test_files_that_are_not_committed_are_found_by_the_lock_file(built: Project) -> None:
    built.write({".gitignore": "scores.json\neach/\nout/\n"})
    commit(built)
    built.edit("train.json", '{"accuracy": 0.9}')
    built.edit("in/a.json", '{"n": 7}')
    green(built.build())
    found = changes(built.run("diff", "--json"))
    assert found["scores.json:accuracy"] == (0.8, 0.9, 0.1)
    assert found["each/a.json:n"] == (1, 7, 6)
    # Without the store, the values are lost: a warning says so, and all others are compared.
    subprocess.run(["rm", "-rf", ".orch23"], cwd=built.root, check=True)
    lost = built.run("diff", "--json")
    assert (lost.code, lost.err.count("W688")) == (0, 4)
    assert "`scores.json` at HEAD" in lost.err
    assert "is no longer in the store" in lost.err
    assert changes(lost)["scores.json:accuracy"] == (None, 0.9, None)


def test_items_of_the_list_at_the_revision(built: Project) -> None:
    commit(built)
    built.edit("list.json", '["a", "c"]')
    built.write({"in/c.json": '{"n": 3}'})
    green(built.build())
    # The build has released the file of the item that is gone: it is still there.
    assert changes(built.run("diff", "--json")) == {"each/c.json:n": (None, 3, None)}
    built.delete("each/b.json")
    outcome = built.run("diff", "--json")
    assert (changes(outcome)["each/b.json:n"], outcome.err) == ((2, None, None), "")


def test_a_revision_without_this_pipeline_declares_nothing(built: Project) -> None:
    built.edit("pipeline.yaml", "version: 1\nstages: [wrong]\n")
    commit(built)
    built.edit("pipeline.yaml", PIPELINE)
    green(built.build())
    # The files are there all the same.
    assert changes(built.run("diff", "--json")) == {}


def test_declaring_metrics_runs_nothing_and_finds_earlier_results(project: Project) -> None:
    bare = re.sub(r",? ?\n? *metrics: \[[^]]*\],?", ",", PIPELINE.replace('    metrics: ["each/${{ t }}.json"]\n', ""))
    assert "metrics" not in bare
    green(project.write({**FILES, "pipeline.yaml": bare}).build())
    before = run_of(project)
    project.edit("train.json", '{"accuracy": 0.7}')
    green(project.build())
    project.edit("pipeline.yaml", PIPELINE)
    assert project.plan() == dict.fromkeys(("train", "more", "each@a", "each@b"), "fresh")
    green(project.build())
    assert project.ran() == []
    assert changes(project.run("diff", before, "--json")) == {
        "scores.json:accuracy": (0.8, 0.7, -0.1),
        "scores.json:loss.train": (2, None, None),
        "scores.json:name": ("one", None, None),
    }


# ---- runs ---------------------------------------------------------------------------------------


def test_a_run_left_its_own_files_and_those_that_nothing_had_affected(built: Project) -> None:
    first = run_of(built)
    built.edit("more.yaml", "count: 2\n")
    green(built.build("more"))
    second = run_of(built)
    assert {one["role"] for one in built.events_of("stage_finished")} == {"more"}
    built.edit("train.json", '{"accuracy": 0.9}')
    green(built.build("train"))
    assert {one["role"] for one in built.events_of("stage_finished")} == {"train"}
    train = {
        "scores.json:accuracy": (0.8, 0.9, 0.1),
        "scores.json:loss.train": (2, None, None),
        "scores.json:name": ("one", None, None),
    }
    assert changes(built.run("diff", second, "--json")) == train
    assert changes(built.run("diff", first, "--json")) == {**train, "out/more.yaml:count": (1, 2, 1)}
    assert changes(built.run("diff", first, second, "--json")) == {"out/more.yaml:count": (1, 2, 1)}


def test_results_of_one_key_are_distinguished(project: Project) -> None:
    text = """\
version: 1
stages:
  roll: {outputs: [n.json], metrics: [n.json], shell: 'cat ../n.json > n.json', sandbox: off}
"""
    counter = project.root / "source.json"
    script = text.replace("cat ../n.json", f"cat {counter}")
    project.write({"pipeline.yaml": script})
    runs = []
    for number in (1, 2, 3):
        counter.write_text(json.dumps({"n": number}))
        green(project.build("--force", "roll", "--allow-unsandboxed"))
        runs.append(run_of(project))
    found = [changes(project.run("diff", run, "--json")).get("n.json:n") for run in runs]
    assert found == [(1, 3, 2), (2, 3, 1), None]


def test_which_of_several_results_a_run_had_is_not_guessed(project: Project) -> None:
    counter = project.root / "source.json"
    stage = f"outputs: [n.json], shell: 'cat {counter} > n.json', sandbox: off"
    project.write({"pipeline.yaml": f"version: 1\nstages: {{roll: {{{stage}}}}}\n"})
    runs = []
    for number in (1, 2):
        counter.write_text(json.dumps({"n": number}))
        green(project.build("--force", "roll", "--allow-unsandboxed"))
        runs.append(run_of(project))
    project.replace("pipeline.yaml", "shell:", "metrics: [n.json], shell:")
    outcome = project.run("diff", runs[0], "--json")
    assert changes(outcome) == {"n.json:n": (None, 2, None)}
    assert "W688" in outcome.err
    assert "several results with the same key" in outcome.err


def test_events_have_the_digests_of_metrics_files_only(built: Project) -> None:
    ends = {one["role"]: one["data"].get("metrics") for one in built.events_of("stage_finished")}
    assert {name: [*files] for name, files in ends.items() if files} == {
        "train": ["scores.json"],
        "more": ["out/more.yaml"],
        "each@a": ["each/a.json"],
        "each@b": ["each/b.json"],
    }
    built.edit("train.json", "not json")
    built.edit("in/a.json", "{}")
    built.replace("pipeline.yaml", "cp train.json train.json.out", "exit 3")
    assert built.build("-k").code == 1
    ends = {one["role"]: one["data"].get("metrics") for one in built.events_of("stage_finished")}
    assert ends["train"] is None
    assert ends["each@a"] is not None


def test_a_withheld_result_is_not_what_the_run_left(project: Project) -> None:
    text = """\
version: 1
stages:
  train: {promote: g, inputs: [in.json], outputs: [m.json], metrics: [m.json], shell: [cp, in.json, m.json]}
  check: {promote: g, inputs: [ok], outputs: [c.txt], shell: "grep -q yes ok && cp ok c.txt"}
"""
    green(project.write({"pipeline.yaml": text, "in.json": '{"n": 1}', "ok": "yes"}).build())
    project.edit("in.json", '{"n": 2}')
    project.edit("ok", "no")
    assert project.build("-k").code == 1
    failed = run_of(project)
    assert {one["role"]: one["data"]["status"] for one in project.events_of("stage_finished")}["train"] == "held"
    project.edit("ok", "yes!")
    green(project.build())
    assert changes(project.run("diff", failed, "--json")) == {"m.json:n": (1, 2, 1)}


def test_an_accepted_edit_counts(built: Project) -> None:
    built.edit("scores.json", '{"accuracy": 0.95}')
    outcome = built.run("accept", "train")
    assert outcome.code == 0, outcome.err
    accepted = run_of(built)
    built.edit("train.json", '{"accuracy": 0.6}')
    green(built.build("--overwrite-edited"))
    assert changes(built.run("diff", accepted, "--json"))["scores.json:accuracy"] == (0.95, 0.6, -0.35)


def test_without_git_a_run_can_be_named(project: Project) -> None:
    green(project.write(FILES).build())
    outcome = project.run("diff")
    assert (outcome.code, "E665" in outcome.err, "`orch23 diff RUN`" in outcome.err) == (66, True, True)
    assert project.run("diff", run_of(project)).code == 0


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        (["nothing"], 66, ["E687", "`nothing` is neither a run nor a git revision"]),
        (["2"], 66, ["E709", "runs begin with 2"]),
        (["a", "b", "c"], 64, ["E641", "at most two states"]),
        (["--", "-x"], 66, ["E687"]),
        ([""], 66, ["E709"]),
    ],
)
def test_names_of_nothing(built: Project, names: list[str], code: int, words: list[str]) -> None:
    commit(built)
    built.edit("more.yaml", "count: 3\n")
    green(built.build())
    outcome = built.run("diff", *names)
    assert (outcome.code, outcome.out) == (code, "")
    assert [word for word in words if word not in outcome.err] == []


def test_a_name_that_could_be_both_is_an_error_that_names_both(built: Project) -> None:
    sha = commit(built)
    run = run_of(built)
    git(built, "tag", run[:15])
    outcome = built.run("diff", run[:15])
    assert (outcome.code, outcome.out) == (66, "")
    assert "E687" in outcome.err
    assert f"orch23 diff {run}`" in outcome.err
    assert f"orch23 diff {sha[:12]}`" in outcome.err
    # A whole run id is a run.
    git(built, "tag", run)
    assert built.run("diff", run, "--json").json()["before"]["kind"] == "run"
    assert built.run("diff", sha[:12], "--json").json()["before"]["kind"] == "revision"


def test_a_run_of_another_pipeline(built: Project) -> None:
    run = run_of(built)
    built.write({"other.yaml": "version: 1\nstages: {a: {shell: 'true'}}\n"})
    outcome = built.run("diff", "other.yaml", run)
    assert (outcome.code, "is of pipeline.yaml, not of other.yaml" in outcome.err) == (66, True)
    assert f"orch23 diff pipeline.yaml {run}" in outcome.err
    assert built.run("diff", "pipeline.yaml", run).code == 0


# ---- files that cannot be read ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda root: (root / "scores.json").unlink(), "does not exist"),
        (lambda root: (root / "scores.json").write_text("{"), "is not valid JSON"),
        (lambda root: (root / "scores.json").write_text("[1]"), "has no names"),
        (lambda root: (root / "scores.json").write_bytes(b"\xff"), "is not UTF-8"),
        (lambda root: (root / "scores.json").write_bytes(b" " * 2_000_000), "is larger than 1,048,576 bytes"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_warning(built: Project, damage: Callable[[Any], object], words: str) -> None:
    commit(built)
    damage(built.root)
    before = built.files()
    outcome = built.run("diff", "--json")
    assert "W688" in outcome.err
    assert f"`scores.json` in the workspace {words}" in outcome.err
    assert changes(outcome)["scores.json:accuracy"] == (0.8, None, None)
    (problem,) = outcome.json()["problems"]
    assert (problem["code"], problem["file"]) == ("W688", "scores.json")
    assert {one["file"] for one in outcome.json()["metrics"]} == {
        "scores.json",
        "out/more.yaml",
        "each/a.json",
        "each/b.json",
    }
    assert built.files() == before


def test_a_link_in_place_of_a_file_is_not_followed(built: Project) -> None:
    commit(built)
    built.delete("scores.json")
    (built.root.parent / "secret.json").write_text('{"secret": 1}')
    (built.root / "scores.json").symlink_to(built.root.parent / "secret.json")
    outcome = built.run("diff", "--json")
    assert "secret" not in outcome.out
    assert changes(outcome)["scores.json:accuracy"] == (0.8, None, None)


def test_hidden_characters_and_secrets_are_not_written(built: Project) -> None:
    commit(built)
    secret = "sk-ant-" + "x" * 40
    built.write({"scores.json": json.dumps({"a\x1b[31m\u202e": "v\x07", "key": secret})})
    outcome = built.run("diff", env={"ANTHROPIC_API_KEY": secret})
    assert not set(outcome.out) & {"\x1b", "\u202e", "\x07"}
    assert secret not in outcome.out
    assert r"a\x1b[31m\u202e" in outcome.out


def test_a_pipeline_without_metrics(project: Project) -> None:
    green(project.write({"pipeline.yaml": "version: 1\nname: bare\nstages: {a: {shell: 'true'}}\n"}).build())
    outcome = project.run("diff", run_of(project))
    assert (outcome.code, outcome.out) == (0, "bare: no stage declares `metrics`\n")


# ---- the page of a run ----------------------------------------------------------------------------


def section(project: Project, *arguments: str) -> str:
    html = project.run("report", *arguments, "-o", "-").out
    found = re.search(r'<section id="metrics">.*?</section>', html, re.DOTALL)
    return found[0] if found else ""


@pytest.mark.needs("pages")
def test_the_page_of_a_run_compares_it_with_the_run_before(built: Project) -> None:
    first = run_of(built)
    assert "No run before it has metrics." in section(built)
    assert "<svg" not in section(built)
    for accuracy in (0.9, 0.7):
        built.edit("train.json", json.dumps({"accuracy": accuracy, "<b>": 1}))
        green(built.build())
    page = section(built)
    row = next(line for line in page.splitlines() if ">accuracy<" in line)
    assert re.findall(r'<td class="num">([^<]*)</td>', row) == ["0.9", "0.7", "-0.2", "-22.2%"]
    assert "<title>accuracy: 0.8, 0.9, 0.7</title>" in row
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    # Stages that the edit did not affect have their values.
    assert "out/more.yaml" in page
    assert "<title>" not in section(built, first)


@pytest.mark.needs("pages")
def test_versions_that_are_no_longer_in_the_store_are_left_out(built: Project) -> None:
    for accuracy in (0.9, 0.7):
        built.edit("train.json", json.dumps({"accuracy": accuracy}))
        green(built.build())
    digest = next(
        one["data"]["metrics"]["scores.json"]
        for path in built.journals()[1:2]
        for one in built.events_of("stage_finished", run=path.stem)
        if one["role"] == "train"
    )
    (built.root / ".orch23/cas" / digest[:2] / digest).unlink()
    assert "<title>accuracy: 0.8, 0.7</title>" in section(built)
    last = built.journals()[-1].stem
    outcome = built.run("diff", built.journals()[1].stem, last)
    assert (outcome.code, "is no longer in the store" in outcome.err) == (0, True)


@pytest.mark.needs("pages")
def test_a_page_without_metrics_has_no_section(project: Project) -> None:
    green(project.write({"pipeline.yaml": "version: 1\nstages: {a: {shell: 'true'}}\n"}).build())
    assert section(project) == ""
    assert "#metrics" not in project.run("report", "-o", "-").out


@pytest.mark.needs("pages")
def test_the_page_that_follows_a_run_goes_on_with_the_next(built: Project) -> None:
    from orch23.features.pages.view.server import FollowedPage  # noqa: PLC0415 - of another feature

    console = Console(here=built.root)
    with console.resources:
        page = FollowedPage(console, built.root, None)
        assert "<title>accuracy" not in page.render()[0]
        for accuracy in (0.9, 0.7):
            built.edit("train.json", json.dumps({"accuracy": accuracy}))
            green(built.build())
            assert f", {accuracy}</title>" in page.render()[0]
        assert "<title>accuracy: 0.8, 0.9, 0.7</title>" in page.render()[0]
