"""Make stages of rendered mappings, with every complaint about them; render the items of a foreach."""

import re
from collections.abc import Mapping, Sequence
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Severity
from orch23.model.digest import Json
from orch23.model.paths import match, match_any
from orch23.model.pipeline import (
    DEFAULT_RETRY_WHEN,
    DEFAULT_SCRATCH,
    DEFAULT_TIMEOUT_S,
    MAX_RETRIES,
    ChainLink,
    CommandsStep,
    FailureKind,
    Fence,
    ForeachStage,
    Input,
    Item,
    LLMStep,
    PathInput,
    PytestStep,
    RenderStep,
    Retry,
    SkippedStage,
    SliceInput,
    Stage,
    Step,
)
from orch23.model.protected import sealed_reason
from orch23.resolve.expressions import render_watched
from orch23.resolve.fields import Fields, Problem, normal_path
from orch23.resolve.input_paths import read_inputs
from orch23.resolve.item_rules import item_faults
from orch23.resolve.limits import read_stage_limits, read_step_limits
from orch23.resolve.nearest import did_you_mean
from orch23.resolve.promotion import kept_alone, label, read_group
from orch23.resolve.steps import read_conditions, read_step, read_verify

_STAGE_KEYS_TEXT = """
    desc llm shell pytest render needs inputs outputs cwd allowed_paths verify requires ensures retry on_failure
    timeout limits env python tools scratch cache network sandbox salt stop_conditions pools if promote
"""
STAGE_KEYS = frozenset(_STAGE_KEYS_TEXT.split())
_FAILURE_KINDS: tuple[FailureKind, ...] = get_args(FailureKind)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"(?:.*_)?(?:(?:API|PRIVATE)?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)", re.IGNORECASE)
_STEERING = re.compile(r"LD_.*|PYTEST_.*|GIT_.*|PYTHONSTARTUP|PYTHONHOME|SSH_AUTH_SOCK|BASH_ENV|ENV|PATH|HOME|TMPDIR")


class Built(Struct, frozen=True):
    """A stage, or None where there are errors; warnings are among the problems of a good stage too.

    `skipped` stands in the place of a good stage that its `if` switches off.
    """

    stage: Stage | None
    problems: tuple[Problem, ...] = ()
    skipped: SkippedStage | None = None


def make_stage(
    name: str, body: Mapping[str, Json], *, item: Item | None = None, chain: ChainLink | None = None
) -> Built:
    """Check and convert the body of one stage, defaults merged and expressions rendered.

    A single llm stage without a `chain` is a chain of one. An item is named `stage@key`; complaints name the stage.
    """
    fields = Fields(body, f"stages/{name.partition('@')[0]}")
    fields.only(STAGE_KEYS)
    step = read_step(fields)
    inputs = read_inputs(fields, "inputs")
    outputs = _outputs(fields, step)
    fence = _fence(fields, outputs)
    network = fields.flag("network", default=False)
    group = read_group(fields)
    stage = Stage(
        name=name,
        step=step if step is not None else RenderStep(""),  # never seen: without a step there is an error
        desc=fields.text("desc") or "",
        needs=fields.texts("needs"),
        inputs=inputs,
        outputs=outputs,
        fence=fence,
        verify=read_verify(fields),
        requires=read_conditions(fields, "requires"),
        ensures=read_conditions(fields, "ensures"),
        retry=_retry(fields, step),
        on_failure=fields.choice("on_failure", ("rollback", "keep"), "rollback"),
        cwd=_cwd(fields),
        timeout_s=fields.duration("timeout") or DEFAULT_TIMEOUT_S,
        env=_env(fields),
        python=fields.text("python"),
        tools=fields.texts("tools"),
        scratch=_scratch(fields) if fields.has("scratch") else DEFAULT_SCRATCH,
        cache=fields.flag("cache", default=not network),
        network=network,
        sandbox=fields.choice("sandbox", ("on", "off"), "on") == "on",
        limits=read_step_limits(fields),
        salt=_salt(fields),
        pools=fields.texts("pools"),
        promote=group,
        item=item,
        stop=read_stage_limits(fields),
        chain=chain if chain is not None or not isinstance(step, LLMStep) else ChainLink(chain=name, index=0),
    )
    holds = fields.condition("if")
    alone = kept_alone(group, stage.on_failure, fields.path)
    if alone is not None:
        fields.problems.append(alone)
    _check_outputs(fields, step, outputs, fence)
    _check_own_inputs(fields, step, inputs, outputs)
    _check_own_commands(fields, stage)
    problems = tuple(fields.problems)
    broken = step is None or any(problem.severity is Severity.ERROR for problem in problems)
    if not broken and not holds:
        return Built(
            None, problems, SkippedStage(name=name, kind=stage.kind, writes=(*outputs, *fence.write), promote=group)
        )
    return Built(None if broken else stage, problems)


