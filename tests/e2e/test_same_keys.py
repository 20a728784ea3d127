"""One project gives the same keys and the same lock file, byte for byte, wherever, whenever and however it is built."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from orch23.entry import run; run()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to build the same: where, as whom, and in what surroundings."""

    folder: str = "here"
    argv: tuple[str, ...] = ("-j1",)
    environ: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    before: tuple[str, ...] = ()


WAYS = {
    "directory": Way(folder="quite/another place/\u00e9t\u00e9"),
    "user": Way(before=("unshare", "--user", "--map-user=1234", "--map-group=1234")),
    "locale": Way(environ={"LANG": "tr_TR.UTF-8", "LC_ALL": "C.UTF-8", "LANGUAGE": "tr"}),
    "time zone": Way(environ={"TZ": "Pacific/Kiritimati"}),
    "hash seed": Way(environ={"PYTHONHASHSEED": "4242"}),
    "umask": Way(environ={"MASK": "077"}),
    "home": Way(environ={"HOME": "/nonexistent/home", "XDG_CACHE_HOME": "/nonexistent/cache"}),
    "current directory": Way(cwd="."),
    "jobs and order": Way(argv=("-j4",), environ={"BACKWARDS": "1", "SOMETHING": "else"}),
}


def build(place: Path, way: Way) -> tuple[bytes, list[tuple[str, str, str]], dict[str, bytes]]:
    """Build in a process of its own; return the lock file, the keys of all stages and what was made."""
    project = Project(place / way.folder)
    story(project)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(project.home),
        "XDG_STATE_HOME": str(project.home / "state"),
        "PYTHONPATH": _REPOSITORY,
        "PYTHONDONTWRITEBYTECODE": "1",
        "MASK": "022",
        **way.environ,
    }
    where = [] if way.cwd else ["-C", str(project.root)]
    done = subprocess.run(
        [*way.before, sys.executable, "-c", BACKWARDS, *where, "build", *way.argv],
        env=environ, capture_output=True, text=True, check=False, timeout=50, cwd=project.root if way.cwd else "/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    keys = sorted(
        (e["role"], e["data"]["key"], json.dumps(e["data"]["reasons"])) for e in project.events_of("stage_decided")
    )
    return project.files()["pipeline.lock"], keys, project.files()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[tuple[str, str, str]], dict[str, bytes]]:
    """Give what one build makes."""
    return build(tmp_path_factory.mktemp("reference"), Way(environ={"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1"}))


@pytest.mark.stride(9)
@pytest.mark.slow
@pytest.mark.parametrize("which", WAYS)
def test_another_way_to_build_gives_the_same_keys_and_bytes(
    tmp_path: Path, reference: tuple[bytes, list[tuple[str, str, str]], dict[str, bytes]], which: str
) -> None:
    way = WAYS[which]
    if way.before and subprocess.run([*way.before, "true"], capture_output=True, check=False).returncode:
        pytest.skip("nobody can be another user here")
    found = build(tmp_path, way)
    assert found[1] == reference[1]
    assert found[0] == reference[0]
    assert found[2] == reference[2]
    assert len(found[1]) == 7


@pytest.mark.slow
def test_two_places_zones_locales_seeds_orders_masks_and_numbers_of_jobs_give_the_same_keys(tmp_path: Path) -> None:
    everything = {name: value for way in WAYS.values() for name, value in way.environ.items()}
    here = build(tmp_path, Way(environ={"TZ": "UTC", "LANG": "C", "LC_ALL": "C", "PYTHONHASHSEED": "1"}))
    there = build(tmp_path, Way(folder="quite/another place", argv=("-j4",), environ=everything, cwd="."))
    assert here[1] == there[1]
    assert here[0] == there[0]
    assert here[2] == there[2]
    assert len(here[1]) == 7
    assert b"/" + tmp_path.name.encode() not in here[0], "no absolute path is in it"
