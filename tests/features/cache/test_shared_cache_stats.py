"""`cache stats` shows what runs did with a shared cache, from their journals alone."""

import re
import shutil
from datetime import UTC
from pathlib import Path

import pytest

from orch23.model.event import SharedCacheUsed
from orch23.report.shared_cache import shared_cache_text
from tests.e2e.pipelines import green, pipeline, prompt
from tests.project import Project

STAGES = """
  a: {inputs: [spec.md], outputs: [a.txt], llm: {prompt: a.j2, returns: text}}
  b: {inputs: [a.txt], outputs: [b.txt], llm: {prompt: b.j2, returns: text}}
"""
FILES = {
    "spec.md": "the spec",
    "a.j2": prompt("a", "{{ inputs[0].text }}"),
    "b.j2": prompt("b", "{{ inputs[0].text }}"),
}
USED = SharedCacheUsed(
    restored=12, missing=3, stored=2, refused=1, down_bytes=3_100_000, up_bytes=40_500, waited_s=0.4, saved_s=250.1,
    saved="1.24",
)  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with three runs: two that used a cache, which is gone, and one that did not."""
    other, project = (Project(tmp_path / name) for name in ("one", "two"))
    for each in (other, project):
        each.write(pipeline(STAGES, FILES, head="cache: {platform: any}\n"))
        green(each.build("--cache", str(tmp_path / "shared")))
    project.edit("spec.md", "another spec")
    green(project.build("--cache", str(tmp_path / "shared")))
    shutil.rmtree(tmp_path / "shared")
    return project


def runs_of(project: Project) -> list[str]:
    return [one["run"] for one in project.run("runs", "--json").json()["runs"]]


@pytest.mark.slow
def test_the_use_of_the_newest_run_a_run_and_all_runs(project: Project) -> None:
    new, old = runs_of(project)
    shown = project.run("cache", "stats")
    assert re.search(rf"total  .*\nshared cache: {new}  .*  pipeline.yaml  2 not found, 2 stored \(.*\)", shown.out)
    restored = project.run("cache", "stats", old)
    assert re.fullmatch(rf"{old}  .*  pipeline.yaml  2 restored \(.*B\).*\n", restored.out)
    every = project.run("cache", "stats", "--all").out.splitlines()
    assert [line.split()[0] for line in every] == [new, old, "total"]
    assert "2 restored" in every[2]
    assert "2 stored" in every[2]
    document = project.run("cache", "stats", "--all", "--json").json()
    (used,) = project.events_of("shared_cache", run=old)
    assert document["shared_cache"]["runs"][1].items() >= {"run": old, **used["data"]}.items()
    assert document["shared_cache"]["total"]["restored"] == 2
    assert set(document) == {"orch23_cache_stats", "shared_cache"}
    assert project.run("cache", "stats", "--json").json().keys() >= {"kinds", "shared_cache"}


@pytest.mark.slow
def test_runs_without_a_shared_cache_have_none(project: Project) -> None:
    project.edit("spec.md", "a third spec")
    green(project.build())
    newest = runs_of(project)[0]
    assert "shared cache" not in project.run("cache", "stats").out
    assert project.run("cache", "stats", newest).out == "this run used no shared cache\n"
    assert project.run("cache", "stats", newest, "--json").json()["shared_cache"]["runs"] == []
    assert len(project.run("cache", "stats", "--all").out.splitlines()) == 3


@pytest.mark.needs("upkeep")
def test_a_project_without_runs_has_none(tmp_path: Path) -> None:
    project = Project(tmp_path).write({"pipeline.yaml": "version: 1\n"})
    assert "shared cache" not in project.run("cache", "stats").out
    assert project.run("cache", "stats", "--all").out == "no run used a shared cache\n"
    assert project.run("cache", "stats", "2026").code == 66
    assert project.run("cache", "stats", "2026", "--all").code == 64
    assert not project.exists(".orch23")


@pytest.mark.needs("upkeep")
def test_counts_are_words_and_their_total_is_exact() -> None:
    from orch23.features.upkeep.store import SharedCacheRun, shared_cache_rows, total_use  # noqa: PLC0415

    text = "12 restored (3.1 MB), 3 not found, 2 stored (40.5 kB), saved 4m 10s and $1.24"
    assert shared_cache_text(USED) == text
    assert shared_cache_text(SharedCacheUsed(not_stored=2, saved="x"), "a, b") == "2 not stored (a, b)"
    total = total_use((USED, USED, SharedCacheUsed(saved="0.10", saved_s=0.1, waited_s=0.2)))
    assert (total.restored, total.waited_s, total.saved_s, total.saved) == (24, 1.0, 500.3, "2.58")
    assert total_use(()) == SharedCacheUsed()
    run = SharedCacheRun("r1", "p.yaml", "2026-11-28T12:00:00.000Z", USED)
    one, two, sums = shared_cache_rows([run, run], zone=UTC).splitlines()
    row = text.replace(", saved", ", 1 not stored because of secrets, waited 0.4s, saved")
    assert one == two == f"r1               2026-11-28 12:00  p.yaml  {row}"
    assert sums.startswith("total of 2 runs                            24 restored (6.2 MB)")


@pytest.mark.needs("pages")
@pytest.mark.slow
def test_the_page_of_a_run_shows_its_use_and_which_stages_were_restored(project: Project) -> None:
    new, old = runs_of(project)
    page = project.run("report", old, "-o", "-").out
    assert re.search(r"<dt>Shared cache</dt><dd>2 restored \(\d.*B\)", page)
    assert page.count(">from the shared cache") == 2
    page = project.run("report", new, "-o", "-").out
    assert re.search(r"<dt>Shared cache</dt><dd>2 not found<small>2 stored \(.*B\)", page)
    assert "from the shared cache" not in page
    project.edit("spec.md", "a third spec")
    green(project.build())
    assert "hared cache" not in project.run("report", "-o", "-").out
