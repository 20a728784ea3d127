"""Turn the document of one step (llm, shell, pytest, render, or a step of verify) into its value."""

import re
from collections.abc import Mapping, Sequence

from msgspec import UNSET, UnsetType

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
from orch23.resolve.document import (
    BriefDocument,
    ConditionKind,
    Conditions,
    ConditionsDocument,
    ContextDocument,
    LLMDocument,
    Paths,
    Pytest,
    PytestDocument,
    Render,
    RenderDocument,
    Shell,
    StageDocument,
    VerifyDocument,
    VerifyStepDocument,
    VerifySteps,
)
from orch23.resolve.expressions import mentions
from orch23.resolve.fields import Problems, given
from orch23.resolve.input_paths import read_inputs
from orch23.resolve.reading import read_document

STEP_KINDS = StageDocument.exactly_one

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SET_HERE = frozenset({"PATH", "HOME", "TMPDIR", "GIT_CEILING_DIRECTORIES"})


def read_step(stage: StageDocument, at: Problems) -> Step | None:
    """Return what a stage does, or None with a problem."""
    if stage.llm is not UNSET:
        return _llm(stage.llm, at.below("llm"))
    if stage.shell is not UNSET:
        return _shell(stage.shell, at)
    if stage.pytest is not UNSET:
        return _pytest(stage.pytest, at)
    return None if stage.render is UNSET else _render(stage.render, at)


def declared_llm(node: ForeachStage) -> LLMStep | None:
    """Return the llm step of a foreach if all of its items have the same; None where it depends on the item."""
    body = node.body.get("llm")
    if not isinstance(body, Mapping) or mentions(body, node.foreach.name):
        return None
    document, _ = read_document(body, LLMDocument, "llm")
    return None if document is None else _llm(document, Problems("llm"))


def declared_escalation(node: ForeachStage) -> tuple[str, ...]:
    """Return the models by attempt that a foreach names for all of its items."""
    retry = node.body.get("retry")
    return _texts(retry.get("escalate")) if isinstance(retry, Mapping) else ()


def declared_pools(node: ForeachStage) -> tuple[str, ...]:
    """Return the pools that a foreach names; items do not decide them."""
    return _texts(node.body.get("pools"))


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list | tuple) else ()


def _llm(llm: LLMDocument, at: Problems) -> LLMStep:
    way = "write it here, or for all stages under `defaults.llm`"
    context, brief = given(llm.context, ContextDocument()), given(llm.brief, BriefDocument())
    below = at.below("context")
    step = LLMStep(
        provider=_needed(llm.provider, "provider", at, way),
        model=_needed(llm.model, "model", at, way),
        prompt=_prompt(llm.prompt, at),
        system=at.file("system", llm.system),
        returns=llm.returns,
        schema=at.file("schema", llm.schema),
        max_tokens=at.count("max_tokens", llm.max_tokens),
        effort=given(llm.effort, None),
        thinking=given(llm.thinking, None),
        timeout_s=at.duration("timeout", llm.timeout),
        mode=llm.mode,
        transcripts=_folder("transcripts", llm.transcripts, at),
        own_outputs=context.own_outputs,
        max_files=below.count("max_files", context.max_files),
        max_bytes=below.count("max_bytes", context.max_bytes),
        brief=_brief(brief, at.below("brief")),
        base_url=given(llm.base_url, None),
        endpoint_alias=given(llm.endpoint_alias, None),
        command=at.words("command", given(llm.command, ())),
        read=_read(llm.read, at.below("read")),
        pass_env=_names(llm.pass_env, at.below("pass_env")),
        network=llm.network,
        answers=at.file("answers", llm.answers),
        seed=given(llm.seed, None),
        temperature=None if llm.temperature is UNSET else float(llm.temperature),
        api=given(llm.api, None),
        on_truncated=None
        if llm.on_truncated is UNSET
        else OnTruncated(llm.on_truncated.retries, llm.on_truncated.factor),
        structured_output=llm.structured_output,
        secrets=llm.secrets,
    )
    if step.schema is not None and step.returns != "json":
        message = f"a `schema` needs `returns: json`, but it returns {step.returns}"
        at.add("schema", "E856", message, "say `returns: json`")
    if step.base_url is not None and not step.base_url.startswith(("http://", "https://")):
        at.add("base_url", "E812", f"`base_url` is `{step.base_url}`, which is not an http(s) URL")
    return step


