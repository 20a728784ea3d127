"""The interface of a provider: what is known without a call, and what the calls of a run share."""

import importlib.util
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic, did_you_mean
from orch23.model.digest import FileEntry, Json
from orch23.model.event import Event
from orch23.model.llm import OnTruncated, Provider, Request
from orch23.model.step import Grant

if TYPE_CHECKING:
    from orch23.model.batches import Batches
    from orch23.model.media import MediaKind
    from orch23.providers.media import MediaLimits
    from orch23.providers.model_facts import ModelFacts
    from orch23.steps.llm.spec import LLMStep


class ScriptedCase(Struct, frozen=True, forbid_unknown_fields=True):
    """Scripted responses by attempt, for requests that contain the text `when`; by default for every request.

    `requests` are digests of the first requests that they were written for; empty for any (ADR 47).
    """

    texts: tuple[str, ...] = field(name="answers")
    when: str = ""
    requests: tuple[str, ...] = ()


# Stage or `stage@item` -> its cases. The first that matches a request counts.
ScriptedResponses: TypeAlias = Mapping[str, Sequence[ScriptedCase]]

# Reads the file that `llm.answers` names (YAML, relative to the root).
ReadScriptedResponses: TypeAlias = Callable[[str], ScriptedResponses]

# The prices of a provider: free, unknown, or those of a vendor in the price table. `unbounded`: a program may call a
# model any number of times, and the pipeline can only say that this is free.
Pricing: TypeAlias = Literal["free", "unknown", "unbounded", "anthropic", "openai", "aws", "google"]


class ProjectFiles(Protocol):
    """The files of the project, as digests."""

    def entry(self, path: str) -> FileEntry | None:
        """Return the entry at a path; None if it is not a regular file."""

    def listing(self, pattern: str) -> tuple[str, ...]:
        """Return the paths of the regular files that a pattern matches."""


class ProgramCall(Struct, frozen=True, kw_only=True):
    """One call of a program. Its working directory has copies of `files` and nothing else.

    `program` is the path of the executable outside of the project; None if `argv[0]` is one of `files`. `reads` are
    absolute paths that it may read. A program that prints more than `stdout_bytes` or `stderr_bytes` is killed.
    `on_output` gets its stdout as it comes.
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
    """The result of a program. `fault` is why it was killed, if it was; `stderr` is the end of its stderr."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    fault: Literal["", "time", "output", "limit", "cancelled"] = ""
    excess: str = ""


class ProgramRunner(Protocol):
    """Runs programs in a sandbox."""

    def missing(self) -> Diagnostic | None:
        """Return why no program can run on this machine; None if they can."""

    def run(self, call: ProgramCall) -> ProgramResult:
        """Run a program to its end.

        Raises:
            OSError: it cannot be started.
            ConfigurationError: there is no sandbox to run it in.
            SafetyError: a file of the project changed meanwhile, and the program may have changed it.
        """

    def close(self) -> None:
        """End all running programs, and start no more."""


class Closable(Protocol):
    """A resource that all providers of a run share, and that ends with the run: a server, programs, connections."""

    def close(self) -> None:
        """End it. A build that ends leaves no call running."""


Shared = TypeVar("Shared", bound=Closable)


