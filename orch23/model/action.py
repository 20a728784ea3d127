"""Processes as values: an action with its limits and files, and the outcome of running it.

Both can be sent to another machine: they name files by digest, and contain no path of this machine.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry, digest_bytes, digest_json
from orch23.model.parsing import refuse

SandboxTier: TypeAlias = Literal["landlock", "namespaces"]
"""What a sandbox isolates at least; Landlock isolates less than namespaces."""

LANDLOCK_TIER: Final = "landlock"
NAMESPACES_TIER: Final = "namespaces"


class StepLimits(Struct, frozen=True, kw_only=True):
    """Limits while a process and its descendants run; sizes are in bytes.

    `memory` limits all of them together; `files` and `disk` limit what is on disk, also without a name;
    `address_space` limits each process, None sets no limit.
    """

    memory: int = 8 << 30
    processes: int = 4096
    files: int = 1_000_000
    disk: int = 8 << 30
    # No limit by default: Node.js, Go and Java reserve much more than they use (ADR 23).
    address_space: int | None = None


DEFAULT_LIMITS = StepLimits()


PYTHON = "python"
"""As the first word of a command: the interpreter of the action."""

TOOLS_FOLDER = "{orch23:tools}"
"""In the argv of an action with tools: the absolute path of the folder that they are in."""

WORKING_DIRECTORY = "{orch23:cwd}"
"""In the argv of an action with tools: the absolute path of the working directory."""

TMPDIR_PLACE: Final = "$TMPDIR/"
"""Before a path of `Action.results`: it is below the TMPDIR of the process."""

MAX_RESULTS_BYTES: Final = 16 << 20
MAX_RESULTS_FILES: Final = 1000

_BY_PATH = "path:"
_PATH_DIGITS = 16
_NOT_INSIDE = frozenset({"", ".", ".."})


CacheMode: TypeAlias = Literal["fill", "view", "read-only"]
"""Whether a step writes to the cache of a tool, or to a view of its own, or not at all."""


class Interpreter(Struct, frozen=True):
    """Which Python an action needs. Each executor resolves it to a path of its own machine.

    `declared` is the key `python` of the stage, None for the default. A declared path is replaced by its digest (`of`),
    by which only the machine of the project finds the path again. `version` (X.Y) and `pytest` (the major version, or
    empty) are those that the key of the stage was computed with. An empty one allows any version.
    """

    declared: str | None = None
    version: str = ""
    pytest: str = ""

    def __post_init__(self) -> None:
        """Refuse a path."""
        if self.declared is not None and "/" in self.declared:
            refuse("an action names its interpreter by a path")

    @classmethod
    def of(cls, declared: str | None, version: str = "", pytest: str = "") -> "Interpreter":
        """Return the interpreter of a stage, without any path."""
        # A path is valid on one machine only. Its digest lets that machine find the path again; a worker uses its
        # default interpreter (ADR 30).
        if declared is not None and "/" in declared:
            digest = digest_bytes(declared.encode("utf-8", "surrogatepass"))
            declared = f"{_BY_PATH}{digest.sha256[:_PATH_DIGITS]}"
        return cls(declared, version, pytest)

    @property
    def is_by_path(self) -> bool:
        """Return whether the stage names a path, which only the project's own machine knows."""
        return self.declared is not None and self.declared.startswith(_BY_PATH)


