"""`orch23 report`: which run it takes, where it writes, what it leaves out, and what it says when it cannot."""

import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project, scripted

pytestmark = pytest.mark.slow  # whole builds

STAGES: dict[str, dict[str, Any]] = {
    "say": {"inputs": ["spec.md"], "outputs": ["said.txt"], "llm": {"returns": "text"}},
    "copy": {"inputs": ["said.txt"], "outputs": ["copied.txt"], "shell": "cp said.txt copied.txt"},
}
SECRET = "s3cr3t-value-of-a-token"


@pytest.fixture
def built(project: Project) -> Project:
    files = {**scripted(STAGES, {"say": ["a response\n"]}), "spec.md": "first spec\n"}
    assert project.write(files).build().code == 0
    return project


def report(project: Project, *argv: str, env: dict[str, str] | None = None) -> str:
    outcome = project.run("report", *argv, "-o", "-", env=env)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out


def test_the_newest_run_is_the_default_and_a_beginning_is_enough(built: Project) -> None:
    first = built.journals()[0].stem
    built.edit("spec.md", "second spec\n")
    built.build()
    second = built.journals()[-1].stem
    newest, earlier = report(built), report(built, first)
    assert f"<dd>{second}</dd>" in newest
    assert f"<dd>{first}</dd>" in earlier
    # Only the second one has a run before it.
    assert f"{first} of the same pipeline" in newest
    assert "of the same pipeline" not in earlier
    assert report(built, second[:-3] if not first.startswith(second[:-3]) else second) == newest


def test_prompt_response_and_changes_are_shown(built: Project) -> None:
    html = report(built)
    assert "first spec" in html
    assert "a response" in html
    assert "+a response" in html
    assert 'id="stage-copy"' in html


def test_the_versions_are_those_of_the_run(built: Project) -> None:
    (began,) = built.events_of("run_started")
    system = os.uname()
    assert began["data"]["platform"] == f"{system.sysname} {system.release} {system.machine}"
    assert f"<dt>Python</dt><dd>{began['data']['python']}</dd>" in report(built)
    assert began["data"]["python"] == ".".join(map(str, sys.version_info[:3]))


def test_the_changes_of_an_earlier_run_are_compared_with_what_was_before_it(built: Project) -> None:
    built.replace("pipeline.answers.yaml", "a response", "another response")
    built.edit("spec.md", "second spec\n")
    built.build()
    first, second = (path.stem for path in built.journals())
    assert "-a response" in report(built, second)
    assert "another response" not in report(built, first)


def test_it_writes_report_html_and_makes_folders(built: Project) -> None:
    assert built.run("report").err == "wrote report.html\n"
    assert built.read("report.html").lstrip().startswith("<!doctype html>")
    assert built.run("report", "-o", "a/b.html").err == "wrote a/b.html\n"
    assert built.read("a/b.html") == built.read("report.html")


def test_it_changes_nothing_else(built: Project) -> None:
    def everything() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in built.root.rglob("*") if path.is_file()}

    before = everything()
    report(built)
    assert everything() == before


def test_the_page_replaces_a_file_as_a_whole(built: Project) -> None:
    place = built.root / "site"
    place.mkdir()
    (place / "old.html").write_text("old")
    os.link(place / "old.html", built.root / "kept.html")
    assert built.run("report", "-o", "site/old.html").code == 0
    # A reader that has the old file open keeps it, and nothing else is left in the folder.
    assert built.read("kept.html") == "old"
    assert [path.name for path in place.iterdir()] == ["old.html"]
    assert built.read("site/old.html").lstrip().startswith("<!doctype html>")


@pytest.mark.parametrize("name", ["report.html", "site/report.html"])
def test_the_page_is_not_written_through_a_link_that_a_clone_can_bring(
    built: Project, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "report.html").write_text("mine")
    path = built.root / name.partition("/")[0]
    path.symlink_to(outside / "report.html" if path.name == name else outside)
    refused = built.run("report", "-o", name)
    assert (refused.code, (outside / "report.html").read_text()) == (2, "mine")
    assert f"the path '{path.name}' leads through a link" in refused.err
    assert "name another path" in refused.err
    # The user may name the same file by its own path, also through links outside of the project.
    (tmp_path / "link").symlink_to(outside)
    assert built.run("report", "-o", str(tmp_path / "link/report.html")).code == 0
    assert (outside / "report.html").read_text().lstrip().startswith("<!doctype html>")


def test_the_page_is_not_written_through_a_link_above_the_project(built: Project, tmp_path: Path) -> None:
    """The project may be a folder of a repository: then the clone can bring what is beside it, too. So can others."""
    (built.root / "orch23.toml").write_text("")
    (tmp_path / "mine.html").write_text("mine")
    (built.root.parent / ".git").mkdir()
    (built.root.parent / "report.html").symlink_to(tmp_path / "mine.html")
    (tmp_path / "other/.git").mkdir(parents=True)
    (tmp_path / "other/report.html").symlink_to(tmp_path / "mine.html")
    for name in ("../report.html", str(built.root.parent / "report.html"), str(tmp_path / "other/report.html")):
        assert built.run("report", "-o", name).code == 2
    assert (tmp_path / "mine.html").read_text() == "mine"


