"""Know the providers by name: how each is made, what it takes, and what of it is in the key."""

import difflib
import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, digest_bytes
from orch23.model.llm import Provider
from orch23.model.pipeline import LLMStep
from orch23.providers import codes, local_model
from orch23.providers.command import Command, Programs
from orch23.providers.local import DEFAULT_SEED, DEFAULT_TEMPERATURE, Local, LocalServer
from orch23.providers.scripted import Scripted

ReadAnswers = Callable[[str], Mapping[str, Sequence[str]]]
"""Reads the file that `llm.answers` names (YAML, relative to the root): stage or `stage@item` -> answers by attempt."""

_SPECIFIC = ("effort", "thinking", "base_url", "endpoint_alias", "command", "answers", "seed", "temperature")
_LATER = frozenset({"anthropic", "openai"})


class Providers:
    """The providers of one run: makes one for each attempt, and owns what they share, the local model's server."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        root: Path,
        read_answers: ReadAnswers,
        server: LocalServer | None = None,
    ) -> None:
        """Keep what providers are made from; nothing is started or read yet."""
        self.environ = environ
        self.root = root
        self.read_answers = read_answers
        self.programs = Programs()
        self.server = server or LocalServer(environ)

    def make(self, step: LLMStep, stage: str, attempt: int) -> Provider:
        """Return the provider of one attempt (counted from 1) of a stage. Making it starts nothing.

        Raises:
            KeyError: the provider is unknown; `check` says so before any stage starts.

        """
        return ADAPTERS[step.provider].make(self, step, stage, attempt)

    def request_parameters(self, step: LLMStep, stage: str, attempt: int) -> Mapping[str, Json]:
        """Return `Request.params`: the parameters, and for `scripted` the digest of the answer that will be given.

        So an edited answer is another request, and two attempts with one prompt but two answers are two.
        """
        if step.provider != "scripted":
            return parameters(step)
        text = Scripted(self.read_answers(step.answers or ""), stage, attempt).answer()
        return {**parameters(step), "answer": None if text is None else digest_bytes(text.encode()).sha256}

    def close(self) -> None:
        """End what was started."""
        self.programs.close()
        self.server.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One provider: how to make it, which of the fields of `llm` it takes, and what it hands on of them."""

    make: Callable[[Providers, LLMStep, str, int], Provider]
    takes: frozenset[str]
    parameters: Callable[[LLMStep], Mapping[str, Json]]
    endpoint: Callable[[LLMStep], str]
    check: Callable[[LLMStep, Mapping[str, str], Path | None], tuple[Diagnostic, ...]]


def check(step: LLMStep, environ: Mapping[str, str], root: Path | None = None) -> tuple[Diagnostic, ...]:
    """Return everything that keeps a step from being asked, as far as it can be known before any stage starts.

    Weights of the local model are not looked for: recordings may answer in its place. The caller adds the location.
    """
    adapter = ADAPTERS.get(step.provider)
    if adapter is None:
        return (_unknown(step.provider),)
    defaults = {f.name: f.default for f in fields(LLMStep)}
    strange = tuple(
        _strange(name, step.provider)
        for name in _SPECIFIC
        if name not in adapter.takes and getattr(step, name) != defaults[name]
    )
    return (*strange, *adapter.check(step, environ, root))


def parameters(step: LLMStep) -> Mapping[str, Json]:
    """Return the parameters that go into the stage key and the fingerprint, explicit where they have a default."""
    return ADAPTERS[step.provider].parameters(step)


def endpoint(step: LLMStep) -> str:
    """Return who is asked, in the form that is hashed: the alias if there is one, never a key or an absolute path."""
    return step.endpoint_alias or ADAPTERS[step.provider].endpoint(step)


# ---- the adapters -----------------------------------------------------------------------------


def _make_local(providers: Providers, step: LLMStep, stage: str, attempt: int) -> Provider:
    del step, stage, attempt
    return Local(providers.server)