def _needed(value: str | UnsetType, key: str, at: Problems, hint: str | None = None) -> str:
    if value is UNSET:
        at.add("", "E810", f"`{key}` is missing", hint)
        return ""
    return value


def _prompt(value: str | UnsetType, at: Problems) -> str:
    return _needed(value, "prompt", at) if value is UNSET else at.path_at("prompt", value) or ""


def _brief(brief: BriefDocument, at: Problems) -> BriefLimits:
    limits = BriefLimits(at.count("limit", brief.limit), at.count("head", brief.head), at.count("tail", brief.tail))
    if limits.head + limits.tail > limits.limit:
        message = f"`head` and `tail` are {limits.head + limits.tail} characters, over the limit of {limits.limit}"
        at.add("", "E856", message, "give `limit`, `head` and `tail` together")
    return limits


def _folder(key: str, value: str | UnsetType, at: Problems) -> str | None:
    path = None if value is UNSET else at.path_at(key, value, "place")
    return None if path is None else path.rstrip("/")


def _read(texts: Sequence[str], at: Problems) -> tuple[str, ...]:
    """Return what a program may read: paths of the project, and absolute ones, `~/` included, as they are written."""
    out = []
    for number, text in enumerate(texts):
        if not text.startswith(("/", "~/")):
            path = at.path_at(str(number), text, "place")
            if path is not None:
                out.append(path.rstrip("/"))
        elif text == "~/" or "\0" in text or ".." in text.split("/") or _is_of_kernel(text):
            message = f"`{text}` cannot be given to a program"
            at.add(str(number), "E812", message, "name the files or the folder that it needs")
        else:
            out.append(text.rstrip("/"))
    return tuple(out)


def _is_of_kernel(path: str) -> bool:
    """Return whether an absolute path is the root or one of the trees that a sandbox makes itself."""
    top = path.strip("/").partition("/")[0]
    return path.startswith("/") and top in ("", "proc", "sys", "dev", "run")


def _names(names: Sequence[str], at: Problems) -> tuple[str, ...]:
    for number, name in enumerate(names):
        if _VARIABLE.fullmatch(name) is None or name in _SET_HERE or name.startswith("ORCH23_"):
            message = f"`{name}` cannot be passed to a program"
            at.add(str(number), "E812", message, "PATH, HOME, TMPDIR and ORCH23_* are set by orch23")
    return tuple(dict.fromkeys(names))


def _shell(value: Shell, at: Problems) -> ShellStep | None:
    if isinstance(value, str):
        if not value.strip() or "\x00" in value:
            what = "holds a NUL character, which no command can" if value.strip() else "is empty"
            at.add("shell", "E812", f"`shell` {what}", "write a command")
            return None
        return ShellStep(value)
    if value[0] == "":
        at.add("shell", "E812", "`shell` names no program", "write it as the first item: [python, -V]")
        return None
    return ShellStep(at.words("shell", value))


def _pytest(value: Pytest, at: Problems) -> PytestStep:
    if not isinstance(value, PytestDocument):
        return PytestStep(args=at.words("pytest", value))
    below = at.below("pytest")
    return PytestStep(
        args=below.words("args", value.args),
        paths=_paths(value.paths, below.below("paths")),
        config=below.file("config", value.config),
        plugins=value.plugins,
        pythonpath=PytestStep().pythonpath
        if value.pythonpath is UNSET
        else _paths(value.pythonpath, below.below("pythonpath")),
        expect=value.expect,
        trust=_paths(value.trust, below.below("trust")),
        report=below.file("report", value.report),
        must_fail=value.must_fail,
    )


