"""Describe how a process is started: environment, directories, and the interface of sandboxes."""

import atexit
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Final, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.execute.interpreters import SYSTEM_PATH
from orch23.execute.process import DEFAULT_OUTPUT, OutputLimits, ProcessOutcome, run_process
from orch23.execute.process_tree import MARKER_VARIABLE
from orch23.execute.resource_limits import ResourceMonitor, apply_limits
from orch23.execute.sandbox_tree import INSIDE_PATH, SANDBOX_EPOCH, SandboxDir
from orch23.execute.supervisor import ProcessSpec
from orch23.model.action import DEFAULT_LIMITS, LANDLOCK_TIER, NAMESPACES_TIER, Action, StepLimits
from orch23.model.diagnostic import Diagnostic
from orch23.model.patterns import lazy_pattern
from orch23.text.secrets import is_secret_name

# orch23 itself sets it in the action of a pytest step.
_ALLOWED = ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
_COVERAGE = ".coverage"
_COMPILERS = ("compileall", "py_compile")
_CACHES = {
    "COVERAGE_FILE": _COVERAGE,
    "HYPOTHESIS_STORAGE_DIRECTORY": ".hypothesis",
    "MYPY_CACHE_DIR": ".mypy_cache",
    "PYTHONPYCACHEPREFIX": "pycache",
    "RUFF_CACHE_DIR": ".ruff_cache",
}
# They change the dynamic loader, pytest, git or orch23 itself, give access to keys, or are not portable names.
# Programs of `format` get ORCH23_CHANGED.
_REFUSED = lazy_pattern(
    r"LD_.*|PYTEST_.*|GIT_.*|ORCH23_(?!CHANGED$).*|SSH_AUTH_SOCK|HOME|TMPDIR|.*[^A-Za-z0-9_].*|[0-9].*|", re.DOTALL
)
_OF_PYTEST = frozenset(
    {"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONSAFEPATH", "PYTHONUSERBASE"}
)


def weak_sandbox_error(tier: str) -> Diagnostic | None:
    """Return the error of a stage that requires namespaces, on a machine with this tier; None if it has them."""
    if tier not in {PlainLauncher.tier, LANDLOCK_TIER}:
        return None
    message = f"the sandbox of this machine is `{tier}`, and the stage needs at least `{NAMESPACES_TIER}`"
    return Diagnostic("E483", message, hint="`orch23 doctor` on that machine says how to get a better one")