def render_foreach(
    stage: ForeachStage, items: Sequence[tuple[str, Json]], variables: Mapping[str, Json]
) -> tuple[Built, ...]:
    """Return the stage of each (key, value), in order; each with the errors of its rendering and checking.

    Values of a list in a file are data that a model may have written: what they decide is held to rule 9 of the
    pipeline language. Values that the author typed (`in`) are not.
    """
    built: list[Built] = []
    for key, value in items:
        names: dict[str, Json] = {"vars": variables, stage.foreach.name: value}
        skipped = _skipped_item(stage, key, names)
        if skipped is not None:
            built.append(skipped)
            continue
        index = sum(one.skipped is None for one in built)
        link = ChainLink(chain=stage.name, index=index) if stage.foreach.sequential else None
        built.append(_render_item(stage, key, value, names, link))
    return tuple(built)


def _skipped_item(stage: ForeachStage, key: str, names: Mapping[str, Json]) -> Built | None:
    """Return that an item is switched off, or what is wrong with its `if`; None where it is made.

    It is asked first: the rest of an item that is not made may be without sense.
    """
    at = f"stages/{stage.name}"
    rendered = render_watched({"if": stage.body.get("if", True)}, names, at)
    if rendered.errors or not isinstance(rendered.tree, Mapping):
        return Built(None, tuple(Problem(e.path, e.code, e.message, e.hint) for e in rendered.errors))
    fields = Fields(rendered.tree, at)
    holds = fields.condition("if")
    if fields.problems:
        return Built(None, tuple(fields.problems))
    if holds:
        return None
    written = SkippedStage(name=f"{stage.name}@{key}", kind=stage.kind, condition=str(stage.body.get("if")))
    return Built(None, skipped=written)


def _render_item(
    stage: ForeachStage, key: str, value: Json, names: Mapping[str, Json], link: ChainLink | None
) -> Built:
    name = stage.foreach.name
    rendered = render_watched(stage.body, names, f"stages/{stage.name}", watch=name)
    problems = [Problem(e.path, e.code, e.message, e.hint) for e in rendered.errors]
    body = rendered.tree
    if not isinstance(body, Mapping):
        message = f"BUG: the body of {stage.name} is no mapping"
        raise TypeError(message)
    if stage.foreach.source is not None:
        problems += item_faults(body, rendered.watched, f"stages/{stage.name}")
    if problems:
        return Built(None, tuple(_unmoved(problems, rendered.moved)))
    built = make_stage(f"{stage.name}@{key}", body, item=Item(key=key, name=name, value=value), chain=link)
    errors = tuple(problem for problem in built.problems if problem.severity is Severity.ERROR)
    alone = kept_alone(label(stage.foreach, stage.promote), body.get("on_failure"), f"stages/{stage.name}")
    if alone is not None:
        return Built(None, tuple(_unmoved((*errors, alone), rendered.moved)))
    return Built(built.stage, tuple(_unmoved(errors, rendered.moved)))


def _unmoved(problems: Sequence[Problem], moved: Mapping[str, str]) -> list[Problem]:
    """Return the problems at the places where the nodes were written, before a list was spliced."""
    return [replace(problem, path=written_at(problem.path, moved)) for problem in problems]


def written_at(path: str, moved: Mapping[str, str]) -> str:
    """Return where a node was written that rendering moved."""
    head, tail = path, ""
    while head:
        if head in moved:
            return moved[head] + tail
        head, _, last = head.rpartition("/")
        tail = f"/{last}{tail}"
    return path


# ---- outputs and the fence --------------------------------------------------------------------


