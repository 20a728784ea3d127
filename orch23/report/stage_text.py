"""Describe how a stage ended: one line, and a block with the failure and the next step."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial

from msgspec import UNSET

from orch23.model.diagnostic import Diagnostic, Related
from orch23.model.event import FROM_SHARED_CACHE, FinishedStage, StageFinished
from orch23.model.event_data import EventProblem, StageStatus
from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import Pipeline, Stage
from orch23.model.text import format_duration, join_first, parse_amount, shorten_command, visible, visible_line
from orch23.report.formats import ReadSource
from orch23.report.values import Marks, Style, Tone, list_within, money_text, pluralize, truncate
from orch23.resolve.commands import typed_command

_KIND_WIDTH = 8
_MAX_PATHS = 3
_MAX_FACT = 100
_HEAD_LINES = 6
_TAIL_LINES = 18
_MAX_STAGES = 20
_COMMAND_LINES = 10
_OF_A_RUN = (StageStatus.BUILT, StageStatus.FAILED)
_MAX_REASON = 200
# A likely cause says more than the hints of these: a program is missing, tests cannot be collected.
_EXPLAINED = frozenset({"E309", "E325"})
# The way on that a red check of a promotion group names.
_RESAMPLE = lazy_pattern(r"`--resample ([^` ]+)`")
_EXITED = lazy_pattern(r"^(?:verify: )?exited with \d+(?: \(\w+\))?")
_VERIFIES = "verify: "
_LIMIT = lazy_pattern(r"; (not retryable|retries exhausted|no progress: [^;]+|\w+ is not in retry\.when)$")
_UNSTARTED = (StageStatus.BLOCKED, StageStatus.CANCELLED, StageStatus.SKIPPED)


# ---- one line ---------------------------------------------------------------------------------


def stage_line(
    ended: FinishedStage,
    kind: str,
    width: int,
    style: Style,
    *,
    retries: Sequence[str] = (),
    restored: tuple[str, ...] = (),
    why: str = "",
) -> str:
    """Return the line of a stage that ended. `width` is the width of the column of names.

    `retries` has the cause of each request that was sent again; `restored` are files that came from the store,
    `why` is the reason.
    """
    status = ended.status
    mark, tone = status_sign(status, style.marks)
    # The step of a stage did not run if `accept` refused an edit of its outputs.
    word = kind if status in _OF_A_RUN and not ended.data.paths else status.value
    spent = ended.data.duration_s
    is_timed = spent or (spent is not None and status in (*_OF_A_RUN, StageStatus.VERIFIED))
    time = f"{format_duration(spent or 0.0):>7}" if is_timed else " " * 7
    facts = _facts(ended, retries, restored, why)
    head = f" {style.paint(mark, tone)} {visible(ended.name):<{width}}  {word:<{_KIND_WIDTH}} {time}"
    return f"{head}   {'   '.join(facts)}".rstrip()


def never_ran(ended: FinishedStage) -> bool:
    """Return whether nothing was done for a stage that has no result of this build or an earlier one."""
    return ended.status in _UNSTARTED and not ended.data.attempts and not ended.data.calls


def not_run_lines(ends: Iterable[FinishedStage], columns: int) -> list[str]:
    """Return a line for each reason why stages never ran: `24 blocked by `a`: b, c and 22 more`.

    A stage that was blocked ends after those that it depends on.
    """
    causes: dict[str, dict[str, None]] = {}
    groups: dict[str, list[str]] = {}
    for end in filter(never_ran, ends):
        # If these were blocked themselves, what blocked them counts.
        causes[end.name] = {name: None for by in end.data.by for name in causes.get(by, [by])}
        is_after = end.status is StageStatus.BLOCKED and not causes[end.name]
        groups.setdefault("not run, since another stage failed" if is_after else end.status, []).append(end.name)
    lines = []
    for reason, names in sorted(groups.items()):
        by = [f"`{cause}`" for cause in dict.fromkeys(cause for name in names for cause in causes[name])]
        head = f"{len(names):,} {reason}{f' by {join_first(by, _MAX_PATHS)}' if by else ''}: "
        lines.append(visible_line(list_within(head, names, columns)))
    return lines


def command_line(ended: StageFinished) -> str:
    """Return the command of a failure as its author typed it, after a `$`; an empty text if no command failed."""
    return f"$ {shorten_command(typed_command(ended.command)).rstrip()}" if ended.command else ""


def status_sign(status: StageStatus, marks: Marks) -> tuple[str, Tone]:
    """Return the symbol and the tone of a status."""
    match status:
        case StageStatus.FRESH | StageStatus.DONE:
            return marks.fresh, "quiet"
        case StageStatus.FAILED:
            return marks.failed, "bad"
        case StageStatus.EDITED:
            return marks.edited, "bad"
        case _:
            return (marks.done, "good") if status.has_result else (marks.idle, "quiet")


def has_unknown_price(ended: StageFinished) -> bool:
    """Return whether a stage called a model whose price is unknown."""
    return ended.calls > 0 and parse_amount(ended.cost) is None


def retries_text(retries: Sequence[str]) -> str:
    """Return the number of repeated requests, and why: `2 retries: 429`; an empty text if there are none."""
    if not retries:
        return ""
    causes = ", ".join(dict.fromkeys(filter(None, retries)))
    number = "1 retry" if len(retries) == 1 else f"{len(retries)} retries"
    return f"{number}: {causes}" if causes else number


def _facts(ended: FinishedStage, retries: Sequence[str], restored: tuple[str, ...], why: str) -> list[str]:
    data = ended.data
    facts = [*_spent(data), retries_text(retries)]
    if ended.status.has_result:
        from_cache = "from the shared cache" if ended.message == FROM_SHARED_CACHE else ""
        paths = data.outputs or restored
        more = [f"+{len(paths) - _MAX_PATHS}"] if len(paths) > _MAX_PATHS else []
        facts += [" ".join([*paths[:_MAX_PATHS], *more]), from_cache or why]
        facts += [f"passed at attempt {data.attempts}"] if data.attempts > 1 else []
        facts += ["same bytes as before"] if data.unchanged else []
    else:
        # Errors with a place, and the exit status of a command, are shown below, as a whole and once. A status whose
        # message is its name is shown as the status.
        located = _located(data)
        only_exited = data.command and _EXITED.fullmatch(ended.message)
        is_below = only_exited or ended.message == ended.status
        facts += [located[0].code if located else "" if is_below else ended.message]
    return [truncate(visible(fact.strip().split("\n", 1)[0]), _MAX_FACT) for fact in facts if fact]


def _spent(data: StageFinished) -> list[str]:
    cost, has_tokens = parse_amount(data.cost), data.input_tokens or data.output_tokens
    possible = parse_amount(data.possible_cost) or Decimal(0)
    facts = {
        pluralize(data.calls, "call"): data.calls,
        pluralize(data.recorded, "recorded response"): data.recorded,
        "written by hand": data.by_hand,
        f"{pluralize(data.fallbacks, 'response')} of a fallback": data.fallbacks,
        f"{data.input_tokens:,}+{data.output_tokens:,} tok": has_tokens,
        money_text(cost or Decimal(0), possible): cost or possible,
        "price unknown": has_unknown_price(data),
    }
    return [fact for fact, is_shown in facts.items() if is_shown]


# ---- failures ---------------------------------------------------------------------------------


def failure_text(
    pipeline: Pipeline, ends: Sequence[FinishedStage], kinds: Mapping[str, str], style: Style, source: ReadSource = str
) -> str:
    """Return a block for each stage that failed or waits for the user, and one for each withheld promotion group.

    Only the first 20 stages are shown: so many failures mostly have the same cause. `source` returns the
    text of a file of the project, or an empty one.
    """
    shown = [end for end in ends if end.status.is_failure]
    blocks, missing = [], {name for end in ends if end.status is StageStatus.WITHHELD for name in end.data.by}
    for end in shown[:_MAX_STAGES]:
        kind = kinds.get(end.name.partition("@")[0], "")
        is_edited = end.status is StageStatus.EDITED
        failed = partial(_failed, pipeline, end, style, source, kind)
        body = _edited(pipeline, end) if is_edited else failed(has_files=end.name not in missing)
        blocks.append(_heading(pipeline, end, style) + body)
    if len(shown) > _MAX_STAGES:
        others = pluralize(len(shown) - _MAX_STAGES, "more stage")
        blocks.append(f"{others} that failed or were edited are not shown; `orch23 log` lists all\n")
    return "".join(f"\n{block}" for block in (*blocks, *_withheld(pipeline, ends, style)))


def _heading(pipeline: Pipeline, end: FinishedStage, style: Style) -> str:
    mark, tone = status_sign(end.status, style.marks)
    place = pipeline.locate("stages", end.name)
    where = f"  {visible(str(place))}" if place else ""
    return f"{style.paint(mark, tone)} {style.paint(visible(end.name), 'strong')}{where}\n"


def _failed(
    pipeline: Pipeline, end: FinishedStage, style: Style, source: ReadSource, kind: str, *, has_files: bool
) -> str:
    from orch23.report.failures import cause_lines, next_step, start_of_pytest  # noqa: PLC0415 - only for failures

    command, attempts = end.data.command, end.data.attempts
    tried = f" (attempt {attempts})" if attempts > 1 else ""
    excerpt = end.data.failure.strip("\n")
    printed = visible(excerpt).split("\n")
    shown = _cut(printed)
    lines = [f"  {end.reasons}"] if end.reasons else []
    lines += _command_lines(command, tried) if command else []
    if _located(end.data):
        lines += _problems(pipeline, end, source)
    else:
        lines += _result(end, excerpt)
        lines += [f"  | {line}" for line in shown] if excerpt else []
        lines += _hints(pipeline, end, excerpt, source, is_shell=kind == "shell")
    lines += [f"  {line}" for line in end.earlier]
    lines += _recorded(pipeline, end)
    if end.data.cause:
        explained = next((one.code for one in end.data.problems if one.code in _EXPLAINED), "")
        lines += cause_lines(pipeline, end.name, end.data.cause, style, explained)
    if attempts or end.data.paths:
        # The files that it tested may be in the store alone.
        start = (start_of_pytest(pipeline, end.name) if kind == "pytest" else "") if has_files else None
        step = next_step(end.name, end.data, kind, partial(_command, pipeline), start, is_whole=shown == printed)
        lines.append(f"  next: {step}")
    return "\n".join(lines) + "\n"


def _command_lines(command: str, tried: str) -> list[str]:
    first, *others = visible(typed_command(command)).rstrip().split("\n")
    if not others:
        return [f"  $ {shorten_command(first)}{tried}"]
    if (left := len(others) - _COMMAND_LINES) > 1:
        others[_COMMAND_LINES // 2 : len(others) - _COMMAND_LINES // 2] = [f"... {left} lines ..."]
    return [f"  $ {shorten_command(first)}{tried}", *(f"    {shorten_command(line)}".rstrip() for line in others)]


def _located(ended: StageFinished) -> list[EventProblem]:
    return [one for one in ended.problems if one.location] if not ended.command else []


def _problems(pipeline: Pipeline, end: FinishedStage, source: ReadSource) -> list[str]:
    from orch23.report.diagnostics import render_diagnostics  # noqa: PLC0415 - only for failures

    found = [
        Diagnostic(
            one.code,
            one.message,
            one.location or None,
            one.hint,
            related=_related(pipeline, end, one, source),
            subject=one.subject,
            fix=tuple(one.fix) if one.fix else None,
        )
        for one in end.data.problems
    ]
    sources = {one.location.file: source(one.location.file) for one in found if one.location}
    return [f"  {line}" for line in render_diagnostics(found, sources).rstrip("\n").split("\n")]


def _related(pipeline: Pipeline, end: FinishedStage, problem: EventProblem, source: ReadSource) -> tuple[Related, ...]:
    if problem.code != "E415" or not problem.location or problem.location.file != pipeline.file:
        return ()
    from orch23.report.failures import model_places  # noqa: PLC0415 - only for failures

    return model_places(pipeline, end.name, problem.location, source(pipeline.file))


def _result(end: FinishedStage, excerpt: str) -> list[str]:
    """Return how the command ended and why the stage failed; the excerpt often contains the reason already."""
    reason, data = end.message.partition("\n")[0], end.data
    is_in_excerpt = _LIMIT.sub("", reason.removeprefix(_VERIFIES)) in excerpt or (excerpt and _has_failed_tests(data))
    reasons = [] if is_in_excerpt else [f"  {visible(reason)}"]
    if data.exit_code is UNSET:
        return reasons
    took = f" after {format_duration(data.command_s)}" if data.command_s is not UNSET else ""
    nothing = "" if excerpt else "; it printed nothing"
    if _EXITED.match(reason):
        reason = _EXITED.sub(lambda found: f"{found.group()}{took}{nothing}", reason)
        return [f"  {visible(reason)}"]
    return [f"  exited with {data.exit_code}{took}{nothing}", *reasons]


def _has_failed_tests(ended: StageFinished) -> bool:
    """Return whether tests failed: the excerpt then has their number and the error of each cause."""
    return any(one.code == "E301" for one in ended.problems)


def first_cause(pipeline: Pipeline, ends: Sequence[FinishedStage]) -> str:
    """Return in one line why a build failed: by its first failed stage, else by its first edited one.

    The stages are in the order of the plan. An empty text if there is none.
    """
    failed = [end for end in ends if end.status is StageStatus.FAILED]
    found = failed or [end for end in ends if end.status is StageStatus.EDITED]
    if not found:
        return ""
    first = found[0]
    problem = next(iter(_located(first.data)), None)
    place = pipeline.locate("stages", first.name) if problem is None else problem.location
    where = f" ({visible(str(place))})" if place else ""
    message = first.message if problem is None else problem.message
    if problem is not None and problem.subject and problem.subject != first.name:
        message = f"{problem.subject}: {message}"
    if first.data.cause and _has_failed_tests(first.data):
        message = message.partition(": ")[0]  # the cause says what the error of the tests says
    note, attempts = _LIMIT.search(first.message), first.data.attempts
    tried = f", {note[1]} after {pluralize(attempts, 'attempt')}" if note and attempts > 1 else ""
    reason = message.partition("\n")[0]
    reason = truncate(visible(_LIMIT.sub("", reason) if tried else reason), _MAX_REASON)
    reason += " and printed nothing" if first.data.exit_code is not UNSET and not first.data.failure.strip() else ""
    if first.data.cause:
        from orch23.report.failures import is_possible  # noqa: PLC0415 - only for failures

        cause = f"{'possible cause: ' if is_possible(first.data.cause) else ''}{visible(first.data.cause.text)}"
        # The cause replaces the exit status, which only follows from it.
        reason = cause if _EXITED.match(reason) else f"{reason}: {cause}"
    reason = (first.reasons.partition(" failed: ")[2] if tried else first.reasons) or reason
    others = len(found) - 1
    more = f" (and {pluralize(others, 'more stage')})" if others else ""
    return f"{visible(first.name)}{where}{tried}: {reason}{more}"


def _recorded(pipeline: Pipeline, end: FinishedStage) -> list[str]:
    # A stage that fails on recorded responses alone fails again in the same way, however often it is built.
    recorded = end.data.recorded
    if not recorded or end.data.calls:
        return []
    responses = f"{pluralize(recorded, 'response')} {'is' if recorded == 1 else 'are'}"
    if _repeats(pipeline, end.name):
        change = "change the prompt or the spec, or set `temperature`"
        return [f"  no model call: its {responses} recorded; at temperature 0 the model repeats them: {change}"]
    resample = _command(pipeline, "build", "--resample", end.name)
    return [f"  no model call: its {responses} recorded; `{resample}` calls the model again"]


def _repeats(pipeline: Pipeline, name: str) -> bool:
    from orch23.providers.registry import adapter_for  # noqa: PLC0415 - only for failures
    from orch23.steps.registry import is_llm  # noqa: PLC0415 - as above

    stage = next((one for one in pipeline.stages if one.name == name and isinstance(one, Stage)), None)
    return stage is not None and is_llm(stage.step) and adapter_for(stage.step).repeats


def _hints(pipeline: Pipeline, end: FinishedStage, excerpt: str, source: ReadSource, *, is_shell: bool) -> list[str]:
    # A hint that the excerpt contains is not repeated, and one code has one hint for all its errors.
    hints: dict[str, str] = {}
    for one in end.data.problems:
        if one.hint and f"[{one.code}]" not in excerpt and not (end.data.cause and one.code in _EXPLAINED):
            hints.setdefault(one.code, one.hint)
    if any(one.code == "E304" for one in end.data.problems):
        from orch23.report.failures import timeout_hint  # noqa: PLC0415 - only for failures

        hints["E304"] = timeout_hint(pipeline, end.name, source)
    lines = [f"  = {visible(f'{code}: {hint}')}" for code, hint in hints.items()]
    if is_shell and not excerpt and not end.data.cause and end.data.exit_code is not UNSET:
        from orch23.report.failures import place_of_verification, trace_hint  # noqa: PLC0415 - only for failures

        verifies = end.message.startswith(_VERIFIES)
        place = place_of_verification(pipeline, end.name, end.data.command) if verifies else None
        place = place if verifies else pipeline.locate("stages", end.name, "shell")
        hint = trace_hint(end.data.command, str(place or ""))
        lines += [f"  = help: {visible(hint)}"] if hint else []
    return lines


def _edited(pipeline: Pipeline, end: FinishedStage) -> str:
    node = next((one for one in pipeline.stages if one.name == end.name.partition("@")[0]), None)
    edits = node.edits if isinstance(node, Stage) else node and node.body.get("edits")
    if end.message.startswith("not replaced") and (edits or end.data.calls or end.data.recorded):
        # Such a stage has a base. `accept` refuses a file that was in no former result.
        build = _command(pipeline, "build")
        return f"  {visible(end.message)}\n  next: `{build}` starts from what is there, or asks you to accept it\n"
    accept = f"`{_command(pipeline, 'accept', end.name)}` verifies the edit and keeps it"
    if end.message.startswith("its command would"):
        accept = "if its work is done, remove the stage: your edit stays"
    overwrite = _command(pipeline, "build", "--overwrite-edited")
    return f"  {visible(end.message)}\n  next: {accept}; `{overwrite}` discards it\n"


def _withheld(pipeline: Pipeline, ends: Sequence[FinishedStage], style: Style) -> list[str]:
    """Return a block for each withheld promotion group: its finished stages, the failed ones, and what to do."""
    groups: defaultdict[str, list[FinishedStage]] = defaultdict(list)
    waiting: dict[EventProblem, list[str]] = {}
    named = {stage.name: stage.promote for stage in pipeline.stages}
    for end in ends:
        if end.status is StageStatus.WITHHELD and end.data.problems:
            waiting.setdefault(end.data.problems[0], []).append(end.name)
        elif end.status is StageStatus.WITHHELD:
            stage = end.name.partition("@")[0]
            # A foreach with `promote: together` is a group without a name: the name of the foreach is shown.
            groups[named.get(stage) or stage].append(end)
    if not groups and not waiting:
        return []
    from orch23.report.plan_view import first_names  # noqa: PLC0415 - few builds withhold files

    mark, tone = status_sign(StageStatus.WITHHELD, style.marks)
    build, show = _command(pipeline, "build"), _command(pipeline, "show", "STAGE", "--withheld")

    def other_responses(members: Sequence[FinishedStage]) -> str:
        """Return the ways on that the red checks of a group name (ADR 69)."""
        checks = {name for end in members for name in end.data.by}
        names = dict.fromkeys(name for end in ends if end.name in checks for name in _RESAMPLE.findall(end.message))
        ways = " or ".join(f"`{_command(pipeline, 'build', '--resample', name)}`" for name in names)
        return f"  or {ways} has its model called again, with this failure\n" if ways else ""

    held = [
        f"{style.paint(mark, tone)} {style.paint(first_names(names), 'strong')}  {visible(one.message)}\n"
        f"  next: {visible(one.hint or '')}\n"
        for one, names in waiting.items()
    ]
    return held + [
        f"{style.paint(mark, tone)} {style.paint(visible(group), 'strong')}"
        "  withheld: its stages are promoted together\n"
        f"  in the store, but not in the workspace: {first_names(end.name for end in members)}; `{show}` lists files\n"
        f"  next: fix {first_names(name for end in members for name in end.data.by)}, then `{build}` promotes the "
        "group; the stages that passed do not run again\n" + other_responses(members)
        for group, members in groups.items()
    ]


def _command(pipeline: Pipeline, command: str, *arguments: str) -> str:
    return visible(pipeline.command_line(command, *arguments))


def _cut(lines: list[str]) -> list[str]:
    """Return the first and the last lines. The last ones begin with a paragraph, if one begins a few lines before."""
    start = max(len(lines) - _TAIL_LINES, _HEAD_LINES)
    # The first line of a paragraph says what it is about, such as the test that failed.
    near = range(start, max(start - _HEAD_LINES, _HEAD_LINES), -1)
    start = next((at for at in near if not lines[at - 1].strip()), start)
    omitted = start - _HEAD_LINES
    # A line that says `1 lines` would take as much space as the omitted line.
    if omitted <= 1:
        return lines
    return [*lines[:_HEAD_LINES], f"... {omitted} lines ...", *lines[start:]]
