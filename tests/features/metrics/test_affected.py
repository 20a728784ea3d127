"""`affected --since REV`: the working tree against a revision of git, by keys, without a checkout."""

import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from tests.e2e.pipelines import green
from tests.features.explore.test_requests import EDIT, OTHER, Model, asks, make
from tests.project import Project, scripted

pytestmark = [
    pytest.mark.slow,  # whole builds, many of them: `make test` runs them, `make check` does not
    pytest.mark.usefixtures("steps_reach_outside"),  # they take what lies outside of their sandbox
]

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
    assert "no stage is affected since HEAD" in outcome.out


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
    commit(site)
    green(site.build())
    commit(site)
    site.replace("pipeline.yaml", "  b: {outputs: [out/b.txt], shell: echo b > out/b.txt}\n", "")
    assert affected(site) == {}, "the file is committed: it stays, and is a source"
    assert affected(site, since="HEAD~1") == {"c": "downstream"}, "no lock says what b made"
    green(site.build())
    assert site.exists("out/b.txt")
    assert affected(site) == {}


def test_a_reader_of_an_uncommitted_file_of_a_stage_that_is_gone_is_affected(site: Project) -> None:
    site.write(
        {
            ".gitignore": "out\nlogs\n.orch23\n",
            "pipeline.yaml": "version: 1\nstages:\n"
            "  a: {outputs: [out/a.txt], shell: echo a > out/a.txt}\n"
            "  b: {outputs: [out/b.txt], shell: echo b > out/b.txt}\n"
            "  c: {inputs: ['out/*.txt'], outputs: [c.txt], shell: cat out/*.txt > c.txt}\n",
        }
    )
    green(site.build())
    commit(site)
    site.replace("pipeline.yaml", "  b: {outputs: [out/b.txt], shell: echo b > out/b.txt}\n", "")
    assert affected(site) == {"c": "changed"}
    green(site.build())
    assert not site.exists("out/b.txt")
    assert affected(site) == {"c": "changed"}


def test_a_foreach_over_a_made_list_is_reported_as_far_as_it_is_known(site: Project) -> None:
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


# ---- what was made, by the lock file of the revision -----------------------------------------------

MADE = """\
version: 1
name: made
stages:
  take: {inputs: [in.json], outputs: [build/data.json], shell: cp in.json build/data.json}
  whole: {inputs: [build/data.json], outputs: [build/whole.json], shell: cp build/data.json build/whole.json}
  a: {inputs: ["build/data.json#/a"], outputs: [build/a.txt], shell: echo a > build/a.txt}
  b: {inputs: ["build/data.json#/b"], outputs: [build/b.txt], shell: echo b > build/b.txt}
  last: {inputs: [build/a.txt], outputs: [build/last.txt], shell: cp build/a.txt build/last.txt}
"""
LATE = ("whole", "a", "b", "last")
FIRST, SECOND = '{"a": 1, "b": 1}', '{"a": 2, "b": 1}'


def made(project: Project, ignored: str = "", text: str = MADE, given: str = FIRST) -> Project:
    """Return a project that is built, and committed with its lock file."""
    project.write({"pipeline.yaml": text, "in.json": given, ".gitignore": f".orch23\nlogs\n{ignored}\n"})
    git(project, "init", "-q")
    green(project.build())
    commit(project)
    return project


def built(project: Project, given: str, *argv: str) -> None:
    """Give another input, and build."""
    project.edit("in.json", given)
    green(project.build(*argv))


def lost(project: Project, *folders: str) -> None:
    for folder in folders:
        shutil.rmtree(project.root / folder)


def cloned(project: Project) -> Project:
    git(project, "clone", "-q", ".", "../clone")
    return Project(project.root.parent / "clone")


