"""One process fully spelled out, and what came of it: the shapes of Bazel's Remote Execution API v2, as values."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry, digest_json
from orch23.model.step_limits import DEFAULT_LIMITS, StepLimits


class Action(Struct, frozen=True, kw_only=True):
    """A process and the tree it starts from. Paths are POSIX and relative to the root of the project.

    `argv[0] == "python"` means `interpreter`. `env` is all that is added to the environment that the executor
    makes from nothing. `output_folders` exist before it starts (as REAPI has it). `scratch` are name patterns that are
    no part of the result. With `reports` set the process is given a channel on which a pytest plugin reports. Without
    `sandbox` it is not confined. Nothing here is an absolute path but `interpreter`.

    `writable` is None where the process may write its whole tree. Else it may write these paths of it and no others: a
    folder ends with `/`, everything else is a file; both are made where they are missing.
    """

    argv: tuple[str, ...]
    inputs: Mapping[str, FileEntry]
    interpreter: str
    working_directory: str = "."
    output_folders: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    scratch: tuple[str, ...] = ()
    timeout_s: float = 300.0
    network: bool = False
    reports: bool = False
    sandbox: bool = True
    limits: StepLimits = DEFAULT_LIMITS
    writable: tuple[str, ...] | None = None

    def digest(self) -> str:
        """Return the identity of the action: what it does, apart from limits, the sandbox and absolute paths."""
        return digest_json(
            {
                "argv": self.argv,
                "inputs": {path: str(entry) for path, entry in self.inputs.items()},
                "working_directory": self.working_directory,
                "output_folders": self.output_folders,
                "env": dict(self.env),
                "scratch": self.scratch,
                "network": self.network,
                "reports": self.reports,
                **({} if self.writable is None else {"writable": self.writable}),
            }
        )


class Output(Struct, frozen=True):
    """What a process printed: `text` is the first and the last part of it, `log` the whole (up to a cap) in the store.

    `log` is None where `text` is all there was.
    """

    text: str
    size_bytes: int = 0
    log: Digest | None = None


class ActionResult(Struct, frozen=True, kw_only=True):
    """What a finished process left. `written` and `removed` are the difference of its tree to what it started from.

    The bytes of everything in `written` are in the store. `violations` are things that no result may hold:
    links, special files, setuid bits, more than the caps. `touched` are paths of a read-only tree that were changed
    all the same, also where they are as before in the end: only a step without a sandbox can do that.
    """

    exit_code: int
    written: Mapping[str, FileEntry]
    removed: tuple[str, ...] = ()
    output: Output = Output("")
    report: bytes | None = None
    violations: tuple[Diagnostic, ...] = ()
    duration_s: float = 0.0
    touched: tuple[str, ...] = ()


class Completed(Struct, frozen=True):
    """The process ended by itself."""

    result: ActionResult


class TimedOut(Struct, frozen=True):
    """The process was killed, with all of its children, when its time was up. It left `written` and `removed`."""

    output: Output
    timeout_s: float
    written: Mapping[str, FileEntry] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


class Cancelled(Struct, frozen=True):
    """The build was asked to stop; the process and its children were killed."""


class InputsChanged(Struct, frozen=True):
    """These inputs no longer had the promised bytes when they were copied into the room; nothing was run."""

    paths: tuple[str, ...]


class EngineUnavailable(Struct, frozen=True):
    """The process could not be started, for a reason that is no fault of the stage's inputs.

    `diagnostic` is what there is to tell of a sandbox that could not be had, which stops the build.
    """

    reason: str
    kind: Literal["spawn", "length", "room", "sandbox"] = "spawn"
    diagnostic: Diagnostic | None = None


ActionOutcome: TypeAlias = Completed | TimedOut | Cancelled | InputsChanged | EngineUnavailable
