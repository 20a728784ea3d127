"""YAML syntax of an llm step."""

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from orch23.model.fields import Problems, given
from orch23.model.language import Count, Document, Duration, Language, ProgramArguments, Text
from orch23.model.llm import OnTruncated
from orch23.model.pipeline import BriefLimits
from orch23.steps.llm.spec import LLMStep

MAX_TRUNCATED_RETRIES: Final = 3
MAX_TRUNCATED_FACTOR: Final = 8
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SET_HERE = frozenset({"PATH", "HOME", "TMPDIR", "GIT_CEILING_DIRECTORIES"})


class ContextDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model is shown beside the inputs."""

    own_outputs: Annotated[bool, Meta(description="Show the stage's last accepted result. Never part of the key.")] = (
        False
    )
    max_files: Annotated[Count, Meta(description="The most files in one request.")] = 10
    max_bytes: Annotated[Count, Meta(description="The most bytes of files in one request.")] = "200k"


class BriefDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the text of a failure is cut for the next attempt."""

    limit: Annotated[Count, Meta(description="Texts up to this length are not cut.")] = 4000
    head: Annotated[Count, Meta(description="Characters kept of the beginning.")] = 2500
    tail: Annotated[Count, Meta(description="Characters kept of the end.")] = 1000


class OnTruncatedDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What follows an answer that was cut off at `max_tokens`."""

    retries: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_TRUNCATED_RETRIES,
            description=f"Further requests within the attempt, 0 to {MAX_TRUNCATED_RETRIES}.",
        ),
    ] = 0
    factor: Annotated[
        int,
        Meta(
            ge=2,
            le=MAX_TRUNCATED_FACTOR,
            description=f"How many times more `max_tokens` each has, 2 to {MAX_TRUNCATED_FACTOR}.",
        ),
    ] = 2


class LLMDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask a model."""

    later = ("samples",)

    provider: Annotated[
        Text | UnsetType, Meta(description="Who answers: `anthropic`, `openai`, `local`, `command` or `scripted`.")
    ] = UNSET
    model: Annotated[Text | UnsetType, Meta(description="The model's name, as the provider calls it.")] = UNSET
    prompt: Annotated[
        Text | UnsetType,
        Meta(
            description="A Jinja2 file that renders the request. It sees "
            "`vars item inputs own previous brief attempt schema`."
        ),
    ] = UNSET
    system: Annotated[Text | UnsetType, Meta(description="A Jinja2 file that renders the system text.")] = UNSET
    returns: Annotated[
        Literal["files", "json", "text", "code"],
        Meta(
            description="The shape of the answer: whole files, JSON, text, or the first fenced block of code. The last "
            "three make exactly one output."
        ),
    ] = "files"
    schema: Annotated[Text | UnsetType, Meta(description="A JSON schema (draft 7) for `returns: json`.")] = UNSET
    max_tokens: Annotated[Count, Meta(description="The most tokens of one answer.")] = 32_000
    on_truncated: Annotated[
        OnTruncatedDocument | UnsetType,
        Meta(
            description="What follows an answer that was cut off at `max_tokens`. Default: what the provider is known "
            "to need. Never part of the key."
        ),
    ] = UNSET
    effort: Annotated[
        Text | UnsetType, Meta(description="How hard the model should think, in the provider's words.")
    ] = UNSET
    thinking: Annotated[
        Text | UnsetType, Meta(description="How the model may think aloud, in the provider's words.")
    ] = UNSET
    timeout: Annotated[Duration, Meta(description="How long one request may take.")] = "600s"
    mode: Annotated[
        Literal["cached", "record", "replay"],
        Meta(description="cached: use a recorded answer, else ask. record: always ask. replay: never ask."),
    ] = "cached"
    transcripts: Annotated[
        Text | UnsetType, Meta(description="A directory, fit for committing, where answers are recorded.")
    ] = UNSET
    context: Annotated[ContextDocument | UnsetType, Meta(description="What the model is shown beside the inputs.")] = (
        UNSET
    )
    brief: Annotated[
        BriefDocument | UnsetType, Meta(description="How the text of a failure is cut for the next attempt.")
    ] = UNSET
    structured_output: Annotated[
        bool,
        Meta(
            description="Whether the form of the answer is sent to the provider as a schema, so that the server holds "
            "the model to it. Switch it off for a model or a gateway that refuses requests with one; the answer is "
            "judged as strictly either way."
        ),
    ] = True
    secrets: Annotated[
        Literal["refuse", "redact"],
        Meta(
            description="What is done with a request that holds a secret of this machine. refuse: nothing is sent. "
            "redact: it is sent without."
        ),
    ] = "refuse"
    base_url: Annotated[
        Text | UnsetType,
        Meta(description="The address of a compatible server.", extra_json_schema={"format": "uri"}),
    ] = UNSET
    endpoint_alias: Annotated[
        Text | UnsetType,
        Meta(description="A name that stands for the address in keys, so that a moved server changes nothing."),
    ] = UNSET
    api: Annotated[
        Literal["responses", "chat"] | UnsetType,
        Meta(
            description="The interface that is spoken, where the provider has several. Default: `chat` with a "
            "`base_url`, else `responses`."
        ),
    ] = UNSET
    command: Annotated[
        ProgramArguments | UnsetType, Meta(description="The program to ask, for `provider: command`.")
    ] = UNSET
    read: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A file or a folder.")], ...],
        Meta(
            description="Files and folders that the program of `command` may read, besides itself, its arguments that "
            "are files of the project, and the system: paths of the project, which it gets as copies, or absolute "
            "paths and `~/...`."
        ),
    ] = ()
    pass_env: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A name.")], ...],
        Meta(
            description="Names of environment variables that the program of `command` gets, such as its key. It gets "
            "no others of yours."
        ),
    ] = ()
    network: Annotated[bool, Meta(description="Let the program of `command` use the network.")] = False
    answers: Annotated[Text | UnsetType, Meta(description="A YAML file of answers, for `provider: scripted`.")] = UNSET
    seed: Annotated[int | UnsetType, Meta(description="The seed of sampling, where the provider has one.")] = UNSET
    temperature: Annotated[
        Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)] | UnsetType,
        Meta(description="The temperature of sampling, where the provider has one."),
    ] = UNSET


def read_llm(llm: LLMDocument, owner: Problems) -> LLMStep:
    """Return the step of its settings; what is missing or does not fit is reported."""
    at = owner.below("llm")
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


LLM_LANGUAGE = Language(
    form=LLMDocument,
    description="Ask a model for files, JSON, text or code.",
    read=read_llm,
    defaults=LLMDocument,
)