@pytest.mark.parametrize("ignored", ["", "build"])
def test_what_is_built_meanwhile_is_compared_and_the_rest_may_be_affected(project: Project, ignored: str) -> None:
    """The bytes of then are in git, or in the store."""
    made(project, ignored)
    assert affected(project) == {}
    project.edit("in.json", SECOND)
    assert affected(project) == {"take": "changed", **dict.fromkeys(LATE, "downstream")}
    green(project.build("take"))
    assert affected(project) == {"take": "changed", "whole": "changed", "a": "changed", "last": "downstream"}
    outcome = project.run("affected", "--since", "HEAD", "--json")
    found = {one["stage"]: one for one in document(outcome.out)["stages"]}
    reasons = {name: [(r["code"], r["subject"]) for r in one["reasons"]] for name, one in found.items()}
    assert reasons["whole"] == [("input_changed", "build/data.json")]
    assert reasons["a"] == [("input_changed", "build/data.json#/a")]
    assert found["a"]["after"] == ["take"]
    assert "build/data.json changed" in project.run("affected", "--since", "HEAD").out
    green(project.build())
    assert affected(project) == {"take": "changed", "whole": "changed", "a": "changed"}, "a makes what it made"
    commit(project)
    assert affected(project, since="HEAD~1") == {"take": "changed", "whole": "changed", "a": "changed"}


def test_a_result_that_is_to_be_restored_is_known(project: Project) -> None:
    made(project)
    built(project, SECOND)
    commit(project)
    project.edit("in.json", FIRST)
    assert project.plan()["take"] == "restore"
    assert affected(project) == {"take": "changed", "whole": "changed", "a": "changed"}
    assert affected(project, since="HEAD~1") == {}


def test_a_clean_clone_with_outputs_says_the_same(project: Project) -> None:
    made(project)
    built(project, SECOND)
    commit(project)
    clone = cloned(project)
    assert affected(clone, since="HEAD~1") == {"take": "changed", "whole": "changed", "a": "changed"}
    assert affected(clone) == {}
    assert not clone.exists(".orch23")


def test_a_clean_clone_without_outputs_leaves_none_out(project: Project) -> None:
    """Digests are known by the lock files; parts of files that no one has may differ."""
    made(project, "build")
    built(project, SECOND)
    commit(project)
    clone = cloned(project)
    parts = dict.fromkeys(("a", "b", "last"), "downstream")
    assert affected(clone, since="HEAD~1") == {"take": "changed", "whole": "changed", **parts}
    assert affected(clone) == {}


def test_a_part_of_a_file_that_no_one_has_any_more_may_be_affected(project: Project) -> None:
    made(project, "build")
    built(project, SECOND)
    lost(project, ".orch23")
    assert set(project.plan().values()) == {"fresh"}
    assert affected(project) == {"take": "changed", "whole": "changed", "a": "downstream", "b": "downstream"}


def test_without_a_lock_then_all_that_reads_what_is_affected_may_be(project: Project) -> None:
    made(project)
    git(project, "rm", "-q", "--cached", "pipeline.lock")
    git(project, "commit", "-q", "-m", "c")
    built(project, SECOND)
    assert affected(project) == {"take": "changed", **dict.fromkeys(LATE, "downstream")}


def test_what_was_not_built_then_is_no_change_when_it_is(project: Project) -> None:
    project.write({"pipeline.yaml": MADE, "in.json": FIRST, ".gitignore": ".orch23\nlogs\n"})
    git(project, "init", "-q")
    green(project.build("take"))
    commit(project)
    green(project.build())
    assert affected(project) == {}
    built(project, SECOND)
    assert affected(project) == {**dict.fromkeys(("take", "whole", "a"), "changed"), "last": "downstream"}


def test_what_is_not_built_any_more_is_no_change(project: Project) -> None:
    made(project, "build")
    lost(project, "build", ".orch23")
    project.delete("pipeline.lock")
    assert affected(project) == {}


def test_where_a_plan_has_errors_nothing_is_settled(project: Project) -> None:
    made(project)
    built(project, SECOND)
    project.replace("pipeline.yaml", "  last: {inputs: [", "  last: {inputs: [nobody.txt, ")
    assert "E822" in project.run("plan").err
    changed = dict.fromkeys(("take", "whole", "a"), "changed")
    assert affected(project) == {**changed, **dict.fromkeys(("b", "last"), "downstream")}


