"""What a pipeline needs consent for: to run a program, to send prompts and a key to a server, to download."""

from typing import Literal

from msgspec import Struct


class Grant(Struct, frozen=True, kw_only=True):
    """One thing that the user allows a project, as a whole: if any field differs, it is another grant.

    `name` is the program as the pipeline names it, or the origin of a server (`https://host:port`). `sha256` is over
    the program's bytes, its arguments and the files that it is given, in hex; empty for a server. `keys` are the names
    of the environment variables that it gets. `reads` are the paths outside of the project that a program may read.
    `detail` tells the user what exactly is run, `files` which files of the project that gets; they are not compared,
    and not kept.
    """

    kind: Literal["program", "server", "download"]
    name: str
    keys: tuple[str, ...] = ()
    sha256: str = ""
    network: bool = False
    reads: tuple[str, ...] = ()
    detail: str = ""
    files: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Return whether it allows the same: `detail` and `files` are not compared."""
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
            "server": f"send prompts to {self.name}",
            "download": f"download from {self.name}",
        }
        what = whats[self.kind]
        given = ", ".join((*self.keys, *(("the network",) if self.network else ()), *self.reads))
        return f"{what} with {given}" if given else what
