"""Render the page of a run as HTML."""

import base64
import hashlib
from functools import cache
from importlib import resources
from itertools import groupby

import jinja2

from orch23.features.pages.html.page import RunPage, StageGroup
from orch23.model.text import visible

_TEMPLATE = "page.html.j2"
_STYLES = "page.css"
_SCRIPT = "live.js"


def render_page(page: RunPage, *, nonce: str = "") -> str:
    """Return the page as one HTML document: no requests, all texts escaped.

    With a `nonce` it has one script, which replaces it when the run has gone on; else it has none.
    """
    template = _environment().get_template(_TEMPLATE)
    return template.render(
        page=page,
        styles=_file(_STYLES),
        policy=page_policy(nonce),
        is_group=lambda one: isinstance(one, StageGroup),
        nonce=nonce,
        script=_file(_SCRIPT) if nonce else "",
    )


def page_policy(nonce: str = "") -> str:
    """Return the content security policy of a page."""
    # It allows the styles by their hash, and nothing else: a text of a model that got through as HTML could neither
    # run a script nor send a request.
    digest = base64.b64encode(hashlib.sha256(_file(_STYLES).encode()).digest()).decode("ascii")
    live = f"; script-src 'nonce-{nonce}'; connect-src 'self'" if nonce else ""
    return f"default-src 'none'; style-src 'sha256-{digest}'{live}; base-uri 'none'; form-action 'none'"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["diff_lines"] = _diff_lines
    return environment


@cache
def _file(name: str) -> str:
    return resources.files("orch23.features.pages.html").joinpath(name).read_text(encoding="utf-8")


def _shown(value: object) -> object:
    """Return a value for the page: hidden characters of a text, such as those that reverse it, as escapes."""
    return visible(value) if type(value) is str else value


def _diff_lines(diff: str) -> list[tuple[str, str]]:
    """Return the lines of a diff, consecutive ones of one kind together: its class, and the text."""
    return [(kind, "\n".join(lines)) for kind, lines in groupby(diff.split("\n"), _kind)]


def _kind(line: str) -> str:
    if line.startswith(("---", "+++", "@@")):
        return "at"
    return {"+": "add", "-": "del"}.get(line[:1], "same")
