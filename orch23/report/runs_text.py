"""Write the runs of a project, and the journal of one, for people."""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from orch23.model.event import (
    ORCH23,
    Event,
    FilesPromoted,
    FilesProposed,
    LlmResponse,
    StageDecided,
    StageFinished,
    StageRestored,
)
from orch23.report.diagnostics import visible
from orch23.report.figures import counts

_TIME = slice(11, 23)
_MOST_TEXT = 160


class RunLine(Struct, frozen=True, kw_only=True):
    """One run at a glance."""

    run_id: str
    status: str
    pipeline: str = ""
    started: str = ""
    finished: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


def runs_text(runs: Iterable[RunLine]) -> str:
    """Return one line a run."""
    rows = [(*map(visible, (one.run_id, one.status, one.pipeline)), counts(one.counts)) for one in runs]
    if not rows:
        return "there are no runs\n"
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = []
    for row in rows:
        shown = [f"{text:<{width}}" for text, width in zip(row, [*widths, 0], strict=True)]
        lines.append("  ".join(shown).rstrip() + "\n")
    return "".join(lines)


def log_line(moment: str, event: Event) -> str:
    """Return one line of a journal: time, who, what, and the facts that matter."""
    role = "" if event.role == ORCH23 else f"{visible(event.role)}: "
    warn = "" if event.level in ("debug", "info") else f"{event.level}: "
    text = visible(f"{event.message}{_facts(event)}").replace("\n", " ")
    text = text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."
    return f"{moment[_TIME]}  {event.type:<16}  {warn}{role}{text}\n"


def _facts(event: Event) -> str:
    match event.data:
        case StageFinished(status=status):
            return f" ({status})" if event.message != status else ""
        case StageDecided(reasons=reasons):
            return f": {', '.join(one.code for one in reasons)}" if reasons else ""
        case FilesPromoted(files=files, removed=removed) | StageRestored(files=files, removed=removed):
            return _paths((*files, *(f"-{path}" for path in removed)))
        case FilesProposed(files=files):
            return _paths(files)
        case LlmResponse(input_tokens=input_tokens, output_tokens=output_tokens, stop=stop):
            return f" ({input_tokens}+{output_tokens} tokens, {stop})"
        case _:
            return ""


def _paths(paths: tuple[str, ...]) -> str:
    return f": {' '.join(paths)}" if paths else ""
