"""A stage with many input files: they are copied once, not for each run, attempt, or verification."""

import contextlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from orch23.execute.shared_trees import SharedTrees
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
    assert "copied folder" not in project.run("gc", "--keep", "1GB").out
    assert inodes(project)
    assert "1 copied folder" in project.run("gc", "--keep", "10kB").out
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


@pytest.mark.parametrize("name", [b"a,b:c\\", b"=x \n", b"\xff"])
def test_the_project_may_have_any_path(tmp_path: Path, name: bytes) -> None:
    need("namespaces")
    project = Project(tmp_path / os.fsdecode(name))
    layered = "test $(stat -f -c %T .) = overlayfs"
    project.write(shell(f"  app: {{inputs: [modules/], outputs: [o], shell: '{layered}; ls modules > o'}}\n", FILES))
    green(project.build())
    assert project.read("o").startswith("p0\n")
