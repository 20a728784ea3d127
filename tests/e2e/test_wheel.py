"""What is installed elsewhere holds all that it needs: the wheel, built and used from where it lies."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.run_journals import write_run

pytestmark = [pytest.mark.slow, pytest.mark.needs("templates")]

ROOT = Path(__file__).parents[2]
RUN = "from orch23.entry import run; run()"


@pytest.mark.needs("pages")
def test_the_wheel_brings_the_templates_and_they_start_a_project(tmp_path: Path) -> None:
    from orch23.features.templates.rendering import builtin_templates  # noqa: PLC0415 - of the feature

    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    assert {f"orch23/features/templates/{name}.bundle" for name in builtin_templates()} | {
        "orch23/features/templates/catalogue.json"
    } <= names
    assert {f"orch23/features/pages/html/{name}" for name in ("page.html.j2", "page.css", "live.js")} <= names
    assert not [name for name in names if name.startswith(("orch23/features/templates/pipelines", "scripts", "tests"))]
    project = tmp_path / "project"
    project.mkdir()
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "installed"), "HOME": str(tmp_path / "home")}
    begin = [sys.executable, "-P", "-c", RUN, "init", "quickstart", "--defaults"]
    done = subprocess.run(begin, cwd=project, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (project / "pipelines/quickstart.yaml").is_file()
    write_run(project / "logs", 2)
    report = [sys.executable, "-P", "-c", RUN, "report"]
    done = subprocess.run(report, cwd=project, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "<style>:root" in (project / "report.html").read_text()
