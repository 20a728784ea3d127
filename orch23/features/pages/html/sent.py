"""What left this machine: the files of all requests, by the provider that received them."""

from orch23.features.pages.html.page import SentRow, SentView
from orch23.model.event_data import SentFile
from orch23.model.run_facts import RunFacts
from orch23.model.text import join_first
from orch23.report.values import pluralize

_MAX_ROWS = 300
_MAX_STAGES = 4


def sent_by_receiver(run: RunFacts) -> tuple[SentView, ...]:
    """Return the files of all requests that were sent, by provider and endpoint; recorded responses need none."""
    found: dict[str, dict[tuple[str, str], list[tuple[str, SentFile]]]] = {}
    for stage in run.stages.values():
        for call in (one for attempt in stage.attempts.values() for one in attempt.calls):
            request = call.request
            for receiver in dict.fromkeys(call.receivers):
                is_first = receiver == request.provider and request.endpoint not in ("", receiver)
                files = found.setdefault(f"{receiver} at {request.endpoint}" if is_first else receiver, {})
                for file in request.files:
                    files.setdefault((file.path, file.slice), []).append((stage.name, file))
    return tuple(_view(receiver, files) for receiver, files in found.items())


def _view(receiver: str, files: dict[tuple[str, str], list[tuple[str, SentFile]]]) -> SentView:
    rows = [
        SentRow(
            place=f"{path}#{part}" if part else path,
            bytes=f"{max(file.bytes for _, file in uses):,}",
            requests=len(uses),
            stages=join_first([*dict.fromkeys(name for name, _ in uses)], _MAX_STAGES),
        )
        for (path, part), uses in sorted(files.items())
    ]
    more = len(rows) - _MAX_ROWS
    note = f"{pluralize(more, 'more file')}: `orch23 log --json` lists all." if more > 0 else ""
    return SentView(receiver, tuple(rows[:_MAX_ROWS]), note)
