"""Base classes of the step kinds, and the grants that a step needs from the user.

Each class is a frozen Struct. Its other parts are named as `module:attribute`, and loaded when they are needed: a
stored plan needs no language, and a plan that is only shown needs nothing that runs.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec import Struct

from orch23.model.digest import Json, digest_json
from orch23.model.plugins import load_object
from orch23.model.record import Facts

if TYPE_CHECKING:
    from orch23.model.fields import Problems


class Grant(Struct, frozen=True, kw_only=True):
    """One permission that the user gives a project; if any field differs, it is another grant.

    `name` is the program or tool as the pipeline names it, or the origin of a server (`https://host:port`). `sha256`
    covers the bytes of the program, its arguments and the files that it gets, in hex; it is empty for a tool or a
    server. `keys` are the names of the environment variables that it gets, `reads` the paths outside of the project
    that a program may read. `detail` is the exact command, and `files` the files of the project that it gets; both are
    shown to the user, but not compared and not stored.
    """

    kind: Literal["program", "tool", "server", "download", "cache", "cache-write"]
    # Without the path of a URL: all paths of a server are served by the same owner (ADR 25).
    name: str
    keys: tuple[str, ...] = ()
    # With the arguments, because `python3 -c ...` can be any program (ADR 25).
    sha256: str = ""
    network: bool = False
    reads: tuple[str, ...] = ()
    detail: str = ""
    files: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Return whether it allows the same; `detail` and `files` are not compared."""
        return self._compared() == other._compared() if isinstance(other, Grant) else NotImplemented

    def __hash__(self) -> int:
        """Return a hash of what is compared."""
        return hash(self._compared())

    def _compared(self) -> tuple[object, ...]:
        return self.kind, self.name, self.keys, self.sha256, self.network, self.reads

    def __str__(self) -> str:
        """Describe it in one line, for a message."""
        whats = {
            "program": f"run `{self.detail or self.name}`",
            "tool": f"show its steps the program {self.name}",
            "server": f"send prompts to {self.name}",
            "download": f"download from {self.name}",
            "cache": f"use results of the shared cache {self.name}",
            "cache-write": f"use results of the shared cache {self.name}, and store results there",
        }
        what = whats[self.kind]
        given = ", ".join((*self.keys, *(("the network",) if self.network else ()), *self.reads))
        return f"{what} with {given}" if given else what


# All users can read these. A project may not show steps a file of a home directory without consent.
_PUBLIC = ("/bin/", "/nix/store/", "/opt/", "/usr/")


class Tool(Struct, frozen=True, omit_defaults=True):
    """A program in `tools`. `path` is absolute or begins with `~/`; `version` is a range. Both may be empty."""

    name: str
    path: str = ""
    version: str = ""

    @property
    def digest(self) -> str:
        """Return the sha256 of the entry, in hex: an action has no path of this machine."""
        return digest_json([self.name, self.path, self.version])

    @property
    def grant(self) -> Grant | None:
        """Return what the user has to consent to before steps see the program."""
        return None if not self.path or self.path.startswith(_PUBLIC) else Grant(kind="tool", name=self.path)


class Step:
    """The work of a stage. `kind` is its key in the language.

    `language` is the place of its `model.language.Language`, `run` of its `attempt.attempt.Run`, `show` of a function
    that describes it in one line. `author_keys` are fields that name a file of the author which the step itself
    reads, `output_keys` fields that name an output. `renders` is the field that names a template to render: its text
    is part of the key. With `is_cheap` the step takes so little time that a crash may lose its result. `asks_model`
    is only for `LLMStep` and its subclasses. With `may_edit`, the stage may have `edits`.
    """

    __slots__ = ()
    # Facts that the core asks a step for, so that it never asks for its class (ADR 32).
    kind: ClassVar[str] = ""
    language: ClassVar[str] = ""
    run: ClassVar[str] = ""
    show: ClassVar[str] = ""
    author_keys: ClassVar[tuple[str, ...]] = ()
    output_keys: ClassVar[tuple[str, ...]] = ()
    renders: ClassVar[str] = ""
    asks_model: ClassVar[bool] = False
    may_edit: ClassVar[bool] = False
    starts_processes: ClassVar[bool] = False
    # A sync after each result takes longer than a cheap step, so such results are committed in groups (ADR 16).
    is_cheap: ClassVar[bool] = False

    def aspects(self, facts: Facts) -> Mapping[str, Json]:
        """Return the parts of the step that its result depends on, by aspect of the manifest; `kind` is one of them."""
        raise NotImplementedError

    def of_plugins(self, plugins: tuple[str, ...]) -> "Step":
        """Return the step with the plugins of its pipeline, if these can change it."""
        del plugins
        return self

    def check_outputs(self, outputs: tuple[str, ...], writes: tuple[str, ...], at: "Problems") -> None:
        """Report errors of the outputs of a stage, and of the other paths that it may write."""

    @property
    def named_inputs(self) -> tuple[str, ...]:
        """Return the files of the project that the step names itself: its stage runs after the stages that make them.

        They are inputs for order only. If the result depends on them, `aspects` has their digests.
        """
        return ()

    def program_files(self) -> Iterable[str]:
        """Return paths and patterns of files of the project that are part of the key without being inputs."""
        return ()

    @classmethod
    def inputs_of(cls, body: Json) -> tuple[str, ...]:
        """Return `named_inputs` of a step as it is written, in a foreach that has no items yet."""
        del body
        return ()

    @property
    def uses_network(self) -> bool:
        """Return whether the step itself uses the network; what its processes may do is declared by its stage."""
        return False

    @classmethod
    def network_of(cls, body: Json) -> bool:
        """Return `uses_network` of a step as it is written, in a foreach that has no items yet."""
        del body
        return False

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Return everything that the user may have to consent to before the step runs."""
        return ()

    @property
    def named_outputs(self) -> tuple[str, ...]:
        """Return the outputs that the step names itself."""
        named = (getattr(self, key) for key in self.output_keys)
        return tuple(path for path in named if path is not None)


class VerifyStep:
    """A step of `verify`."""

    __slots__ = ()


class ProcessStep(Step, VerifyStep):
    """A step that is a program. With `judges` it may write the outputs of its stage, and nothing else of its tree.

    `caches` are names of folders that its program must not write. It runs up to `reruns` times more if it fails.
    """

    __slots__ = ()
    starts_processes: ClassVar[bool] = True
    reruns: int = 0
    judges: ClassVar[bool] = False
    caches: ClassVar[tuple[str, ...]] = ()

    @property
    def declared(self) -> Json:
        """Return the declaration of the program: the aspect `command`."""
        raise NotImplementedError

    @property
    def judged_by(self) -> Mapping[str, Json]:
        """Return what decides the verdict besides the program and its exit code, by aspect of the manifest."""
        return {"reruns": self.reruns} if self.reruns else {}

    @property
    def words(self) -> Json:
        """Return the program with its arguments, in the form in which a command of a model is part of the key."""
        raise NotImplementedError


def describe_step(step: Step) -> str:
    """Return what a step does, in one line."""
    show: Callable[[Step], str] = load_object(step.show)
    return show(step)


def check_one_file(outputs: tuple[str, ...], stage: str, at: "Problems") -> None:
    """Report the outputs of a stage that must make exactly one file. `stage` describes it in the message."""
    if len(outputs) != 1 or outputs[0].endswith("/"):
        hint = f"it has {len(outputs)}; name exactly one literal file under `outputs`"
        at.add("outputs" if outputs else "", "E855", f"{stage} makes exactly one file", hint)
