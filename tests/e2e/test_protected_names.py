"""Names that steer tools: no step leads to them, and no record, but where the pipeline names them literally."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.model.digest import FileEntry
from orch23.model.record import LockFile, Record
from orch23.store.json_text import TRUSTED
from orch23.store.lock_file import read_lock, write_lock
from orch23.store.project_store import open_store
from orch23.store.record_format import entry_to_json
from tests.project import Outcome, Project, files_answer, scripted

NEVER = (
    ".orch23/records/forged.json",
    "sub/.orch23/VERSION",
    "logs/20260101T000000Z-00000000.jsonl",
    ".git/hooks/pre-push",
    "vendor/lib/.git/config",
    "vendor/lib/.GIT/hooks/post-checkout",
    "vendor/sub/.git",
    ".hg/hgrc",
)
LITERALLY = (
    "other.lock",
    ".envrc",
    ".vscode/tasks.json",
    ".venv/bin/python",
    "node_modules/left-pad/index.js",
    "conftest.py",
    "tests/conftest.py",
    "lib/evil.pth",
    "src/__pycache__/app.cpython-311.pyc",
    "specs/app.md",
    ".github/workflows/ci.yml",
    "pipeline.yaml.d/Makefile",
    ".orch23-quickstart.answers.yml",
)
TOOLS = (".npmrc", "web/.npmrc", "justfile", "mise.toml", ".bashrc", "web/jest.config.ts", "Dockerfile")


def writing(path: str, **more: Any) -> dict[str, Any]:
    """Return a stage with the widest scope, whose program writes one more file."""
    script = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.parent.mkdir(parents=True, exist_ok=True)"
    script += "; p.write_text('forged'); pathlib.Path('out.txt').write_text('out')"
    stage = {"outputs": ["out.txt"], "allowed_paths": {"write": ["**"]}, "shell": ["python", "-c", script, path]}
    return {**stage, "scratch": [], **more}


def wrote(outcome: Outcome, project: Project, path: str) -> bool:
    """Say whether a file that a stage was not to write is there."""
    return outcome.code == 0 or (project.root / path).exists()


@pytest.mark.stride(5)
@pytest.mark.parametrize("path", [*NEVER, *LITERALLY])
def test_a_step_with_the_widest_scope_writes_no_protected_name(project: Project, path: str) -> None:
    project.write(scripted({"a": writing(path)}, {}))
    refused = project.build()
    assert refused.code == 1
    assert "[E306]" in refused.err
    assert f"`{path}`" in refused.err
    assert not (project.root / path).exists()
    assert not project.exists("out.txt")


@pytest.mark.stride(4)
@pytest.mark.slow
@pytest.mark.parametrize("path", LITERALLY)
def test_a_literal_entry_admits_it(project: Project, path: str) -> None:
    project.write(scripted({"a": writing(path, allowed_paths={"write": ["**", path]})}, {}))
    built = project.build()
    assert built.code == 0, built.err
    assert project.read(path) == "forged"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("vendor/**/pyproject.toml", "vendor/a/b/pyproject.toml"),
        ("node_modules/", "node_modules/a/.editorconfig"),
        ("*/.venv/**", "web/.venv/lib/x.pth"),
        ("specs/made/", "specs/made/app.md"),
    ],
)
def test_a_pattern_that_spells_the_name_admits_it(project: Project, pattern: str, path: str) -> None:
    project.write(scripted({"a": writing(path, allowed_paths={"write": ["out.txt", pattern]})}, {}))
    built = project.build()
    assert built.code == 0, built.err
    assert project.read(path) == "forged"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("specs/", "specs/conftest.py"),
        ("vendor/**/pyproject.toml", "vendor/.github/pyproject.toml"),
        ("*.pth", "x.pth"),
        ("node_modules/", "node_modules/a/.git/config"),
    ],
)
def test_a_pattern_that_spells_another_name_does_not(project: Project, pattern: str, path: str) -> None:
    project.write(scripted({"a": writing(path, allowed_paths={"write": ["out.txt", pattern]})}, {}))
    assert not wrote(project.build(), project, path)


@pytest.mark.parametrize("path", NEVER)
@pytest.mark.parametrize("key", ["outputs", "write"])
def test_some_names_cannot_even_be_declared(project: Project, path: str, key: str) -> None:
    write = {"write": ["**", path]} if key == "write" else {"write": ["**"]}
    stage = writing(path, allowed_paths=write, **({"outputs": ["out.txt", path]} if key == "outputs" else {}))
    project.write(scripted({"a": stage}, {}))
    refused = project.build()
    assert refused.code == 65
    assert "error[E852]" in refused.err
    assert not (project.root / path).exists()


def test_a_model_cannot_declare_them_either(project: Project) -> None:
    stage = {"outputs": ["out.txt"], "allowed_paths": {"write": ["**"]}, "llm": {}}
    answer = files_answer({"out.txt": "x\n", "vendor/.git/config": "[core]\n"})
    project.write(scripted({"a": stage}, {"a": [answer]}))
    refused = project.build()
    assert refused.code == 1
    assert "[E208]" in refused.err
    assert not project.exists("vendor")


@pytest.mark.slow
def test_no_step_writes_the_lock_file_of_a_pipeline(project: Project) -> None:
    project.write(scripted({"b": {"outputs": ["b.txt"], "shell": "echo b > b.txt"}}, {}, name="second"))
    for lock in ("pipeline.lock", "second.lock"):
        project.write(scripted({"a": writing(lock, outputs=["out.txt", lock])}, {}))
        refused = project.build()
        assert refused.code == 2, refused.err
        assert "[E694]" in refused.err
        assert "forged" not in (project.read(lock) if project.exists(lock) else "")


def test_a_lock_file_of_another_tool_can_be_declared(project: Project) -> None:
    project.write({"web/pubspec.yaml": "name: web\nversion: 1.0.0\n"})
    project.write(scripted({"a": writing("web/pubspec.lock", outputs=["out.txt", "web/pubspec.lock"])}, {}))
    built = project.build()
    assert built.code == 0, built.err


def test_a_kept_failure_has_no_protected_name(project: Project) -> None:
    stage = writing("conftest.py", on_failure="keep", verify=[{"shell": "false"}])
    project.write(scripted({"a": stage}, {}))
    assert project.build().code == 1
    assert project.exists("out.txt")
    assert not project.exists("conftest.py")


@pytest.mark.slow
def test_of_many_the_first_are_named(project: Project) -> None:
    shell = "for i in $(seq 10 40); do mkdir -p out/$i; echo x > out/$i/conftest.py; done"
    refused = project.write(scripted({"a": {"outputs": ["out/"], "shell": shell}}, {})).build()
    assert refused.code == 1
    assert "`out/29/conftest.py`" in refused.err
    assert "`out/30/conftest.py`" not in refused.err
    assert "11 more paths" in refused.err


# ---- names that configure tools -------------------------------------------------------------------


@pytest.mark.parametrize("path", TOOLS)
def test_a_name_that_configures_a_tool_is_reported_of(project: Project, path: str) -> None:
    project.write(scripted({"a": writing(path)}, {}))
    built = project.build()
    assert built.code == 0
    assert "[W306]" in built.err
    assert f"`{path}`" in built.err
    assert project.read(path) == "forged"


@pytest.mark.stride(3)
@pytest.mark.parametrize("path", TOOLS)
def test_not_so_where_it_is_named(project: Project, path: str) -> None:
    project.write(scripted({"a": writing(path, allowed_paths={"write": ["**", path]})}, {}))
    built = project.build()
    assert built.code == 0
    assert "W306" not in built.err


@pytest.mark.slow
def test_of_many_there_is_one_warning(project: Project) -> None:
    shell = "for i in $(seq 10 40); do mkdir -p out/$i; echo x > out/$i/.npmrc; done"
    built = project.write(scripted({"a": {"outputs": ["out/"], "shell": shell}}, {})).build()
    assert built.code == 0
    assert built.err.count("[W306]") == 1
    assert "`out/14/.npmrc` and 26 more" in built.err


def test_a_model_that_writes_one_is_reported_of_too(project: Project) -> None:
    stage = {"outputs": ["out.txt"], "allowed_paths": {"write": ["**"]}, "llm": {}}
    project.write(scripted({"a": stage}, {"a": [files_answer({"out.txt": "x\n", "web/package.json": "{}\n"})]}))
    built = project.build()
    assert built.code == 0
    assert "[W306]" in built.err


def test_an_item_of_a_list_names_nothing_literally(project: Project) -> None:
    stage = {
        "foreach": {"from": "tasks.json", "as": "path"},
        "outputs": ["${{ path }}"],
        "shell": ["cp", "tasks.json", "${{ path }}"],
        "inputs": ["tasks.json"],
    }
    project.write({**scripted({"a": stage}, {}), "tasks.json": '["justfile"]'})
    built = project.build()
    assert built.code == 0, built.err
    assert "[W306]" in built.err


# ---- records --------------------------------------------------------------------------------------

HEAD = "ref: refs/heads/main\n"
HONEST = {"outputs": ["a.txt"], "allowed_paths": {"write": ["**"]}, "shell": "echo a > a.txt"}


def forge(project: Project, stage: str, files: Mapping[str, str], *, name: str = "") -> None:
    """Let the lock file say of a stage that it made these files too; their bytes are in the store."""
    store, path = open_store(project.root), project.root / "pipeline.lock"
    lock = read_lock(path)
    made = {place: FileEntry(store.contents.put(text.encode())) for place, text in files.items()}
    record = lock.records[stage]
    forged = replace(record, stage=name or stage, outputs={**({} if name else record.outputs), **made})
    records: dict[str, Record] = {**lock.records, name or stage: forged}
    write_lock(project.root, "pipeline.lock", LockFile(records, lock.retained), "pipeline")


def git(project: Project) -> Path:
    """Make what looks like a repository of the user's."""
    project.write({".git/HEAD": HEAD, ".vscode/tasks.json": "{}\n"})
    return project.root / ".git"


