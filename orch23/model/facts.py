"""What is true of the machine and of the providers, as far as a result depends on it."""

from collections.abc import Mapping

from msgspec import Struct, field

from orch23.model.digest import Json


class Facts(Struct, frozen=True, kw_only=True):
    """What is true of the machine and of the providers, looked up before resolving.

    `plugins` are name and version of each plugin that has a part in the stage's step.
    """

    python: str = ""
    pytest: str = ""
    interpreter: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = ""
    api: str = ""
    params: Mapping[str, Json] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    checks: Mapping[str, int | str] = field(default_factory=dict)
