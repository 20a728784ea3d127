"""`gc --transcripts` drops what no record of a lock file and no replay needs, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.project import scripted
from tests.repository import Repository

TEXT = {"returns": "text", "transcripts": "heard"}
STAGES: dict[str, Any] = {
    "plan": {"inputs": ["spec.md"], "outputs": ["plan.txt"], "llm": TEXT},
    "docs": {
        "foreach": {"in": ["a", "b"], "as": "name"},
        "inputs": ["spec.md#${{ name }}"],
        "outputs": ["docs/${{ name }}.txt"],
        "llm": TEXT,
    },
    "steps": {
        "foreach": {"in": ["one", "two"], "as": "step", "order": "sequential"},
        "inputs": ["steps/${{ step }}.md"],
        "outputs": ["chain.txt"],
        "llm": TEXT,
    },
    "tried": {
        "inputs": ["tried.md"],
        "outputs": ["tried.txt"],
        "llm": TEXT,
        "retry": 2,
        "verify": [{"shell": "grep -q good tried.txt"}],
    },
    "mine": {"inputs": ["mine.md"], "outputs": ["mine.txt"], "llm": TEXT},
}
LONG = "a line of an answer, which is long enough for a file of its own, {}\n"


def answers(number: int) -> dict[str, list[str]]:
    names = ("plan", "docs@a", "docs@b", "steps@one", "steps@two", "mine")
    texts = {name: [LONG.format(f"{name} {number}")] for name in names}
    return {**texts, "tried": [LONG.format(f"bad {number}"), LONG.format(f"good {number}")]}


def files(number: int) -> dict[str, str]:
    sections = "".join(f"## {name}\n\nabout {name} {number}\n\n" for name in "ab")
    return {
        "spec.md": sections,
        **{f"steps/{step}.md": f"{step} {number}\n" for step in ("one", "two")},
        "tried.md": f"try {number}\n",
        "mine.md": f"mine {number}\n",
    }


def version(project: Repository, number: int, *, commit: bool = True) -> None:
    """Build and commit another version of all specs and all responses."""
    project.write({**files(number), **scripted(STAGES, answers(number))})
    built = project.build()
    assert built.code == 0, built.err
    if commit:
        project.commit()


@pytest.fixture
def grown(tmp_path: Path) -> Repository:
    project = Repository(tmp_path / "project")
    project.init()
    for number in (1, 2, 3):
        version(project, number)
    return project


def heard(project: Repository) -> dict[str, set[str]]:
    """Return the responses in the transcripts by stage, as what is at their end."""
    found: dict[str, set[str]] = {}
    for path in (project.root / "heard").glob("*.json"):
        body = json.loads(path.read_text())
        name = body["response"].removeprefix("sha256:")
        text = "\n".join(json.loads(project.read(f"heard/texts/{name}.json"))["lines"]) if name else ""
        found.setdefault(body["stage"], set()).add(text.strip().rpartition(", ")[2])
    return found


def gc(project: Repository, *argv: str) -> list[str]:
    """Run `gc --transcripts`, and return the files that it names."""
    outcome = project.run("gc", "--transcripts", "--json", *argv)
    assert outcome.code == 0, outcome.err
    paths: list[str] = outcome.json()["transcripts"]
    return paths


def committed(project: Repository) -> dict[str, bytes]:
    return {path: data for path, data in project.files().items() if not path.startswith((".git/", "pipeline.lock"))}


def assert_replays(project: Repository, root: Path, *names: str) -> None:
    """Assert that a clone without a store builds by replay: with the lock file, and without it and all outputs."""
    project.commit()
    for name in names or ("whole", "alone"):
        clone = project.clone(root / name)
        if name == "alone":
            clone.delete("pipeline.lock")
            for path in clone.files():
                if path.endswith(".txt"):
                    clone.delete(path)
        built = clone.build("--replay")
        assert built.code == 0, built.err
        assert committed(clone) == committed(project)


@pytest.mark.slow
def test_responses_to_earlier_requests_go_and_a_replay_needs_nothing_else(grown: Repository, tmp_path: Path) -> None:
    before = grown.files("heard")
    shown = gc(grown, "--dry-run")
    assert grown.files("heard") == before
    outcome = grown.run("gc", "--transcripts")
    assert outcome.out.startswith("".join(f"removing {path}\n" for path in shown))
    assert before.keys() - grown.files("heard").keys() == set(shown)
    names = ("plan", "docs@a", "docs@b", "steps@one", "steps@two", "mine")
    tried = {f"{kind} {number}" for kind in ("bad", "good") for number in (1, 2, 3)}
    assert heard(grown) == {**{name: {f"{name} 3"} for name in names}, "tried": tried}
    texts = set(grown.files("heard/texts"))
    named = b"".join(data for path, data in grown.files("heard").items() if path not in texts)
    assert texts == {f"heard/texts/{path.rpartition('/')[2]}" for path in texts if Path(path).stem.encode() in named}
    assert gc(grown) == []
    assert_replays(grown, tmp_path)


@pytest.mark.slow
def test_what_was_paid_for_stays_in_the_store(grown: Repository, tmp_path: Path) -> None:
    """Also a response that came with a clone: earlier requests are answered without a call."""
    clone = grown.clone(tmp_path / "clone")
    assert clone.build("--replay").code == 0
    assert gc(clone)
    clone.write({**files(1), **scripted(STAGES, answers(1))})
    again = clone.build("--replay")
    assert again.code == 0, again.err


@pytest.mark.slow
def test_what_head_needs_stays_until_the_edit_is_committed(grown: Repository, tmp_path: Path) -> None:
    gc(grown)
    grown.commit()
    version(grown, 4, commit=False)
    assert gc(grown) == []
    assert {"plan 3", "plan 4"} <= heard(grown)["plan"]
    grown.commit()
    assert gc(grown)
    assert heard(grown)["plan"] == {"plan 4"}
    assert_replays(grown, tmp_path)


@pytest.mark.slow
def test_a_stage_that_is_not_fresh_keeps_its_responses(grown: Repository) -> None:
    grown.edit("spec.md", grown.read("spec.md").replace("about a 3", "about a 4"))
    gc(grown)
    assert [len(heard(grown)[name]) for name in ("plan", "docs@a", "docs@b", "mine")] == [3, 3, 3, 1]


@pytest.mark.slow
def test_a_stage_or_an_item_that_is_gone_keeps_nothing(grown: Repository, tmp_path: Path) -> None:
    stages = {name: one for name, one in STAGES.items() if name != "plan"}
    stages["docs"] = {**stages["docs"], "foreach": {"in": ["b"], "as": "name"}}
    grown.write(scripted(stages, answers(3)))
    assert grown.build().code == 0
    for released in ("plan.txt", "docs/a.txt"):
        grown.delete(released)
    grown.commit()
    gc(grown)
    assert heard(grown).keys() == {"docs@b", "steps@one", "steps@two", "tried", "mine"}
    assert_replays(grown, tmp_path)


@pytest.mark.slow
def test_an_accepted_edit_stays_also_when_a_later_one_replaced_it(grown: Repository, tmp_path: Path) -> None:
    for text in ("by hand\n", "by hand again\n"):
        grown.edit("mine.txt", text)
        assert grown.run("accept", "mine").code == 0
        grown.commit()
    kept = {path for path, data in grown.files("heard").items() if b"accepted_by_hand" in data}
    gc(grown)
    assert len(kept) == 2
    assert kept <= grown.files("heard").keys()
    assert_replays(grown, tmp_path, "whole")


@pytest.mark.slow
def test_earlier_samples_stay_since_a_build_finds_the_newest_by_way_of_them(grown: Repository, tmp_path: Path) -> None:
    grown.write(scripted(STAGES, {**answers(3), "plan": [LONG.format("plan 3"), LONG.format("plan sample")]}))
    assert grown.build("--resample", "plan").code == 0
    grown.commit()
    gc(grown)
    assert len(list((grown.root / "heard").glob("*.json"))) >= 2
    assert_replays(grown, tmp_path)


@pytest.mark.stride(5)
@pytest.mark.slow
@pytest.mark.parametrize("place", ["tools/gen.yaml", "pipelines/other.yaml"])
@pytest.mark.parametrize("is_built", [True, False])
def test_another_pipeline_with_the_same_folder_keeps_its_responses(
    grown: Repository, place: str, *, is_built: bool
) -> None:
    other = {"other": {"inputs": ["spec.md"], "outputs": ["other.txt"], "llm": TEXT}}
    texts = scripted(other, {"other": [LONG.format("other 1")]}, name="other")
    grown.write({place: texts.pop("other.yaml"), **texts})
    assert grown.build(place).code == 0
    if not is_built:  # as in a clone of someone who did not commit its lock file
        grown.delete(f"{place.removesuffix('.yaml')}.lock")
        for path in (grown.root / "logs").iterdir():
            path.unlink() if path.is_file() else None
    grown.commit()
    gc(grown)
    assert heard(grown)["other"] == {"other 1"}
    assert heard(grown)["mine"] == {"mine 3"}


@pytest.mark.slow
def test_nothing_goes_while_a_pipeline_cannot_be_planned(grown: Repository) -> None:
    grown.write({"pipelines/broken.yaml": "version: 1\nstages: {a: {inptus: [x]}}\n"})
    outcome = grown.run("gc", "--transcripts", "--json")
    assert (outcome.code, outcome.json()["transcripts"]) == (0, [])
    assert "W671" in outcome.err


@pytest.mark.slow
def test_a_damaged_transcript_stops_gc_before_anything_goes(grown: Repository) -> None:
    path = min((grown.root / "heard").glob("*.json"))
    path.write_bytes(path.read_bytes()[:-9])
    before = grown.files("heard")
    outcome = grown.run("gc", "--transcripts")
    assert (outcome.code, "E707" in outcome.err) == (3, True)
    assert grown.files("heard") == before


@pytest.mark.slow
def test_no_file_goes_through_a_link(grown: Repository, tmp_path: Path) -> None:
    (grown.root / "heard").rename(tmp_path / "elsewhere")
    (grown.root / "heard").symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").rglob("*"))
    assert grown.run("gc", "--transcripts").code != 70
    assert sorted((tmp_path / "elsewhere").rglob("*")) == before


@pytest.mark.slow
def test_without_the_option_transcripts_stay(grown: Repository) -> None:
    before = grown.files("heard")
    grown.run("gc", "--keep", "0B", "--forget-paid-answers")
    assert grown.files("heard") == before