def _outputs(fields: Fields, step: Step | None) -> tuple[str, ...]:
    """Return the outputs; the report of a pytest stage is one of them without being listed."""
    found: dict[str, None] = {}
    for number, text in enumerate(fields.texts("outputs")):
        path = fields.path_at(f"outputs/{number}", text, "place")
        if path is None:
            continue
        if path in found:
            fields.complain(f"outputs/{number}", "E853", f"the output `{path}` is listed twice", "remove one")
        found[path] = None
    if isinstance(step, PytestStep) and step.report is not None:
        found[step.report] = None
    return tuple(found)


def _fence(fields: Fields, outputs: tuple[str, ...]) -> Fence:
    allowed = fields.below("allowed_paths")
    allowed.only(("write", "protect", "delete", "read"))
    write = _patterns(allowed, "write") if allowed.has("write") else outputs
    return Fence(write, _patterns(allowed, "protect"), _patterns(allowed, "delete"), _patterns(allowed, "read"))


def _patterns(allowed: Fields, key: str) -> tuple[str, ...]:
    found = [allowed.path_at(f"{key}/{n}", text, "pattern") for n, text in enumerate(allowed.texts(key))]
    return tuple(path for path in found if path is not None)


def _check_outputs(fields: Fields, step: Step | None, outputs: tuple[str, ...], fence: Fence) -> None:
    _check_sealed(fields, outputs, fence)
    for number, path in enumerate(outputs):
        at = f"outputs/{number}"
        # A directory is covered by a pattern that means any file in it, at any depth.
        probes = (path,) if not path.endswith("/") else (f"{path}\ue000", f"{path}\ue000/\ue000")
        if path not in fence.write and not all(match_any(fence.write, probe) for probe in probes):
            hint = "add it to `allowed_paths.write`, or leave that key out: then the outputs are the fence"
            fields.complain(at, "E851", f"the output `{path}` is outside of `allowed_paths.write`", hint)
        for pattern in fence.protect:
            if all(match(pattern, probe) for probe in probes):
                message = f"the output `{path}` is under `protect` (`{pattern}`)"
                fields.complain(at, "E852", message, "remove one of the two")
                break
    single = len(outputs) == 1 and not outputs[0].endswith("/")
    hint = f"it has {len(outputs)}; name exactly one literal file under `outputs`"
    match step:
        case RenderStep() if not single:
            fields.complain("outputs" if outputs else "", "E855", "a render stage makes exactly one file", hint)
        case LLMStep(returns="files"):
            if not fence.write:
                way = "add `outputs`, or `allowed_paths.write`"
                fields.complain("", "E855", "an llm stage that returns files has nowhere to write", way)
        case LLMStep(returns=returns) if not single:
            message = f"an llm stage with `returns: {returns}` makes exactly one file"
            fields.complain("outputs" if outputs else "", "E855", message, hint)
        case _:
            pass


def _check_sealed(fields: Fields, outputs: tuple[str, ...], fence: Fence) -> None:
    """Complain of each path that no stage may write, whatever it declares."""
    places = [(f"outputs/{n}", path) for n, path in enumerate(outputs)]
    allowed = fields.body.get("allowed_paths")
    if isinstance(allowed, Mapping) and allowed.get("write") is not None:  # else these are the outputs
        places += [(f"allowed_paths/write/{n}", path) for n, path in enumerate(fence.write)]
    places += [(f"allowed_paths/delete/{n}", path) for n, path in enumerate(fence.delete)]
    for at, path in places:
        if (reason := sealed_reason(path)) is not None:
            fields.complain(at, "E852", f"`{path}` cannot be declared: {reason}", "let the stage write elsewhere")


def _check_own_inputs(fields: Fields, step: Step | None, inputs: tuple[Input, ...], outputs: tuple[str, ...]) -> None:
    """Complain of a stage that reads what it writes; an llm stage may: its inputs are the versions before it."""
    if isinstance(step, LLMStep):
        return
    for value in inputs:
        if isinstance(value, PathInput | SliceInput):
            for output in outputs:
                if match(output, value.path):
                    number = _index_of(fields, value.path)
                    hint = "write the result to another file, or remove the input"
                    fields.complain(number, "E854", f"the input `{value.path}` is also an output of this stage", hint)


def _check_own_commands(fields: Fields, stage: Stage) -> None:
    """Complain of a stage that is verified by commands out of its own result: it would choose what it must pass."""
    for step in stage.verify.steps:
        if isinstance(step, CommandsStep) and step.source is not None:
            path = step.source.path
            if match_any((*stage.outputs, *stage.fence.write), path):
                hint = "let another stage make the list"
                fields.complain("verify", "E854", f"the commands come from `{path}`, an output of this stage", hint)


