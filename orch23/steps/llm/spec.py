"""Fields, key and description of an llm step."""

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.digest import Json
from orch23.model.event_data import RecordingMode
from orch23.model.llm import CachePolicy, OnTruncated, Pace
from orch23.model.pipeline import BriefLimits, ModelChoice, Retry
from orch23.model.record import Facts
from orch23.model.step import Step, check_one_file

if TYPE_CHECKING:
    from orch23.model.fields import Problems


DEFAULT_MAX_TOKENS: Final = 32_000


class LLMStep(Step, Struct, frozen=True, omit_defaults=True, tag="llm", kw_only=True):
    """Call a model. `returns` is the format of its response; paths in it are relative to the stage's cwd.

    `api` selects one of the interfaces of a provider. `background` and `on_truncated` are None for the provider's own
    default. With `only_json`, a response must be JSON and nothing else. `secrets` is what happens to a prompt with a
    secret. Without `structured_output`, no schema is sent.
    `read` are files and folders that the program `command` may read: relative to the root, or absolute. `pass_env` are
    names of environment variables that it gets. `from_plugins` are the plugins of the pipeline, which can bring the
    provider. Without `states_max_tokens`, `max_tokens` is the default, which a model may lower. Without `cache`, the
    prompt cache of the vendor is not used. `extra` is canonical JSON. `fallback` are called in this order if the
    provider is down.
    """

    kind: ClassVar[str] = "llm"
    language: ClassVar[str] = "orch23.steps.llm.language:LLM_LANGUAGE"
    run: ClassVar[str] = "orch23.runners.llm:LLM_RUNNER"
    show: ClassVar[str] = "orch23.steps.llm.spec:show_llm"
    author_keys: ClassVar[tuple[str, ...]] = ("prompt", "system", "schema")
    asks_model: ClassVar[bool] = True
    may_edit: ClassVar[bool] = True
    # Fields that only some providers have, or that mean something else at another provider.
    provider_fields: ClassVar[tuple[str, ...]] = (
        *("effort", "thinking", "base_url", "endpoint_alias", "command", "read", "pass_env", "network", "answers"),
        *("seed", "temperature", "api", "background", "pace", "extra"),
    )

    provider: str
    model: str
    prompt: str
    system: str | None = None
    returns: Literal["files", "blocks", "edits", "json", "text", "code"] = "files"
    only_json: bool = False
    schema: str | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    states_max_tokens: bool = False
    effort: str | None = None
    thinking: str | None = None
    timeout_s: float = 600.0
    mode: RecordingMode = "cached"
    transcripts: str | None = None
    own_outputs: bool = False
    max_files: int = 10
    max_bytes: int = 200_000
    brief: BriefLimits = BriefLimits()
    base_url: str | None = None
    endpoint_alias: str | None = None
    command: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    pass_env: tuple[str, ...] = ()
    network: bool = False
    answers: str | None = None
    seed: int | None = None
    temperature: float | None = None
    extra: str | None = None
    api: Literal["responses", "chat"] | None = None
    background: bool | None = None
    # The same request for another price: part of no key and no fingerprint (ADR 44).
    pace: Pace = "standard"
    on_truncated: OnTruncated | None = None
    secrets: Literal["refuse", "redact"] = "refuse"
    structured_output: bool = True
    fallback: tuple[ModelChoice, ...] = ()
    # How prompts are sent does not change a response: part of no key and no fingerprint.
    cache: CachePolicy | None = CachePolicy()
    # Part of the step, since only its pipeline knows the plugins; name and version are in the key (ADR 32).
    from_plugins: tuple[str, ...] = ()

    def of_plugins(self, plugins: tuple[str, ...]) -> "LLMStep":
        """Return the step with the plugins of its pipeline, which can bring the provider."""
        return replace(self, from_plugins=plugins) if plugins else self

    def with_edits(self, stated: Json) -> "LLMStep":
        """Return the step of a stage with `edits`, which returns edits unless `stated`, as written, has a form."""
        is_stated = isinstance(stated, Mapping) and "returns" in stated
        return self if is_stated or self.only_json else replace(self, returns="edits")

    def of_attempt(self, retry: Retry, attempt: int) -> "LLMStep":
        """Return the step of an attempt (from 1): with the n-th entry of `retry.escalate`, whose last one repeats."""
        listed = retry.escalate
        return self.with_choice(listed[min(attempt, len(listed)) - 1]) if listed else self

    def of_attempts(self, retry: Retry) -> "tuple[LLMStep, ...]":
        """Return the steps that attempts can have, each once, in the order of their first attempt."""
        return tuple(dict.fromkeys(map(self.with_choice, retry.usable))) or (self,)

    def fallbacks(self) -> "tuple[LLMStep, ...]":
        """Return the step of each entry of `fallback`; each has those after it as its own."""
        return tuple(
            replace(self.with_choice(one), fallback=self.fallback[number + 1 :])
            for number, one in enumerate(self.fallback)
        )

    def with_choice(self, choice: str | ModelChoice) -> "LLMStep":
        """Return the step with another model, or with the settings that a choice states.

        For another provider, the step loses what is meant for its own: address, program, and parameters of its scale.
        """
        if isinstance(choice, str):
            return replace(self, model=choice)
        stated: dict[str, Any] = dict(choice)
        if stated.get("provider", self.provider) != self.provider:
            usual = zip(reversed(LLMStep.__struct_fields__), reversed(LLMStep.__struct_defaults__), strict=False)
            stated = {**{name: value for name, value in usual if name in LLMStep.provider_fields}, **stated}
        elif "base_url" in stated:
            stated = {"endpoint_alias": None, **stated}  # it is the name of the other address
        return replace(self, **stated, states_max_tokens=self.states_max_tokens or "max_tokens" in stated)

    def program_files(self, matching: Callable[[str], Iterable[str]] = lambda pattern: (pattern,)) -> Iterator[str]:
        """Yield the normal paths in the project that the program, its arguments and `read` name, and what is below.

        Not all of them exist. Without a `/`, the name of the program is searched on PATH, and is not a path.
        """
        for text in (*(one for one in self.command[:1] if "/" in one), *self.command[1:], *self.read):
            path = posixpath.normpath(text) if text else "."
            if path != "." and not path.startswith(("/", "..", "~/")) and "\0" not in path:
                yield path
                if text in self.read:
                    yield from matching(f"{path}/**")

    def aspects(self, facts: Facts) -> Mapping[str, Json]:
        """Return the model and its parameters; resolving the stage adds the texts of the prompt."""
        return {
            "kind": self.kind,
            "provider": self.provider,
            "model": self.model,
            "endpoint": facts.endpoint,
            "api": facts.api or None,
            "params": dict(facts.params),
            "returns": self.returns,
            "only_json": self.only_json or None,
            "context": [self.max_files, self.max_bytes],
            "fallback": [_aspect(one) for one in self.fallback] or None,
        }

    def check_outputs(self, outputs: tuple[str, ...], writes: tuple[str, ...], at: "Problems") -> None:
        """Report outputs that do not fit the format of the response."""
        if self.returns not in ("files", "blocks", "edits"):
            check_one_file(outputs, f"an llm stage with `returns: {self.returns}`", at)
        elif not writes:
            hint = "add `outputs`, or `allowed_paths.write`"
            at.add("", "E855", "an llm stage that returns files has nowhere to write", hint)


def _aspect(choice: ModelChoice) -> dict[str, Json]:
    """Return an entry as it is in the key: an alias replaces the address, as everywhere."""
    stated: dict[str, Json] = dict(choice)
    return {name: value for name, value in stated.items() if name != "base_url" or "endpoint_alias" not in stated}


def show_llm(step: LLMStep) -> str:
    """Return the provider and the model."""
    return f"{step.provider} {step.model}"
