"""Where declared tools are."""

from collections.abc import Mapping

from msgspec import Struct

from orch23.model.step import Grant


class FoundTool(Struct, frozen=True):
    """Where a tool is. `folder` is added to PATH; a step sees the paths `shown`, read-only, and gets the variables.

    `identity` is what the key has. `origin` says for the user what installed it, and is empty for the program that a
    step finds anyway. With `is_chosen`, its folder is in front of the system directories. `offline` are variables for
    processes without network. A step needs the user's consent to `grant`. With an `error` there is no tool that a step
    may use, and `hint` says what to do. `looked_at` are the files and directories that decided.
    """

    program: str = ""
    identity: str = ""
    folder: str = ""
    shown: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    offline: Mapping[str, str] = {}
    origin: str = ""
    is_chosen: bool = False
    grant: Grant | None = None
    error: str = ""
    hint: str = ""
    looked_at: tuple[str, ...] = ()