def refused_variables(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that a step must not have: secrets, settings of the loader, git and pytest, and orch23's own."""
    others = {name: value for name, value in sorted(env.items()) if (name, value) != _ALLOWED}
    return tuple(
        name
        for name, value in others.items()
        if is_secret_name(name) or _REFUSED.fullmatch(name.upper()) or "\0" in value
    )


def refused_pytest_variables(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that change which pytest or which code is loaded; `pytest.pythonpath` is the way to do that."""
    return tuple(sorted(_OF_PYTEST & set(env)))


def cache_variables(seen: SandboxDir, action: Action) -> dict[str, str]:
    """Return the variables that move caches of common tools below TMPDIR, for a step whose tree is read-only."""
    if action.writable is None:
        return {}
    moved = {name: f"{seen.tmp}/{folder}" for name, folder in _CACHES.items()}
    # Only a command that compiles needs it: Python then finds no compiled files, and starts four times as slowly.
    if not any(program in word for word in action.argv for program in _COMPILERS):
        del moved["PYTHONPYCACHEPREFIX"]
    if any(path.rpartition("/")[2].startswith(_COVERAGE) for path in action.writable):
        del moved["COVERAGE_FILE"]
    # Tests can write below HOME, so no packages are loaded from there.
    return {**moved, "PYTHONNOUSERSITE": "1"}


USUAL_VARIABLES: Final[Mapping[str, str]] = {
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "SOURCE_DATE_EPOCH": str(SANDBOX_EPOCH),
}
"""What each step has in its environment, wherever it runs, unless it declares another value."""


def process_environment(seen: SandboxDir, interpreter: Path, declared: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a process in a sandbox directory; nothing is inherited."""
    return {
        "PATH": ":".join(dict.fromkeys((str(interpreter.parent), *SYSTEM_PATH))),
        **USUAL_VARIABLES,
        **seen.variables,
        **declared,
        "HOME": str(seen.home),
        "TMPDIR": str(seen.tmp),
        # Without it git would find the project's own repository above the sandbox directory.
        "GIT_CEILING_DIRECTORIES": str(seen.root),
        # The only way to end cargo's search for a workspace and a configuration in the folders above.
        "__CARGO_TEST_ROOT": str(seen.root),
        MARKER_VARIABLE: seen.marker,
    }


class LaunchRefusedError(Exception):
    """Nothing was started, since the sandbox cannot, or must not, start it."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        """Keep the error to report."""
        super().__init__(str(diagnostic))
        self.diagnostic = diagnostic


class Launch(ProcessSpec, frozen=True, kw_only=True):
    """A process of a step, as the step needs it or, once prepared by a launcher, with its sandbox.

    `reads` are further paths that it must be able to read, `tmpfs` those where a launcher gives it file systems of its
    own in memory. `writable` are the paths of the tree that it may write, beside HOME and TMPDIR; None means all of the
    tree. `stdin` is what the command reads; a launcher may start its program with another descriptor. `output`,
    `errors` and `on_output` are those of `run_process`. `interpret_outcome` corrects the outcome of a sandbox's
    program; it may raise LaunchRefusedError.
    """

    sandbox_dir: SandboxDir
    interpreter: Path
    network: bool = False
    limits: StepLimits = DEFAULT_LIMITS
    writable: tuple[str, ...] | None = None
    reads: tuple[Path, ...] = ()
    tmpfs: tuple[str, ...] = ()
    output: OutputLimits = DEFAULT_OUTPUT
    errors: OutputLimits | None = None
    on_output: Callable[[bytes], None] | None = None
    interpret_outcome: Callable[[ProcessOutcome], ProcessOutcome] | None = None


def run_launch(launch: Launch, *, timeout_s: float, cancel: Event) -> ProcessOutcome:
    """Run a prepared launch within the limits of its step, as `run_process` does.

    Raises:
        LaunchRefusedError: the sandbox could not be made.
        OSError: the process could not be started.
    """
    is_confined = launch.confinement is not None or bool(launch.tmpfs)
    layers = [launch.sandbox_dir.work.name] if launch.sandbox_dir.is_layered else []
    layers += [one.path for one in launch.sandbox_dir.caches if one.layers]
    layered = tuple(f"{INSIDE_PATH}/{path}" for path in layers)
    root, limits = launch.sandbox_dir.root, launch.limits
    monitor = ResourceMonitor(root, limits, layered=layered, tmpfs=launch.tmpfs, is_confined=is_confined)
    outcome = run_process(
        replace(launch, on_start=launch.on_start or (lambda tree: apply_limits(tree.leader, launch.limits))),
        timeout_s=timeout_s,
        cancel=cancel,
        log=launch.sandbox_dir.log,
        output=launch.output,
        errors=launch.errors,
        on_output=launch.on_output,
        exceeded_limit=monitor.exceeded_limit,
    )
    return outcome if launch.interpret_outcome is None else launch.interpret_outcome(outcome)


class Launcher(Protocol):
    """A way to start processes: a tier of the sandbox, or none."""

    @property
    def tier(self) -> str:
        """The name of the tier, as it is shown."""

    def prepare(self, launch: Launch) -> AbstractContextManager[Launch]:
        """Yield the launch as it runs in the sandbox, until the process has ended.

        Raises:
            LaunchRefusedError: it cannot, or must not, be run.
            OSError: its program is missing, or no memory or descriptor is left.
        """


class PlainLauncher(Struct, frozen=True):
    """No sandbox: the process may do what this user may. With a `refusal` nothing is started, with this error."""

    refusal: Diagnostic | None = None
    tier = "none"

    def prepare(self, launch: Launch) -> AbstractContextManager[Launch]:
        """Return the launch itself.

        Raises:
            LaunchRefusedError: there is a `refusal`.
        """
        if self.refusal is not None:
            raise LaunchRefusedError(self.refusal)
        return nullcontext(launch)


NO_SANDBOX: Final = PlainLauncher()


ALLOW_OPTION: Final = "--allow-unsandboxed"
"""The one option that lets a step run without a sandbox."""

NAMESPACES_HINT: Final = (
    "install bubblewrap 0.8 or newer (`apt-get install bubblewrap`, `dnf install bubblewrap`), or allow user "
    "namespaces (Ubuntu: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; containers: another seccomp profile)"
)
"""What helps where neither orch23's own program nor bubblewrap can create namespaces."""


class TierChoice(Struct, frozen=True):
    """The best tier that works here, or None, and the reason why each better one does not."""

    launcher: Any  # a launcher of `sandbox`, or None
    failed: tuple[tuple[str, str], ...] = ()

    @property
    def tier(self) -> str:
        """The name of the tier."""
        return self.launcher.tier if self.launcher is not None else "none"

    @property
    def why(self) -> str:
        """Why no better tier was chosen; empty for the best."""
        return "; ".join(f"{name}: {reason}" for name, reason in self.failed)


class SandboxLauncher(Struct, eq=False):
    """A launcher that chooses its tier at the first use, or in the background.

    Without a working tier it starts nothing, unless `allowed` lets steps run without a sandbox. `closed` are the user's
    home and the project, which an interpreter's prefix must not make readable.
    """

    choose: Callable[[], TierChoice]
    closed: tuple[Path, ...] = ()
    allowed: bool = False
    _lock: Lock = field(default_factory=Lock)
    _choice: TierChoice | None = None

    @property
    def choice(self) -> TierChoice:
        """The choice; the first use waits for the self-test."""
        with self._lock:
            if self._choice is None:
                self._choice = self.choose()
            return self._choice

    @property
    def tier(self) -> str:
        """The name of the tier."""
        return self.choice.tier

    def choose_in_background(self) -> None:
        """Choose in a thread. A process that ends earlier waits for it, so that the self-test leaves no folder."""
        thread = Thread(target=self._choose_ahead, name="orch23-sandbox", daemon=True)
        thread.start()
        atexit.register(thread.join)

    def _choose_ahead(self) -> None:
        # The next use of the choice tries again, and reports the error.
        with suppress(Exception):
            _ = self.choice

    def prepare(self, launch: Launch) -> AbstractContextManager[Launch]:
        """Return the launch with its sandbox.

        Raises:
            LaunchRefusedError: no tier works on this machine, and steps without a sandbox are not allowed.
        """
        if self.choice.launcher is not None:
            launcher: Launcher = replace(self.choice.launcher, closed=self.closed)
            return launcher.prepare(launch)
        return PlainLauncher(None if self.allowed else no_sandbox_error(self.choice)).prepare(launch)


def no_sandbox_error(choice: TierChoice) -> Diagnostic:
    """Return the error that no tier works on this machine."""
    hint = f"{NAMESPACES_HINT}; {ALLOW_OPTION} runs steps without one, as this user: see `orch23 doctor`"
    return Diagnostic("E483", f"no sandbox works on this machine ({choice.why})", hint=hint)


def not_allowed_error() -> Diagnostic:
    """Return the error that a stage says `sandbox: off` without the user's permission."""
    hint = f"check what it runs, then build with {ALLOW_OPTION}; or remove `sandbox: off`"
    return Diagnostic("E484", "it says `sandbox: off`, which has to be allowed", hint=hint)
