"""YAML syntax of an llm step."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from orch23.model.digest import canonical_json
from orch23.model.fields import Problems
from orch23.model.language import (
    Address,
    Count,
    Document,
    Duration,
    File,
    Key,
    Language,
    ModelDocument,
    ModelEntry,
    ProgramArguments,
    Text,
    item,
    mapping_of,
    read_choices,
    read_fields,
)
from orch23.model.llm import CachePolicy, OnTruncated
from orch23.model.pipeline import BriefLimits, ModelChoice
from orch23.steps.llm.spec import LLMStep

MAX_TRUNCATED_RETRIES: Final = 3
MAX_TRUNCATED_FACTOR: Final = 8
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SET_HERE = frozenset({"PATH", "HOME", "TMPDIR", "GIT_CEILING_DIRECTORIES"})


def _read_brief(at: Problems, key: str, brief: "BriefDocument") -> BriefLimits:
    limits = BriefLimits(**read_fields(brief, at.below(key)))
    if limits.head + limits.tail > limits.limit:
        message = f"`head` and `tail` are {limits.head + limits.tail} characters, over the limit of {limits.limit}"
        at.add(key, "E856", message, f"write `limit: {limits.head + limits.tail}`, or smaller `head` and `tail`")
    return limits


def _read_folder(at: Problems, key: str, value: str) -> str | None:
    path = at.path_at(key, value, "place")
    return None if path is None else path.rstrip("/")


def _read_fallback(at: Problems, key: str, entries: Sequence[str | ModelDocument]) -> tuple[ModelChoice, ...]:
    return tuple((("model", one),) if isinstance(one, str) else one for one in read_choices(at, key, entries))


def _read_readable(at: Problems, key: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the paths that a program may read; absolute paths and `~/...` stay as they are written."""
    out = []
    for number, text in enumerate(texts):
        place = f"{key}/{number}"
        if not text.startswith(("/", "~/")):
            path = at.path_at(place, text, "place")
            if path is not None:
                out.append(path.rstrip("/"))
        elif text == "~/" or "\0" in text or ".." in text.split("/") or _is_of_kernel(text):
            at.add(place, "E812", f"a program cannot get `{text}`", "name the files or the folder that it needs")
        else:
            out.append(text.rstrip("/"))
    return tuple(out)


def _is_of_kernel(path: str) -> bool:
    top = path.strip("/").partition("/")[0]
    return path.startswith("/") and top in ("", "proc", "sys", "dev", "run")


def _read_names(at: Problems, key: str, names: Sequence[str]) -> tuple[str, ...]:
    for number, name in enumerate(names):
        if _VARIABLE.fullmatch(name) is None or name in _SET_HERE or name.startswith("ORCH23_"):
            message = f"a program cannot get the variable `{name}`"
            at.add(f"{key}/{number}", "E812", message, "PATH, HOME, TMPDIR and ORCH23_* are set by orch23")
    return tuple(dict.fromkeys(names))


class ContextDocument(Document):
    """Content of the prompt besides the inputs."""

    own_outputs: bool = Key("true", default=False, in_key=False).doc("""
        Add the stage's last result to the prompt. Never part of the key.""")
    max_files: Count = Key("20", default=10).doc("The maximum number of files in one request.")
    max_bytes: Count = Key("300k", default="200k").doc("The maximum bytes of files in one request.")


class BriefDocument(Document):
    """How retry feedback is shortened for the next attempt."""

    limit: Count = Key("8000", default=4000).doc("A text of at most this many characters is not shortened.")
    head: Count = Key("2000", default=2500).doc("Characters to keep at the beginning.")
    tail: Count = Key("5000", default=1000).doc("Characters to keep at the end.")


class OnTruncatedDocument(Document):
    """Requests after a response that was cut off at `max_tokens`."""

    retries: Annotated[int, Meta(ge=0, le=MAX_TRUNCATED_RETRIES)] = Key("2", default=0).doc(f"""
        Further requests within the attempt, 0 to {MAX_TRUNCATED_RETRIES}.""")
    factor: Annotated[int, Meta(ge=2, le=MAX_TRUNCATED_FACTOR)] = Key("4", default=2).doc(f"""
        The factor of `max_tokens` for each further request, 2 to {MAX_TRUNCATED_FACTOR}.""")


