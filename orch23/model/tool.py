"""Where declared tools are."""

from collections.abc import Mapping

from msgspec import Struct

from orch23.model.features import TOOLCHAINS, is_installed, load_feature
from orch23.model.step import Tool


class FoundTool(Struct, frozen=True):
    """Where a tool is. Its directory is added to PATH; a step sees the paths `shown`, read-only, and the variables.

    `identity` is what the key has. `offline` are variables for processes without network. `origin` says for the user
    what installed it, and is empty for the program that a step finds anyway. `selected_by` is the toolchain file that
    selects its version. With an `error` there is no tool that a step may use, and `hint` says what to do. `looked_at`
    are the files and directories that decided.
    """

    program: str = ""
    identity: str = ""
    shown: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    offline: Mapping[str, str] = {}
    origin: str = ""
    selected_by: str = ""
    error: str = ""
    hint: str = ""
    looked_at: tuple[str, ...] = ()
    tool: Tool = Tool("")


def find_tool(
    tool: Tool, root: str, environ: Mapping[str, str], folders: tuple[str, ...] = (), cwd: str = "."
) -> FoundTool:
    """Return what the function of `TOOLCHAINS` returns.

    Raises:
        ConfigurationError: the feature is not a part of this installation.
    """
    found: FoundTool = load_feature(TOOLCHAINS, f"the tool `{tool.name}` needs")(tool, root, environ, folders, cwd)
    return found


def installed_tool(name: str, root: str, environ: Mapping[str, str]) -> FoundTool | None:
    """Return the program that a step would see if its stage named it in `tools`, apart from those of the system."""
    found = find_tool(Tool(name), root, environ) if is_installed(TOOLCHAINS) else None
    return None if found is None or found.error else found
