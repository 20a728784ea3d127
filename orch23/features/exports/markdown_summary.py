"""Write a build as Markdown: the summary of a job of GitHub Actions."""

import html
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

from orch23.features.exports.document_sink import document
from orch23.model.event import FinishedStage
from orch23.model.run_facts import EndedRun
from orch23.model.text import format_duration, parse_amount, visible
from orch23.report.diagnostics import markdown_text
from orch23.report.stage_text import command_line, never_ran, not_run_lines
from orch23.report.values import LINE_WIDTH, format_counts, money_text, pluralize, truncate

_MOST_ROWS: Final = 200
_MOST_FAILURES: Final = 20
_MAX_EXCERPT: Final = 8_000


def _parts(name: str, ended_run: EndedRun) -> Iterator[str]:
    """Yield a run as Markdown. Stages that were fresh are only counted."""
    run = ended_run.ended
    counts = format_counts(run.stages)
    cost, possible = parse_amount(run.cost), parse_amount(run.possible_cost) or Decimal(0)
    facts = [
        f"{pluralize(sum(run.stages.values()), 'stage')}: {counts}",
        format_duration(ended_run.duration_s),
    ]
    facts += [f"{pluralize(run.calls, 'call')}, {run.tokens:,} tokens"] if run.calls else []
    facts += [money_text(cost or Decimal(0), possible)] if cost or possible else []
    yield f"### {markdown_text(name)}: {markdown_text(run.status)}\n\n{markdown_text(' · '.join(facts))}\n\n"
    ended = sorted(ended_run.stages, key=lambda end: not end.status.is_failure)
    worked = [end for end in ended if not end.status.is_idle and not never_ran(end)]
    yield from _table(worked[:_MOST_ROWS])
    if len(worked) > _MOST_ROWS:
        yield f"\n{len(worked) - _MOST_ROWS:,} more stages are not listed.\n"
    for line in not_run_lines(ended, LINE_WIDTH):
        yield f"\n{markdown_text(line)}\n"
    failed = [end for end in worked if end.status.is_failure]
    for end in failed[:_MOST_FAILURES]:
        yield _failure(end)
    yield f"\nRun {markdown_text(ended_run.run_id)}\n\n"


def _table(ends: Sequence[FinishedStage]) -> Iterator[str]:
    if ends:
        yield "| stage | result | time | attempts | calls | tokens | cost | |\n|---|---|--:|--:|--:|--:|--:|---|\n"
    for end in ends:
        data = end.data
        cost = parse_amount(data.cost)
        calls = data.calls + data.recorded
        cells = [
            end.name,
            end.status.value,
            format_duration(data.duration_s) if data.duration_s else "",
            str(data.attempts or ""),
            str(calls or ""),
            f"{data.input_tokens:,}+{data.output_tokens:,}" if data.input_tokens or data.output_tokens else "",
            money_text(cost, Decimal(0)) if cost else "",
            "" if end.status.has_result else end.message.partition("\n")[0],
        ]
        yield f"| {' | '.join(map(markdown_text, cells))} |\n"


def _failure(end: FinishedStage) -> str:
    text = "\n".join(filter(None, (command_line(end.data), end.data.failure.strip())))
    if not text:
        return ""
    # An empty line would end the block of HTML, and what follows would be Markdown.
    excerpt = html.escape(visible(truncate(text, _MAX_EXCERPT))).replace("\n", "&#10;")
    return f"\n<details><summary>{markdown_text(end.name)}</summary><pre>{excerpt}</pre></details>\n"


summary_document = document(lambda name, run: "".join(_parts(name, run)))