class CacheDocument(Document):
    """How the prompt cache of the vendor is used."""

    ttl: Literal["5m", "1h"] = Key("1h", default="5m").doc("""
        How long the vendor keeps a part of a prompt after its last use. With Anthropic, writing it for an hour costs
        twice the price of input, for five minutes 1.25 times.""")
    share: bool = Key("false", default=True).doc("""
        Whether stages share cached parts. Then the first item of a foreach writes the part that all share, and the
        others wait until it is there.""")


class LLMDocument(Document):
    """Call a model."""

    later = ("samples",)

    provider: Text | UnsetType = Key("anthropic", read=None).doc("""
        The provider: `anthropic`, `openai`, `bedrock`, `vertex`, `azure`, `local`, `command`, `scripted` or one of a
        plugin.""")
    model: Text | UnsetType = Key("claude-opus-4-8", read=None).doc("The model's name, as the provider calls it.")
    prompt: Text | UnsetType = Key("prompts/app.md.j2", read=None).doc("""
        A Jinja2 file that renders the request. It sees `vars item inputs own previous brief attempt schema`.""")
    system: File | UnsetType = Key("prompts/system.md").doc("A Jinja2 file that renders the system text.")
    returns: Literal["files", "blocks", "edits", "json", "text", "code"] = Key("files", default="files").doc("""
        The format of the response: whole files as JSON, whole files as fenced blocks, edits as SEARCH/REPLACE blocks,
        one JSON value, text, or the first fenced block of code. With the last three, the stage has exactly one
        output. A stage with `edits` returns `edits` unless it says otherwise, and none of these three.""")
    only_json: bool = Key("true", default=False).doc("""
        For `returns: files` and `json`: refuse a response that is not exactly one JSON value, also one with a code
        fence or thoughts around it, which are left out otherwise.""")
    schema: File | UnsetType = Key("specs/plan.schema.json").doc("""
        A JSON schema for `returns: json`, of draft 7 unless its `$schema` names another one.""")
    max_tokens: Count | UnsetType = Key("16k").doc("""
        The maximum tokens of one response. Default: 32,000, or less if the model is known to allow less; 512 for
        `local`.""")
    on_truncated: OnTruncatedDocument | UnsetType = Key(
        "{retries: 2, factor: 2}", in_key=False, read=mapping_of(OnTruncated)
    ).doc("""
        Further requests after a response that was cut off at `max_tokens`. The default depends on the provider. Never
        part of the key.""")
    effort: Text | UnsetType = Key("low").doc("How much the model thinks; the provider defines the values.")
    thinking: Text | UnsetType = Key("adaptive").doc("The thinking mode of the model; the provider defines the values.")
    timeout: Duration = Key("10m", default="600s", to="timeout_s").doc("The time limit of one request.")
    mode: Literal["cached", "record", "replay"] = Key("replay", default="cached").doc("""
        cached: use a recorded response, else call the model. record: always call. replay: never call.""")
    transcripts: Text | UnsetType = Key("pipelines/app.transcripts", read=_read_folder).doc("""
        A directory for recorded responses, which you can commit.""")
    context: ContextDocument | UnsetType = Key("{own_outputs: true}", read=None).doc("""
        Content of the prompt besides the inputs.""")
    brief: BriefDocument | UnsetType = Key("{limit: 8000}", read=_read_brief).doc("""
        How retry feedback is shortened for the next attempt.""")
    structured_output: bool = Key("false", default=True).doc("""
        Whether the format of the response is sent to the provider as a schema, which the server then enforces. Switch
        it off for a model or a gateway that refuses requests with a schema; the response is validated in both
        cases.""")
    cache: CacheDocument | Literal["off"] = Key(
        "{ttl: 1h}",
        default=CacheDocument(),
        in_key=False,
        read=lambda _at, _key, one: None if one == "off" else CachePolicy(one.ttl, one.share),
    ).doc("How the prompt cache of the vendor is used; `off` does not use it. Never part of the key.")
    secrets: Literal["refuse", "redact"] = Key("redact", default="refuse").doc("""
        What happens to a request that contains a secret of this machine. refuse: it is not sent. redact: it is sent
        without the secret.""")
    base_url: Address | UnsetType = Key("http://127.0.0.1:11434/v1").doc("The address of a compatible server.")
    endpoint_alias: Text | UnsetType = Key("our-server").doc("""
        A name that replaces the address in keys, so that a moved server does not change them.""")
    api: Literal["responses", "chat"] | UnsetType = Key("chat").doc("""
        The interface to use, if the provider has several. Default: `chat` with a `base_url`, else `responses`.""")
    background: bool | UnsetType = Key("false", in_key=False).doc("""
        For `api: responses`. true (default): the server stores the response, so that a later build can collect it after
        a crash. false: it is streamed and not stored. Never part of the key.""")
    fallback: tuple[ModelEntry, ...] = Key(
        "[claude-sonnet-5, {provider: local, model: smollm2}]", default=(), read=_read_fallback
    ).doc("""
        What is called, in this order, if the provider is down: no connection, errors of the server, no response in
        time, a rate limit without progress. Not after a refused request, a rejected key or a refusal of the model. The
        list is part of the key.""")
    pace: Literal["standard", "flex", "batch"] = Key("batch", default="standard", in_key=False).doc("""
        How soon responses are needed. flex: half the price at OpenAI, slower, and refused while the vendor has no
        capacity; such a request waits. batch: half the price at both vendors, within a day; the build ends as waiting,
        and a later one goes on. Never part of the key.""")
    command: ProgramArguments | UnsetType = Key("[python3, tools/ask.py]").doc("""
        The program to call, for `provider: command`.""")
    read: tuple[Annotated[str, item("A file or a folder.")], ...] = Key(
        "[tools/lib, ~/.local/share/agent]", default=(), read=_read_readable
    ).doc("""
        Files and directories that the program of `command` may read: paths of the project, which it gets as copies, or
        absolute paths and `~/...`. It can always read itself, the system, and its arguments that are files of the
        project.""")
    pass_env: tuple[Annotated[str, item("A name.")], ...] = Key("[AGENT_KEY]", default=(), read=_read_names).doc("""
        Names of environment variables that the program of `command` gets, such as its key. It gets no other variables
        of yours.""")
    network: bool = Key("true", default=False).doc("Let the program of `command` use the network.")
    answers: File | UnsetType = Key("pipelines/app.answers.yaml").doc("""
        A YAML file of responses, for `provider: scripted`.""")
    seed: int | UnsetType = Key("7").doc("The seed of sampling, if the provider has one.")
    extra: dict[str, Any] | UnsetType = Key(
        "{top_p: 0.9}", read=lambda _at, _key, value: canonical_json(value).decode() if value else None
    ).doc("""
        Parameters of the provider that have no key here, as they are in its request. Those that orch23 sets itself,
        that change the price, or that ask for something else than one text are refused (E409).""")
    # No default: thinking models refuse a temperature (docs/seeds.md, S4-30).
    temperature: Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)] | UnsetType = Key(
        "0.2", read=lambda _at, _key, value: float(value)
    ).doc("The temperature of sampling, if the provider has one.")


