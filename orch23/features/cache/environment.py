"""The environment that the result of a stage depends on and its key does not contain: system, packages, programs.

A stage key is for one machine: it has the version of Python as X.Y, and the programs of `tools`. Two users share a
result only if this identity is the same too. It is found from files: no interpreter is started, since a clone may bring
one.
"""

import contextlib
import hashlib
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from errno import ENOEXEC
from functools import cached_property
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from orch23.checks.check import Check
from orch23.checks.registry import CHECKS
from orch23.execute.interpreters import SYSTEM_PATH, find_program, interpreter_facts, package_folders
from orch23.execute.process_tree import lowered_limits
from orch23.features.cache.distributions import (
    StampedFiles,
    installed_packages,
    local_files,
    programs_in_folder,
    split_script,
)
from orch23.features.cache.shell_programs import UnknownProgramsError, hides_programs, programs_in, starting_fault
from orch23.model.action import PYTHON
from orch23.model.digest import Json, digest_json
from orch23.model.errors import ConfigurationError
from orch23.model.pipeline import LOCAL_EXECUTOR, CheckStep, CommandsStep, Stage
from orch23.model.step import ProcessStep, Step, VerifyStep
from orch23.resolve.commands import SHELL_COMMAND, command_steps

_RELEASE_KEYS: Final = ("ID", "VERSION_ID", "BUILD_ID", "IMAGE_VERSION")
_INTERPRETERS: Final = ("python", "pypy")
_LIBRARIES: Final = (b"libpython", b"libpypy")
_OTHER_INTERPRETERS: Final = ("--tx", "--px")
_BINARY: Final = b"\x7fE"  # of ELF
_MAX_SCRIPTS: Final = 4  # a script may be run by another script
_HEAD_BYTES: Final = 4096
_UNKNOWN_FORM: Final = "the programs of this form of a command are not known"


class EnvironmentIdentity(Struct, frozen=True, kw_only=True):
    """What a result depends on beside its stage key: the system, programs and installed packages, by name.

    The values of `parts` are texts or digests, without paths of this machine. With `faults` the environment has no
    identity, so the result must not be shared; each is a clause such as "`app` is installed in editable mode".
    """

    parts: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    def digest(self) -> str:
        """Return the sha256, in hex, of the parts: equal environments have equal digests.

        Raises:
            ValueError: the environment has no identity.
        """
        if self.faults:
            message = f"BUG: an environment without an identity: {self.faults[0]}"
            raise ValueError(message)
        return digest_json(dict(self.parts))


def machine_facts() -> dict[str, str]:
    """Return the operating system (`ID VERSION_ID`), the architecture and the C library of this machine."""
    values, libc = dict[str, str](), None
    with contextlib.suppress(OSError, ValueError):  # no such file, or one that is not UTF-8
        values = platform.freedesktop_os_release()
    release = " ".join(values[key] for key in _RELEASE_KEYS if values.get(key))
    with contextlib.suppress(ValueError, OSError):
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    # Other C libraries do not tell their version. Theirs are part of the release of the system.
    return {"system": release or "unknown", "architecture": os.uname().machine, "libc": libc or "not glibc"}


class _Program(Struct, frozen=True):
    """The identity of a program. Python interprets it, or it is Python, or it is the script of another interpreter."""

    identity: EnvironmentIdentity
    is_python: bool = False
    is_script: bool = False