def test_another_result_of_the_same_key_is_seen_by_its_readers(project: Project) -> None:
    """A model may answer otherwise when it is asked again."""
    outside = project.root.parent / "outside.json"
    outside.write_text(FIRST)
    made(project, "build", MADE.replace("cp in.json", f"cp {outside}"))
    outside.write_text(SECOND)
    green(project.build("--force", "take"))
    assert affected(project) == {"whole": "changed", "a": "changed"}
    lost(project, ".orch23")
    assert affected(project) == {"whole": "changed", "a": "downstream", "b": "downstream"}


LISTED = """\
version: 1
name: listed
stages:
  plan: {inputs: [in.json], outputs: [build/p.json], shell: cp in.json build/p.json}
  each:
    foreach: {from: build/p.json, key: id}
    outputs: ["items/${{ item.id }}.txt"]
    shell: [cp, /dev/null, "items/${{ item.id }}.txt"]
  total: {inputs: ["items/*.txt"], outputs: [total.txt], shell: ls items > total.txt}
"""


@pytest.mark.parametrize("ignored", ["", "build\nitems"])
def test_the_items_of_then_are_those_of_the_list_of_then(project: Project, ignored: str) -> None:
    one, two, three = ({"id": name, "n": 1} for name in "xyz")
    made(project, ignored, LISTED, json.dumps([one, two]))
    built(project, json.dumps([{**one, "n": 2}, three]), "plan")
    found = document(project.run("affected", "--since", "HEAD", "--json").out)
    assert {one["stage"]: one["why"] for one in found["stages"]} == {
        "plan": "changed",
        "each@x": "changed",
        "each@z": "added",
        "total": "changed" if ignored else "downstream",  # a committed file of an item that is gone stays
    }
    assert found["removed"] == ["each@y"]
    built(project, json.dumps([two, one], indent=2))
    assert affected(project) == {"plan": "changed"}


def test_items_of_a_list_that_no_one_has_any_more_may_be_affected(project: Project) -> None:
    items = [{"id": name, "n": 1} for name in "xy"]
    made(project, "build\nitems", LISTED, json.dumps(items))
    built(project, json.dumps(items, indent=2))
    lost(project, ".orch23")
    assert affected(project) == {"plan": "changed", "each@x": "downstream", "each@y": "downstream"}


def test_a_list_of_today_that_is_elsewhere_leaves_its_items_untold(project: Project) -> None:
    """A colleague has built, and committed the lock file: here is the list of then alone."""
    made(project, "build\nitems", LISTED, json.dumps([{"id": "x", "n": 1}]))
    clone = cloned(project)
    built(clone, json.dumps([{"id": "x", "n": 2}]))
    commit(clone)
    git(project, "fetch", "-q", "../clone")
    git(project, "reset", "-q", "--hard", "FETCH_HEAD")
    assert affected(project, since="HEAD~1") == {"plan": "changed", "each": "downstream", "total": "downstream"}


CHAIN = """\
version: 1
name: chain
stages:
  each:
    foreach: {from: items.json, key: id, order: sequential}
    inputs: ["src/${{ item.id }}.txt"]
    outputs: [app.txt]
    shell: [sh, -c, 'cat "$1" >> app.txt', sh, "${{ item.from }}"]
  total: {inputs: [app.txt], outputs: [total.txt], shell: cp app.txt total.txt}
"""


def chain(project: Project) -> Project:
    """Return a project of which the first item of a chain copies a file that is no input."""
    outside = project.root.parent / "outside.txt"
    outside.write_text("outside\n")
    items = [{"id": "x", "from": str(outside)}, {"id": "y", "from": "src/y.txt"}, {"id": "z", "from": "src/z.txt"}]
    text = CHAIN.replace("from: items.json", f"in: {json.dumps(items)}")
    project.write({f"src/{name}.txt": f"{name}\n" for name in "xyz"})
    return made(project, "", text)


