"""One project gives the same keys and the same lock file, byte for byte, wherever, whenever and however it is built."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project import Project, files_answer, scripted

_REPOSITORY = str(Path(__file__).parents[2])

BACKWARDS = """
import os, sys
if os.environ.get("BACKWARDS"):
    real_listdir, real_scandir = os.listdir, os.scandir

    class Backwards:
        def __init__(self, inner):
            with inner:
                self.entries = iter(sorted(inner, key=lambda entry: entry.name, reverse=True))
        def __iter__(self): return self.entries
        def __next__(self): return next(self.entries)
        def __enter__(self): return self
        def __exit__(self, *_): return None
        def close(self): pass

    os.listdir = lambda path=".": sorted(real_listdir(path), reverse=True)
    os.scandir = lambda path=".": Backwards(real_scandir(path))
os.umask(int(os.environ["MASK"], 8))
from orch23.cli.main import run; run()
"""


def story(project: Project) -> None:
    answers = {
        "plan": ['{"tasks": [{"id": "T2", "word": "zwei"}, {"id": "T1", "word": "eins"}]}'],
        "code": [files_answer({"src/b.py": "B = 1\n", "src/a.py": "A = 1\n", "src/\u00e4.py": "AE = 1\n"})],
        "edit@T1": [files_answer({"app.py": "# eins\n"})],
        "edit@T2": [files_answer({"app.py": "# zwei\n"})],
    }
    stages: dict[str, dict[str, object]] = {
        "plan": {"inputs": ["spec.md#Top", {"list": "docs/**"}], "outputs": ["plan.json"], "llm": {"returns": "json"}},
        "code": {
            "inputs": ["docs/*.md"],
            "outputs": ["src/"],
            "llm": {"returns": "files"},
            "verify": {"inputs": ["tests/"], "steps": [{"shell": "cat src/*.py | sort > /dev/null"}]},
        },
        "edit": {
            "foreach": {"from": "plan.json#/tasks", "key": "id", "as": "task", "order": "sequential"},
            "inputs": ["src/*.py"],
            "outputs": ["app.py"],
            "llm": {"returns": "files"},
        },
        "sum": {
            "inputs": ["src/**", "app.py", "docs/"],
            "outputs": ["sum.txt", "run.sh"],
            "shell": "date -r app.py +%s%Z > sum.txt; ls src docs >> sum.txt; env | grep -c HOME >> sum.txt; "
            "echo true > run.sh; chmod +x run.sh",
        },
        "test": {
            "inputs": ["tests/", "app.py"],
            "outputs": ["t.json"],
            "pytest": {"paths": ["tests"], "report": "t.json"},
        },
        "all": {"inputs": ["src/*.py"], "outputs": ["all.txt"], "render": {"template": "all.j2"}},
    }
    project.write(scripted(stages, answers))
    project.write(
        {
            "spec.md": "# Top\nwords \u00df\n# Bottom\n",
            "docs/b.md": "b\n",
            "docs/a.md": "a\n",
            "docs/\u00e9.md": "e\n",
            "app.py": "# mine\n",
            "tests/test_it.py": "def test_it():\n    assert open('app.py').read()\n",
            "all.j2": "{% for one in inputs %}{{ one.path }} {{ one.digest }}\n{% endfor %}",
        }
    )


def build(
    project: Project, argv: tuple[str, ...], **variables: str
) -> tuple[bytes, list[tuple[str, str, str]], dict[str, bytes]]:
    """Build in a process of its own; return the lock file, the keys of all stages and what was made."""
    story(project)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(project.home),
        "PYTHONPATH": _REPOSITORY,
        "MASK": "022",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-c", BACKWARDS, "-C", str(project.root), "build", *argv],
        env=environ, capture_output=True, text=True, check=False, timeout=50,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    keys = sorted(
        (e["role"], e["data"]["key"], json.dumps(e["data"]["reasons"])) for e in project.events_of("stage_decided")
    )
    return project.files()["pipeline.lock"], keys, project.files()


@pytest.mark.slow
def test_two_places_zones_locales_seeds_orders_masks_and_numbers_of_jobs_give_the_same_keys(tmp_path: Path) -> None:
    here = build(Project(tmp_path / "here"), ("-j1",), TZ="UTC", LANG="C", LC_ALL="C", PYTHONHASHSEED="1")
    there = build(
        Project(tmp_path / "quite" / "another place"),
        ("-j4",),
        TZ="Pacific/Kiritimati",
        LANG="tr_TR.UTF-8",
        LC_ALL="C.UTF-8",
        PYTHONHASHSEED="4242",
        BACKWARDS="1",
        MASK="077",
        SOMETHING="else",
    )
    assert here[1] == there[1]
    assert here[0] == there[0]
    assert here[2] == there[2]
    assert len(here[1]) == 7
    assert b"/" + tmp_path.name.encode() not in here[0], "no absolute path is in it"
