"""Run `help`: explain a diagnostic code or a command."""

import difflib
import textwrap
from collections.abc import Collection, Mapping

import click

from orch23.cli.catalogue import diagnostic_codes
from orch23.cli.console import Console
from orch23.cli.group import COMMAND_NAMES
from orch23.cli.opening import named_plugins
from orch23.model.diagnostic import Diagnostic, nearest_names
from orch23.model.errors import ExitCode, InvalidInputError, NotFoundError
from orch23.model.plugins import plugin_codes

_WIDTH = 88
_NEAREST = 3


def run(console: Console, *, topic: str | None) -> int:
    """Explain a diagnostic code or a command."""
    root = click.get_current_context().find_root()
    if topic is None:
        console.write_out(f"{root.get_help()}\n")
        return ExitCode.OK
    group = root.command
    # Commands first: no command looks like a code.
    command = group.get_command(root, topic) if isinstance(group, click.Group) else None
    if command is not None:
        with click.Context(command, info_name=topic, parent=root) as below:
            console.write_out(f"{below.get_help()}\n")
        return ExitCode.OK
    return _explain(console, topic)


def _explain(console: Console, topic: str) -> int:
    known, code, plugin = diagnostic_codes(), topic.upper(), ""
    if code in known:
        title, text = known[code]
    else:
        of_plugins = _codes_of_plugins(console)
        if code not in of_plugins:
            hint = _hint(topic, [*known, *of_plugins])
            raise NotFoundError(Diagnostic("E663", f"no code or command is named {topic}", hint=hint))
        title, text, plugin = of_plugins[code]
    origin = f"\n\nIt is a code of the plugin {plugin}." if plugin else ""
    console.write_out(f"{code}: {title}\n\n{textwrap.fill(text, _WIDTH)}{origin}\n")
    return ExitCode.OK


def _codes_of_plugins(console: Console) -> Mapping[str, tuple[str, str, str]]:
    """Return the codes of the default pipeline's plugins; none if a plugin is not installed."""
    try:
        return plugin_codes(named_plugins(console))
    except InvalidInputError:
        return {}


def _hint(topic: str, codes: Collection[str]) -> str:
    """Return a hint for an unknown topic: the nearest command or codes."""
    for name in () if any(map(str.isdigit, topic)) else nearest_names(topic, COMMAND_NAMES):
        return f"did you mean `orch23 help {name}`?"
    code = topic.upper()
    close = [one for one in codes if one.startswith(code)][:_NEAREST]
    close = close or difflib.get_close_matches(code, codes, n=_NEAREST)
    hint = f"near codes: {', '.join(close)}" if close else "docs/diagnostics.md lists the codes of orch23"
    return f"{hint}; codes of a plugin need the plugin in `plugins` of pipeline.yaml"
