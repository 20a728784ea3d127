"""Run `help`: explain a diagnostic code or a command, or show a page of the documentation."""

import difflib
import textwrap
from collections.abc import Collection, Mapping
from contextlib import suppress

import click

from orch23.cli.console import Console
from orch23.cli.group import COMMAND_NAMES
from orch23.cli.pages import diagnostic_codes, find_page, page_names, page_titles
from orch23.features.authoring.pipelines import named_plugins
from orch23.model.diagnostic import Diagnostic, nearest_names, question
from orch23.model.errors import InvalidInputError, NotFoundError
from orch23.model.plugins import plugin_codes

_WIDTH = 88
_NEAREST = 3
_NAME_WIDTH = 32


def show_help(console: Console, *, topic: str | None) -> None:
    """Explain a diagnostic code or a command, or show a page."""
    root = click.get_current_context().find_root()
    # Commands first: no command looks like a code. A page with the name of a command is shown as `docs/NAME`.
    command = root.command.get_command(root, topic) if topic and isinstance(root.command, click.Group) else None
    if topic is None:
        console.write_out(f"{root.get_help()}\n")
    elif command is not None:
        with click.Context(command, info_name=topic, parent=root) as below:
            console.write_out(f"{below.get_help()}\n")
    elif topic == "pages":
        console.write_out("".join(f"{name:<{_NAME_WIDTH}}  {title}\n" for name, title in page_titles()))
    else:
        console.write_out(find_page(topic) or _explanation(console, topic))


def _explanation(console: Console, topic: str) -> str:
    known, code, plugin = diagnostic_codes(), topic.upper(), ""
    renamed = (one for one, (_, text) in known.items() if text.endswith(f" Its code was {code}."))
    code = code if code in known else next(renamed, code)
    if code in known:
        title, text = known[code]
    else:
        of_plugins: Mapping[str, tuple[str, str, str]] = {}
        with suppress(InvalidInputError):  # a plugin is not installed
            of_plugins = plugin_codes(named_plugins(console))
        if code not in of_plugins:
            hint = _hint(topic, [*known, *of_plugins])
            raise NotFoundError(Diagnostic("E663", f"no code, command or page is named {topic}", hint=hint))
        title, text, plugin = of_plugins[code]
    origin = f"\n\nIt is a code of the plugin {plugin}." if plugin else ""
    return f"{code}: {title}\n\n{textwrap.fill(text, _WIDTH)}{origin}\n"


def _hint(topic: str, codes: Collection[str]) -> str:
    if not page_names():
        return "the pages of orch23 are missing: install orch23 again"
    near = nearest_names(topic, COMMAND_NAMES) or nearest_names(topic, page_names())
    if near and not any(map(str.isdigit, topic)):
        return question([f"orch23 help {one}" for one in near])
    code = topic.upper()
    close = [one for one in codes if one.startswith(code)][:_NEAREST]
    close = close or difflib.get_close_matches(code, codes, n=_NEAREST)
    hint = f"near codes: {', '.join(close)}" if close else "`orch23 help diagnostics` lists the codes of orch23"
    return f"{hint}; codes of a plugin need the plugin in `plugins` of pipeline.yaml"
