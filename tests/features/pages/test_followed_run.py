"""Following a journal: lines that are being written, lines that are damaged, and the next run."""

from pathlib import Path

from orch23.features.pages.view.followed_run import FollowedRun
from orch23.model.event import Event, Planned, RunFinished, RunStarted
from tests.run_journals import RUN, RunWriter, write_run


def unchanged(event: Event) -> Event:
    return event


NEXT = "20261126T130000Z-00000002"


def test_it_reads_what_was_added(tmp_path: Path) -> None:
    writer = RunWriter(logs=tmp_path)
    writer.write(RunStarted(name="p"))
    followed = FollowedRun(tmp_path, None, RUN, unchanged)
    first = followed.poll()
    assert followed.facts.began.name == "p"
    assert followed.poll() == first
    writer.write(Planned(stages={"a": "shell"}))
    assert followed.poll() > first
    assert [*followed.facts.stages] == ["a"]


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    write_run(tmp_path, 1)
    journal = tmp_path / f"{RUN}.jsonl"
    data = journal.read_bytes()
    for size in (0, 10, len(data) // 2, len(data) - 1):
        journal.write_bytes(data[:size])
        followed = FollowedRun(tmp_path, RUN, RUN, unchanged)
        followed.poll()
        assert followed.facts.ended is None
        journal.write_bytes(data)
        followed.poll()
        assert isinstance(followed.facts.ended, RunFinished), size
        assert followed.facts.cost.calls == 2


def test_a_damaged_line_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, 2)
    journal = tmp_path / f"{RUN}.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"name":"many"', b'"name":"maan"'))
    followed = FollowedRun(tmp_path, RUN, RUN, unchanged)
    followed.poll()
    assert followed.facts.began.name == ""
    assert followed.facts.status == "ok"


def test_the_newest_run_takes_over_only_if_no_run_was_named(tmp_path: Path) -> None:
    write_run(tmp_path, 1)
    newest, named = FollowedRun(tmp_path, None, RUN, unchanged), FollowedRun(tmp_path, RUN, RUN, unchanged)
    newest.poll()
    version = named.poll()
    write_run(tmp_path, 3, run=NEXT)
    newest.poll()
    assert named.poll() == version
    assert (newest.facts.run_id, len(newest.facts.stages)) == (NEXT, 3)
    assert (named.facts.run_id, len(named.facts.stages)) == (RUN, 1)
    (tmp_path / f"{RUN}.jsonl").unlink()
    assert named.poll() == version
