"""Turn the parsed mapping of one step (llm, shell, pytest, render, or a step of verify) into its value."""

import re
from collections.abc import Mapping, Sequence

from orch23.model.digest import Json
from orch23.model.pipeline import (
    BriefLimits,
    CheckStep,
    CommandsStep,
    Condition,
    EnsuresStep,
    ForeachStage,
    Input,
    LLMStep,
    OnTruncated,
    PytestStep,
    RenderStep,
    ShellStep,
    Step,
    Verify,
    VerifyStep,
)
from orch23.resolve.acceptance import read_commands
from orch23.resolve.expressions import mentions
from orch23.resolve.fields import Fields
from orch23.resolve.input_paths import read_inputs

STEP_KINDS = ("llm", "shell", "pytest", "render")
VERIFY_KINDS = ("check", "shell", "pytest", "ensures", "commands")
RETURNS = ("files", "json", "text", "code")
MODES = ("cached", "record", "replay")
APIS = ("responses", "chat")
SECRETS = ("refuse", "redact")
CONDITION_KINDS = ("file_exists", "file_absent")
MOST_TRUNCATED = 3
MOST_FACTOR = 8

_LLM_KEYS_TEXT = """
    provider model prompt system returns schema max_tokens effort thinking timeout mode transcripts context brief
    base_url endpoint_alias command read pass_env network answers seed temperature api on_truncated secrets
    structured_output
"""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SET_HERE = frozenset({"PATH", "HOME", "TMPDIR", "GIT_CEILING_DIRECTORIES"})
_LLM_KEYS = frozenset(_LLM_KEYS_TEXT.split())
_PYTEST_KEYS = frozenset({"args", "paths", "config", "plugins", "pythonpath", "expect", "trust", "report", "must_fail"})


def read_step(stage: Fields) -> Step | None:
    """Return what a stage does, or None with a complaint."""
    match stage.one_of(STEP_KINDS):
        case "llm":
            return _llm(stage.below("llm"))
        case "shell":
            return _shell(stage)
        case "pytest":
            return _pytest(stage)
        case "render":
            return _render(stage)
        case _:
            return None


def declared_llm(node: ForeachStage) -> LLMStep | None:
    """Return the llm step of a foreach where all of its items have the same; None where an item has a say in it."""
    if not isinstance(node.body.get("llm"), Mapping) or mentions(node.body["llm"], node.foreach.name):
        return None
    return _llm(Fields(node.body, "").below("llm"))


def _llm(llm: Fields) -> LLMStep:
    llm.only(_LLM_KEYS)
    way = "write it here, or for all stages under `defaults.llm`"
    context = llm.below("context")
    context.only(("own_outputs", "max_files", "max_bytes"))
    command = llm.words("command")
    usual = LLMStep(provider="", model="", prompt="")
    step = LLMStep(
        provider=llm.needed_text("provider", way),
        model=llm.needed_text("model", way),
        prompt=(llm.file("prompt") or "") if llm.has("prompt") else llm.needed_text("prompt"),
        system=llm.file("system"),
        returns=llm.choice("returns", RETURNS, "files"),  # type: ignore[arg-type] # a tuple of these very literals
        schema=llm.file("schema"),
        max_tokens=llm.count("max_tokens", usual.max_tokens),
        effort=llm.text("effort"),
        thinking=llm.text("thinking"),
        timeout_s=llm.duration("timeout") or usual.timeout_s,
        mode=llm.choice("mode", MODES, "cached"),  # type: ignore[arg-type] # a tuple of these very literals
        transcripts=_folder(llm, "transcripts"),
        own_outputs=context.flag("own_outputs", default=usual.own_outputs),
        max_files=context.count("max_files", usual.max_files),
        max_bytes=context.count("max_bytes", usual.max_bytes),
        brief=_brief(llm.below("brief")),
        base_url=llm.text("base_url"),
        endpoint_alias=llm.text("endpoint_alias"),
        command=command,
        read=_read(llm),
        pass_env=_names(llm),
        network=llm.flag("network", default=usual.network),
        answers=llm.file("answers"),
        seed=llm.whole("seed"),
        temperature=llm.number("temperature"),
        api=llm.choice("api", APIS, "responses") if llm.has("api") else None,  # type: ignore[arg-type] # these very literals
        on_truncated=_on_truncated(llm.below("on_truncated")) if llm.has("on_truncated") else None,
        structured_output=llm.flag("structured_output", default=usual.structured_output),
        secrets=llm.choice("secrets", SECRETS, "refuse"),  # type: ignore[arg-type] # a tuple of these very literals
    )
    if step.schema is not None and step.returns != "json":
        message = f"a `schema` needs `returns: json`, but it returns {step.returns}"
        llm.complain("schema", "E856", message, "say `returns: json`")
    if step.base_url is not None and not step.base_url.startswith(("http://", "https://")):
        llm.complain("base_url", "E812", f"`base_url` is `{step.base_url}`, which is no http(s) address")
    return step