class Environments(Struct, kw_only=True, dict=True):
    """Finds the environments of the stages of one build; each fact is looked up once.

    `checks` are those that the pipeline can name. `executor_of` returns the executor of a stage. `files` may be kept
    for the next build of the same process.
    """

    platform: str | None = None
    checks: Mapping[str, Check] = CHECKS
    executor_of: Callable[[Stage], str] = lambda _: LOCAL_EXECUTOR
    machine: Mapping[str, str] = field(default_factory=machine_facts)
    files: StampedFiles = field(default_factory=StampedFiles)
    system_path: tuple[str, ...] = SYSTEM_PATH
    local_folder: Path = Path("/usr/local")
    closed: tuple[Path, ...] = ()
    _pythons: dict[tuple[Path, str], EnvironmentIdentity] = field(default_factory=dict)
    _programs: dict[tuple[str, str, Path], _Program] = field(default_factory=dict)

    def of(self, stage: Stage, interpreter: Path) -> EnvironmentIdentity:
        """Return the environment of a stage that runs with this interpreter; `platform` replaces it.

        It is empty for a stage without processes and without checks that depend on Python.
        """
        steps: tuple[Step | VerifyStep, ...] = (stage.step, *stage.format, *stage.verify.steps)
        try:
            found = list(self._of_steps(steps, stage, interpreter))
        except OSError as error:  # such as a file that is removed meanwhile
            return _unknown(f"{error.filename} cannot be read: {error.strerror}")
        if found and self.platform is not None:
            return EnvironmentIdentity(parts={"platform": self.platform})
        return _joined(found)

    def _of_steps(
        self, steps: Iterable[Step | VerifyStep], stage: Stage, interpreter: Path
    ) -> Iterator[EnvironmentIdentity]:
        for step in steps:
            if isinstance(step, CommandsStep):
                yield from self._of_steps(command_steps(step), stage, interpreter)
            elif isinstance(step, CheckStep):
                if not self.checks[step.name].is_portable:
                    version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
                    yield EnvironmentIdentity(parts={"checks": version})
            elif isinstance(step, ProcessStep):
                yield self._of_machine(self.executor_of(stage))
                if not stage.sandbox:
                    yield _unknown("it says `sandbox: off`, so its programs can read all files of the machine")
                yield self._of_process(step, stage, interpreter)

    def _of_machine(self, executor: str) -> EnvironmentIdentity:
        if executor != LOCAL_EXECUTOR:
            return _unknown(f"the executor `{executor}` runs its processes on other machines")
        if not self._local_files:
            return _unknown(f"{self.local_folder} has too many files to compare")
        parts = {**self.machine, "local files": self._local_files}
        limits = lowered_limits()
        return EnvironmentIdentity(parts={**parts, "limits": limits} if limits else parts)

    @cached_property
    def _local_files(self) -> str:
        return local_files(self.local_folder, self.files, self.closed)

    def _of_process(self, step: ProcessStep, stage: Stage, interpreter: Path) -> EnvironmentIdentity:
        if step.kind not in {"pytest", "shell"}:
            return _unknown(f"the programs of the step kind `{step.kind}` are not known")
        env = stage.env
        folders = tuple(env["PATH"].split(":")) if "PATH" in env else (str(interpreter.parent), *self.system_path)
        if not all(folder.startswith("/") for folder in folders):
            return _unknown("`env` sets PATH to a relative folder")
        if hiding := next((name for name in env if name != "PATH" and hides_programs(name)), None):
            return _unknown(f"`env` sets {hiding}")
        search = ":".join(folders)
        names = [tool.name for tool in stage.tools]
        # The key has their digests, but not what interprets them, and it finds them without `env`.
        tools = [self._program(name, search, interpreter).identity for name in names]
        if step.kind == "pytest":
            return _joined([self._python(interpreter), *_of_options(step), *tools])
        try:
            return _joined([*self._of_command(step.declared, names, search, interpreter), *tools])
        except UnknownProgramsError as error:
            return _unknown(f"its command does not show which programs run: {error}")

    def _of_command(
        self, command: Json, tools: Sequence[str], search: str, interpreter: Path
    ) -> Iterator[EnvironmentIdentity]:
        words = _argv(command)
        if isinstance(command, str):
            yield self._program(SHELL_COMMAND[0], search, interpreter).identity
            programs = programs_in(command)
        elif words is not None:
            programs = programs_in(words)
            # The executor replaces the first word `python` of an argv.
            if programs[:1] and programs[0].name == PYTHON:
                yield self._python(interpreter)
                programs = programs[1:]
        else:
            yield _unknown(_UNKNOWN_FORM)
            return
        for called in programs:
            found = self._program(called.name, search, interpreter)
            why = starting_fault(called, tools, is_python=found.is_python, is_script=found.is_script)
            yield found.identity if why is None or found.identity.faults else _unknown(why)

    def _program(self, name: str, search: str, interpreter: Path) -> _Program:
        key = (name, search, interpreter)
        if key not in self._programs:
            path, missing = find_program(name, search), _Program(_unknown(f"the program `{name}` was not found"))
            self._programs[key] = self._of_file(name, Path(path), search, interpreter) if path else missing
        return self._programs[key]

    def _of_file(self, name: str, path: Path, search: str, interpreter: Path, depth: int = 0) -> _Program:
        try:
            real = path.resolve(strict=True)
            if real.name.startswith(_INTERPRETERS) and not real.name.endswith("-config"):
                is_own = path.parent == interpreter.parent and path.samefile(interpreter)
                found = self._python(interpreter) if is_own else self._python(path, f" of {name}")
                return _Program(found, is_python=True)
            script = self.files.get("script", real, _head_of_script)
            if not script:
                return _Program(EnvironmentIdentity(parts={f"program {name}": self.files.sha256(real)}))
        except OSError:
            return _Program(_unknown(f"the program `{name}` cannot be read"))
        body, _, runs = script.partition("\n")
        runner = find_program(runs, search) if runs and depth < _MAX_SCRIPTS else None
        if runner is None:
            return _Program(_unknown(f"the program that runs `{name}` was not found"))
        by = self._of_file(runs.rpartition("/")[2], Path(runner), search, interpreter, depth + 1)
        identity = _joined([EnvironmentIdentity(parts={f"program {name}": body}), by.identity])
        return _Program(identity, is_python=by.is_python, is_script=not by.is_python)

    def _python(self, interpreter: Path, of_program: str = "") -> EnvironmentIdentity:
        key = (interpreter, of_program)
        if key not in self._pythons:
            self._pythons[key] = self._of_python(interpreter, of_program)
        return self._pythons[key]

    def _of_python(self, path: Path, of_program: str) -> EnvironmentIdentity:
        """Return the identity of an interpreter: its version, its program with its library, its packages."""
        try:
            version = interpreter_facts(path).version
            real = path.resolve(strict=True)
            program, _, library = self.files.get("interpreter", real, _of_interpreter).partition("\n")
            libraries = _python_libraries(real, version)
            if library and not libraries:
                return _unknown(f"the library of the interpreter `{path.name}` was not found")
            # Their bytes determine implementation, full version and build.
            builds = [program, *map(self.files.sha256, libraries)]
            folders = [folder for folder in package_folders(path) if folder.is_dir()]
        except (OSError, ConfigurationError):
            return _unknown(f"the interpreter `{path.name}` cannot be read")
        # Such as an interpreter without the GIL, whose folders have another name.
        if not folders:
            return _unknown(f"the packages of the interpreter `{path.name}` were not found")
        packages = installed_packages(folders, self.files)
        # Python can start each program beside it. Those of the system are known by its version.
        beside = "" if str(path.parent) in self.system_path else programs_in_folder(path.parent, self.files)
        label = f"{'PyPy' if real.name.startswith('pypy') else 'Python'}{of_program}"
        parts = {label: " ".join((version, *builds)), f"packages{of_program}": f"{packages.digest} {beside}".rstrip()}
        return EnvironmentIdentity(parts=parts, faults=packages.faults)