def _make_command(providers: Providers, step: LLMStep, stage: str, attempt: int) -> Provider:
    del stage, attempt
    return Command(argv=step.command, root=providers.root, environ=providers.environ, programs=providers.programs)


def _make_scripted(providers: Providers, step: LLMStep, stage: str, attempt: int) -> Provider:
    return Scripted(providers.read_answers(step.answers or ""), stage, attempt)


def _local_parameters(step: LLMStep) -> Mapping[str, Json]:
    return {
        "max_tokens": step.max_tokens,
        "seed": DEFAULT_SEED if step.seed is None else step.seed,
        "temperature": DEFAULT_TEMPERATURE if step.temperature is None else step.temperature,
    }


def _check_local(step: LLMStep, environ: Mapping[str, str], root: Path | None) -> tuple[Diagnostic, ...]:
    del environ, root
    known = [model.name for model in local_model.known_models()]
    if step.model in known:
        return ()
    message = f"the provider `local` has no model `{step.model}`"
    return (Diagnostic(codes.UNKNOWN_MODEL, message, hint=_did_you_mean(step.model, known)),)


def _check_command(step: LLMStep, environ: Mapping[str, str], root: Path | None) -> tuple[Diagnostic, ...]:
    if not step.command:
        hint = "give it as `command: [program, argument]`"
        return (Diagnostic(codes.NOT_FOUND, "the provider `command` needs a command", hint=hint),)
    program = step.command[0]
    if "/" in program:
        path = (root or Path()) / program
        found = path.is_file() and os.access(path, os.X_OK)
    else:
        found = shutil.which(program, path=environ.get("PATH", "")) is not None
    if found:
        return ()
    where = "no program that can be run" if "/" in program else "not on PATH"
    return (Diagnostic(codes.NOT_FOUND, f"`{program}` is {where}", hint="install it, or correct `llm.command`"),)


def _check_scripted(step: LLMStep, environ: Mapping[str, str], root: Path | None) -> tuple[Diagnostic, ...]:
    del environ
    hint = "give it as `answers: FILE`, a mapping of stage to a list of answers"
    if not step.answers:
        return (Diagnostic(codes.NO_ANSWER, "the provider `scripted` needs a file of answers", hint=hint),)
    if root is not None and not (root / step.answers).is_file():
        return (Diagnostic(codes.NO_ANSWER, f"there is no file `{step.answers}`", hint=hint),)
    return ()


ADAPTERS: Mapping[str, Adapter] = {
    "local": Adapter(
        make=_make_local,
        takes=frozenset({"seed", "temperature"}),
        parameters=_local_parameters,
        endpoint=lambda _step: "llama.cpp",
        check=_check_local,
    ),
    "command": Adapter(
        make=_make_command,
        takes=frozenset({"command", "endpoint_alias"}),
        parameters=lambda step: {"max_tokens": step.max_tokens},
        endpoint=lambda step: f"command {shlex.join(step.command)}",
        check=_check_command,
    ),
    "scripted": Adapter(
        make=_make_scripted,
        takes=frozenset({"answers"}),
        parameters=lambda step: {"answers": step.answers},
        endpoint=lambda _step: "scripted",
        check=_check_scripted,
    ),
}


def _unknown(name: str) -> Diagnostic:
    if name in _LATER:
        message = f"the provider `{name}` comes in a later version"
        hint = "until then, `provider: command` runs a program that asks it"
    else:
        message = f"there is no provider `{name}`"
        hint = _did_you_mean(name, sorted(ADAPTERS))
    return Diagnostic(codes.UNKNOWN_PROVIDER, message, hint=hint)


def _strange(name: str, provider: str) -> Diagnostic:
    takers = [other for other, adapter in sorted(ADAPTERS.items()) if name in adapter.takes]
    hint = f"remove it; taken by: {', '.join(takers)}" if takers else "remove it; no provider of this version takes it"
    return Diagnostic(codes.PARAMETER, f"the provider `{provider}` does not take `{name}`", hint=hint)


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean `{close[0]}`?" if close else f"known are: {', '.join(known)}"