def _index_of(fields: Fields, path: str) -> str:
    """Return where in `inputs` a path is given."""
    for number, entry in enumerate(fields.items("inputs")):
        text = entry.get("path") if isinstance(entry, Mapping) else entry
        if isinstance(text, str) and normal_path(text.partition("#")[0]) == path:
            return f"inputs/{number}"
    return "inputs"


# ---- the rest ---------------------------------------------------------------------------------


def _retry(fields: Fields, step: Step | None) -> Retry:
    value = fields.body.get("retry")
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return Retry(max=_clamped(fields, "retry"))
    retry = fields.below("retry")
    retry.only(("max", "when", "prompt", "from", "no_progress", "escalate"))
    for key in ("prompt", "escalate"):
        if retry.has(key) and step is not None and not isinstance(step, LLMStep):
            retry.complain(key, "E856", f"`retry.{key}` is for llm stages", "remove it")
    return Retry(
        max=_clamped(retry, "max"),
        when=_kinds(retry) if retry.has("when") else DEFAULT_RETRY_WHEN,
        prompt=retry.file("prompt"),
        start_from=retry.choice("from", ("current", "baseline"), "current"),
        no_progress=retry.whole("no_progress", 1),
        escalate=retry.texts("escalate"),
    )


def _clamped(fields: Fields, key: str) -> int:
    value = fields.whole(key)
    if value is None:
        return 0
    bounded = min(max(value, 0), MAX_RETRIES)
    if bounded != value:
        message = f"`{key}` is {value}; {bounded} is used"
        hint = f"write a number from 0 to {MAX_RETRIES}"
        fields.problems.append(Problem(f"{fields.path}/{key}", "W801", message, hint, Severity.WARNING))
    return bounded


def _kinds(retry: Fields) -> tuple[FailureKind, ...]:
    found: list[FailureKind] = []
    for number, value in enumerate(retry.items("when")):
        known = next((kind for kind in _FAILURE_KINDS if kind == value), None)
        if known is not None:
            found.append(known)
            continue
        near = did_you_mean(value, _FAILURE_KINDS) if isinstance(value, str) else None
        hint = near or f"allowed are {', '.join(_FAILURE_KINDS)}"
        retry.complain(f"when/{number}", "E812", f"`{value}` is no kind of failure", hint)
    return tuple(found)


def _cwd(fields: Fields) -> str:
    value = fields.text("cwd")
    if value is None or value in (".", "./"):
        return "."
    path = fields.path_at("cwd", value, "place")
    return "." if path is None else path.rstrip("/")


def _scratch(fields: Fields) -> tuple[str, ...]:
    """Return the name patterns of files that are thrown away."""
    found = fields.texts("scratch")
    for number, pattern in enumerate(found):
        if pattern.startswith("!"):
            message = f"the pattern `{pattern}` starts with `!`, which excludes nothing here"
            fields.complain(f"scratch/{number}", "E850", message, "list only what is to be thrown away")
    return found


def _salt(fields: Fields) -> str | None:
    value = fields.body.get("salt")
    if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return str(value)
    if value is not None:
        fields.wrong_type("salt", value, "a string or a number")
    return None


def _env(fields: Fields) -> dict[str, str]:
    """Return the variables of a stage's processes; numbers and booleans are written as in YAML."""
    env = fields.below("env")
    found: dict[str, str] = {}
    for name, value in env.body.items():
        if not _VARIABLE.fullmatch(name):
            env.complain(name, "E859", f"`{name}` is no name of a variable", "use A-Z, 0-9 and _")
        elif _STEERING.fullmatch(name):
            hint = "orch23 sets it, or keeps it out of steps"
            env.complain(name, "E859", f"`{name}` may not be set by a stage", hint)
        elif _SECRET.fullmatch(name):
            hint = "rename it if it is none"
            env.complain(name, "E859", f"`{name}` looks like a secret, which steps never get", hint)
        elif isinstance(value, bool):
            found[name] = "true" if value else "false"
        elif isinstance(value, str | int | float) and "\x00" not in str(value):
            found[name] = str(value)
        else:
            env.wrong_type(name, value, "a string or a number")
    return found
