"""The copy of the journal holds its very lines."""

from datetime import UTC, datetime
from pathlib import Path

from orch23.model.event import Event
from orch23.report.fanout import Fanout
from orch23.report.jsonl import JournalCopy
from orch23.store.journal import Journal


def test_every_line_of_the_journal_is_copied_byte_for_byte(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "r1", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    written: list[str] = []
    both = Fanout(journal, JournalCopy(tmp_path, written.append))
    for event in (
        Event("run_started", "go", data={"run_id": "r1"}),
        Event("stage_started", "ä", role="a"),
        Event("run_finished", "ok"),
    ):
        both.notice(event)
    journal.close()
    assert "".join(written) == journal.path.read_text()
    assert len(written) == 3


def test_nothing_is_copied_before_a_run_has_started(tmp_path: Path) -> None:
    written: list[str] = []
    JournalCopy(tmp_path, written.append).notice(Event("warning", "early"))
    assert written == []
