"""Tell what went wrong in a build, once it is over: each stage with its place, its last failure and what to do next."""

from collections.abc import Mapping, Sequence

from orch23.model.event import Event
from orch23.model.pipeline import Pipeline
from orch23.report.diagnostics import visible
from orch23.report.figures import count
from orch23.report.marks import Style
from orch23.report.stage_line import number_of, sign, text_of, texts_of
from orch23.report.typed import pipeline_words
from orch23.resolve.commands import short_command

_HEAD_LINES = 6
_TAIL_LINES = 18
_MOST_NAMES = 8
_MOST_STAGES = 20


def failure_text(pipeline: Pipeline, ends: Sequence[Event], kinds: dict[str, str], style: Style) -> str:
    """Return a block for each stage that failed or waits for a person, and one for each foreach that is held back.

    Of more than 20 stages the first 20 are shown; the others have the same cause more often than not.
    """
    blocks = []
    shown = [event for event in ends if text_of(event.data, "status") in {"failed", "edited"}]
    for event in shown[:_MOST_STAGES]:
        status = text_of(event.data, "status")
        if status == "failed":
            blocks.append(_failed(pipeline, event, kinds.get(event.role.partition("@")[0], ""), style))
        elif status == "edited":
            blocks.append(_edited(pipeline, event, style))
    if len(shown) > _MOST_STAGES:
        others = count(len(shown) - _MOST_STAGES, "more stage")
        blocks.append(f"{others} that failed or wait for you are not shown; `orch23 log` lists all\n")
    blocks += _held(pipeline, ends, style)
    return "".join(f"\n{block}" for block in blocks)


def _heading(pipeline: Pipeline, event: Event, style: Style) -> str:
    mark, tone = sign(text_of(event.data, "status"), style.marks)
    place = pipeline.locate("stages", event.role)
    where = f"  {visible(str(place))}" if place else ""
    return f"{style.paint(mark, tone)} {style.paint(visible(event.role), 'strong')}{where}\n"


def _failed(pipeline: Pipeline, event: Event, kind: str, style: Style) -> str:
    data = event.data
    lines = []
    command = text_of(data, "command")
    attempts = int(number_of(data, "attempts"))
    tried = f" (attempt {attempts})" if attempts > 1 else ""
    lines += [f"  $ {visible(short_command(command))}{tried}"] if command else []
    excerpt = text_of(data, "failure").strip("\n")
    lines += [f"  | {line}" for line in _cut(visible(excerpt).split("\n"))] if excerpt else []
    why = event.message.partition("\n")[0]
    lines += [] if why in excerpt else [f"  {visible(why)}"]
    lines += _ways_out(event, excerpt)
    name = _named(pipeline, event)
    lines += _pinned(pipeline, event)
    if kind == "llm" and attempts:
        lines.append(f"  next: `orch23 show {name} --response`, `orch23 show {name} --prompt`")
    elif attempts:
        lines.append(f"  next: `orch23 show {name}` has all of its output")
    return _heading(pipeline, event, style) + "\n".join(lines) + "\n"


def _pinned(pipeline: Pipeline, event: Event) -> list[str]:
    """Return that a failure rests on recorded answers alone, so that building again changes nothing, and what does."""
    recorded = int(number_of(event.data, "recorded"))
    if not recorded or number_of(event.data, "calls"):
        return []
    answers = f"{count(recorded, 'answer')} {'is' if recorded == 1 else 'are'}"
    again = " ".join(["orch23 build", *pipeline_words(pipeline.file), "--resample", visible(event.role)])
    return [f"  nobody was asked: its {answers} recorded; `{again}` asks anew"]


def _ways_out(event: Event, excerpt: str) -> list[str]:
    """Return the code and the hint of what is wrong, where it has a hint that the excerpt does not say already."""
    problems = event.data.get("problems")
    found: dict[str, str] = {}
    for one in problems if isinstance(problems, Sequence) else ():
        hint = text_of(one, "hint") if isinstance(one, Mapping) else ""
        if isinstance(one, Mapping) and hint and f"[{text_of(one, 'code')}]" not in excerpt:
            found.setdefault(text_of(one, "code"), hint)
    return [f"  = {visible(f'{code}: {hint}')}" for code, hint in found.items()]


def _edited(pipeline: Pipeline, event: Event, style: Style) -> str:
    name = _named(pipeline, event)
    give_up = " ".join(["orch23 build", *pipeline_words(pipeline.file), "--overwrite-edited"])
    lines = [
        f"  {visible(event.message)}",
        f"  next: `orch23 accept {name}` verifies the edit and keeps it; `{give_up}` gives it up",
    ]
    return _heading(pipeline, event, style) + "\n".join(lines) + "\n"


def _held(pipeline: Pipeline, ends: Sequence[Event], style: Style) -> list[str]:
    """Return, for each promotion group that was held back, which of its stages wait, for which, and what to do."""
    named = {stage.name: stage.promote for stage in pipeline.stages if stage.promote is not None}
    groups: dict[str, list[Event]] = {}
    for event in ends:
        if text_of(event.data, "status") == "held":
            family = event.role.partition("@")[0]
            groups.setdefault(named.get(family) or family, []).append(event)
    mark, tone = sign("held", style.marks)
    build = " ".join(["orch23 build", *pipeline_words(pipeline.file)])
    blocks = []
    for family, events in groups.items():
        red = dict.fromkeys(name for event in events for name in texts_of(event.data, "by"))
        name = style.paint(visible(family), "strong")
        lines = [
            f"{style.paint(mark, tone)} {name}  held back, since it is promoted together",
            f"  in the store, and not in the workspace: {_names([event.role for event in events])}",
            f"  next: mend {_names(list(red))}, then `{build}` promotes all of it; what waits is not made again",
        ]
        blocks.append("\n".join(lines) + "\n")
    return blocks


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return visible(" ".join(names[:_MOST_NAMES])) + more


def _named(pipeline: Pipeline, event: Event) -> str:
    """Return a stage as a command line names it: after its pipeline, unless that is the one that needs no naming."""
    return " ".join([*pipeline_words(pipeline.file), visible(event.role)])


def _cut(lines: list[str]) -> list[str]:
    if len(lines) <= _HEAD_LINES + _TAIL_LINES + 1:
        return lines
    left_out = len(lines) - _HEAD_LINES - _TAIL_LINES
    return [*lines[:_HEAD_LINES], f"... {left_out} lines ...", *lines[-_TAIL_LINES:]]
