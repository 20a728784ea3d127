"""A build after an edit loads few modules and classes, in a project with a dependency index."""

import json
from pathlib import Path

import pytest

from tests.e2e.test_nothing_to_do import AHEAD, orch23
from tests.project import Project

pytestmark = pytest.mark.slow

MANY = 70
MAX_MODULES = 141
MAX_CLASSES = 389
MAX_LIBRARIES = 150  # 136 with Python 3.11
"""Modules and classes of orch23, and other modules. Loading them takes most of the time of an edit."""
PROGRAM = f"""
{AHEAD}
import gc, json, sys
from orch23.entry import main
code = main(sys.argv[1:])
classes = sum(isinstance(one, type) and str(one.__module__).startswith("orch23.") for one in gc.get_objects())
with open("loaded.json", "w") as stream:
    json.dump([sorted(sys.modules), classes], stream)
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


def test_an_edit_loads_at_most_so_many_modules_and_classes(root: Path) -> None:
    (root / "in/7").write_text("seven\n")
    done = orch23(root, "build", program=PROGRAM)
    assert (done.returncode, "1 built, 69 fresh" in done.stderr) == (0, True), done.stderr
    modules, classes = json.loads((root / "loaded.json").read_text())
    ours = [name for name in modules if name.partition(".")[0] == "orch23"]
    libraries = {name.partition(".")[0] for name in modules} - {"orch23"}
    assert libraries.isdisjoint({"click", "jinja2", "networkx", "yaml"})
    # No stage of this edit calls a model or has a check, and none is read from YAML.
    assert {name.split(".")[1] for name in ours if "." in name}.isdisjoint({"providers", "checks", "language", "load"})
    assert len(ours) <= MAX_MODULES, ours
    assert classes <= MAX_CLASSES
    assert len(modules) - len(ours) <= MAX_LIBRARIES
