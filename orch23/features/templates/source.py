"""Find a template: built-in, git URL or path."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from msgspec import Struct
from msgspec.json import decode

from orch23.model.diagnostic import Diagnostic, nearest_names
from orch23.model.errors import NotFoundError

TEMPLATES_FOLDER = Path(__file__).parent
# RFC 2606 reserves `.invalid`, so no one can register the name and serve other templates under it.
BUILTIN_URL = "https://orch23.invalid/templates/"


class BuiltinTemplate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of a built-in template. A question may have a help text, a default and choices."""

    name: str
    summary: str
    version: str
    questions: Mapping[str, Mapping[str, Any]]
    files: tuple[str, ...]
    next: str

    @property
    def url(self) -> str:
        """Return the address for answers files: the same on every machine."""
        return f"{BUILTIN_URL}{self.name}.git"

    @property
    def bundle(self) -> Path:
        """Return the git bundle in this installation."""
        return TEMPLATES_FOLDER / f"{self.name}.bundle"


class _Catalogue(Struct, frozen=True, forbid_unknown_fields=True):
    orch23_templates: int
    templates: tuple[BuiltinTemplate, ...]


def builtin_templates() -> Mapping[str, BuiltinTemplate]:
    """Return the built-in templates by name."""
    read = decode((TEMPLATES_FOLDER / "catalogue.json").read_bytes(), type=_Catalogue)
    return {one.name: one for one in read.templates}


_SHORT = {"gh:": "https://github.com/", "gl:": "https://gitlab.com/"}
_REMOTE = re.compile(r"(?:https?|ssh|git|file)://.+|[\w.-]+@[\w.-]+:.+")
_PASSWORD = re.compile(r"[a-z+]+://[^/@:]*:[^/@]*@")
_MAX_NAME_LENGTH = 100  # the name is part of a file name
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class TemplateSource(Struct, frozen=True, kw_only=True):
    """The repository of a template. `address` is for answers files, `url` for git."""

    name: str
    address: str
    url: str
    bundle: Path | None = None
    version: str | None = None

    @property
    def answers_file(self) -> str:
        """Return the file at the root of a project that has the answers to the questions of the template."""
        return f".orch23-{self.name}.answers.yml"


def find_source(named: str, here: Path) -> TemplateSource:
    """Return the template of a name, a URL or a path.

    Raises:
        NotFoundError: there is no such template, or the URL contains a password.
    """
    ours = builtin_templates()
    plain = named.removeprefix(BUILTIN_URL).removesuffix(".git") if named.startswith(BUILTIN_URL) else named
    if plain in ours:
        one = ours[plain]
        return TemplateSource(name=one.name, address=one.url, url=one.url, bundle=one.bundle, version=one.version)
    if named.startswith(BUILTIN_URL):
        hint = f"this orch23 has {', '.join(ours)}; another version of orch23 had it"
        raise NotFoundError(Diagnostic("E671", f"there is no template `{plain}`", hint=hint))
    url = _url(named, here)
    if url is None:
        close = nearest_names(named, ours)
        hint = (
            f"did you mean `{close[0]}`?"
            if close
            else f"the templates are {', '.join(ours)}; name another one by its git URL"
        )
        raise NotFoundError(Diagnostic("E671", f"there is no template `{named}`", hint=hint))
    if _PASSWORD.match(url):
        hint = "use a credential helper of git: the URL is written into the project"
        raise NotFoundError(Diagnostic("E672", "the URL contains a password", hint=hint))
    last = re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")
    name = _NOT_IN_NAMES.sub("-", last).strip("-.")[:_MAX_NAME_LENGTH] or "template"
    return TemplateSource(name=name, address=url if url.endswith(".git") else f"git+{url}", url=url)


def _url(named: str, here: Path) -> str | None:
    """Return the URL for `git clone`; None if the text is neither a URL nor the path of a folder."""
    named = named.removeprefix("git+")
    for short, long in _SHORT.items():
        if named.startswith(short):
            return f"{long}{named.removeprefix(short).strip('/').removesuffix('.git')}.git"
    if _REMOTE.fullmatch(named):
        return named
    try:
        path = here / Path(named).expanduser()
        return path.resolve().as_uri() if "/" in named and path.exists() else None
    except (OSError, RuntimeError):  # a path that is too long; `~user` without such a user
        return None


def complete_templates(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of built-in templates."""
    return [
        CompletionItem(name, help=one.summary)
        for name, one in builtin_templates().items()
        if name.startswith(incomplete)
    ]
