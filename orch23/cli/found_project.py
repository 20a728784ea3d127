"""The project of a command: its root, its pipeline file, and what was searched."""

import shlex
from pathlib import Path
from typing import Final

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic, Severity

# The directory in which a pipeline is searched for if there is no pipeline.yaml.
PIPELINES: Final = "pipelines"
# A file that makes its directory the root of a project; it may be empty.
MARKER: Final = "orch23.toml"


class NotOwn(Struct, frozen=True):
    """A file that is not used because another user, with the id `owner`, can change it.

    That user owns the file itself (`is_file`) or its directory.
    """

    path: Path
    owner: int
    is_file: bool

    @property
    def reason(self) -> str:
        """Why the file is not used."""
        owned = "it" if self.is_file else "its directory"
        return f"{self.path} is not used: {owned} belongs to another user, {_user_name(self.owner)}"

    @property
    def way_out(self) -> str:
        """How to use it anyway."""
        return f"if you trust it, work there: `orch23 -C {shlex.quote(str(self.path.parent))}`"


class FoundProject(Struct, frozen=True, kw_only=True):
    """The project of a command line. `start` is the working directory, `root` the directory that paths are relative to.

    `pipeline` is the named or the default file; None without one. `searched` is the directory whose `pipeline.yaml` or
    `pipelines` has the default file; None if it was named. `stages` are the other names.
    `passed_over` are files of other users that would have marked the root or been the default pipeline; `refused` is
    the pipeline that would have been used but belongs to another user.
    """

    start: Path
    root: Path
    pipeline: Path | None
    searched: Path | None
    stages: tuple[str, ...]
    passed_over: tuple[NotOwn, ...] = ()
    refused: NotOwn | None = None

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """A warning, if a file of another user was ignored."""
        if not self.passed_over:
            return ()
        first = self.passed_over[0]
        hint = f"{first.way_out}; if not, an empty {MARKER} in your project ends the search"
        return (Diagnostic("W668", first.reason, hint=hint, severity=Severity.WARNING),)


def _user_name(number: int) -> str:
    import pwd  # noqa: PLC0415 - only below a project of another user

    try:
        return f"`{pwd.getpwuid(number).pw_name}`"
    except KeyError:
        return f"with the id {number}"
