"""Find the facts of this machine that stage keys contain: interpreters, tools, checks, plugins; and executors."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.execute.interpreters import (
    SYSTEM_PATH,
    InterpreterFacts,
    check_interpreter,
    find_interpreter,
    interpreter_candidates,
    interpreter_facts,
    interpreter_files,
    tool_digest,
)
from orch23.model.action import Interpreter
from orch23.model.diagnostic import Diagnostic, did_you_mean, fix_of_hint
from orch23.model.errors import ConfigurationError
from orch23.model.paths import TOOL_CACHES_FOLDER
from orch23.model.pipeline import LOCAL_EXECUTOR, CheckStep, CommandsStep, Pipeline, Stage
from orch23.model.plugins import LazyMapping, Registry, plugin_folders
from orch23.model.record import Facts
from orch23.model.step import ProcessStep, Step
from orch23.snapshot.signatures import signature
from orch23.steps.registry import is_llm, kinds_of
from orch23.store.safe_files import list_folder

if TYPE_CHECKING:
    from orch23.model.ports import Executor, Surroundings
    from orch23.model.step import Tool
    from orch23.model.tool import FoundTool
    from orch23.steps.llm.spec import LLMStep


MISSING = "missing"


class FactFinder(Struct):
    """Finds the facts of stages without starting a process. The caller provides the environment.

    `looked_at` are the paths, existing or not, that the facts so far depend on, with their earlier `signature`.
    `plugins` are those of the pipeline, once it is read; `executor_of` returns the executor of a stage. Without
    `needs_tools`, for commands that only look, a missing tool is a fact, too.
    """

    root: Path
    environ: Mapping[str, str]
    _interpreters: dict[str | None, tuple[Path, InterpreterFacts]] = field(default_factory=dict)
    _tools: "dict[tuple[Tool, str, str], FoundTool]" = field(default_factory=dict)
    looked_at: dict[Path, str] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    executor_of: Callable[[Stage], str] = lambda _: LOCAL_EXECUTOR
    needs_tools: bool = True

    def facts_of(self, stage: Stage) -> Facts:
        """Return the facts for a stage's manifest.

        Raises:
            ConfigurationError: an interpreter or a declared tool is missing.
        """
        step = stage.step.of_attempt(stage.retry, 1) if is_llm(stage.step) else stage.step
        place, found = self._interpreter(stage.python) if has_process(stage) else ("", InterpreterFacts("", ""))
        path = str(place)
        facts = Facts(
            python=found.version,
            pytest=found.pytest_major,
            interpreter=path,
            tools={tool.name: self._tool(tool, path, stage.cwd) for tool in stage.tools},
            plugins=self._plugins_of(stage, step),
            verify_plugins=self._plugins_of_verify(stage),
            checks=self._revisions_of_checks(stage),
            empty_caches=self._empty_caches(stage) if stage.tool_caches and stage.network else (),
        )
        return _with_provider(facts, step) if is_llm(step) else facts

    def path_of(self, wanted: Interpreter) -> Path:
        """Return the interpreter of this machine for an action: the one that its stage's facts describe.

        Raises:
            ConfigurationError: it is missing, or of another version.
        """
        known = (one for one in self._interpreters if Interpreter.of(one).declared == wanted.declared)
        path, facts = self._interpreter(next(known, wanted.declared))
        # The interpreter may have been replaced since the decision: its result would not match its key.
        check_interpreter(wanted, path, facts)
        return path

    def _interpreter(self, declared: str | None) -> tuple[Path, InterpreterFacts]:
        if declared not in self._interpreters:
            # Before the search: if a candidate appears meanwhile, its signature differs in the next build.
            self._look_at(interpreter_candidates(declared, self.root, self.environ))
            path = find_interpreter(declared, self.root, self.environ)
            self._look_at(interpreter_files(path))
            self._interpreters[declared] = path, interpreter_facts(path)
        return self._interpreters[declared]

    def _plugins_of(self, stage: Stage, step: Step) -> tuple[str, ...]:
        """Return name and version of the plugins that provide a stage's step kind, executor or provider."""
        if not self.plugins:
            return ()
        # Another version of a plugin changes the folders that it is installed in.
        self._look_at(map(Path, plugin_folders(self.plugins)))
        found = {kinds_of(self.plugins).plugin_version(stage.kind)}
        executor = self.executor_of(stage)
        if executor != LOCAL_EXECUTOR and has_process(stage):
            found.add(executors_of(self.plugins).plugin_version(executor))
        if is_llm(step):
            from orch23.providers.registry import plugin_of  # noqa: PLC0415 - as in `_with_provider`

            found.add(plugin_of(step))
        return tuple(sorted(filter(None, found)))

    def _empty_caches(self, stage: Stage) -> tuple[str, ...]:
        folders = {name: self.root / TOOL_CACHES_FOLDER / name for name in stage.tool_caches}
        self._look_at(folders.values())
        return tuple(name for name, folder in folders.items() if not list_folder(folder))

    def _revisions_of_checks(self, stage: Stage) -> dict[str, int | str]:
        if not (names := {one.name for one in stage.verify.steps if isinstance(one, CheckStep)}):
            return {}
        from orch23.checks.registry import available_checks, check_revision  # noqa: PLC0415 - few stages have checks

        # A past pipeline may name a check that does not exist now.
        checks = available_checks(self.plugins)
        return {name: check_revision(checks, name) for name in sorted(names) if name in checks}

    def _plugins_of_verify(self, stage: Stage) -> dict[str, str]:
        kinds = kinds_of(self.plugins)
        used = {step.kind for step in stage.verify.steps if isinstance(step, ProcessStep)} if self.plugins else ()
        return {kind: origin for kind in sorted(used) if (origin := kinds.plugin_version(kind))}

    def _tool(self, tool: "Tool", interpreter: str, cwd: str) -> str:
        key = (tool, interpreter, cwd)
        if key not in self._tools:
            from orch23.model.tool import FoundTool, find_tool  # noqa: PLC0415 - few stages have tools

            # The PATH that steps get, not the user's: a key must not depend on the shell.
            beside = (str(Path(interpreter).parent),) if interpreter else ()
            folders = (*beside, *SYSTEM_PATH)
            self._look_at(Path(folder, tool.name) for folder in folders)
            own = None if tool.path or tool.version else tool_digest(tool.name, folders)
            # Else a version manager of the user may have it.
            found = FoundTool(identity=own) if own else find_tool(tool, str(self.root), self.environ, folders, cwd)
            self._look_at(map(Path, found.looked_at))
            if found.error and self.needs_tools:
                raise ConfigurationError(Diagnostic("E482", found.error, hint=found.hint))
            self._tools[key] = found
        return self._tools[key].identity or MISSING

    def tools_of(self, declared: Iterable[str], interpreter: Path, cwd: str) -> "tuple[FoundTool, ...]":
        """Return where the tools of a stage are, outside of the system directories, by the digests of their entries."""
        places = {tool.digest: one for (tool, *of), one in self._tools.items() if of == [str(interpreter), cwd]}
        return tuple(one for digest in declared if (one := places.get(digest)) is not None and one.origin)

    def tool_origins(self) -> dict[str, str]:
        """Return where each declared tool is that is not the one which a step finds anyway."""
        origins = sorted({(tool.name, one.origin) for (tool, *_), one in self._tools.items() if one.origin})
        return {name: ", ".join(origin for _, origin in of) for name, of in groupby(origins, itemgetter(0))}

    def _look_at(self, paths: Iterable[Path]) -> None:
        for path in paths:
            if path not in self.looked_at:
                with suppress(OSError, ValueError):  # below a folder that is closed, or a link to itself
                    self.looked_at[path] = signature(str(path))


