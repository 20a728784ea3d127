"""Where a template comes from: one of ours, by name, or a git repository, by URL or path."""

import re
from pathlib import Path

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import NotFoundError
from orch23.model.nearest import nearest
from orch23.templates.builtin import URL, builtins
from orch23.templates.codes import NO_TEMPLATE, NOT_FETCHED

_SHORT = {"gh:": "https://github.com/", "gl:": "https://gitlab.com/"}
_REMOTE = re.compile(r"(?:https?|ssh|git|file)://.+|[\w.-]+@[\w.-]+:.+")
_PASSWORD = re.compile(r"[a-z+]+://[^/@:]*:[^/@]*@")
_LONGEST_NAME = 100  # a file is named by it
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class Source(Struct, frozen=True, kw_only=True):
    """A template's repository. `address` is what answers files hold, `url` what git makes of it."""

    name: str
    address: str
    url: str
    bundle: Path | None = None
    version: str | None = None

    @property
    def answers_file(self) -> str:
        """Give the file at the root of a project that says what the template was told."""
        return f".orch23-{self.name}.answers.yml"


def find_source(named: str, here: Path) -> Source:
    """Return the template that a name, a URL or a path means.

    Raises:
        NotFoundError: it means none.

    """
    ours = builtins()
    plain = named.removeprefix(URL).removesuffix(".git") if named.startswith(URL) else named
    if plain in ours:
        one = ours[plain]
        return Source(name=one.name, address=one.url, url=one.url, bundle=one.bundle, version=one.version)
    if named.startswith(URL):
        hint = f"this orch23 brings {', '.join(ours)}; another version of orch23 brought it"
        raise NotFoundError(Diagnostic(NO_TEMPLATE, f"there is no template `{plain}`", hint=hint))
    url = _url(named, here)
    if url is None:
        close = nearest(named, ours)
        hint = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(ours)}; others are named by a git URL"
        raise NotFoundError(Diagnostic(NO_TEMPLATE, f"there is no template `{named}`", hint=hint))
    if _PASSWORD.match(url):
        hint = "leave it to git's credential helper: the URL is written into the project"
        raise NotFoundError(Diagnostic(NOT_FETCHED, "the URL holds a password", hint=hint))
    last = re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")
    name = _NOT_IN_NAMES.sub("-", last).strip("-.")[:_LONGEST_NAME] or "template"
    return Source(name=name, address=url if url.endswith(".git") else f"git+{url}", url=url)


def _url(named: str, here: Path) -> str | None:
    """Return what git shall clone, or None for what is neither a URL nor the path of a folder."""
    named = named.removeprefix("git+")
    for short, long in _SHORT.items():
        if named.startswith(short):
            return f"{long}{named.removeprefix(short).strip('/').removesuffix('.git')}.git"
    if _REMOTE.fullmatch(named):
        return named
    try:
        path = here / Path(named).expanduser()
        return path.resolve().as_uri() if "/" in named and path.exists() else None
    except (OSError, RuntimeError):  # longer than a path can be; the home of nobody
        return None
