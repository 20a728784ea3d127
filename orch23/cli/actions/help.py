"""The action of `help`."""

import difflib
import textwrap
from collections.abc import Mapping, Sequence

import click

from orch23.cli.catalogue import catalogue
from orch23.cli.console import Console
from orch23.cli.opening import named_plugins
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, InvalidInputError, NotFoundError
from orch23.model.plugins import codes_of

_WIDTH = 88
_NEAREST = 3


def run(console: Console, *, topic: str | None) -> int:
    """Explain a code such as E802, or a command."""
    root = click.get_current_context().find_root()
    if topic is None:
        console.answer(f"{root.get_help()}\n")
        return ExitCode.OK
    group = root.command
    command = group.get_command(root, topic) if isinstance(group, click.Group) else None
    if command is not None:
        with click.Context(command, info_name=topic, parent=root) as below:
            console.answer(f"{below.get_help()}\n")
        return ExitCode.OK
    return _explain(console, topic.upper())


def _explain(console: Console, code: str) -> int:
    known = catalogue()
    plugin = ""
    if code in known:
        title, text = known[code]
    else:
        of_plugins = _codes_of_plugins(console)
        if code not in of_plugins:
            raise NotFoundError(_unknown(code, [*known, *of_plugins]))
        title, text, plugin = of_plugins[code]
    origin = f"\n\nIt is a code of the plugin {plugin}." if plugin else ""
    console.answer(f"{code}: {title}\n\n{textwrap.fill(text, _WIDTH)}{origin}\n")
    return ExitCode.OK


def _codes_of_plugins(console: Console) -> Mapping[str, tuple[str, str, str]]:
    """Return the codes of the plugins of the pipeline that is here; none where one is not installed."""
    try:
        return codes_of(named_plugins(console))
    except InvalidInputError:
        return {}


def _unknown(code: str, known: Sequence[str]) -> Diagnostic:
    close = [one for one in known if one.startswith(code)][:_NEAREST]
    close = close or difflib.get_close_matches(code, known, n=_NEAREST)
    hint = f"near it are {', '.join(close)}" if close else "docs/diagnostics.md lists the codes of orch23"
    hint += "; those of a plugin are known where it is installed and pipeline.yaml names it in `plugins`"
    return Diagnostic("E663", f"there is no code or command {code}", hint=hint)