class Action(Struct, frozen=True, kw_only=True):
    """A process and the tree it starts from. Paths are POSIX and relative to the root of the project.

    `argv[0] == PYTHON` stands for the interpreter of `python`, which is always first on PATH. The executor starts from
    an empty environment, adds what each process needs, and then `env`. `output_folders` exist before the process starts
    (as in REAPI). Files that match the name patterns of `scratch` are not part of the result. Without `sandbox` the
    process is not isolated.

    The bytes of `inputs` and `tools` are in the content store. `tools` are files, by name, that the executor puts into
    a folder outside of the tree, which the process cannot write. `TOOLS_FOLDER` and `WORKING_DIRECTORY` are replaced in
    each argument of an action with tools. With `reports` the folder of the tools is the PYTHONPATH, and the pytest
    plugin in it reports to the executor on a channel that the code under test cannot forge.

    `programs` are the declared tools of the stage with their sha256, as in its key. A worker with others does not run
    the action. `declared` are the digests of their entries, by which the machine of the project finds their places.

    `results` are patterns of files with results of tests, or of a depfile, in the tree or after `$TMPDIR/`. The
    executor stores those that the process created, also scratch files. With `reads`, it reports which inputs were read.

    `tool_caches` are names of tools, whose caches only the machine of the project has. `views_of` is a stage whose
    views are kept when it is promoted.

    With `writable` None the process may write its whole tree. Otherwise it may write only these paths: one that ends
    with `/` is a folder, any other a file. Both are created if they are missing.

    An action with a sandbox is not run in one that isolates less than `min_tier`. Whether it may run without any is
    the decision of the machine.
    """

    argv: tuple[str, ...]
    inputs: Mapping[str, FileEntry]
    python: Interpreter = Interpreter()
    working_directory: str = "."
    output_folders: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    scratch: tuple[str, ...] = ()
    timeout_s: float = 300.0
    network: bool = False
    # Sent as files: with a named set of tools on each worker, an action would need exactly that version (ADR 30).
    tools: Mapping[str, FileEntry] = field(default_factory=dict)
    reports: bool = False
    sandbox: bool = True
    min_tier: SandboxTier = LANDLOCK_TIER
    limits: StepLimits = DEFAULT_LIMITS
    writable: tuple[str, ...] | None = None
    programs: Mapping[str, str] = field(default_factory=dict)
    declared: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    reads: bool = False
    tool_caches: tuple[str, ...] = ()
    cache_mode: CacheMode = "view"
    views_of: str = ""

    def digest(self) -> str:
        """Return the identity of the action: what it does, without limits, sandbox, caches and the path of Python."""
        # A part with its default value is left out, so that the digest of an action without it stays the same.
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
                **({} if not self.tools else {"tools": {name: str(entry) for name, entry in self.tools.items()}}),
                **({} if not self.python.version else {"python": (self.python.version, self.python.pytest)}),
                **({} if self.writable is None else {"writable": self.writable}),
                **({} if not self.programs else {"programs": dict(self.programs)}),
                **({} if not self.results else {"results": self.results}),
                **({} if not self.reads else {"reads": self.reads}),
            }
        )

    def check_paths(self) -> None:
        """Raise ValueError if a path leads out of the tree, or the name of a tool has a directory."""
        # The sender and the worker both refuse such paths: neither relies on the other (ADR 30).
        check_inside((*self.inputs, *(entry.link for entry in self.inputs.values() if entry.link)))
        check_inside(path.removesuffix("/") for path in (*self.output_folders, *(self.writable or ())))
        check_inside(self.results)
        if self.working_directory != ".":
            check_inside((self.working_directory,))
        if any("/" in name for name in self.tools):
            refuse("the name of a tool has a directory")
        check_inside(self.tools)

    def to_bytes(self) -> bytes:
        """Return the canonical JSON of the action.

        Raises:
            ValueError: one of its strings is not valid Unicode.
        """
        return _encode(self, Action)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Action":
        """Return the action that `to_bytes` was called on.

        Raises:
            ValueError: these are not the bytes of an action, or a path leads out of its tree. An unknown field is
                refused too: it could be a restriction, which this version would ignore.
        """
        action: Action = _decode(data, cls)
        action.check_paths()
        return action


class Output(Struct, frozen=True):
    """What a process printed: `text` is its beginning and its end, `log` the digest of all of it, up to a limit.

    `log` is None if `text` is complete.
    """

    text: str
    size_bytes: int = 0
    log: Digest | None = None


class ActionResult(Struct, frozen=True, kw_only=True):
    """The result of a finished process. `written` and `removed` are the changes that it made to its tree.

    The bytes of everything in `written`, of `output.log` and of `report` are in the content store. `report` has the
    lines of JSON that the pytest plugin reported, None if it reported nothing. `violations` are what a result must not
    contain: links, special files, setuid bits, more files or bytes than the limits. `touched` are paths of a read-only
    tree that were changed, even if they were restored: only a step without a sandbox can do that. `tier` is the tier
    of the sandbox that it ran in, empty if it did not start. `results` are the files of `Action.results` by path, each
    up to `MAX_RESULTS_BYTES` and one byte more. Secrets are removed from `report` and `results` before they are stored.
    `read` are the inputs that the process may have read, None if that cannot be seen.
    """

    exit_code: int
    written: Mapping[str, FileEntry]
    removed: tuple[str, ...] = ()
    output: Output = Output("")
    # The channel of the report stays inside of the executor, so tests cannot forge it (ADR 30).
    report: Digest | None = None
    violations: tuple[Diagnostic, ...] = ()
    duration_s: float = 0.0
    # Comparing bytes would miss a file that was changed and restored (ADR 24).
    touched: tuple[str, ...] = ()
    tier: str = ""
    results: Mapping[str, Digest] = field(default_factory=dict)
    read: tuple[str, ...] | None = None


