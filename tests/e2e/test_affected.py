"""`affected --since REV`: the working tree against a revision of git, by keys, without a checkout."""

import json
import os
import subprocess
from typing import Any

import pytest

from tests.e2e.pipelines import green
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not

PIPELINE = """\
version: 1
name: site
vars: {greeting: hello}
stages:
  words: {inputs: ["in/a.md#One"], outputs: [build/words.txt], shell: "echo ${{ vars.greeting }} > build/words.txt"}
  page: {inputs: [build/words.txt], outputs: [build/page.txt], render: {template: page.j2}}
  list: {inputs: [{list: "in/*.md"}], outputs: [build/list.txt], shell: ls > build/list.txt}
  alone: {inputs: [src/**], outputs: [build/alone.txt], needs: [page], shell: "cat src/* > build/alone.txt"}
  each:
    foreach: {from: items.json, key: id}
    inputs: ["src/${{ item.file }}"]
    outputs: ["items/${{ item.id }}.txt"]
    shell: [cp, "src/${{ item.file }}", "items/${{ item.id }}.txt"]
  total: {inputs: [items/x.txt, items/y.txt], outputs: [total.txt], shell: cat items/x.txt items/y.txt > total.txt}
"""
ITEMS = [{"id": "x", "file": "x.txt"}, {"id": "y", "file": "y.txt"}]


def git(project: Project, *arguments: str, cwd: str = ".") -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    ended = subprocess.run(
        ["git", *who, *arguments], cwd=project.root / cwd, env=env, capture_output=True, text=True, check=True
    )
    return ended.stdout.strip()


@pytest.fixture
def site(project: Project) -> Project:
    project.write(
        {
            "pipeline.yaml": PIPELINE,
            "page.j2": "{{ inputs[0].text }}",
            "in/a.md": "# One\n1\n# Two\n2\n",
            "src/x.txt": "x\n",
            "src/y.txt": "y\n",
            "items.json": json.dumps(ITEMS),
            ".gitignore": ".orch23\nlogs\n",
        }
    )
    git(project, "init", "-q")
    commit(project)
    return project


def commit(project: Project) -> None:
    git(project, "add", "-A")
    git(project, "commit", "-q", "--allow-empty", "-m", "c")


def affected(project: Project, *argv: str, since: str = "HEAD") -> dict[str, str]:
    outcome = project.run("affected", "--since", since, "--json", *argv)
    assert outcome.code == 0, outcome.err
    return {one["stage"]: one["why"] for one in document(outcome.out)["stages"]}


def document(text: str) -> Any:
    found = json.loads(text)
    assert found["orch23_affected"] == 1
    return found


def test_nothing_is_affected_where_nothing_changed_and_a_build_is_no_change(site: Project) -> None:
    assert affected(site) == {}
    green(site.build())
    assert affected(site) == {}
    commit(site)
    assert affected(site, since="HEAD~1") == {}
    outcome = site.run("affected", "--since", "HEAD", "--exit-code")
    assert outcome.code == 0
    assert "nothing is affected since HEAD" in outcome.out


def test_a_stage_is_affected_by_what_its_key_holds_and_those_that_read_it(site: Project) -> None:
    site.replace("in/a.md", "2\n", "3\n")
    assert affected(site) == {}
    site.replace("in/a.md", "1\n", "one\n")
    assert affected(site) == {"words": "changed", "page": "downstream"}
    outcome = site.run("affected", "--since", "HEAD", "--exit-code")
    assert outcome.code == 1
    assert "in/a.md#One changed" in outcome.out
    assert "after words" in outcome.out
    commit(site)
    assert affected(site) == {}
    assert affected(site, since="HEAD~1") == {"words": "changed", "page": "downstream"}


def test_items_are_named(site: Project) -> None:
    site.edit("src/x.txt", "new\n")
    assert affected(site) == {"alone": "changed", "each@x": "changed", "total": "downstream"}


def test_a_changed_template_var_or_pipeline_is_seen(site: Project) -> None:
    site.edit("page.j2", "new {{ inputs[0].text }}")
    assert affected(site) == {}  # nothing is rendered yet: there are no words
    green(site.build("words"))
    assert affected(site) == {"page": "changed"}
    commit(site)
    assert affected(site, "--set", "greeting=bye") == {}
    site.replace("pipeline.yaml", "greeting: hello", "greeting: hi")
    assert affected(site) == {"words": "changed", "page": "downstream"}
    site.replace("pipeline.yaml", "  list:", "  more: {shell: 'true'}\n  list:")
    assert affected(site) == {"words": "changed", "page": "downstream", "more": "added"}


def test_files_that_come_and_go_are_seen(site: Project) -> None:
    site.write({"in/b.md": "b", "src/z.txt": "z"})
    assert affected(site) == {"list": "changed", "alone": "changed"}
    commit(site)
    site.delete("in/b.md")
    site.delete("src/z.txt")
    assert affected(site) == {"list": "changed", "alone": "changed"}