def _paths(texts: Sequence[str], at: Problems) -> tuple[str, ...]:
    """Return literal files and directories relative to the stage's `cwd`; a test id may follow after `::`."""
    out = []
    for number, text in enumerate(texts):
        name, sign, test = text.partition("::")
        path = "." if name in (".", "./") else at.path_at(str(number), name, "place")
        if path is not None:
            out.append(f"{path}{sign}{test}")
    return tuple(out)


def _render(value: Render, at: Problems) -> RenderStep | None:
    if isinstance(value, RenderDocument):
        path = at.below("render").file("template", value.template)
    else:
        path = at.file("render", value)
    return None if path is None else RenderStep(path)


# ---- conditions and verification --------------------------------------------------------------


def read_conditions(value: Conditions, at: Problems) -> tuple[Condition, ...]:
    """Return `requires` or `ensures`: a mapping of kinds to paths, or a list of `{kind, path}`."""
    found: list[tuple[ConditionKind, str | None]] = []
    if isinstance(value, ConditionsDocument):
        kinds: dict[ConditionKind, Paths | UnsetType] = {
            "file_exists": value.file_exists,
            "file_absent": value.file_absent,
        }
        for kind, paths in kinds.items():
            if isinstance(paths, str):
                found.append((kind, at.path_at(kind, paths, "place")))
            else:
                found += [(kind, at.path_at(f"{kind}/{n}", path, "place")) for n, path in enumerate(given(paths, ()))]
    else:
        found += [(one.kind, at.path_at(f"{number}/path", one.path)) for number, one in enumerate(value)]
    return tuple(Condition(kind, path) for kind, path in found if path is not None)


def read_verify(value: VerifySteps | VerifyDocument, at: Problems) -> Verify:
    """Return what a result must pass: of a list of steps, or of `{inputs, steps, all}`.

    A list of commands that is in a file is one of its inputs.
    """
    if not isinstance(value, VerifyDocument):
        steps, places = _verify_steps(value, at)
        return Verify(steps, _sources(steps), places=places)
    steps, places = _verify_steps(value.steps, at.below("steps"))
    inputs = tuple(dict.fromkeys((*read_inputs(value.inputs, at.below("inputs")), *_sources(steps))))
    return Verify(steps, inputs, value.all, places)


def _sources(steps: Sequence[VerifyStep]) -> tuple[Input, ...]:
    return tuple(step.source for step in steps if isinstance(step, CommandsStep) and step.source is not None)


def _verify_steps(
    documents: Sequence[VerifyStepDocument], at: Problems
) -> tuple[tuple[VerifyStep, ...], tuple[int, ...]]:
    """Return the steps that are not switched off, and at which positions they are written."""
    found: dict[int, VerifyStep] = {}
    for number, document in enumerate(documents):
        below = at.below(number)
        step, holds = _verify_step(document, below), below.condition("if", document.if_)
        if step is not None and holds:
            found[number] = step
    return tuple(found.values()), tuple(found)


def _verify_step(document: VerifyStepDocument, at: Problems) -> VerifyStep | None:
    if document.check is not UNSET:
        return CheckStep(document.check, given(document.options, {}))
    if document.options is not UNSET:
        at.add("with", "E856", "`with` belongs to `check`", "remove it")
    if document.shell is not UNSET:
        return _shell(document.shell, at)
    if document.pytest is not UNSET:
        step = _pytest(document.pytest, at)
        if step.report is not None:
            hint = "a report is an output: make it a stage of its own"
            message = "`report` has no place in verify, whose files are thrown away"
            at.add("pytest/report", "E856", message, hint)
        return step
    if document.ensures is not UNSET:
        return EnsuresStep(read_conditions(document.ensures, at.below("ensures")))
    return None if document.commands is UNSET else read_commands(document.commands, at.below("commands"))
