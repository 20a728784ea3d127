"""What the user has allowed a project to run and to send, and how the user is asked."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct

from orch23.cli.console import Console
from orch23.model.consent import Grant
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, ProviderError
from orch23.providers.registry import consent
from orch23.report.diagnostics import visible
from orch23.store.user_state import Grants, grants_of
from orch23.store.workspace import Workspace

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep

TRUST: Final = "ORCH23_TRUST"
"""The variable that, as `1`, allows everything for one process."""


class Consent(Struct):
    """The grants of one project, read when the first is asked for. `files` are the project's, as they are now."""

    root: Path
    grants: Grants
    files: Workspace
    allows_all: bool = False
    _known: set[Grant] | None = None

    @classmethod
    def of(cls, root: Path, environ: Mapping[str, str]) -> "Consent":
        """Return what the user has allowed the project at `root`."""
        return cls(root, grants_of(root, environ), Workspace(root, None), environ.get(TRUST) == "1")

    def is_granted(self, grant: Grant) -> bool:
        """Return whether the user has allowed something."""
        if self.allows_all:
            return True
        if self._known is None:
            self._known = set(self.grants.read())
        return grant in self._known

    def lacking(self, step: "LLMStep", environ: Mapping[str, str]) -> Grant | None:
        """Return what a step needs and the user has not allowed. A program that is not there needs nothing."""
        try:
            grant = consent(step, environ, self.root, self.files)
        except ProviderError:
            return None
        return None if grant is None or self.is_granted(grant) else grant

    def give(self, grants: Iterable[Grant]) -> bool:
        """Keep some grants durably, and return True.

        Raises:
            ConfigurationError: there is no place for them.

        """
        if self.grants.path is None:
            message = "there is no state directory outside of the project to keep consent in"
            hint = f"set HOME or XDG_STATE_HOME, or {TRUST}=1 for one process"
            raise ConfigurationError(Diagnostic("E644", message, hint=hint))
        given = set(grants)
        self.grants.add(given, self.root.resolve())
        self._known = {*self.grants.read(), *given}
        return True


def asked_consent(console: Console, grants: Sequence[Grant]) -> bool:
    """Ask the user on the terminal; False where there is none."""
    if not console.is_asked:
        return False
    console.tell(f"This pipeline would, for the first time:\n{listed(grants)}")
    return click.confirm("Allow this for this project?", default=False, err=True)


def listed(grants: Iterable[Grant]) -> str:
    """Return a line for each grant, and one for the files of the project that it is about."""
    lines: list[str] = []
    for grant in grants:
        lines.append(f"  {grant}")
        if grant.files:
            lines.append(f"    from {', '.join(grant.files)}")
    return "".join(f"{visible(line)}\n" for line in lines)