def _brief(brief: Fields) -> BriefLimits:
    brief.only(("limit", "head", "tail"))
    usual = BriefLimits()
    limits = BriefLimits(
        brief.count("limit", usual.limit), brief.count("head", usual.head), brief.count("tail", usual.tail)
    )
    if limits.head + limits.tail > limits.limit:
        message = f"`head` and `tail` are {limits.head + limits.tail} characters, over the limit of {limits.limit}"
        brief.complain("", "E856", message, "give `limit`, `head` and `tail` together")
    return limits


def _on_truncated(more: Fields) -> OnTruncated:
    more.only(("retries", "factor"))
    usual = OnTruncated()
    return OnTruncated(
        retries=more.whole_between("retries", 0, MOST_TRUNCATED, usual.retries),
        factor=more.whole_between("factor", usual.factor, MOST_FACTOR, usual.factor),
    )


def _folder(owner: Fields, key: str) -> str | None:
    value = owner.text(key)
    path = None if value is None else owner.path_at(key, value, "place")
    return None if path is None else path.rstrip("/")


def _read(llm: Fields) -> tuple[str, ...]:
    """Return what a program may read: paths of the project, and absolute ones, `~/` included, as they are written."""
    out = []
    for number, text in enumerate(llm.texts("read")):
        if not text.startswith(("/", "~/")):
            path = llm.path_at(f"read/{number}", text, "place")
            if path is not None:
                out.append(path.rstrip("/"))
        elif text == "~/" or "\0" in text or ".." in text.split("/") or _is_of_kernel(text):
            message = f"`{text}` cannot be given to a program"
            llm.complain(f"read/{number}", "E812", message, "name the files or the folder that it needs")
        else:
            out.append(text.rstrip("/"))
    return tuple(out)


def _is_of_kernel(path: str) -> bool:
    """Return whether an absolute path is the root or one of the trees that a sandbox makes itself."""
    top = path.strip("/").partition("/")[0]
    return path.startswith("/") and top in ("", "proc", "sys", "dev", "run")


def _names(llm: Fields) -> tuple[str, ...]:
    out = []
    for number, name in enumerate(llm.texts("pass_env")):
        if _VARIABLE.fullmatch(name) is None or name in _SET_HERE or name.startswith("ORCH23_"):
            message = f"`{name}` cannot be passed to a program"
            llm.complain(f"pass_env/{number}", "E812", message, "PATH, HOME, TMPDIR and ORCH23_* are set by orch23")
        else:
            out.append(name)
    return tuple(dict.fromkeys(out))


def _shell(owner: Fields) -> ShellStep | None:
    value = owner.body.get("shell")
    if isinstance(value, str):
        if not value.strip() or "\x00" in value:
            owner.complain("shell", "E812", "`shell` is empty", "write a command")
            return None
        return ShellStep(value)
    argv = owner.words("shell")
    if isinstance(value, Sequence) and (not value or value[0] == ""):
        owner.complain("shell", "E812", "`shell` names no program", "write it as the first item: [python, -V]")
        return None
    return ShellStep(argv) if argv else None


def _pytest(owner: Fields) -> PytestStep:
    value = owner.body.get("pytest")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return PytestStep(args=owner.words("pytest"))
    step = owner.below("pytest")
    step.only(_PYTEST_KEYS)
    usual = PytestStep()
    return PytestStep(
        args=step.words("args"),
        paths=_paths(step, "paths"),
        config=step.file("config"),
        plugins=step.texts("plugins"),
        pythonpath=_paths(step, "pythonpath") if step.has("pythonpath") else usual.pythonpath,
        expect=step.texts("expect"),
        trust=_paths(step, "trust"),
        report=step.file("report"),
        must_fail=step.flag("must_fail", default=usual.must_fail),
    )


def _paths(owner: Fields, key: str) -> tuple[str, ...]:
    """Return literal files and directories relative to the stage's `cwd`; a test id may follow after `::`."""
    out = []
    for number, text in enumerate(owner.texts(key)):
        name, sign, test = text.partition("::")
        path = "." if name in (".", "./") else owner.path_at(f"{key}/{number}", name, "place")
        if path is not None:
            out.append(f"{path}{sign}{test}")
    return tuple(out)