def read_llm(llm: LLMDocument, owner: Problems) -> LLMStep:
    """Return the step; report missing and invalid settings."""
    at = owner.below("llm")
    context = {} if llm.context is UNSET else read_fields(llm.context, at.below("context"))
    step = LLMStep(
        provider=_needed(llm.provider, "provider", at),
        model=_needed(llm.model, "model", at),
        prompt=_needed(llm.prompt, "prompt", at) if llm.prompt is UNSET else at.path_at("prompt", llm.prompt) or "",
        states_max_tokens=llm.max_tokens is not UNSET,
        **context,
        **read_fields(llm, at),
    )
    for number, one in enumerate(step.fallbacks()):
        if replace(one, fallback=step.fallback) == step:
            at.add(f"fallback/{number}", "E856", "the fallback is what `llm` itself calls", "name another model")
    if step.schema is not None and step.returns != "json":
        message = f"a `schema` needs `returns: json`, but it returns {step.returns}"
        at.add("schema", "E856", message, "write `returns: json`")
    if step.only_json and step.returns not in ("files", "json"):
        message = f"`only_json` needs `returns: files` or `json`, but it returns {step.returns}"
        at.add("only_json", "E856", message, "write `only_json: false`")
    return step


def _needed(value: str | UnsetType, key: str, at: Problems) -> str:
    if value is UNSET:
        line = f"write it here, as in `{key}: {LLMDocument.declared[key].example}`"
        at.add("", "E810", f"`{key}` is missing", f"{line}, or for all stages under `defaults.llm`")
        return ""
    return value


LLM_LANGUAGE = Language(
    form=LLMDocument,
    description="Call a model for files, JSON, text or code.",
    read=read_llm,
    defaults=LLMDocument,
    example="{provider: local, model: smollm2, prompt: prompts/app.md.j2, returns: code}",
    example_of_defaults="{provider: anthropic, model: claude-opus-4-8}",
)
