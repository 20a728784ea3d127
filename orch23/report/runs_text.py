"""Write the runs of a project, and the journal of one, for people."""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from orch23.model.event import Event
from orch23.report.diagnostics import visible
from orch23.report.figures import counts
from orch23.report.stage_line import text_of, texts_of

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
    role = "" if event.role == "orch23" else f"{visible(event.role)}: "
    warn = "" if event.level in ("debug", "info") else f"{event.level}: "
    text = visible(f"{event.message}{_facts(event)}").replace("\n", " ")
    text = text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."
    return f"{moment[_TIME]}  {event.type:<16}  {warn}{role}{text}\n"


def _facts(event: Event) -> str:
    data = event.data
    match event.type:
        case "stage_finished":
            return f" ({text_of(data, 'status')})" if event.message != text_of(data, "status") else ""
        case "stage_decided":
            reasons = data.get("reasons")
            codes = (
                [str(one.get("code")) for one in reasons if isinstance(one, Mapping)]
                if isinstance(reasons, list)
                else []
            )
            return f": {', '.join(codes)}" if codes else ""
        case "promoted" | "stage_restored" | "files_proposed":
            files = (*texts_of(data, "files"), *(f"-{path}" for path in texts_of(data, "removed")))
            return f": {' '.join(files)}" if files else ""
        case "llm_response":
            return f" ({data.get('input_tokens', 0)}+{data.get('output_tokens', 0)} tokens, {text_of(data, 'stop')})"
        case _:
            return ""
