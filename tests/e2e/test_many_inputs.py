"""A stage with many input files: they are copied once, not for each run, attempt, or verification."""

import contextlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from orch23.decide.stage_view import StageTree
from orch23.execute.shared_trees import SharedTrees
from orch23.store.workspace import Workspace
from tests.e2e.pipelines import green, shell
from tests.project import Project
from tests.sandbox.users import need

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

FILES = {f"modules/p{n // 50}/f{n}.js": f"{n}\n" for n in range(600)}
STAGES = """\
  app:
    inputs: [main.js, modules/]
    outputs: [out.txt]
    shell: cat main.js modules/p0/f1.js > out.txt; ls -R modules | wc -l >> out.txt
    verify: [{shell: grep -q end out.txt && test -e modules/p0/f2.js}]
"""


def inodes(project: Project) -> Mapping[str, int]:
    """Return the inode of each file of the copies."""
    found = (path for path in project.root.glob(".orch23/trees/*/files/**/*") if path.is_file())
    return {f"{path.parent.name}/{path.name}": path.stat().st_ino for path in found}


def test_the_folder_is_copied_once_and_then_followed(project: Project) -> None:
    need("namespaces")
    project.write(shell(STAGES, {"main.js": "end\n", **FILES}))
    green(project.build())
    first = inodes(project)
    assert len(first) == len(FILES)
    project.write({"main.js": "the end\n"})
    green(project.build())
    assert project.read("out.txt").startswith("the end\n1\n")
    assert inodes(project) == first
    project.write({"modules/p0/f1.js": "one\n", "modules/p0/new.js": "new\n"})
    (project.root / "modules/p1/f77.js").unlink()
    green(project.build())
    assert project.read("out.txt").startswith("the end\none\n")
    last = inodes(project)
    assert last.keys() == {*first, "p0/new.js"} - {"p1/f77.js"}
    assert {path for path in first if path in last and last[path] != first[path]} <= {"p0/f1.js"}
    assert "up to date" in project.build().err
    assert os.listdir(project.root / ".orch23/rooms") == []


def test_a_write_to_the_folder_is_refused_by_its_name(project: Project) -> None:
    need("namespaces")
    write = "echo o > out.txt; echo bad > modules/p0/f1.js; rm modules/p0/f2.js; echo n > modules/p0/n.js"
    stages = f"  app: {{inputs: [modules/], outputs: [out.txt], shell: '{write}'}}\n"
    project.write(shell(stages, FILES))
    text = project.build().err
    for path in ("modules/p0/f1.js", "modules/p0/f2.js", "modules/p0/n.js"):
        assert path in text
    assert "E306" in text
    assert project.read("modules/p0/f1.js") == "1\n"
    project.write(shell("  app: {inputs: [modules/], outputs: [out.txt], shell: 'ls modules/p0 > out.txt'}\n"))
    green(project.build())
    assert project.read("out.txt").split() == sorted(
        path.removeprefix("modules/p0/") for path in FILES if "/p0/" in path
    )


def test_gc_and_reset_remove_the_copies(project: Project) -> None:
    need("namespaces")
    project.write(shell(STAGES, {"main.js": "end\n", **FILES}))
    green(project.build())
    assert "folder" not in project.run("gc", "--keep", "1GB").out
    assert inodes(project)
    assert "1 folder" in project.run("gc", "--keep", "10kB").out
    assert not inodes(project)
    project.write({"main.js": "new end\n"})
    green(project.build())
    assert inodes(project)
    assert "the copies of large input folders" in project.run("reset").out
    assert not inodes(project)


