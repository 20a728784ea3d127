"""Tell what went wrong in a build, once it is over: each stage with its place, its last failure and what to do next."""

from collections.abc import Sequence

from orch23.model.pipeline import Pipeline
from orch23.model.stage_status import StageStatus
from orch23.report.diagnostics import visible
from orch23.report.figures import count
from orch23.report.marks import Style
from orch23.report.stage_line import Ended, sign
from orch23.report.typed import pipeline_words
from orch23.resolve.commands import short_command

_HEAD_LINES = 6
_TAIL_LINES = 18
_MOST_NAMES = 8
_MOST_STAGES = 20


def failure_text(pipeline: Pipeline, ends: Sequence[Ended], kinds: dict[str, str], style: Style) -> str:
    """Return a block for each stage that failed or waits for a person, and one for each foreach that is held back.

    Of more than 20 stages the first 20 are shown; the others have the same cause more often than not.
    """
    blocks = []
    shown = [end for end in ends if end.status in (StageStatus.FAILED, StageStatus.EDITED)]
    for end in shown[:_MOST_STAGES]:
        if end.status is StageStatus.FAILED:
            blocks.append(_failed(pipeline, end, kinds.get(end.name.partition("@")[0], ""), style))
        else:
            blocks.append(_edited(pipeline, end, style))
    if len(shown) > _MOST_STAGES:
        others = count(len(shown) - _MOST_STAGES, "more stage")
        blocks.append(f"{others} that failed or wait for you are not shown; `orch23 log` lists all\n")
    blocks += _held(pipeline, ends, style)
    return "".join(f"\n{block}" for block in blocks)


def _heading(pipeline: Pipeline, end: Ended, style: Style) -> str:
    mark, tone = sign(end.status, style.marks)
    place = pipeline.locate("stages", end.name)
    where = f"  {visible(str(place))}" if place else ""
    return f"{style.paint(mark, tone)} {style.paint(visible(end.name), 'strong')}{where}\n"


def _failed(pipeline: Pipeline, end: Ended, kind: str, style: Style) -> str:
    lines = []
    command, attempts = end.data.command, end.data.attempts
    tried = f" (attempt {attempts})" if attempts > 1 else ""
    lines += [f"  $ {visible(short_command(command))}{tried}"] if command else []
    excerpt = end.data.failure.strip("\n")
    lines += [f"  | {line}" for line in _cut(visible(excerpt).split("\n"))] if excerpt else []
    why = end.message.partition("\n")[0]
    lines += [] if why in excerpt else [f"  {visible(why)}"]
    lines += _ways_out(end, excerpt)
    name = _named(pipeline, end)
    lines += _pinned(pipeline, end)
    if kind == "llm" and attempts:
        lines.append(f"  next: `orch23 show {name} --response`, `orch23 show {name} --prompt`")
    elif attempts:
        lines.append(f"  next: `orch23 show {name}` has all of its output")
    return _heading(pipeline, end, style) + "\n".join(lines) + "\n"


def _pinned(pipeline: Pipeline, end: Ended) -> list[str]:
    """Return that a failure rests on recorded answers alone, so that building again changes nothing, and what does."""
    recorded = end.data.recorded
    if not recorded or end.data.calls:
        return []
    answers = f"{count(recorded, 'answer')} {'is' if recorded == 1 else 'are'}"
    again = " ".join(["orch23 build", *pipeline_words(pipeline.file), "--resample", visible(end.name)])
    return [f"  nobody was asked: its {answers} recorded; `{again}` asks anew"]


def _ways_out(end: Ended, excerpt: str) -> list[str]:
    """Return the code and the hint of what is wrong, where it has a hint that the excerpt does not say already."""
    found: dict[str, str] = {}
    for one in end.data.problems:
        if one.hint and f"[{one.code}]" not in excerpt:
            found.setdefault(one.code, one.hint)
    return [f"  = {visible(f'{code}: {hint}')}" for code, hint in found.items()]


def _edited(pipeline: Pipeline, end: Ended, style: Style) -> str:
    name = _named(pipeline, end)
    give_up = " ".join(["orch23 build", *pipeline_words(pipeline.file), "--overwrite-edited"])
    lines = [
        f"  {visible(end.message)}",
        f"  next: `orch23 accept {name}` verifies the edit and keeps it; `{give_up}` gives it up",
    ]
    return _heading(pipeline, end, style) + "\n".join(lines) + "\n"


def _held(pipeline: Pipeline, ends: Sequence[Ended], style: Style) -> list[str]:
    """Return, for each promotion group that was held back, which of its stages wait, for which, and what to do."""
    named = {stage.name: stage.promote for stage in pipeline.stages if stage.promote is not None}
    groups: dict[str, list[Ended]] = {}
    for end in ends:
        if end.status is StageStatus.HELD:
            family = end.name.partition("@")[0]
            groups.setdefault(named.get(family) or family, []).append(end)
    mark, tone = sign(StageStatus.HELD, style.marks)
    build = " ".join(["orch23 build", *pipeline_words(pipeline.file)])
    blocks = []
    for family, members in groups.items():
        red = dict.fromkeys(name for end in members for name in end.data.by)
        name = style.paint(visible(family), "strong")
        lines = [
            f"{style.paint(mark, tone)} {name}  held back, since it is promoted together",
            f"  in the store, and not in the workspace: {_names([end.name for end in members])}",
            f"  next: mend {_names(list(red))}, then `{build}` promotes all of it; what waits is not made again",
        ]
        blocks.append("\n".join(lines) + "\n")
    return blocks


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return visible(" ".join(names[:_MOST_NAMES])) + more


def _named(pipeline: Pipeline, end: Ended) -> str:
    """Return a stage as a command line names it: after its pipeline, unless that is the one that needs no naming."""
    return " ".join([*pipeline_words(pipeline.file), visible(end.name)])


def _cut(lines: list[str]) -> list[str]:
    if len(lines) <= _HEAD_LINES + _TAIL_LINES + 1:
        return lines
    left_out = len(lines) - _HEAD_LINES - _TAIL_LINES
    return [*lines[:_HEAD_LINES], f"... {left_out} lines ...", *lines[-_TAIL_LINES:]]
