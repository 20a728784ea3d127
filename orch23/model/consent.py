"""What a pipeline needs the user's consent for: to run a program, or to send prompts and a key to a server."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One thing that the user allows a project, as a whole: if any field differs, it is another grant.

    `name` is the program as the pipeline names it, or the origin of a server (`https://host:port`). `sha256` is over
    the program's bytes, its arguments and the files that it is given, in hex; empty for a server. `keys` are the names
    of the environment variables that it gets. `reads` are the paths outside of the project that a program may read.
    `detail` tells the user what exactly is run, `files` which files of the project that gets; they are not compared,
    and not kept.
    """

    kind: Literal["program", "server"]
    name: str
    keys: tuple[str, ...] = ()
    sha256: str = ""
    network: bool = False
    reads: tuple[str, ...] = ()
    detail: str = field(default="", compare=False)
    files: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        """Describe it in one line, for a message."""
        what = f"run `{self.detail or self.name}`" if self.kind == "program" else f"send prompts to {self.name}"
        given = ", ".join((*self.keys, *(("the network",) if self.network else ()), *self.reads))
        return f"{what} with {given}" if given else what