def test_steps_that_start_at_once_use_the_same_copies(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    need("namespaces")
    begins, made, both = SharedTrees.__init__, list[SharedTrees](), threading.Barrier(2)

    def begin(self: SharedTrees, *arguments: object) -> None:
        made.append(self)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(1)
        begins(self, *arguments)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(SharedTrees, "__init__", begin)
    stages = "".join(f"  s{n}: {{inputs: [modules/], outputs: [o{n}], shell: ls modules > o{n}}}\n" for n in range(2))
    project.write(shell(stages, FILES))
    green(project.build("-j", "2"))
    assert len(made) == 1


@pytest.mark.stride(3)
@pytest.mark.parametrize("name", [b"a,b:c\\", b"=x \n", b"\xff"])
def test_the_project_may_have_any_path(tmp_path: Path, name: bytes) -> None:
    need("namespaces")
    project = Project(tmp_path / os.fsdecode(name))
    layered = "test $(stat -f -c %T .) = overlayfs"
    project.write(shell(f"  app: {{inputs: [modules/], outputs: [o], shell: '{layered}; ls modules > o'}}\n", FILES))
    green(project.build())
    assert project.read("o").startswith("p0\n")


def off(shell_text: str) -> str:
    """Return a stage without a sandbox, which can write to the project, as a user can while it runs."""
    return f'  app: {{inputs: [main.js, modules/], outputs: [out.txt], sandbox: "off", shell: "{shell_text}"}}\n'


@pytest.mark.parametrize("edit", ["echo new > {}/modules/p0/f1.js", "echo new > {}/modules/p0/new.js"])
def test_an_edit_while_the_step_runs_is_noticed(project: Project, edit: str) -> None:
    project.write(shell(off("cat main.js modules/p0/*.js > out.txt; sh main.js"), {"main.js": "true\n", **FILES}))
    green(project.build("--allow-unsandboxed"))
    assert "up to date" in project.build("--allow-unsandboxed").err
    project.write({"main.js": edit.format(project.root) + "\n"})
    green(project.build("--allow-unsandboxed"))
    assert "1 built" in project.build("--allow-unsandboxed").err
    assert "up to date" in project.build("--allow-unsandboxed").err


def test_files_that_were_touched_or_edited_and_restored_leave_the_stage_fresh(project: Project) -> None:
    project.write(shell(off("cat main.js > out.txt"), {"main.js": "end\n", **FILES}))
    green(project.build("--allow-unsandboxed"))
    for path in FILES:
        os.utime(project.root / path)
    project.write({"modules/p3/f150.js": "other\n"})
    project.write({"modules/p3/f150.js": "150\n"})
    assert "up to date" in project.build("--allow-unsandboxed").err
    project.write({"modules/p3/f150.js": "other\n"})
    assert "1 built" in project.build("--allow-unsandboxed").err


def test_an_edit_beside_the_folder_asks_for_none_of_its_files_alone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(shell(off("cat main.js > out.txt"), {"main.js": "end\n", **FILES}))
    green(project.build("--allow-unsandboxed"))
    monkeypatch.setattr("orch23.snapshot.signatures.FINE_RACY_NS", 0)  # the files are old enough
    monkeypatch.setattr("orch23.snapshot.signatures.RACY_NS", 0)
    project.write({"main.js": "next\n"})
    green(project.build("--allow-unsandboxed"))
    alone: list[str] = []
    seen: list[str] = []

    def note(owner: object, name: str, paths: list[str], at: int) -> None:
        was = getattr(owner, name)

        def noted(*arguments: object, **more: object) -> object:
            paths.append(str(arguments[at]))
            return was(*arguments, **more)

        monkeypatch.setattr(owner, name, noted)

    note(StageTree, "version", alone, 1)
    note(Workspace, "entry", alone, 1)
    note(os, "lstat", seen, 0)
    project.write({"main.js": "last\n"})
    green(project.build("--allow-unsandboxed"))
    assert [path for path in alone if path.startswith("modules/")] == []
    looks = [path for path in seen if path.startswith(f"{project.root}/modules/") and path.endswith(".js")]
    assert len(looks) <= 2 * len(FILES) + 2 * 13, "for the decision and at the end of the step; each folder once more"