def test_the_page_is_not_written_through_links_that_lead_to_each_other(built: Project, tmp_path: Path) -> None:
    for place in (built.root / "a", tmp_path / "a"):
        place.symlink_to("b")
        place.with_name("b").symlink_to("a")
        for name in (place, place / "report.html"):
            assert built.run("report", "-o", str(name)).code in (2, 64)


def test_the_page_waits_for_no_pipe(built: Project, tmp_path: Path) -> None:
    for place in (built.root / "pipe", tmp_path / "pipe"):
        os.mkfifo(place)
        refused = built.run("report", "-o", str(place))
        assert (refused.code, "cannot write" in refused.err) == (64, True)


def test_the_page_goes_to_a_device(built: Project) -> None:
    assert built.run("report", "-o", "/dev/null").code == 0
    assert not Path("/dev/null").is_file()


def test_wrong_runs_and_places(built: Project) -> None:
    wrong = built.run("report", "2000")
    assert wrong.code == 66
    assert "there is no run 2000" in wrong.err
    built.write({"folder/keep": ""})
    place = built.run("report", "-o", "folder")
    assert place.code == 64
    assert "cannot write folder: is not a regular file" in place.err


def test_a_project_without_runs(project: Project) -> None:
    project.write({"pipeline.yaml": "version: 1\n"})
    outcome = project.run("report")
    assert outcome.code == 66
    assert "there are no runs" in outcome.err
    assert not project.exists("report.html")


def test_a_damaged_journal_is_an_error_and_a_torn_end_is_not(built: Project) -> None:
    journal = built.journals()[-1]
    data = journal.read_bytes()
    journal.write_bytes(data[:-20])
    html = report(built)
    assert "not finished" in html  # the last line, which says how it ended, is not there
    journal.write_bytes(data.replace(b"first_run", b"forced_ru", 1))
    outcome = built.run("report")
    assert outcome.code != 0
    assert "E706" in outcome.err
    assert not built.exists("report.html")


def test_a_damaged_journal_before_it_is_left_out_of_the_comparison(built: Project) -> None:
    former = built.journals()[0]
    built.edit("spec.md", "second spec\n")
    built.build()
    former.write_bytes(former.read_bytes().replace(b"first_run", b"forced_ru", 1))
    assert "of the same pipeline" not in report(built)


def test_what_was_deleted_is_said(built: Project) -> None:
    run = built.journals()[-1].stem
    shutil.rmtree(built.root / "logs" / run)
    shutil.rmtree(built.root / ".orch23")
    html = report(built)
    assert f"Prompts and responses are not shown: logs/{run}/ was deleted." in html
    assert 'id="stage-copy"' in html


def test_a_store_from_elsewhere_is_not_read(built: Project, tmp_path: Path) -> None:
    html = report(built, env={"ORCH23_TRUST": "", "XDG_STATE_HOME": str(tmp_path / "of another user")})
    assert "Changed files are not shown: .orch23 was not created by you" in html
    assert "first spec" in html
    assert "+a response" not in html


def test_the_pipeline_is_not_needed(built: Project) -> None:
    html = report(built)
    built.edit("pipeline.yaml", "version: [broken\n")
    assert report(built) == html


def test_secrets_are_redacted_also_those_that_are_known_only_now(project: Project) -> None:
    answer = f"the token is {SECRET}\n"
    stages = {**STAGES, "fail": {"inputs": ["said.txt"], "shell": "cat said.txt; exit 3"}}
    project.write({**scripted(stages, {"say": [answer]}), "spec.md": "a spec\n"}).build()
    # In prompt, response and changed file, and in the excerpt of the failure, which is in the journal.
    assert report(project).count(SECRET) >= 4
    # To a file: stdout is redacted in any case.
    assert project.run("report", env={"MY_API_TOKEN": SECRET}).code == 0
    html = project.read("report.html")
    assert SECRET not in html
    assert "[redacted MY_API_TOKEN]" in html


def test_a_forged_name_in_a_journal_leads_nowhere(built: Project) -> None:
    from orch23.features.pages.writing import read_kept  # noqa: PLC0415 - loads what a build does not need

    run = built.journals()[-1].stem
    read = partial(read_kept, built.root, run)
    assert read("say", 1, "prompt.txt", 100) is not None
    built.write({"outside.txt": "outside"})
    (built.root / "logs" / run / "say/attempt-1/link.txt").symlink_to(built.root / "outside.txt")
    for name in ("../../../../outside.txt", "link.txt", ".", "", "/etc/hostname"):
        assert read("say", 1, name, 100) is None, name


def test_an_idle_run(built: Project) -> None:
    built.build()
    html = report(built)
    assert "2 stages: 2 fresh." in html
    assert "Nothing had to run." in html
