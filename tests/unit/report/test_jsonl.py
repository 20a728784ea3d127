"""The copy of the journal has the same lines."""

from datetime import UTC, datetime
from pathlib import Path

from orch23.model.event import parse_event
from orch23.report.formats import Fanout
from orch23.report.jsonl import JournalCopy
from orch23.store.run_logs import Journal


def test_every_line_of_the_journal_is_copied_byte_for_byte(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "r1", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    written: list[str] = []
    both = Fanout(journal, JournalCopy(tmp_path, written.append))
    for event in (
        parse_event("run_started", "go", data={"run_id": "r1"}),
        parse_event("stage_started", "ä", role="a"),
        parse_event("run_finished", "ok", data={"status": "ok"}),
    ):
        both.notice(event)
    journal.close()
    assert "".join(written) == journal.path.read_text()
    assert len(written) == 3


def test_nothing_is_copied_before_a_run_has_started(tmp_path: Path) -> None:
    written: list[str] = []
    JournalCopy(tmp_path, written.append).notice(parse_event("warning", "early"))
    assert written == []