PRECIOUS = {".git/HEAD": HEAD, ".vscode/tasks.json": "{}\n"}


def precious(project: Project) -> dict[str, str]:
    """Return the files that no record may change, as far as they are there."""
    return {path: project.read(path) for path in PRECIOUS if project.exists(path)}


def test_no_file_of_a_protected_name_is_removed_since_a_record_says_that_a_former_stage_made_it(
    project: Project,
) -> None:
    project.write(scripted({"a": HONEST}, {}))
    assert project.build().code == 0
    git(project)
    forge(project, "a", PRECIOUS, name="former")
    planned = project.run("plan", "--json").json()
    assert planned["dead_files"] == []
    project.build()
    assert precious(project) == PRECIOUS
    project.build()
    assert precious(project) == PRECIOUS


@pytest.mark.slow
@pytest.mark.parametrize("command", [("clean",), ("clean", "--force"), ("reset", "--outputs"), ("release", "a")])
def test_no_command_removes_one(project: Project, command: tuple[str, ...]) -> None:
    project.write(scripted({"a": HONEST}, {}))
    assert project.build().code == 0
    git(project)
    forge(project, "a", PRECIOUS)
    project.run(*command)
    assert precious(project) == PRECIOUS
    project.write(scripted({"b": {"outputs": ["b.txt"], "shell": "echo b > b.txt"}}, {}))
    project.build()
    assert precious(project) == PRECIOUS


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_no_original_of_a_record_is_put_there(project: Project, force: tuple[str, ...]) -> None:
    project.write(scripted({"a": HONEST}, {}))
    assert project.build().code == 0
    git(project)
    forge(project, "a", PRECIOUS)
    store, path = open_store(project.root), project.root / "pipeline.lock"
    lock = read_lock(path)
    evil = FileEntry(store.contents.put(b"[core]\n\tfsmonitor = evil\n"))
    record = replace(lock.records["a"], originals=dict.fromkeys(PRECIOUS, evil))
    write_lock(project.root, "pipeline.lock", LockFile({"a": record}, {}), "pipeline")
    project.run("clean", *force)
    assert precious(project) == PRECIOUS