def test_the_items_of_a_chain_after_one_that_is_affected_may_be(project: Project) -> None:
    chain(project)
    assert affected(project) == {}
    project.edit("src/y.txt", "new\n")
    assert affected(project) == {"each@y": "changed", "each@z": "downstream", "total": "downstream"}
    green(project.build())
    assert affected(project) == {"each@y": "changed", "each@z": "downstream", "total": "changed"}


def test_the_items_of_a_chain_after_another_version_of_the_same_key_may_be_affected(project: Project) -> None:
    chain(project)
    (project.root.parent / "outside.txt").write_text("other\n")
    green(project.build("--force", "each@x"))
    green(project.build())
    assert affected(project) == {"each@y": "downstream", "each@z": "downstream", "total": "changed"}


def test_the_items_of_a_chain_in_another_order_may_be_affected(project: Project) -> None:
    chain(project)
    text = project.read("pipeline.yaml")
    y, z = ('{"id": "y", "from": "src/y.txt"}', '{"id": "z", "from": "src/z.txt"}')
    project.edit("pipeline.yaml", text.replace(f"{y}, {z}", f"{z}, {y}"))
    green(project.build())
    assert {"each@y": "downstream", "each@z": "downstream", "total": "changed"}.items() <= affected(project).items()


def test_the_items_of_a_chain_after_one_that_was_not_built_then_may_be_affected(project: Project) -> None:
    chain(project)
    git(project, "rm", "-q", "--cached", "pipeline.lock")
    lost(project, ".orch23")
    for path in ("pipeline.lock", "app.txt", "total.txt"):
        project.delete(path)
    green(project.build("each@x"))
    commit(project)
    project.edit("src/y.txt", "new\n")
    green(project.build())
    assert affected(project)["each@z"] == "downstream"


def test_an_item_that_reads_what_its_chain_writes_does_not_see_the_last_version(project: Project) -> None:
    project.write({f"src/{name}.txt": f"{name}\n" for name in "xy"})
    text = CHAIN.replace("from: items.json", "in: [{id: x, from: src/x.txt}, {id: y, from: src/y.txt}]")
    made(project, "", text.replace('.txt"]\n    outputs', '.txt", "app*.txt"]\n    outputs'))
    project.edit("src/y.txt", "new\n")
    green(project.build())
    assert affected(project) == {"each@y": "changed", "total": "changed"}


# ---- with what it compares -------------------------------------------------------------------------


@pytest.mark.parametrize("once", [False, True])
def test_parts_that_a_model_was_shown_are_compared_until_the_stage_is_done(project: Project, once: bool) -> None:
    make(project.root, once=once, verify={"inputs": ["check.txt"], "steps": [{"check": "python_syntax"}]})
    git(project, "init", "-q")
    project.write({".gitignore": ".orch23\nlogs\n", "check.txt": "1\n"})
    commit(project)
    with Model(asks("src/shop.py#def total", "src/other.py"), EDIT).answering():
        assert project.build().code == 0
    commit(project)
    assert affected(project) == {}
    project.write({"src/other.py": "other = 1\n"})
    assert affected(project) == ({} if once else {"fix": "changed"})
    project.write({"src/other.py": OTHER, "check.txt": "2\n"})
    assert affected(project) == ({} if once else {"fix": "changed"})
    project.write({"issue.md": "The tax is wrong.\n"})
    assert affected(project) == {"fix": "changed"}


def test_another_model_is_asked_in_both_moments(project: Project) -> None:
    stage = {"outputs": ["a.txt"], "llm": {"returns": "text"}, "inputs": ["in.md"]}
    project.write(scripted({"ask": stage}, {"ask": ["an answer\n"]}))
    project.write({"in.md": "a question\n", ".gitignore": ".orch23\nlogs\n"})
    git(project, "init", "-q")
    green(project.build())
    commit(project)
    assert affected(project, "--model", "another") == {}
    project.replace("pipeline.yaml", '"model": "scripted"', '"model": "another"')
    assert affected(project) == {"ask": "changed"}
    assert affected(project, "--model", "another") == {}


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
    assert "not in a git repository" in outcome.err


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
