"""The interface of a provider: what is known without a call, and what the calls of a run share."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic, nearest_names
from orch23.model.digest import FileEntry, Json
from orch23.model.event import Event
from orch23.model.llm import OnTruncated, Provider, Request
from orch23.model.step import Grant

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


class ScriptedCase(Struct, frozen=True):
    """Scripted answers by attempt, for requests that hold the text `when`; every request holds the empty one."""

    texts: tuple[str, ...]
    when: str = ""


SCRIPTED_PROVENANCE = "scripted: written by hand, no model was asked"
"""Where a scripted answer is from, as its record says."""

ScriptedResponses: TypeAlias = Mapping[str, Sequence[ScriptedCase]]
"""Stage or `stage@item` -> its cases, of which the first that fits a request counts."""

ReadScriptedResponses: TypeAlias = Callable[[str], ScriptedResponses]
"""Reads the file that `llm.answers` names (YAML, relative to the root)."""

Pricing: TypeAlias = Literal["free", "unknown", "anthropic", "openai"]
"""Whose prices hold: nobody's, since asking costs nothing; nobody knows; or a vendor's, as the price table calls it."""


class ProjectFiles(Protocol):
    """The files of the project, as digests."""

    def entry(self, path: str) -> FileEntry | None:
        """Return what is at a path; None if that is not a regular file."""

    def listing(self, pattern: str) -> tuple[str, ...]:
        """Return the paths of the regular files that a pattern matches."""


class ProgramCall(Struct, frozen=True, kw_only=True):
    """One call of a program that answers. Its working directory holds copies of `files` and nothing else.

    `program` is the path of the executable outside of the project; None if `argv[0]` is one of `files`. `reads` are
    absolute paths that it may read. Of stdout `stdout_bytes` are taken, of stderr `stderr_bytes`; a program that prints
    more is killed. `on_output` gets what it prints on stdout, as it comes.
    """

    argv: tuple[str, ...]
    program: Path | None
    files: Mapping[str, FileEntry]
    reads: tuple[Path, ...]
    env: Mapping[str, str]
    network: bool
    stdin: bytes
    timeout_s: float
    stdout_bytes: int
    stderr_bytes: int
    on_output: Callable[[bytes], None]


class ProgramResult(Struct, frozen=True, kw_only=True):
    """How a program ended. `fault` says why it was killed, if it was; `stderr` is the last part of what it printed."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    fault: Literal["", "time", "output", "limit", "cancelled"] = ""
    excess: str = ""


class ProgramRunner(Protocol):
    """Runs programs in a sandbox."""

    def missing(self) -> Diagnostic | None:
        """Return why no program can be run on this machine; None where they can."""

    def run(self, call: ProgramCall) -> ProgramResult:
        """Run a program to its end.

        Raises:
            OSError: it cannot be started.
            ConfigurationError: there is no sandbox to run it in.
            SafetyError: a file of the project changed meanwhile, and it may have been the program.

        """

    def close(self) -> None:
        """End all that run, and start no more."""


class Closable(Protocol):
    """What providers of one run share and what has to be ended with the run: a server, programs, connections."""

    def close(self) -> None:
        """End it. A build that ends leaves no call running."""


Shared = TypeVar("Shared", bound=Closable)


class ProviderContext(Struct, frozen=True, kw_only=True):
    """What the adapters of a run make their providers from.

    `is_granted` tells whether the user has consented to something; `files` are those of the project; `runner` runs
    programs, for a build alone. `trust_command` is what the user runs to consent. `submitted` maps fingerprints to the
    ids of answers that a provider is working on since an interrupted run; they are paid for and only have to be
    collected. `notice` takes events, such as the id of a new one.
    """

    environ: Mapping[str, str]
    root: Path
    read_answers: ReadScriptedResponses
    notice: Callable[[Event], None]
    is_granted: Callable[[Grant], bool]
    files: ProjectFiles
    runner: ProgramRunner | None = None
    trust_command: str = "orch23 trust"
    submitted: Mapping[str, str] = field(default_factory=dict)
    _shared: dict[type, Closable] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def share(self, kind: type[Shared], make: Callable[[], Shared]) -> Shared:
        """Return the one thing of a kind that the providers of this run share, made at the first call."""
        with self._lock:
            found = self._shared.get(kind)
            if not isinstance(found, kind):
                found = self._shared[kind] = make()
            return found

    def close(self) -> None:
        """End all that is shared."""
        with self._lock:
            shared = list(self._shared.values())
        for one in (*shared, self.runner):
            if one is not None:
                one.close()


class CallContext(Struct, frozen=True):
    """Who asks: the step, the stage, the attempt (from 1)."""

    step: "LLMStep"
    stage: str
    attempt: int = 1


def _no_schema(step: "LLMStep", schema: Json) -> Json:
    del step, schema
    return None


def _nothing_wrong(step: "LLMStep", environ: Mapping[str, str], root: Path | None) -> tuple[Diagnostic, ...]:
    del step, environ, root
    return ()


def _no_consent(step: "LLMStep", environ: Mapping[str, str], root: Path, files: ProjectFiles) -> Grant | None:
    del step, environ, root, files
    return None


class Adapter(Struct, frozen=True, kw_only=True):
    """One provider. All but `make` is known without asking anybody and without importing a client library.

    `takes` are the fields of `llm` that only some providers have; `parameters` are hashed, explicit where they have a
    default; `endpoint` and `api` say who is asked, never with a key or an absolute path; `wire` reduces the step's
    JSON schema (None if it has none) to what is sent. `check` is what is wrong with a step wherever it runs, `ready`
    what keeps it from being asked on this machine now; `remote` says that asking leaves the machine, or may. `consent`
    is what the user has to consent to before a step is asked; None where that is nothing.
    """

    make: Callable[[ProviderContext, CallContext], Provider]
    takes: frozenset[str] = frozenset()
    parameters: "Callable[[LLMStep], Mapping[str, Json]]"
    endpoint: "Callable[[LLMStep], str]"
    api: "Callable[[LLMStep], str]"
    pricing: Pricing
    remote: "Callable[[LLMStep], bool]"
    wire: "Callable[[LLMStep, Json], Json]" = _no_schema
    check: "Callable[[LLMStep, Mapping[str, str], Path | None], tuple[Diagnostic, ...]]" = _nothing_wrong
    ready: "Callable[[LLMStep, Mapping[str, str], Path | None], tuple[Diagnostic, ...]]" = _nothing_wrong
    consent: "Callable[[LLMStep, Mapping[str, str], Path, ProjectFiles], Grant | None]" = _no_consent
    on_truncated: OnTruncated = field(default_factory=OnTruncated)


def nearest_hint(name: str, known: Sequence[str]) -> str:
    """Return a hint with the nearest of the known names, or with all of them."""
    close = nearest_names(name, known)
    return f"did you mean `{close[0]}`?" if close else f"known are: {', '.join(known)}"


def seed_of(request: Request) -> Mapping[str, Json]:
    """Return the seed to send, if the request has one: a further sample has a further seed, or it would be the same."""
    seed = request.params.get("seed")
    return {"seed": seed + request.sample} if isinstance(seed, int) else {}
