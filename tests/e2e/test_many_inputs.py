"""A stage with many input files: they are copied once, not for each run, attempt, or verification."""

import os
from collections.abc import Mapping

import pytest

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
