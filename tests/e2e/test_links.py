"""Stories of symbolic links among the inputs: they are followed below the root, and staged for programs to find."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_sandbox import chosen, tier
from tests.project import Project, scripted
from tests.repository import Repository, ends, green, up_to_date

TIERS = ["bubblewrap", "namespaces", "landlock"]
TAPE = (
    "#!/bin/sh\n# finds what lies beside the file that it really is\ncat $(dirname $(readlink -f $0))/../lib/tape.txt\n"
)


def written(project: Project, **stages: Mapping[str, Any]) -> Project:
    return project.write({"pipeline.yaml": json.dumps({"version": 1, "stages": stages})})


def linked(project: Project, links: Mapping[str, str]) -> None:
    for path, text in links.items():
        (project.root / path).parent.mkdir(parents=True, exist_ok=True)
        (project.root / path).symlink_to(text)


def modules(project: Project) -> None:
    project.write({"node_modules/tape/bin/tape": TAPE, "node_modules/tape/lib/tape.txt": "found\n"})
    (project.root / "node_modules/tape/bin/tape").chmod(0o755)
    linked(project, {"node_modules/.bin/tape": "../tape/bin/tape"})


@pytest.mark.parametrize("name", TIERS)
def test_a_program_behind_a_link_finds_what_lies_beside_it(project: Project, name: str) -> None:
    modules(project)
    written(project, t={"inputs": ["node_modules/"], "outputs": ["out"], "shell": "node_modules/.bin/tape > out"})
    with tier(chosen(name)):
        green(project.build())
        up_to_date(project.build())
    assert project.read("out") == "found\n"


@pytest.mark.slow
def test_a_link_without_its_target_is_staged_as_the_file(project: Project) -> None:
    project.write({"data/v1/a.txt": "one\n", "data/v2/a.txt": "two\n"})
    linked(project, {"current": "data/v1", "a.txt": "current/a.txt"})
    command = "test ! -L a.txt -a ! -L current/a.txt; cat a.txt current/a.txt > out"
    written(project, a={"inputs": ["a.txt", "current/a.txt"], "outputs": ["out"], "shell": command})
    green(project.build())
    up_to_date(project.build())
    assert project.read("out") == "one\none\n"
    (project.root / "current").unlink()
    linked(project, {"current": "data/v2"})
    assert project.plan() == {"a": "run"}
    green(project.build())
    assert project.read("out") == "two\ntwo\n"
    project.edit("data/v2/a.txt", "three\n")
    assert project.plan() == {"a": "run"}, "the file behind the link is the input"


def test_where_a_link_leads_is_part_of_the_key(project: Project) -> None:
    project.write({"d/one": "same\n", "d/two": "same\n"})
    linked(project, {"l": "d/one"})
    written(project, a={"inputs": ["l"], "outputs": ["out"], "shell": "cat l > out"})
    green(project.build())
    (project.root / "l").unlink()
    linked(project, {"l": "d/two"})
    assert project.plan() == {"a": "run"}


@pytest.mark.slow
def test_a_changed_link_is_noticed_after_a_build_with_nothing_to_do(tmp_path: Path) -> None:
    project = Repository(tmp_path / "p")
    project.write({"d/one": "1\n", "d/two": "2\n"})
    linked(project, {"l": "d/one", "f": "d"})
    written(project, a={"inputs": ["l", "f/*"], "outputs": ["out"], "shell": "cat l > out"})
    green(project.build())
    for _ in range(2):
        up_to_date(project.build())
    (project.root / "l").unlink()
    linked(project, {"l": "d/two"})
    green(project.build())
    assert project.read("out") == "2\n"
    up_to_date(project.build())
    project.write({"d/three": "3\n"})
    green(project.build())
    assert ends(project) == {"a": "built"}


@pytest.mark.parametrize(
    ("links", "pattern"),
    [
        ({"out": "/etc/hostname"}, "*"),
        ({"src/out": "../../elsewhere"}, "src/"),
        ({"src/loop": "../src"}, "src/**"),
        ({"self": "self"}, "self"),
        ({"src/kept": "../.orch23"}, "src/"),
    ],
)
def test_a_link_that_leads_out_or_in_a_circle_is_an_error(
    project: Project, links: dict[str, str], pattern: str
) -> None:
    project.write({"src/a": "1\n", "../elsewhere/x": "secret\n", ".orch23/x": ""})
    linked(project, links)
    written(project, a={"inputs": [pattern], "outputs": ["made"], "shell": "ls > made"})
    refused = project.build()
    (link,) = links
    assert refused.code == 2
    assert f"error[E691]: the link '{link}' leads" in refused.err
    assert not project.exists("made")
    if "*" in pattern or pattern.endswith("/"):
        written(project, a={"inputs": [pattern, f"!{link}"], "outputs": ["made"], "shell": "ls > made"})
        green(project.build())


@pytest.mark.slow
def test_a_link_to_an_output_of_another_stage_is_refused_unless_that_comes_before(project: Project) -> None:
    linked(project, {"l": "made"})
    make = {"inputs": ["in"], "outputs": ["made"], "shell": "cp in made"}
    read = {"inputs": ["l"], "outputs": ["out"], "shell": "cat l > out"}
    written(project, make=make, read=read).write({"in": "1\n", "made": "old\n"})
    refused = project.build("--overwrite-edited")
    assert refused.code == 2
    assert "input 'l' of stage `read` is a link to 'made', which stage `make` makes" in refused.err
    written(project, make=make, read={**read, "needs": ["make"]})
    green(project.build("--overwrite-edited"))
    assert project.read("out") == "1\n"


@pytest.mark.stride(5)
@pytest.mark.parametrize("name", TIERS)
@pytest.mark.parametrize(
    "command",
    ["echo x > l", "rm l; echo x > l", "ln -sf other l", "rm l", "echo x > d/f", "ln -s d/f new; cp d/f out"],
)
def test_a_step_writes_through_no_link_and_makes_none(project: Project, name: str, command: str) -> None:
    project.write({"d/f": "1\n", "other": "2\n"})
    linked(project, {"l": "d/f"})
    inputs = ["l", "d/f", "other"]
    written(project, a={"inputs": inputs, "outputs": ["out"], "shell": f"{command}; touch out"})
    with tier(chosen(name)):
        assert project.build().code in (1, 2)
    assert (project.read("d/f"), project.read("other")) == ("1\n", "2\n")
    assert (project.root / "l").readlink() == Path("d/f")
    assert not project.exists("new")


@pytest.mark.needs("inspecting")
def test_no_pattern_shows_a_secret_behind_a_link_to_a_model(project: Project) -> None:
    stage = {"inputs": ["docs/*"], "outputs": ["a.txt"], "llm": {"returns": "text"}}
    project.write({**scripted({"a": stage}, {"a": ["x\n"]}), ".env": "TOKEN=s3cr3t\n", "docs/a.md": "text\n"})
    linked(project, {"docs/b.md": "../.env"})
    green(project.build())
    explained = project.run("explain", "a", "--json").out
    assert "docs/a.md" in explained
    assert "docs/b.md" not in explained


@pytest.mark.needs("inspecting")
def test_explain_shows_where_a_link_leads_and_what_changed_behind_it(project: Project) -> None:
    project.write({"d/one": "first\n", "d/two": "first\n"})
    linked(project, {"l": "d/one"})
    written(project, a={"inputs": ["l"], "outputs": ["out"], "shell": "cat l > out"})
    green(project.build())
    assert "-> d/one" in project.run("explain", "a").out
    project.edit("d/one", "second\n")
    assert "+second" in project.run("explain", "a").out
    (project.root / "l").unlink()
    linked(project, {"l": "d/two"})
    explained = project.run("explain", "a").out
    assert "-> d/one" in explained
    assert "-> d/two" in explained


@pytest.mark.needs("metrics")
def test_affected_sees_what_lies_behind_links_on_both_sides(tmp_path: Path) -> None:
    project = Repository(tmp_path / "p")
    project.init()
    project.write({"d/f": "1\n", "src/a": "1\n", "other/g": "1\n"})
    linked(project, {"src/l": "../d", "one": "src/l/f", "src/out": "/etc"})
    inputs = ["src/**", "!src/out"]
    written(
        project,
        folder={"inputs": inputs, "outputs": ["x"], "shell": "ls src > x"},
        file={"inputs": ["one"], "outputs": ["y"], "shell": "cat one > y"},
        rest={"inputs": ["other/*"], "outputs": ["z"], "shell": "cat other/g > z"},
    )
    project.commit()
    assert "no stage is affected" in green(project.run("affected", "--since", "HEAD")).out
    project.edit("d/f", "2\n")
    reported = green(project.run("affected", "--since", "HEAD")).out
    assert "2 of 3 stages are affected" in reported
    assert "src/l/f changed" in reported
    assert "one changed" in reported


def test_a_model_that_writes_through_a_link_is_asked_for_the_file_itself(project: Project) -> None:
    answers = [
        json.dumps({"writes": [{"path": path, "content": "2\n"}]}) for path in ("src/l/a", "src/l/new", "src/d/a")
    ]
    stage = {"inputs": ["src/**"], "edits": ["src/**"], "llm": {"returns": "files"}, "retry": 2}
    project.write({**scripted({"a": stage}, {"a": answers}), "src/d/a": "1\n"})
    linked(project, {"src/l": "d"})
    built = project.build()
    green(built)
    for attempt, path in ((1, "src/l/a"), (2, "src/l/new")):
        assert f"attempt {attempt} failed: {path}: `src/l` is a symbolic link" in built.err
    assert "change `src/d/a` instead" in project.run("show", "a", "--prompt", "--attempt", "2").out
    assert project.read("src/d/a") == "2\n"
    assert sorted(one.name for one in (project.root / "src/d").iterdir()) == ["a"]
    up_to_date(project.build())


@pytest.mark.parametrize("key", ["edits", "outputs"])
def test_a_stage_does_not_replace_a_link_and_says_what_to_do(project: Project, key: str) -> None:
    project.write({"src/a": "1\n"})
    linked(project, {"src/l": "a"})
    written(project, a={key: ["src/l"], "shell": "echo made > src/l"})
    for options in ([], ["--overwrite-edited"]):
        refused = project.build(*options)
        assert refused.code == 2
        assert "E691" in refused.err
        assert "delete the link; then build again" in refused.err
    assert (project.root / "src/l").readlink() == Path("a")
    (project.root / "src/l").unlink()
    green(project.build())
    assert project.read("src/l") == "made\n"
    assert project.read("src/a") == "1\n"
    up_to_date(project.build())


@pytest.mark.parametrize(
    ("links", "stage", "command", "link"),
    [
        ({"lib": "src"}, {"inputs": ["lib/**"], "edits": ["lib/**"]}, "echo made > {}/new", "lib"),
        ({"lib": "src"}, {"inputs": ["lib/**"], "outputs": ["lib/"]}, "echo made > {}/new", "lib"),
        ({"src/l": "a"}, {"inputs": ["src/l"], "edits": ["src/l"]}, "echo made > {}", "src/l"),
    ],
)
def test_a_program_that_writes_a_link_or_behind_one_fails_alone_and_may_write_what_it_leads_to(
    project: Project, links: Mapping[str, str], stage: Mapping[str, Any], command: str, link: str
) -> None:
    project.write({"src/a": "1\n"})
    linked(project, links)
    other = {"outputs": ["o"], "shell": "echo o > o"}
    written(project, a={**stage, "shell": command.format(link)}, other=other)
    refused = project.build("-k")
    assert refused.code == 1, refused.err
    assert f"`{link}` is a symbolic link" in refused.err
    assert "write what the link leads to, and declare that in" in refused.err
    assert project.read("o") == "o\n"
    key, target = next(one for one in stage if one != "inputs"), "src" if link == "lib" else "src/a"
    way_out = [one.replace(link, target) for one in stage[key]]
    written(project, a={**stage, key: way_out, "shell": command.format(target)}, other=other)
    green(project.build())
    assert "made\n" in (project.read("src/a"), project.exists("src/new") and project.read("src/new"))
    up_to_date(project.build())