class ProviderContext(Struct, frozen=True, kw_only=True):
    """The context in which the adapters of a run make their providers.

    `is_granted` returns whether the user has consented to a grant; `files` are those of the project; `runner` runs
    programs, only in a build. `trust_command` is the command to consent. `submitted` maps fingerprints to the ids of
    responses that a provider has worked on since an interrupted run; they are paid for and only have to be collected.
    `notice` takes events, such as the id of a new one.
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
    _at_stop: list[Callable[[], None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def share(self, kind: type[Shared], make: Callable[[], Shared]) -> Shared:
        """Return the shared instance of a class, made at the first call."""
        with self._lock:
            found = self._shared.get(kind)
            if not isinstance(found, kind):
                found = self._shared[kind] = make()
            return found

    def at_stop(self, act: Callable[[], None]) -> None:
        """Call a function when the run stops: no call starts any more, and those in progress go on."""
        self._at_stop.append(act)

    def stop(self) -> None:
        """Call the functions of `at_stop`."""
        for act in list(self._at_stop):
            act()

    def close(self) -> None:
        """Close all shared resources."""
        with self._lock:
            shared = list(self._shared.values())
        for one in (*shared, self.runner):
            if one is not None:
                one.close()


class CallContext(Struct, frozen=True):
    """The caller: the step, the stage, the attempt (from 1)."""

    step: "LLMStep"
    stage: str
    attempt: int = 1


# What a provider must define.
REQUIRED: Final = ("make", "endpoint", "api")


class Adapter:
    """A provider for one step. All but `make`, `batches`, `prepare` and `look_up` work without a call.

    They import no client library, either. A provider has at least `make`, `endpoint` and `api`. `takes` are the fields
    of `llm` that only some providers have; those of `sends` are parameters of a request. `sets` are the fields of the
    body of a request, with dots, that `llm.extra` cannot have. `media` are the provider's limits for pictures and PDFs.
    `usual_max_tokens` is the default of `max_tokens`; None for the usual one.
    """

    takes: ClassVar[frozenset[str]] = frozenset()
    sets: ClassVar[frozenset[str]] = frozenset()
    sends: ClassVar[tuple[str, ...]] = ("max_tokens",)
    pricing: ClassVar[Pricing] = "unknown"
    # Vendors count input from the prompt cache differently against the limit of tokens.
    limits_cached_input: ClassVar[bool] = True
    on_truncated: ClassVar[OnTruncated] = OnTruncated()
    media: "ClassVar[MediaLimits | None]" = None
    usual_max_tokens: ClassVar[int | None] = None
    # Loads what a call needs, while earlier stages run; None if that takes no time. Called in a thread, at most once a
    # build for a provider; its errors are ignored, since the call raises them too.
    prepare: ClassVar[Callable[[Any, ProviderContext], None] | None] = None
    # Returns the batches of the step's server. Only the vendor's: other servers do not have its interface.
    batches: "ClassVar[Callable[[Any, ProviderContext], Batches] | None]" = None
    # Asks the server for the step's model within some seconds, and returns its name.
    look_up: ClassVar[Callable[[Any, Mapping[str, str], float], object] | None] = None

    def __init__(self, step: "LLMStep") -> None:
        """Set the step."""
        self.step = step

    def make(self, setting: ProviderContext, asking: CallContext) -> Provider:
        """Return the provider of one attempt of a stage. Making it starts nothing and imports no client library."""
        raise NotImplementedError

    @property
    def parameters(self) -> Mapping[str, Json]:
        """The parameters of a request, without those that are not set. They are hashed, so defaults are explicit."""
        # A default of a client library could change with its version, and with it every request.
        return {name: value for name in self.sends if (value := getattr(self.step, name)) is not None}

    @property
    def endpoint(self) -> str:
        """The server as it is hashed, never a key or an absolute path."""
        raise NotImplementedError

    @property
    def api(self) -> str:
        """The interface of the server, with its version."""
        raise NotImplementedError

    @property
    def is_remote(self) -> bool:
        """Whether a call leaves the machine, or may."""
        return True

    def wire(self, schema: Json) -> Json:
        """Reduce the step's JSON schema (None if it has none) to the one that is sent."""
        # Not done by the vendors' libraries: they would be imported to compute a key (ADR 10).

    def check(self, root: Path | None) -> Iterable[Diagnostic]:  # noqa: ARG002 - what is declared for all providers
        """Return the errors of the step on any machine. `root` is the root of the project, if there is one."""
        return ()

    def ready(self, environ: Mapping[str, str], root: Path | None) -> Iterable[Diagnostic]:  # noqa: ARG002 - as above
        """Return why a valid step cannot call its model on this machine now: no key, no library, no weights."""
        # Checked only for calls that are certain: a build from recordings needs no key (ADR 11).
        return ()

    def consent(self, environ: Mapping[str, str], root: Path, files: ProjectFiles) -> Grant | None:
        """Return the grant that the user must give before a call; None if none is needed."""

    def server(self, environ: Mapping[str, str]) -> tuple[str, str]:  # noqa: ARG002 - what is declared for all providers
        """Return the address that is called, and the variable of the environment that it is from, if it is."""
        return self.endpoint, ""

    @property
    def stored_at(self) -> str:
        """The server that keeps a response after it was sent; empty if none does."""
        return ""

    @property
    def streams(self) -> bool:
        """Whether a call reports the first event of its response, with an empty text."""
        # A call that only reports its end would delay the others for as long as it takes.
        return False

    @property
    def accepts(self) -> "frozenset[MediaKind]":
        """The kinds of media that the step's model accepts, at any server."""
        return frozenset()

    @property
    def facts(self) -> "ModelFacts | None":
        """The facts of the step's model at the step's server; None if nothing is known."""
        return None

    @property
    def repeats(self) -> bool:
        """Whether the same request gets the same response again. A vendor does not promise it."""
        return False


def unsupported_error(subject: str, message: str, hint: str) -> Diagnostic:
    """Return the error of a setting of `llm` that a provider or a model does not have."""
    return Diagnostic("E409", message, hint=hint, subject=subject)


def library_errors(library: str, module: str = "") -> list[Diagnostic]:
    """Return the error if a client library is not installed; `module` is its module, if the name differs."""
    names = (module or library).split(".")
    if all(importlib.util.find_spec(".".join(names[: end + 1])) is not None for end in range(len(names))):
        return []
    from orch23.providers.installation import install_command  # noqa: PLC0415 - for this error alone

    return [Diagnostic("E413", f"the library `{library}` is not installed", hint=install_command(library))]


def nearest_hint(name: str, known: Sequence[str]) -> str:
    """Return a hint with the nearest of the known names, or with all of them."""
    otherwise = f"use one of: {', '.join(known)}"
    return did_you_mean(name, known, otherwise) or otherwise


def seed_of(request: Request) -> Mapping[str, Json]:
    """Return the seed to send, if the request has one. Each sample has its own, or its text would be the same."""
    seed = request.params.get("seed")
    return {"seed": seed + request.sample} if isinstance(seed, int) else {}
