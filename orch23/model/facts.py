"""What is true of the machine and of the providers, as far as a result depends on it."""

from collections.abc import Mapping

from msgspec import Struct, field

from orch23.model.digest import Json


class Facts(Struct, frozen=True, kw_only=True):
    """What is true of the machine and of the providers, looked up before resolving.

    `plugins` are name and version of each plugin that has a part in the stage's step; `verify_plugins` are those of the
    kinds of steps in its `verify` that plugins add, by kind.
    """

    python: str = ""
    pytest: str = ""
    interpreter: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = ""
    api: str = ""
    params: Mapping[str, Json] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    verify_plugins: Mapping[str, str] = field(default_factory=dict)
    checks: Mapping[str, int | str] = field(default_factory=dict)