def _argv(command: Json) -> list[str] | None:
    if isinstance(command, str) or not isinstance(command, Sequence):
        return None
    words = [word for word in command if isinstance(word, str)]
    return words if len(words) == len(command) else None


def _of_options(step: ProcessStep) -> Iterator[EnvironmentIdentity]:
    """Yield a fault for the options with which pytest starts other interpreters, of pytest-xdist."""
    words = _argv(step.words)
    if words is None:
        yield _unknown(_UNKNOWN_FORM)
    for word in words or ():
        if word.startswith(_OTHER_INTERPRETERS):
            yield _unknown(f"`{word}` of pytest may start another interpreter")


def _of_interpreter(path: Path) -> str:
    """Return the digest of a program, and after a line break whether it names the library of an interpreter."""
    data = path.read_bytes()
    if data.startswith(b"#!"):
        raise OSError(ENOEXEC, "a script, which may start any interpreter", str(path))
    return f"{hashlib.sha256(data).hexdigest()}\n{'yes' if any(name in data for name in _LIBRARIES) else ''}"


def _python_libraries(program: Path, version: str) -> list[Path]:
    prefix = program.parent.parent
    places = (prefix / "lib", prefix / "lib64", *sorted((prefix / "lib").glob("*-linux-*")))
    name = f"lib{'pypy' if program.name.startswith('pypy') else 'python'}{version}*.so*"
    return sorted({found.resolve() for place in places for found in place.glob(name)})


def _head_of_script(path: Path) -> str:
    """Return the digest of a script without the lines that name its interpreter, and the interpreter; "" for others."""
    with path.open("rb") as file:
        sign = file.read(2)
        if sign == _BINARY:
            return ""
        if sign != b"#!":
            # bash reads a text without this line itself.
            return f"{hashlib.sha256(sign + file.read()).hexdigest()}\n{SHELL_COMMAND[0]}"
        command, body = split_script(file.read())
    words = [command.strip('"')] if command.startswith('"') else command[:_HEAD_BYTES].split()
    runs = words[0] if words else ""
    if runs.rpartition("/")[2] == "env":
        runs = next((word for word in words[1:] if not word.startswith("-")), "")
    return f"{hashlib.sha256(body).hexdigest()}\n{runs}"


def _unknown(why: str) -> EnvironmentIdentity:
    return EnvironmentIdentity(faults=(why,))


def _joined(parts: Sequence[EnvironmentIdentity]) -> EnvironmentIdentity:
    known = {name: value for one in parts for name, value in one.parts.items()}
    faults = dict.fromkeys(fault for one in parts for fault in one.faults)
    return EnvironmentIdentity(parts=known, faults=tuple(faults))
