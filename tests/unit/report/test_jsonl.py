"""The copy of the journal holds its very lines."""

from datetime import UTC, datetime
from pathlib import Path

from orch23.model.event import event_from
from orch23.report.fanout import Fanout
from orch23.report.jsonl import JournalCopy
from orch23.store.journal import Journal


def test_every_line_of_the_journal_is_copied_byte_for_byte(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "r1", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    written: list[str] = []
    both = Fanout(journal, JournalCopy(tmp_path, written.append))
    for event in (
        event_from("run_started", "go", data={"run_id": "r1"}),
        event_from("stage_started", "ä", role="a"),
        event_from("run_finished", "ok", data={"status": "ok"}),
    ):
        both.notice(event)
    journal.close()
    assert "".join(written) == journal.path.read_text()
    assert len(written) == 3


def test_nothing_is_copied_before_a_run_has_started(tmp_path: Path) -> None:
    written: list[str] = []
    JournalCopy(tmp_path, written.append).notice(event_from("warning", "early"))
    assert written == []
