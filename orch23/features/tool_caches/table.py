"""The environment variables that point each tool to its cache, and that make it work without the network."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct


class CachedTool(Struct, frozen=True):
    """The variables of a tool; `{cache}` is the folder of its cache, `{tmp}` the TMPDIR of the step.

    Steps get `variables`, above them those for no network (`offline`), and those for a cache that they cannot write. Of
    the view of a stage that may read what a model made, only the entries `kept` are kept; all, if it is empty.
    """

    variables: Mapping[str, str]
    offline: Mapping[str, str] = {}
    read_only: Mapping[str, str] = {}
    kept: tuple[str, ...] = ()


TOOLS: Final[Mapping[str, CachedTool]] = {
    "cargo": CachedTool(
        {"CARGO_HOME": "{cache}", "CARGO_NET_OFFLINE": "false"},
        {"CARGO_NET_OFFLINE": "true"},
        kept=("registry", "git"),  # neither its configuration nor its programs
    ),
    "npm": CachedTool(
        {"npm_config_cache": "{cache}", "npm_config_update_notifier": "false"},
        offline={"npm_config_offline": "true", "npm_config_audit": "false", "npm_config_fund": "false"},
    ),
    "go": CachedTool(
        {"GOMODCACHE": "{cache}/mod", "GOCACHE": "{cache}/build"},
        offline={"GOPROXY": "off", "GOTOOLCHAIN": "local"},
        # Without a build cache that it can write, go does nothing.
        read_only={"GOCACHE": "{tmp}/go-build"},
    ),
    # Maven 3.8 and older ignore MAVEN_ARGS; their downloads fail at once, and they use the files that are there.
    "maven": CachedTool({"MAVEN_OPTS": "-Dmaven.repo.local={cache}"}, offline={"MAVEN_ARGS": "--offline"}),
}
"""The tools by name."""
