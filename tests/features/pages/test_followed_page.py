"""Following a journal: lines that are being written, lines that are damaged, and the next run."""

from pathlib import Path

from orch23.cli.console import Console
from orch23.features.pages.view.server import FollowedPage, facts_so_far
from orch23.model.event import Event, Planned, RunFinished, RunStarted
from tests.project import Project
from tests.run_journals import RUN, RunWriter, write_run


def unchanged(event: Event) -> Event:
    return event


NEXT = "20261126T130000Z-00000002"


def test_it_reads_what_was_added(project: Project) -> None:
    writer = RunWriter(logs=project.root / "logs")
    writer.write(RunStarted(name="p"))
    console = Console(here=project.root)
    with console.resources:
        followed = FollowedPage(console, project.root, None)
        first = followed.poll()
        assert 'id="stage-' not in followed.render()[0]
        assert followed.poll() == first
        writer.write(Planned(stages={"a": "shell"}))
        assert followed.poll() != first
        assert 'id="stage-a"' in followed.render()[0]


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    write_run(tmp_path, 1)
    journal = tmp_path / f"{RUN}.jsonl"
    data = journal.read_bytes()
    for size in (0, 10, len(data) // 2, len(data) - 1):
        journal.write_bytes(data[:size])
        assert facts_so_far(journal, unchanged).ended is None
    journal.write_bytes(data)
    facts = facts_so_far(journal, unchanged)
    assert isinstance(facts.ended, RunFinished)
    assert facts.cost.calls == 2


def test_a_damaged_line_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, 2)
    journal = tmp_path / f"{RUN}.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"name":"many"', b'"name":"maan"'))
    facts = facts_so_far(journal, unchanged)
    assert facts.began.name == ""
    assert facts.status == "ok"


def test_the_newest_run_takes_over_only_if_no_run_was_named(project: Project) -> None:
    logs = project.root / "logs"
    write_run(logs, 1)
    console = Console(here=project.root)

    def rows(page: FollowedPage) -> int:
        return page.render()[0].count('<tbody id="stage-')

    with console.resources:
        newest, named = FollowedPage(console, project.root, None), FollowedPage(console, project.root, RUN)
        assert (rows(newest), rows(named)) == (1, 1)
        version = named.poll()
        write_run(logs, 3, run=NEXT)
        assert named.poll() == version
        assert (rows(newest), rows(named)) == (3, 1)
        (logs / f"{RUN}.jsonl").unlink()
        assert named.poll() == version
        assert rows(named) == 1