@pytest.mark.parametrize("path", [".git/hooks/post-checkout", "conftest.py", ".venv/bin/python", "second.lock"])
def test_no_file_of_a_protected_name_is_restored(project: Project, path: str) -> None:
    project.write(scripted({"a": HONEST}, {}))
    assert project.build().code == 0
    forge(project, "a", {path: "forged"})
    project.delete("a.txt")
    project.build()
    assert not project.exists(path)
    project.write({"a.txt": "edited\n"})
    project.run("accept", "pipeline.yaml", "a")
    assert not project.exists(path)


def test_a_result_that_was_recorded_before_its_name_was_protected_says_the_way_out(project: Project) -> None:
    stage = {"outputs": ["src/"], "shell": "echo x > src/a.txt"}
    project.write(scripted({"a": stage}, {}))
    assert project.build().code == 0
    forge(project, "a", {"src/Makefile": "all:\n"})
    project.write({"src/Makefile": "all:\n"})
    assert project.build().code == 0
    project.delete("src/Makefile")
    again = project.build()
    if again.code:
        assert "`src/Makefile`" in again.err
        assert "outputs" in again.err
    assert not project.exists("src/Makefile")


@pytest.mark.slow
@pytest.mark.parametrize("path", [".git/hooks/post-checkout", "conftest.py"])
def test_a_group_with_such_a_result_is_not_promoted(project: Project, path: str) -> None:
    stages = {one: {"outputs": [f"{one}.txt"], "shell": f"echo > {one}.txt", "promote": "g"} for one in ("a", "b")}
    project.write(scripted(stages, {}))
    assert project.build().code == 0
    forge(project, "a", {path: "forged"})
    project.delete("a.txt")
    project.delete("b.txt")
    project.build()
    assert not project.exists(path)
    assert project.exists("a.txt") == project.exists("b.txt")


