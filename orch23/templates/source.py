"""Find a template: built-in, git URL or path."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import decode

from orch23.model.diagnostic import Diagnostic, nearest_names
from orch23.model.errors import NotFoundError
from orch23.templates.codes import NO_TEMPLATE, NOT_FETCHED

TEMPLATES_FOLDER = Path(__file__).parent
# No registrar gives out names below `.invalid` (RFC 2606), so nobody can ever answer in our place.
BUILTIN_URL = "https://orch23.invalid/templates/"


class BuiltinTemplate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is told of a template without opening it. A question has help, default and choices, as far as given."""

    name: str
    summary: str
    version: str
    questions: Mapping[str, Mapping[str, Any]]
    files: tuple[str, ...]
    next: str

    @property
    def url(self) -> str:
        """Give the address that answers files hold: the same on every machine."""
        return f"{BUILTIN_URL}{self.name}.git"

    @property
    def bundle(self) -> Path:
        """Give the git bundle that the address means here."""
        return TEMPLATES_FOLDER / f"{self.name}.bundle"


class _Catalogue(Struct, frozen=True, forbid_unknown_fields=True):
    orch23_templates: int
    templates: tuple[BuiltinTemplate, ...]


def builtin_templates() -> Mapping[str, BuiltinTemplate]:
    """Return the templates by name."""
    read = decode((TEMPLATES_FOLDER / "catalogue.json").read_bytes(), type=_Catalogue)
    return {one.name: one for one in read.templates}


_SHORT = {"gh:": "https://github.com/", "gl:": "https://gitlab.com/"}
_REMOTE = re.compile(r"(?:https?|ssh|git|file)://.+|[\w.-]+@[\w.-]+:.+")
_PASSWORD = re.compile(r"[a-z+]+://[^/@:]*:[^/@]*@")
_LONGEST_NAME = 100  # a file is named by it
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class TemplateSource(Struct, frozen=True, kw_only=True):
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


def find_source(named: str, here: Path) -> TemplateSource:
    """Return the template that a name, a URL or a path means.

    Raises:
        NotFoundError: it means none.

    """
    ours = builtin_templates()
    plain = named.removeprefix(BUILTIN_URL).removesuffix(".git") if named.startswith(BUILTIN_URL) else named
    if plain in ours:
        one = ours[plain]
        return TemplateSource(name=one.name, address=one.url, url=one.url, bundle=one.bundle, version=one.version)
    if named.startswith(BUILTIN_URL):
        hint = f"this orch23 brings {', '.join(ours)}; another version of orch23 brought it"
        raise NotFoundError(Diagnostic(NO_TEMPLATE, f"there is no template `{plain}`", hint=hint))
    url = _url(named, here)
    if url is None:
        close = nearest_names(named, ours)
        hint = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(ours)}; others are named by a git URL"
        raise NotFoundError(Diagnostic(NO_TEMPLATE, f"there is no template `{named}`", hint=hint))
    if _PASSWORD.match(url):
        hint = "leave it to git's credential helper: the URL is written into the project"
        raise NotFoundError(Diagnostic(NOT_FETCHED, "the URL holds a password", hint=hint))
    last = re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")
    name = _NOT_IN_NAMES.sub("-", last).strip("-.")[:_LONGEST_NAME] or "template"
    return TemplateSource(name=name, address=url if url.endswith(".git") else f"git+{url}", url=url)


def _url(named: str, here: Path) -> str | None:
    """Return what git shall clone, or None for what is neither a BUILTIN_URL nor the path of a folder."""
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
