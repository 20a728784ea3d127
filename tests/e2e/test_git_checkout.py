"""What git leaves out of a working tree is not deleted, and what it converts is not edited."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from orch23.engine import idle_build
from orch23.execute import git_revision
from tests.e2e.pipelines import green
from tests.moments import age
from tests.project import Outcome, Project

pytestmark = [
    pytest.mark.slow,  # whole builds, many of them: `make test` runs them, `make check` does not
    pytest.mark.usefixtures("steps_reach_outside"),  # they take what lies outside of their sandbox
]
IGNORED = ".orch23\nlogs\n"


def git(folder: Path, *arguments: str, home: Path | None = None, check: bool = True) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    env = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_LFS_SKIP_SMUDGE": "1", "HOME": str(home or "/nonexistent")}
    words = ["git", *who, "-c", "protocol.file.allow=always", *arguments]
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=check).stdout


def commit(folder: Path, home: Path | None = None) -> None:
    git(folder, "add", "-A", home=home)
    git(folder, "commit", "-q", "--allow-empty", "-m", "c")


def repository(folder: Path, files: Mapping[str, str | bytes]) -> Project:
    found = Project(folder).write(files)
    git(folder, "init", "-q")
    commit(folder)
    return found


def clone_of(project: Project, *options: str) -> Project:
    """Clone a project, beside it; its store does not come with it."""
    target = project.root.parent / f"clone{len(list(project.root.parent.iterdir()))}"
    git(project.root.parent, *options, "clone", "-q", str(project.root), str(target))
    return Project(target)


def run_hint(outcome: Outcome, project: Project, number: int = 0) -> None:
    """Run a command that the error suggests, as a user would."""
    hint = outcome.err.partition("help: run ")[2].splitlines()[0]
    command = hint.split("`")[1::2][number].removeprefix("git ").split()
    subprocess.run(["git", *command], cwd=project.root, check=True, capture_output=True, env=ALLOWED)


ALLOWED = {
    **os.environ,
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "protocol.file.allow",
    "GIT_CONFIG_VALUE_0": "always",
}


def refused(outcome: Outcome, *texts: str) -> Outcome:
    assert outcome.code == 65, outcome.err
    assert "error[E698]: git has not checked out the content of " in outcome.err
    for text in texts:
        assert text in outcome.err
    return outcome


# ---- submodules -----------------------------------------------------------------------------------

LIB = """\
version: 1
stages:
  lib:
    inputs: ["src/**", INPUT]
    outputs: [lib.txt]
    shell: "find . -name '*.txt' -not -name lib.txt | sort > lib.txt"
  own: {inputs: ["src/**"], outputs: [own.txt], shell: cat src/* > own.txt}
"""


MORE = "".join(
    f"  s{n}: {{inputs: [pipeline.yaml], outputs: [s{n}.txt], shell: 'echo {n} > s{n}.txt'}}\n" for n in range(9)
)


@pytest.fixture
def with_submodule(project: Project) -> Project:
    deep = repository(project.root.parent / "deep", {"d.txt": "deep\n"})
    lib = repository(project.root.parent / "lib", {"a.txt": "one\n"})
    git(lib.root, "submodule", "add", "-q", str(deep.root), "deep")
    commit(lib.root)
    repository(project.root, {"pipeline.yaml": LIB, "src/x.txt": "x\n", ".gitignore": IGNORED})
    git(project.root, "submodule", "add", "-q", str(lib.root), "vendor/lib")
    git(project.root, "submodule", "update", "-q", "--init", "--recursive")
    return project


@pytest.mark.needs("metrics")
@pytest.mark.stride(5)
@pytest.mark.parametrize("given", ['"vendor/**"', "vendor/lib/a.txt", '"**/*.txt"', '{list: "vendor/**"}', "vendor/"])
def test_a_submodule_that_is_not_checked_out_is_not_deleted(with_submodule: Project, given: str) -> None:
    project = with_submodule
    project.edit("pipeline.yaml", LIB.replace("INPUT", given))
    green(project.build())
    commit(project.root)
    there = project.read("lib.txt")
    clone = clone_of(project)
    found = refused(clone.build(), "`vendor/lib/`", "stage `lib`", "git submodule update --init vendor/lib")
    refused(clone.run("plan"))
    refused(clone.run("validate"))
    refused(clone.run("affected", "--since", "HEAD"))
    assert git(clone.root, "status", "--short") == ""
    if "a.txt" not in given:  # a literal input of any stage must exist
        green(clone.build("own"))
    run_hint(found, clone)
    if "a.txt" not in given:
        # The submodule has a submodule.
        found = refused(clone.build(), "`vendor/lib/deep/`", "git -C vendor/lib submodule update --init deep")
        run_hint(found, clone)
    green(clone.build())
    assert clone.read("lib.txt") == there
    assert clone.run("affected", "--since", "HEAD", "--exit-code").code == 0


def test_a_pattern_may_exclude_a_submodule(with_submodule: Project) -> None:
    project = with_submodule
    project.edit("pipeline.yaml", LIB.replace("INPUT", '"**/*.txt", "!vendor/**"'))
    green(project.build())
    commit(project.root)
    green(clone_of(project).build())


def test_a_project_below_the_root_of_its_repository_is_checked_too(with_submodule: Project) -> None:
    top = with_submodule
    files = {"pipeline.yaml": LIB.replace("INPUT", '"ext/**"'), "src/x.txt": "x\n", "orch23.toml": ""}
    Project(top.root / "app").write(files)
    git(top.root, "submodule", "add", "-q", str(top.root.parent / "deep"), "app/ext")
    green(Project(top.root / "app").build())
    commit(top.root)
    clone = Project(clone_of(top).root / "app")
    run_hint(refused(clone.build(), "`ext/`", "git submodule update --init ext"), clone)
    green(clone.build())
    tree = top.root.parent / "tree"
    git(top.root, "worktree", "add", "-q", str(tree), "-b", "other")
    refused(Project(tree / "app").build(), "`ext/`")


@pytest.mark.needs("metrics")
def test_affected_compares_the_commit_of_a_submodule(with_submodule: Project) -> None:
    project, lib = with_submodule, with_submodule.root.parent / "lib"
    project.edit("pipeline.yaml", LIB.replace("INPUT", '"vendor/**"'))
    green(project.build())
    commit(project.root)
    affected = ("affected", "--since", "HEAD", "--exit-code")
    assert project.run(*affected).code == 0
    project.edit("vendor/lib/deep/d.txt", "edited\n")
    changed = project.run(*affected)
    assert changed.code == 1
    assert "vendor/lib/deep/d.txt changed" in changed.out
    assert "own" not in changed.out
    project.edit("vendor/lib/deep/d.txt", "deep\n")
    Project(lib).write({"a.txt": "two\n"})
    commit(lib)
    git(project.root / "vendor/lib", "pull", "-q", "origin", "main")
    assert "vendor/lib/a.txt changed" in project.run(*affected).out
    commit(project.root)
    assert project.run(*affected).code == 0
    assert "vendor/lib/a.txt changed" in project.run("affected", "--since", "HEAD~1").out
    # A clone of the submodule that lacks the commit of then.
    git(project.root / "vendor/lib", "checkout", "-q", "--orphan", "alone")
    commit(project.root / "vendor/lib")
    git(project.root / "vendor/lib", "branch", "-q", "-D", "main", check=False)
    for ref in git(project.root / "vendor/lib", "for-each-ref", "--format=%(refname)", "refs/remotes").split():
        git(project.root / "vendor/lib", "update-ref", "-d", ref)
    git(project.root / "vendor/lib", "reflog", "expire", "--expire=now", "--all")
    git(project.root / "vendor/lib", "gc", "-q", "--prune=now")
    lost = project.run(*affected)
    assert lost.code != 0
    assert "lacks the commit" in lost.err


# ---- sparse checkouts -----------------------------------------------------------------------------

NUMBERS = """\
version: 1
stages:
  n: {inputs: ["s/**"], outputs: [n.txt], shell: "cat s/*/*.txt > n.txt"}
  one: {inputs: ["s/a/*"], outputs: [one.txt], shell: "cat s/a/* > one.txt"}
"""


@pytest.fixture
def numbers(project: Project) -> Project:
    files = {"pipeline.yaml": NUMBERS, "s/a/1.txt": "1\n", "s/b/2.txt": "2\n", ".gitignore": IGNORED}
    repository(project.root, files)
    green(project.build())
    commit(project.root)
    return project


@pytest.mark.stride(3)
@pytest.mark.parametrize("form", ["cone", "no cone", "sparse index", "worktree"])
@pytest.mark.parametrize("command", [0, 1])
def test_what_is_outside_of_a_sparse_checkout_is_not_deleted(numbers: Project, form: str, command: int) -> None:
    project = numbers
    if form == "worktree":
        git(project.root, "worktree", "add", "-q", str(project.root.parent / "tree"), "-b", "other")
        project = Project(project.root.parent / "tree")
    words = {"no cone": ("--no-cone", "/*", "!/s/", "/s/a/"), "sparse index": ("--cone", "--sparse-index", "s/a")}
    git(project.root, "sparse-checkout", "set", *words.get(form, ("--cone", "s/a")))
    found = refused(project.build(), "`s/b/2.txt`", "`s/**` of stage `n`")
    refused(project.run("plan"))
    refused(project.run("status"))
    assert git(project.root, "status", "--short") == ""
    green(project.build("one"))
    run_hint(found, project, command)
    green(project.build())
    assert project.read("n.txt") == "1\n2\n"
    assert git(project.root, "status", "--short") == ""


def test_a_file_that_git_skips_but_that_is_there_is_an_input(numbers: Project) -> None:
    git(numbers.root, "sparse-checkout", "set", "--cone", "s/a")
    numbers.write({"s/b/2.txt": "two\n"})
    green(numbers.build())
    assert numbers.read("n.txt") == "1\ntwo\n"
    git(numbers.root, "sparse-checkout", "disable")
    git(numbers.root, "update-index", "--skip-worktree", "s/a/1.txt")
    green(numbers.build())


def test_a_file_that_the_user_deleted_is_deleted(numbers: Project) -> None:
    numbers.delete("s/b/2.txt")
    green(numbers.build())
    assert numbers.read("n.txt") == "1\n"


@pytest.mark.parametrize("lost", ["n.txt", "pipeline.lock", "list.json", "p.j2"])
def test_outputs_and_records_that_git_left_out_are_not_made_again(numbers: Project, lost: str) -> None:
    text = "  r: {inputs: [list.json], outputs: [r.txt], render: {template: p.j2}}\n"
    numbers.write({"list.json": '["x"]\n', "p.j2": "{{ inputs[0].text }}"})
    numbers.edit("pipeline.yaml", NUMBERS + text)
    green(numbers.build())
    commit(numbers.root)
    git(numbers.root, "sparse-checkout", "set", "--no-cone", "/*", f"!/{lost}")
    found = refused(numbers.build(), f"`{lost}`")
    assert git(numbers.root, "status", "--short") == ""
    run_hint(found, numbers)
    green(numbers.build())


# ---- Git LFS --------------------------------------------------------------------------------------

MODELLED = """\
version: 1
defaults: {llm: {provider: scripted, model: m, answers: answers.yaml, transcripts: tr}}
stages:
  given:
    inputs: [in.md]
    outputs: [given.py]
    llm: {prompt: p.j2, returns: code}
    verify: {steps: [{check: python_syntax}], inputs: [v.md]}
  cut: {inputs: ["cut.md#One"], outputs: [cut.txt], shell: cat cut.md > cut.txt}
  many: {inputs: ["many/*"], outputs: [many.txt], shell: cat many/* > many.txt}
  each:
    foreach: {from: list.json, key: id}
    inputs: [p.j2]
    outputs: ["each/${{ item.id }}.txt"]
    shell: [cp, p.j2, "each/${{ item.id }}.txt"]
"""
FILES: Mapping[str, str] = {
    "pipeline.yaml": MODELLED,
    "answers.yaml": 'given: ["```python\\nx = 1\\n```"]\n',
    "in.md": "# One\nx is 1\n",
    "p.j2": "Write\n{{ inputs | blocks }}\n",
    "v.md": "v\n",
    "cut.md": "# One\n1\n# Two\n2\n",
    "many/a.txt": "a\n",
    "list.json": '[{"id": "x"}]\n',
    ".gitignore": IGNORED,
}


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")
@pytest.mark.needs("metrics")
@pytest.mark.stride(4)
@pytest.mark.parametrize(
    "lost", ["in.md", "p.j2", "v.md", "cut.md", "many/a.txt", "list.json", "given.py", "many.txt", "tr/*", "*.lock"]
)
def test_a_pointer_of_git_lfs_is_never_content(project: Project, lost: str) -> None:
    repository(project.root, {**FILES, ".gitattributes": f"{lost} filter=lfs diff=lfs merge=lfs -text\n"})
    git(project.root, "lfs", "install", "--local")
    git(project.root, "add", "--renormalize", ".")
    green(project.build())
    commit(project.root)
    assert project.run("affected", "--since", "HEAD", "--exit-code").code == 0
    green(project.build())
    clone = clone_of(project)
    before = clone.files()
    refused(clone.run("plan"), "git lfs pull")
    refused(clone.build("--replay"), "git lfs pull")
    found = refused(clone.build(), "git lfs pull")
    assert "stage `" in found.err or "the records" in found.err
    assert clone.files() == before
    git(clone.root, "lfs", "install", "--local")
    run_hint(found, clone)
    done = clone.build("--replay")
    assert done.code == 0, done.err


def test_a_text_that_looks_like_a_pointer_is_a_file(project: Project) -> None:
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 3\n"
    pipeline = "version: 1\nstages:\n  a: {inputs: [f.txt], outputs: [y], shell: cat f.txt > y}\n"
    project.write({"pipeline.yaml": pipeline, "f.txt": text})
    outside = project.build()  # as in an archive of a repository: nothing says that it is meant
    assert outside.code == 65
    assert "[E698]" in outside.err
    assert not project.exists("y")
    repository(project.root, {".gitignore": IGNORED, ".gitattributes": "*.bin filter=lfs\n"})
    green(project.build())
    assert project.read("y") == text


# ---- processes ------------------------------------------------------------------------------------


def test_git_is_started_only_where_it_may_have_left_something_out(
    with_submodule: Project, numbers: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[object] = []
    run = git_revision.run_git

    def counted(git: list[str], *arguments: str) -> bytes | None:
        calls.append(arguments)
        return run(git, *arguments)

    monkeypatch.setattr(git_revision, "run_git", counted)
    plain = Project(tmp_path / "plain").write({"pipeline.yaml": NUMBERS, "s/a/1.txt": "1\r\n", "s/b/2.txt": "2\n"})
    green(plain.build())
    plain.write({"s/a/1.txt": "one\r\n"})
    green(plain.build())
    assert not calls  # not in a repository


def test_many_texts_that_look_like_pointers_start_git_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 3\n"
    pipeline = "version: 1\nstages:\n  a: {inputs: [f/*], outputs: [y], shell: cat f/* > y}\n"
    project.write({"pipeline.yaml": pipeline, **{f"f/{number}.txt": text for number in range(5)}})
    repository(project.root, {".gitignore": IGNORED})
    calls: list[str] = []
    run = git_revision.run_git

    def counted(git: list[str], *arguments: str) -> bytes | None:
        calls.append(arguments[-1])
        return run(git, *arguments)

    monkeypatch.setattr(git_revision, "run_git", counted)
    green(project.build())
    assert calls.count(":(attr:filter=lfs)") == 1


def test_a_leaf_edit_starts_no_git_beside_a_submodule(with_submodule: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from orch23.entry import main  # noqa: PLC0415 - a test of one folder must not load the whole tool

    monkeypatch.setattr(idle_build, "FEWEST", 1)
    with_submodule.edit("pipeline.yaml", LIB.replace("INPUT", '"vendor/**"') + MORE)
    project = Project(with_submodule.root, main=lambda argv: main([*argv[2:]]))  # a snapshot knows no `-C`
    age(str(project.root))
    green(project.build())
    age(str(project.root))
    calls: list[object] = []
    run = git_revision.run_git

    def counted(git: list[str], *arguments: str) -> bytes | None:
        calls.append(arguments)
        return run(git, *arguments)

    monkeypatch.setattr(git_revision, "run_git", counted)
    green(project.build())
    assert not calls
    project.edit("src/x.txt", "edited\n")
    green(project.build())
    assert not calls
    (project.root / "vendor/lib/a.txt").unlink()
    green(project.build())
    assert calls


# ---- line ends ------------------------------------------------------------------------------------


def converted(project: Project, attributes: str = "") -> Project:
    """Build a project, commit it, and return a clone that has CRLF in the working tree."""
    repository(project.root, {**FILES, ".gitattributes": attributes} if attributes else FILES)
    green(project.build())
    commit(project.root)
    clone = clone_of(project, *(() if attributes else ("-c", "core.autocrlf=true")))
    assert b"\r\n" in (clone.root / "in.md").read_bytes()
    return clone


@pytest.mark.needs("metrics")
@pytest.mark.stride(5)
@pytest.mark.parametrize("how", ["config", "global", "* text=auto eol=crlf", "* text eol=crlf", "* eol=crlf"])
def test_a_clean_clone_with_other_line_ends_is_not_edited(project: Project, how: str) -> None:
    clone = converted(project, "" if how in ("config", "global") else how)
    if how == "config":
        git(clone.root, "config", "core.autocrlf", "true")
    elif how == "global":
        clone.home.mkdir(exist_ok=True)
        (clone.home / ".gitconfig").write_text("[core]\n\tautocrlf = input\n")
    lock = (clone.root / "pipeline.lock").read_bytes()
    done = clone.build("--replay")
    assert done.code == 0, done.err
    assert (clone.root / "pipeline.lock").read_bytes() == lock
    assert git(clone.root, "diff", home=clone.home) == ""
    for path in ("given.py", "many.txt", "pipeline.lock"):
        (clone.root / path).unlink()
    done = clone.build("--replay")
    assert done.code == 0, done.err
    assert clone.read("given.py") == "x = 1\n"
    assert clone.run("affected", "--since", "HEAD", "--exit-code").code == 0
    # An edit is one, and the file of the model is never overwritten.
    (clone.root / "given.py").write_bytes(b"x = 2\r\n")
    assert clone.build("--replay").code == 6
    assert (clone.root / "given.py").read_bytes() == b"x = 2\r\n"
    green(clone.run("accept", "given"))
    commit(clone.root, clone.home)
    green(clone.build("--replay"))
    git(project.root, "pull", "-q", str(clone.root), "HEAD")
    green(project.build("--replay"))  # with LF


def test_a_new_result_replaces_an_output_with_other_line_ends(project: Project) -> None:
    clone = converted(project, "* text=auto eol=crlf")
    clone.write({"many/a.txt": "new\n"})
    green(clone.build("--replay"))
    assert (clone.root / "many.txt").read_bytes() == b"new\n"


@pytest.mark.parametrize(
    ("attributes", "data"),
    [
        ("", b"a\r\nb\r\n"),  # nothing is converted
        ("many/* -text", b"a\r\nb\r\n"),
        ("many/* binary", b"a\r\nb\r\n"),
        ("* text=auto", b"a\r\nb\0\r\n"),  # binary
        ("* text=auto", b"a\r\nb\r"),
    ],
)
def test_what_git_does_not_convert_keeps_its_bytes(project: Project, attributes: str, data: bytes) -> None:
    repository(project.root, {**FILES, "many/a.txt": data, ".gitattributes": f"{attributes}\n"})
    green(project.build())
    assert (project.root / "many.txt").read_bytes() == data


def test_what_has_crlf_in_git_keeps_it(project: Project) -> None:
    repository(project.root, {**FILES, "many/a.txt": b"a\r\n"})
    (project.root / ".gitattributes").write_text("* text=auto\n")
    green(project.build())
    assert (project.root / "many.txt").read_bytes() == b"a\r\n"


def test_an_untracked_or_mixed_file_is_read_as_git_would_commit_it(project: Project) -> None:
    repository(project.root, {**FILES, ".gitattributes": "* text=auto\n"})
    project.write({"many/a.txt": b"a\r\nb\n", "many/b.txt": b"c\r\n"})
    green(project.build())
    assert (project.root / "many.txt").read_bytes() == b"a\nb\nc\n"
    commit(project.root)
    fresh = project.build()
    green(fresh)
    assert "built" not in fresh.err


def test_a_record_of_the_bytes_on_the_disk_stays_fresh(project: Project) -> None:
    repository(project.root, FILES)
    project.write({"many/a.txt": b"a\r\n"})
    green(project.build())
    git(project.root, "config", "core.autocrlf", "true")
    git(project.root, "checkout", "-q", "--", "many/a.txt")
    (project.root / ".orch23/index.sqlite").unlink()
    assert project.plan()["many"] == "fresh"
    assert json.loads((project.root / "pipeline.lock").read_text())["records"]["many"]
