"""A build after an edit loads, calls and opens little, in a project with a dependency index."""

import json
from pathlib import Path

import pytest

from tests.e2e.pipelines import shell
from tests.e2e.test_nothing_to_do import AHEAD, orch23
from tests.project import Project
from tests.sandbox.users import need

pytestmark = pytest.mark.slow

MANY = 70
MAX_MODULES = 127
MAX_CLASSES = 373
MAX_LIBRARIES = 122  # 111 with Python 3.11
"""Modules and classes of orch23, and other modules. Loading them takes most of the time of an edit."""
MAX_CALLS = 6_400  # 6,020 with Python 3.11, up to 200 more if other processes make the step wait
MAX_CALLS_OF_INPUTS = 7_900  # 7,439
MAX_OPENED = 135  # 125
"""Calls of functions of orch23, and files and folders of the project that are opened: they depend on no clock."""
UNUSED = {"click", "jinja2", "networkx", "yaml"}
UNUSED |= {"copy", "ctypes", "hashlib", "inspect", "ipaddress", "locale", "logging", "platform", "queue", "selectors"}
UNUSED |= {"signal", "string", "textwrap", "unicodedata", "urllib", "weakref"}
PROGRAM = f"""
{AHEAD}
import gc, json, os, sys, threading
import orch23
from collections import Counter
folder, calls, opened, root = os.path.dirname(orch23.__file__), Counter(), 0, os.getcwd()
def note(frame, event, argument):
    # A call of a function, not the body of a module or of a class.
    if event == "call" and frame.f_code.co_filename.startswith(folder) and frame.f_code.co_flags & 1:
        calls[frame.f_code.co_qualname] += 1
def look(event, arguments):
    global opened
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], (str, os.PathLike)):
        opened += os.path.abspath(arguments[0]).startswith(root)
sys.addaudithook(look)
sys.setprofile(note)
threading.setprofile(note)
from orch23.entry import main
code = main(sys.argv[1:])
sys.setprofile(None)
classes = sum(isinstance(one, type) and str(one.__module__).startswith("orch23.") for one in gc.get_objects())
with open("loaded.json", "w") as stream:
    json.dump([sorted(sys.modules), classes, calls, opened], stream)
sys.exit(code)
"""


@pytest.fixture
def root(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project of many trusted stages with nothing to do."""
    monkeypatch.setenv("ORCH23_ALLOW_UNSANDBOXED", "1")
    stages = "".join(
        f"  s{n}: {{shell: [cp, in/{n}, out/{n}], inputs: [in/{n}], outputs: [out/{n}]}}\n" for n in range(MANY)
    )
    text = f"version: 1\nname: many\ndefaults: {{sandbox: off}}\nstages:\n{stages}"
    project.write({"pipeline.yaml": text, **{f"in/{n}": f"{n}\n" for n in range(MANY)}})
    for _ in range(2):
        assert orch23(project.root, "build").returncode == 0
    return project.root


def test_an_edit_loads_calls_and_opens_at_most_so_much(root: Path) -> None:
    (root / "in/7").write_text("seven\n")
    done = orch23(root, "build", program=PROGRAM)
    assert (done.returncode, "1 built, 69 fresh" in done.stderr) == (0, True), done.stderr
    modules, classes, calls, opened = json.loads((root / "loaded.json").read_text())
    ours = [name for name in modules if name.partition(".")[0] == "orch23"]
    assert UNUSED.isdisjoint(modules)
    # No stage of this edit calls a model or has a check, and none is read from YAML.
    assert {name.split(".")[1] for name in ours if "." in name}.isdisjoint({"providers", "checks", "language", "load"})
    assert len(ours) <= MAX_MODULES, ours
    assert classes <= MAX_CLASSES
    assert sum(calls.values()) <= MAX_CALLS
    assert opened <= MAX_OPENED
    assert len(modules) - len(ours) <= MAX_LIBRARIES


def test_an_edit_of_inputs_reads_one_stage_of_the_pipeline(root: Path) -> None:
    text = (root / "pipeline.yaml").read_text()
    (root / "pipeline.yaml").write_text(text.replace("inputs: [in/7]", "inputs: [in/7, in/8]"))
    done = orch23(root, "build", program=PROGRAM)
    assert (done.returncode, "1 built, 69 fresh" in done.stderr) == (0, True), done.stderr
    _, _, calls, _ = json.loads((root / "loaded.json").read_text())
    assert sum(calls.values()) <= MAX_CALLS_OF_INPUTS


def test_an_edit_beside_a_folder_calls_no_function_for_each_of_its_files(project: Project) -> None:
    need("namespaces")
    files = {f"parts/p{n // 50}/f{n}.js": f"{n}\n" for n in range(1_200)}
    stages = "  app: {inputs: [main.js, parts/], outputs: [out.txt], shell: 'cat main.js > out.txt'}\n"
    project.write(shell(stages, {"main.js": "end\n", **files}))
    for _ in range(2):
        assert orch23(project.root, "build").returncode == 0
    project.write({"main.js": "last\n"})
    done = orch23(project.root, "build", program=PROGRAM)
    assert (done.returncode, "1 built" in done.stderr) == (0, True), done.stderr
    _, _, calls, _ = json.loads((project.root / "loaded.json").read_text())
    assert calls["Workspace.unchanged"] >= 2, "for the decision and at the end of the step"
    assert {name: number for name, number in calls.items() if number >= len(files) / 2} == {}
