"""Consent of the user: the grants that a project needs and has, and the question on the terminal."""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from orch23.cli.console import Console, working_directory
from orch23.cli.discovery import find_project
from orch23.cli.project_loading import Project, ProjectSettings, open_for_reading
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, ConsentError, ProviderError
from orch23.model.pipeline import CACHE_VARIABLE, DeclaredCache
from orch23.model.step import Grant
from orch23.model.text import visible
from orch23.snapshot.store_registry import TRUST_VARIABLE
from orch23.store.workspace import Workspace

if TYPE_CHECKING:
    from orch23.model.action import Action
    from orch23.model.shared_cache import CacheOptions, CacheSettings
    from orch23.model.tool import FoundTool
    from orch23.steps.llm.spec import LLMStep
    from orch23.store.grants import Grants


class Consent(Struct, dict=True):
    """The grants of one project, read at the first check. A grant holds digests of files: `files` reads them now."""

    root: Path
    environ: Mapping[str, str]
    files: Workspace
    allows_all: bool = False
    _known: set[Grant] | None = None

    @classmethod
    def of(cls, root: Path, environ: Mapping[str, str]) -> "Consent":
        """Return what the user has allowed the project at `root`."""
        return cls(root, environ, Workspace(root, None), environ.get(TRUST_VARIABLE) == "1")

    @cached_property
    def grants(self) -> "Grants":
        """The grants in the user's state directory: a clone must not bring its own consent."""
        from orch23.store.grants import grants_of  # noqa: PLC0415 - few edits need a grant

        return grants_of(self.root, self.environ)

    def is_granted(self, grant: Grant) -> bool:
        """Return whether the user has allowed something."""
        return self.allows_all or self.is_stored(grant)

    def is_stored(self, grant: Grant) -> bool:
        """Return whether the user has allowed just this, and not everything by a variable."""
        if self._known is None:
            self._known = set(self.grants.read())
        return grant in self._known

    def cache_settings(
        self, declared: DeclaredCache, environ: Mapping[str, str], options: "CacheOptions"
    ) -> "tuple[CacheSettings, Grant | None]":
        """Return the settings of the shared cache, and a grant for it that the user has not given.

        Raises:
            ConfigurationError: the cache is named wrongly.
        """
        from orch23.model.shared_cache import cache_grant, cache_settings  # noqa: PLC0415 - few builds use a shared cache

        grant = cache_grant(declared, environ, options)
        is_trusted = grant is None or self.is_granted(grant)
        settings = cache_settings(declared, environ, options, is_trusted=is_trusted)
        if grant is not None and self.is_stored(grant):  # and not only ORCH23_TRUST=1, which shows no address
            settings = replace(settings, stranger="")
        return settings, None if is_trusted else grant

    def missing_grant(self, step: "LLMStep", environ: Mapping[str, str]) -> Grant | None:
        """Return the grant that a step needs and lacks. A program that does not exist needs none: it cannot run."""
        from orch23.providers.registry import adapter_for  # noqa: PLC0415 - an edit without a model does not need it

        try:
            grant = adapter_for(step).consent(environ, self.root, self.files)
        except ProviderError:
            return None
        return None if grant is None or self.is_granted(grant) else grant

    def tools_of(self, project: Project, action: "Action", interpreter: Path) -> "Sequence[FoundTool]":
        """Return the tools that an action is about to see, outside of the system directories.

        Raises:
            ConsentError: the user has not allowed one of them.
        """
        found = project.facts.tools_of(action.declared, interpreter, action.working_directory)
        lacking = [one.tool.grant for one in found if one.tool.grant and not self.is_granted(one.tool.grant)]
        if lacking:
            from orch23.providers.registry import not_granted_error  # noqa: PLC0415 - few builds lack consent

            raise ConsentError(*(not_granted_error(grant, trust_command_line(project.settings)) for grant in lacking))
        return found

    def store_grants(self, grants: Iterable[Grant]) -> bool:
        """Store some grants in the user's state directory, and return True.

        Raises:
            ConfigurationError: there is no state directory outside of the project.
        """
        if self.grants.path is None:
            message = "cannot store consent: there is no state directory outside of the project"
            hint = f"set HOME or XDG_STATE_HOME, or {TRUST_VARIABLE}=1 for one process"
            raise ConfigurationError(Diagnostic("E644", message, hint=hint))
        given = set(grants)
        self.grants.add(given, self.root.resolve())
        # Another process may have added grants, so they are read again.
        self._known = {*self.grants.read(), *given}
        return True


def ask_consent(console: Console, grants: Sequence[Grant]) -> bool:
    """Ask the user on the terminal; return False without one."""
    if not console.is_interactive:
        return False
    console.write_err(f"This pipeline would, for the first time:\n{grants_text(grants)}")
    import click  # noqa: PLC0415 - rarely needed

    return click.confirm("Allow this for this project?", default=False, err=True)


def grants_text(grants: Iterable[Grant]) -> str:
    """Return a line for each grant, and one for its files."""
    lines: list[str] = []
    for grant in grants:
        lines.append(f"  {grant}")
        if grant.files:
            lines.append(f"    from {', '.join(grant.files)}")
    return "".join(f"{visible(line)}\n" for line in lines)


def trust_command_line(settings: ProjectSettings) -> str:
    """Return the command that grants what a pipeline needs, as it can be run in the working directory."""
    root, here = settings.root, working_directory() or Path("/")
    pipeline = os.path.relpath(settings.pipeline_path, here)
    # Without -C the command would find another project, or none, from a directory outside of this one.
    inside = here.is_relative_to(root) and find_project(here, (pipeline,)).root == root
    pipeline = pipeline if inside else os.path.relpath(settings.pipeline_path, root)
    options = [word for option in settings.options for word in option]
    return shlex.join(["orch23", *(() if inside else ("-C", str(root))), "trust", pipeline, *options])


def needed_grants(project: Project) -> tuple[Grant, ...]:
    """Return everything that the steps of a pipeline need consent for, by its current plan."""
    from orch23.engine.call_preflight import llm_steps  # noqa: PLC0415 - an edit without a model does not need it

    settings = project.settings
    # Compared with no grants at all: `trust` must list also what the user has allowed before.
    nothing_yet = Consent(settings.root, {}, Workspace(settings.root, None))
    plan = open_for_reading(project).state.plan
    found = dict.fromkeys(nothing_yet.missing_grant(step, settings.environ) for step in llm_steps(plan))
    # Other step kinds name their grants themselves, such as a download from a server.
    of_others = dict.fromkeys(grant for node in plan.nodes.values() for grant in node.grants)
    return (*(grant for grant in found if grant is not None), *of_others, *_grants_of_cache(project))


def _grants_of_cache(project: Project) -> tuple[Grant, ...]:
    if not project.pipeline.cache:
        return ()
    from orch23.model.shared_cache import cache_grant  # noqa: PLC0415 - few pipelines name a cache

    # A cache that the user names meanwhile does not revoke the consent to the pipeline's cache.
    environ = {name: value for name, value in project.settings.environ.items() if name != CACHE_VARIABLE}
    grant = cache_grant(project.pipeline.cache, environ)
    return () if grant is None else (grant,)