@pytest.mark.slow
def test_an_interrupted_promotion_leads_to_none(project: Project) -> None:
    project.write(scripted({"a": HONEST}, {}))
    assert project.build().code == 0
    git(project)
    for argv in (("build",), ("build", "--force", "a"), ("clean",), ("gc",), ("reset",), ("release", "a")):
        plant(project, {".git/hooks/post-checkout": "forged", ".git/HEAD": None, "conftest.py": "forged"})
        project.run(*argv)
        assert precious(project) == PRECIOUS, argv
        assert not project.exists(".git/hooks/post-checkout"), argv
        assert not project.exists("conftest.py"), argv


def test_an_interrupted_promotion_of_a_declared_name_is_finished(project: Project) -> None:
    project.write(scripted({"a": writing("conftest.py", outputs=["out.txt", "conftest.py"])}, {}))
    assert project.build().code == 0
    project.delete("conftest.py")
    plant(project, {"conftest.py": "forged"})
    assert project.build().code == 0
    assert project.read("conftest.py") == "forged"
    assert project.ran() == []


def plant(project: Project, files: Mapping[str, str | None]) -> None:
    """Leave what a promotion leaves that was killed before its first file changed."""
    store = open_store(project.root)
    workspace = store.workspace
    new = {
        path: None if text is None else entry_to_json(FileEntry(store.contents.put(text.encode())))
        for path, text in files.items()
    }
    old = {path: None if (entry := workspace.entry(path)) is None else entry_to_json(entry) for path in files}
    (project.root / ".orch23/promote.json").write_bytes(
        TRUSTED.encode(json.loads(json.dumps({"new": new, "old": old})))
    )