def _with_provider(facts: Facts, step: "LLMStep") -> Facts:
    from orch23.providers.registry import adapter_for, endpoint_of, parameters_of  # noqa: PLC0415 - only for models

    adapter = adapter_for(step)
    return replace(
        facts, endpoint=endpoint_of(step), api=adapter.api, params=parameters_of(step), accepts=adapter.accepts
    )


def has_process(stage: Stage) -> bool:
    """Return whether a stage or its verification runs processes."""
    return (
        stage.step.starts_processes
        or bool(stage.format)
        or any(isinstance(step, ProcessStep | CommandsStep) for step in stage.verify.steps)
    )


MakeExecutor: TypeAlias = "Callable[[Surroundings], Executor]"


@cache
def executors_of(plugins: tuple[str, ...]) -> Registry[MakeExecutor]:
    """Return the functions that create executors, by name; the local one is not among them."""
    from orch23.model.features import EXECUTORS, load_feature  # noqa: PLC0415 - few builds run elsewhere

    own: LazyMapping[MakeExecutor] = LazyMapping(EXECUTORS, lambda name: load_feature(EXECUTORS[name]))
    fault = "it must be a function of `Surroundings`, but is {!r}"
    return Registry(own, "orch23.executors", plugins, lambda found, _: "" if callable(found) else fault.format(found))


def unknown_executor_errors(pipeline: Pipeline) -> list[Diagnostic]:
    """Return an error for each executor of a pipeline and its pools that does not exist, or not here."""
    named: dict[tuple[str, ...], str] = {("executor",): pipeline.executor}
    named |= {("pools", pool, "executor"): name for pool, name in pipeline.pool_executors.items()}
    if set(named.values()) == {LOCAL_EXECUTOR}:
        return []
    from orch23.model.features import EXECUTORS, has_feature, missing_feature  # noqa: PLC0415 - as above

    known = (LOCAL_EXECUTOR, *executors_of(pipeline.plugins))
    found: list[Diagnostic] = []
    for place, name in named.items():
        if name not in known:
            all_known = f"the executors are: {', '.join(known)}; a plugin that `plugins` names may have others"
            hint = did_you_mean(name, known, all_known)
            message, fix = f"no executor is named `{name}`", fix_of_hint(name, hint)
            found.append(Diagnostic("E846", message, pipeline.locate(*place), hint, fix=fix, otherwise=all_known))
        elif not has_feature(EXECUTORS, name):
            found.append(replace(missing_feature(EXECUTORS[name]), location=pipeline.locate(*place)))
    return found
