"""The action of `help`."""

import difflib
import textwrap
from collections.abc import Collection

import click

from orch23.cli.catalogue import catalogue
from orch23.cli.console import Console
from orch23.cli.group import NAMES
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, NotFoundError
from orch23.model.nearest import nearest

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
    return _explain(console, topic)


def _explain(console: Console, topic: str) -> int:
    known, code = catalogue(), topic.upper()
    if code not in known:
        raise NotFoundError(Diagnostic("E663", f"there is no code or command {topic}", hint=_hint(topic, known)))
    title, text = known[code]
    console.answer(f"{code}: {title}\n\n{textwrap.fill(text, _WIDTH)}\n")
    return ExitCode.OK


def _hint(topic: str, codes: Collection[str]) -> str:
    """Return what a topic may have been meant to be: a command, or some codes."""
    for name in nearest(topic, NAMES):
        return f"did you mean `orch23 help {name}`?"
    code = topic.upper()
    close = [one for one in codes if one.startswith(code)][:_NEAREST]
    close = close or difflib.get_close_matches(code, codes, n=_NEAREST)
    return f"near it are {', '.join(close)}" if close else "docs/diagnostics.md lists the codes"
