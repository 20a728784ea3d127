"""`gc` removes old runs, after it has listed them; what `show`, `runs`, `log` and the next build need stays."""

import json
import os
from pathlib import Path

import pytest

from tests.project import Project

PIPELINE = """\
version: 1
stages:
  once: {inputs: [k], outputs: [p], shell: cp k p}
  often: {inputs: [i], outputs: [o], shell: "cp i o; ! grep -q bad i"}
"""


def runs(project: Project) -> list[str]:
    return [run["run"] for run in project.run("runs", "--json").json()["runs"]]


@pytest.fixture
def grown(project: Project) -> Project:
    """Build five times: `once` runs in the first build only, and `often` fails in the third."""
    project.write(
        {"pipeline.yaml": PIPELINE, "k": "k\n", "other.yaml": PIPELINE.replace("[o]", "[o2]").replace("[p]", "[p2]")}
    )
    for text in ("1", "2", "bad", "4", "5"):
        project.write({"i": f"{text}\n"})
        project.build()
    return project


@pytest.mark.slow
def test_old_runs_go_after_they_are_listed_and_those_of_the_last_results_stay(grown: Project) -> None:
    before = runs(grown)
    dry = grown.run("gc", "--keep", "2runs", "--dry-run")
    gone = before[2:4]
    lines = dry.out.splitlines()
    assert lines[:2] == [f"would remove logs/{run}: a run of pipeline.yaml" for run in gone]
    assert lines[2].startswith("would remove 2 runs: ")
    assert runs(grown) == before
    done = grown.run("gc", "--keep", "2runs")
    assert done.out.splitlines()[:2] == [f"removing logs/{run}: a run of pipeline.yaml" for run in gone]
    assert runs(grown) == [*before[:2], before[4]]
    assert not any(grown.exists(f"logs/{run}") for run in gone)
    assert "$ cp k p" in grown.run("show", "once").out
    assert "built in" in grown.run("show", "often").out
    assert grown.run("log").code == 0
    assert grown.run("gc", "--keep", "2runs").out.startswith("nothing to remove")


@pytest.mark.slow
def test_the_last_run_of_each_pipeline_stays_and_an_age_counts(grown: Project) -> None:
    grown.run("build", "other.yaml")
    assert len(runs(grown)) == 6
    assert "run" not in grown.run("gc", "--keep", "1d").out
    for path in (grown.root / "logs").glob("*.jsonl"):
        os.utime(path, (1, 1))
    found = grown.run("gc", "--keep", "1d", "--json").json()
    assert (len(found["runs"]), found["freed_run_bytes"] > 0) == (3, True)
    assert len(runs(grown)) == 3


@pytest.mark.slow
def test_a_run_that_the_next_build_continues_stays(grown: Project) -> None:
    for run in runs(grown)[:4]:
        path = grown.root / "logs" / f"{run}.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(line for line in lines if b'"run_finished"' not in line))
    assert grown.run("gc", "--keep", "0runs", "--json").json()["runs"] == []


@pytest.mark.slow
def test_the_newest_fifty_runs_of_a_pipeline_stay_without_an_option(grown: Project) -> None:
    last = (grown.root / "logs" / f"{runs(grown)[0]}.jsonl").read_bytes()
    for number in range(60):
        (grown.root / f"logs/20200101T0000{number:02d}Z-abcdef01.jsonl").write_bytes(last)
    assert len(json.loads(grown.run("gc", "--json").out)["runs"]) == 15
    assert len(runs(grown)) == 50


@pytest.mark.slow
def test_a_link_in_place_of_a_run_is_removed_and_not_followed(project: Project, tmp_path: Path) -> None:
    project.write({"pipeline.yaml": PIPELINE, "k": "k\n", "i": "1\n"})
    assert project.build().code == 0
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "mine.txt").write_text("mine\n")
    journal = next((project.root / "logs").glob("*.jsonl")).read_bytes()
    (project.root / "logs/20200101T000000Z-abcdef01.jsonl").write_bytes(journal)
    (project.root / "logs/20200101T000000Z-abcdef01").symlink_to(kept)
    assert project.run("gc", "--keep", "0runs").out.startswith("removing logs/20200101T000000Z-abcdef01")
    assert not os.path.lexists(project.root / "logs/20200101T000000Z-abcdef01")
    assert (kept / "mine.txt").read_text() == "mine\n"


@pytest.mark.slow
def test_the_last_run_of_a_pipeline_that_is_gone_stays(grown: Project) -> None:
    grown.run("build", "other.yaml")
    journal = (grown.root / "logs" / f"{runs(grown)[0]}.jsonl").read_bytes()
    newest = "20990101T000000Z-abcdef01"
    # It did nothing, so no stage needs it.
    (grown.root / "logs" / f"{newest}.jsonl").write_bytes(journal.splitlines(keepends=True)[0])
    grown.delete("other.yaml")
    grown.run("gc", "--keep", "0runs")
    assert newest in runs(grown)