def test_items_and_stages_that_come_and_go_are_seen(site: Project) -> None:
    site.write({"items.json": json.dumps([*ITEMS, {"id": "z", "file": "y.txt"}])})
    assert affected(site) == {"each@z": "added"}
    commit(site)
    site.write({"items.json": json.dumps(ITEMS)})
    found = document(site.run("affected", "--since", "HEAD", "--json").out)
    assert (found["stages"], found["removed"]) == ([], ["each@z"])
    assert site.run("affected", "--since", "HEAD", "--exit-code").code == 1


def test_a_reader_of_what_a_stage_that_is_gone_made_is_affected(site: Project) -> None:
    site.write(
        {
            "pipeline.yaml": "version: 1\nstages:\n"
            "  a: {outputs: [out/a.txt], shell: echo a > out/a.txt}\n"
            "  b: {outputs: [out/b.txt], shell: echo b > out/b.txt}\n"
            "  c: {inputs: ['out/*.txt'], outputs: [c.txt], shell: cat out/*.txt > c.txt}\n"
        }
    )
    green(site.build())
    commit(site)
    site.replace("pipeline.yaml", "  b: {outputs: [out/b.txt], shell: echo b > out/b.txt}\n", "")
    assert affected(site) == {"c": "downstream"}


def test_a_foreach_over_a_made_list_is_told_as_far_as_it_is_known(site: Project) -> None:
    site.write(
        {
            "pipeline.yaml": "version: 1\nstages:\n"
            "  plan: {inputs: [items.json], outputs: [build/p.json], shell: cp items.json build/p.json}\n"
            "  each:\n"
            "    foreach: {from: build/p.json, key: id}\n"
            "    outputs: ['items/${{ item.id }}.txt']\n"
            "    render: page.j2\n"
        }
    )
    site.edit("page.j2", "page")
    commit(site)
    assert affected(site) == {}
    site.edit("page.j2", "other")
    assert affected(site) == {"each": "changed"}
    site.edit("items.json", "[]")
    assert affected(site) == {"plan": "changed", "each": "changed"}
    site.edit("items.json", json.dumps(ITEMS))
    green(site.build())
    assert affected(site) == {"each@x": "changed", "each@y": "changed"}
    commit(site)
    site.edit("items.json", json.dumps(ITEMS, indent=2))
    assert affected(site) == {"plan": "changed", "each@x": "downstream", "each@y": "downstream"}


@pytest.mark.parametrize(
    "then",
    [None, "version: 1\nstages: 3\n", "version: 1\nstages: {a: {needs: [b], shell: x}, b: {needs: [a], shell: x}}\n"],
)
def test_without_a_valid_pipeline_then_every_stage_is_new(site: Project, then: str | None) -> None:
    text = site.read("pipeline.yaml")
    if then is None:
        site.delete("pipeline.yaml")
    else:
        site.edit("pipeline.yaml", then)
    commit(site)
    site.write({"pipeline.yaml": text})
    found = document(site.run("affected", "--since", "HEAD", "--json").out)
    assert found["comparable"] is False
    assert {one["why"] for one in found["stages"]} == {"added"}
    assert len(found["stages"]) == 7


@pytest.mark.parametrize("name", ["nobody", "", "--all", "HEAD:in", "HEAD~99", "a\nb"])
def test_an_unknown_revision_is_no_such_thing(site: Project, name: str) -> None:
    outcome = site.run("affected", f"--since={name}")
    assert outcome.code == 66
    assert "E665" in outcome.err


def test_without_a_repository_it_says_so(project: Project) -> None:
    project.write({"pipeline.yaml": "version: 1\nstages: {a: {shell: 'true'}}\n"})
    outcome = project.run("affected", "--since", "HEAD")
    assert outcome.code == 66
    assert "no git repository" in outcome.err


def test_a_project_below_the_top_of_its_repository(project: Project) -> None:
    project.write(
        {
            "sub/orch23.toml": "",
            "sub/pipeline.yaml": "version: 1\nstages: {a: {inputs: [a.txt], shell: 'true'}}\n",
            "sub/a.txt": "a",
            "a.txt": "top",
        }
    )
    git(project, "init", "-q")
    commit(project)
    below = Project(project.root / "sub")
    assert affected(below) == {}
    below.edit("a.txt", "b")
    assert affected(below) == {"a": "changed"}


def test_nothing_of_the_repository_is_run_or_written(site: Project) -> None:
    """Neither a filter nor a monitor that the repository's configuration names is started."""
    mark = site.root.parent / "was-run"
    for key in ("core.fsmonitor", "filter.x.smudge", "filter.x.clean", "diff.x.textconv", "core.sshCommand"):
        git(site, "config", key, f"touch {mark}; cat")
    site.write({".git/info/attributes": "* filter=x diff=x\n"})
    before = site.files()
    site.edit("src/x.txt", "new\n")
    assert affected(site)["each@x"] == "changed"
    assert not mark.exists()
    assert {**site.files(), "src/x.txt": b""} == {**before, "src/x.txt": b""}
    assert not site.exists(".orch23")