def _render(owner: Fields) -> RenderStep | None:
    if isinstance(owner.body.get("render"), str):
        path = owner.file("render")
        return None if path is None else RenderStep(path)
    step = owner.below("render")
    step.only(("template",))
    if not step.has("template"):
        step.needed_text("template", "name a Jinja2 file")
        return None
    template = step.file("template")
    return None if template is None else RenderStep(template)


# ---- conditions and verification --------------------------------------------------------------


def read_conditions(owner: Fields, key: str) -> tuple[Condition, ...]:
    """Return `requires` or `ensures`: a mapping of kinds to paths, or a list of `{kind, path}`."""
    value = owner.body.get(key)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _condition_list(owner, key, value)
    kinds = owner.below(key)
    kinds.only(CONDITION_KINDS)
    out = []
    for kind in CONDITION_KINDS:
        given = kinds.body.get(kind)
        paths = (
            [(kind, given)] if isinstance(given, str) else [(f"{kind}/{n}", p) for n, p in enumerate(kinds.items(kind))]
        )
        for at, path in paths:
            if not isinstance(path, str):
                kinds.wrong_type(at, path, "a path")
            elif (normal := kinds.path_at(at, path, "place")) is not None:
                out.append(Condition(kind, normal))  # type: ignore[arg-type] # one of CONDITION_KINDS
    return tuple(out)


def _condition_list(owner: Fields, key: str, items: Sequence[Json]) -> tuple[Condition, ...]:
    out = []
    for number, item in enumerate(items):
        if not isinstance(item, Mapping):
            owner.wrong_type(f"{key}/{number}", item, "a mapping with `kind` and `path`")
        elif (found := _condition(Fields(item, f"{owner.path}/{key}/{number}", owner.problems))) is not None:
            out.append(found)
    return tuple(out)


def _condition(item: Fields) -> Condition | None:
    item.only(("kind", "path"))
    if not item.has("kind"):
        item.needed_text("kind")
    kind = item.choice("kind", CONDITION_KINDS, "file_exists")
    path = item.file("path") if item.has("path") else item.needed_text("path")
    return Condition(kind, path) if path else None  # type: ignore[arg-type] # one of CONDITION_KINDS


def read_verify(stage: Fields) -> Verify:
    """Return what a result must pass: of a list of steps, or of `{inputs, steps, all}`.

    A list of commands that lies in a file is one of its inputs.
    """
    value = stage.body.get("verify")
    if isinstance(value, Sequence) and not isinstance(value, str):
        steps, places = _verify_steps(stage, "verify")
        return Verify(steps, _sources(steps), places=places)
    verify = stage.below("verify")
    verify.only(("inputs", "steps", "all"))
    steps, places = _verify_steps(verify, "steps")
    inputs = tuple(dict.fromkeys((*read_inputs(verify, "inputs"), *_sources(steps))))
    return Verify(steps, inputs, verify.flag("all", default=False), places)


def _sources(steps: Sequence[VerifyStep]) -> tuple[Input, ...]:
    return tuple(step.source for step in steps if isinstance(step, CommandsStep) and step.source is not None)


def _verify_steps(owner: Fields, key: str) -> tuple[tuple[VerifyStep, ...], tuple[int, ...]]:
    """Return the steps that are not switched off, and at which positions they are written."""
    found: dict[int, VerifyStep] = {}
    for number, item in enumerate(owner.items(key)):
        if not isinstance(item, Mapping):
            owner.wrong_type(
                f"{key}/{number}", item, "a mapping with one of `check`, `shell`, `pytest`, `ensures`, `commands`"
            )
            continue
        fields = Fields(item, f"{owner.path}/{key}/{number}", owner.problems)
        step, holds = _verify_step(fields), fields.condition("if")
        if step is not None and holds:
            found[number] = step
    return tuple(found.values()), tuple(found)


def _verify_step(item: Fields) -> VerifyStep | None:
    item.only((*VERIFY_KINDS, "with", "if"))
    kind = item.one_of(VERIFY_KINDS)
    if kind is not None and kind != "check" and item.has("with"):
        item.complain("with", "E856", "`with` belongs to `check`", "remove it")
    match kind:
        case "check":
            name = item.text("check")
            options = dict(item.below("with").body)
            return None if name is None else CheckStep(name, options)
        case "shell":
            return _shell(item)
        case "pytest":
            step = _pytest(item)
            if step.report is not None:
                hint = "a report is an output: make it a stage of its own"
                message = "`report` has no place in verify, whose files are thrown away"
                item.complain("pytest/report", "E856", message, hint)
            return step
        case "ensures":
            return EnsuresStep(read_conditions(item, "ensures"))
        case "commands":
            return read_commands(item)
        case _:
            return None