class Completed(Struct, frozen=True, tag="completed"):
    """The process ended by itself."""

    result: ActionResult


class TimedOut(Struct, frozen=True, tag="timed_out"):
    """The process was killed, with all of its children, at its timeout. `written` and `removed` are its changes.

    `report` is as in `ActionResult`.
    """

    output: Output
    timeout_s: float
    written: Mapping[str, FileEntry] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    report: Digest | None = None


class Cancelled(Struct, frozen=True, tag="cancelled"):
    """The build was asked to stop; the process and its children were killed after `ran_s`, None if none had started."""

    ran_s: float | None = None


class InputsChanged(Struct, frozen=True, tag="inputs_changed"):
    """The bytes of these inputs were not available when the tree was created; nothing was run."""

    paths: tuple[str, ...]


class EngineUnavailable(Struct, frozen=True, tag="engine_unavailable"):
    """The process could not be started, for a reason that the inputs of the stage did not cause.

    `diagnostic` is set if the machine lacks what the process needs, such as a sandbox; this stops the build.
    """

    reason: str
    # Executors of plugins and remote workers send these values (ADR 30), so they stay; `room` is the sandbox directory.
    kind: Literal["spawn", "length", "room", "sandbox"] = "spawn"
    diagnostic: Diagnostic | None = None


ActionOutcome: TypeAlias = Completed | TimedOut | Cancelled | InputsChanged | EngineUnavailable


def changes_of(outcome: ActionOutcome) -> ActionResult | TimedOut | None:
    """Return what has the output and the changes of a process that ran; None if it did not run to an end."""
    changes = outcome.result if isinstance(outcome, Completed) else outcome
    return changes if isinstance(changes, ActionResult | TimedOut) else None


def check_inside(paths: Iterable[str]) -> None:
    """Raise ValueError for a path that is absolute, contains `..` or a NUL, or has an empty segment."""
    for path in paths:
        if not _NOT_INSIDE.isdisjoint(path.split("/")) or "\0" in path:
            refuse(f"the path {path!r} leads out of the tree")


def link_text(path: str, inputs: Mapping[str, FileEntry]) -> str | None:
    """Return the text of the link as which an input is staged: a link to another input. None for a file."""
    entry = inputs.get(path)
    if entry is None or not entry.link or inputs.get(entry.link) != FileEntry(entry.digest, entry.executable):
        return None
    above, target = path.split("/")[:-1], entry.link.split("/")
    while above and target[1:] and above[0] == target[0]:
        above, target = above[1:], target[1:]
    return "/".join([*(".." for _ in above), *target])


def required_folders(writable: Iterable[str]) -> tuple[str, ...]:
    """Return the folders that must exist: the writable folders, and the parents of writable files."""
    return tuple(dict.fromkeys(path.rpartition("/")[0] for path in writable if "/" in path))


def outcome_to_bytes(outcome: ActionOutcome) -> bytes:
    """Return the canonical JSON of an outcome.

    Raises:
        ValueError: one of its strings is not valid Unicode.
    """
    return _encode(outcome, ActionOutcome)


def outcome_from_bytes(data: bytes) -> ActionOutcome:
    """Return the outcome that `outcome_to_bytes` was called with.

    Raises:
        ValueError: these are not the bytes of an outcome, or a file that it names is outside of the tree.
    """
    outcome: ActionOutcome = _decode(data, ActionOutcome)
    if (changes := changes_of(outcome)) is not None:
        results = changes.results if isinstance(changes, ActionResult) else ()
        check_inside((*changes.written, *changes.removed, *results))
    return outcome


def _encode(value: object, kind: Any) -> bytes:
    # Equal values must have equal bytes: decoding makes the 300 of a caller the 300.0 that the field declares.
    return _canonical(msgspec.json.decode(msgspec.json.encode(value), type=kind))


def _decode(data: bytes, kind: Any) -> Any:
    try:
        value = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:  # the value of an unknown field may be nested deeply
        raise ValueError(str(error)) from None
    if _canonical(value) != data:  # msgspec ignores unknown fields, and takes the last of two
        refuse("the bytes are not canonical JSON, or have unknown or repeated fields")
    return value


def _canonical(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")
