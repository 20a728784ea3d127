"""Find a template (built-in, git URL or path), fetch it, and render its versions with copier in a new directory."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from msgspec import Struct, field
from msgspec.json import decode
from msgspec.structs import replace

from orch23.execute.cleanup import temporary_folder
from orch23.execute.copier_runner import CopierCall, clone_bundle, clone_mirror, render_templates
from orch23.features.templates.changes import TemplateFile, read_rendered
from orch23.model.diagnostic import Diagnostic, nearest_names
from orch23.model.errors import InvalidInputError, NotFoundError, Orch23Error, SafetyError, UsageError

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


# Appended to the answers of the last time: a file that still has it was not written by the template.
_LAST = b"\n# of last time\n"
_BUILTIN_VERSION = re.compile(r"v([0-9]+)")


class RenderRequest(Struct, frozen=True, kw_only=True):
    """A version of a template to render: the newest one without `ref`. `last` is the answers file of the project."""

    ref: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    suggested: Mapping[str, Any] = field(default_factory=dict)
    last: bytes | None = None
    ask: bool = False


class RenderedTemplate(Struct, frozen=True, kw_only=True):
    """A rendered version: its files, its questions and their answers."""

    version: str
    files: Mapping[str, TemplateFile]
    answers: Mapping[str, Any]
    questions: Mapping[str, Mapping[str, Any]]
    unanswered: Sequence[str]
    message: str


@contextmanager
def fetched_template(source: TemplateSource, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield a temporary folder with a git mirror of a template: all its versions.

    Raises:
        NotFoundError: git cannot read the repository.
        ConfigurationError: git is not installed.
    """
    with temporary_folder("template") as folder:
        mirror = folder / "mirror"
        bundle = source.bundle
        fault = clone_mirror(source.url, mirror, environ) if bundle is None else clone_bundle(bundle, mirror, environ)
        if fault is not None:
            hint = f"try `git ls-remote {source.url}`"
            message = f"the template `{source.name}` cannot be fetched: {fault}"
            raise NotFoundError(Diagnostic("E672", message, hint=hint))
        yield folder


def render_versions(
    source: TemplateSource, wanted: Sequence[RenderRequest], folder: Path, root: Path, environ: Mapping[str, str]
) -> tuple[RenderedTemplate, ...]:
    """Return versions of a template that was fetched into a folder, rendered for the project at `root`.

    Raises:
        Orch23Error: a version does not exist, an answer is invalid, or the template has an error.
    """
    for one in wanted:
        _refuse_newer(source, one.ref)
    calls = []
    for number, one in enumerate(wanted):
        # Templates can use the name of the project's folder as a default answer.
        into = folder / str(number) / (root.name or "project")
        into.mkdir(parents=True)
        # copier takes the former answers from this file.
        if one.last is not None:
            (into / source.answers_file).write_bytes(one.last + _LAST)
        calls.append(
            CopierCall(
                source=source.address,
                destination=str(into),
                answers_file=source.answers_file,
                ref=one.ref,
                data=one.data,
                suggested=one.suggested,
                ask=one.ask,
            )
        )
    results = render_templates(calls, mirrored=folder / "mirror", url=source.url, folder=folder, environ=environ)
    return tuple(
        _read(source, one, Path(call.destination), result)
        for one, call, result in zip(wanted, calls, results, strict=False)
    )


def _read(source: TemplateSource, wanted: RenderRequest, into: Path, result: Mapping[str, Any]) -> RenderedTemplate:
    if "error" in result:
        raise _fault(source, wanted, result["error"], result["message"])
    unknown = sorted(wanted.data.keys() - result["questions"].keys())
    if unknown:
        hint = f"its questions are {', '.join(result['questions']) or 'none'}"
        raise UsageError(
            *(Diagnostic("E675", f"`{source.name}` has no question `{one}`", hint=hint) for one in unknown)
        )
    rendered = RenderedTemplate(**result, files=read_rendered(into))
    answers = rendered.files.get(source.answers_file)
    if answers is None or (wanted.last is not None and answers.data == wanted.last + _LAST):
        return replace(rendered, files={**rendered.files, source.answers_file: _answers_file(source, rendered)})
    return rendered


def _answers_file(source: TemplateSource, rendered: RenderedTemplate) -> TemplateFile:
    # Without an answers file a template cannot be updated, so one is written for templates that do not write it.
    answers = {"_commit": rendered.version, "_src_path": source.address, **rendered.answers}
    # A value is written as JSON, which is YAML.
    lines = (f"{json.dumps(name)[1:-1]}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in answers.items())
    return TemplateFile("".join(lines).encode())


def _refuse_newer(source: TemplateSource, ref: str | None) -> None:
    # git would only say that the version is missing.
    if source.version is None or ref is None:
        return
    asked, last = _BUILTIN_VERSION.fullmatch(ref), _BUILTIN_VERSION.fullmatch(source.version)
    if asked is not None and last is not None and int(asked[1]) <= int(last[1]):
        return
    hint = "upgrade orch23: a newer one may have it"
    message = f"this orch23 has `{source.name}` up to {source.version}, not {ref}"
    raise NotFoundError(Diagnostic("E672", message, hint=hint))


def _fault(source: TemplateSource, wanted: RenderRequest, kind: str, message: str) -> Orch23Error:
    name, text = source.name, f"the template `{source.name}`: {message}"
    version = wanted.ref or "its newest version"
    show = f"`orch23 template show {name}` lists the questions"
    trust = "orch23 does not run code of a template; if you trust its author, use `copier copy --trust`"
    of_git = f"`{name}` cannot be rendered at {version}: {message}"
    faults: Mapping[str, tuple[type[Orch23Error], str, str, str]] = {
        "unsafe": (SafetyError, "E673", text, trust),
        "unanswered": (UsageError, "E674", text, "`--data NAME=VALUE` answers a question"),
        "answer": (UsageError, "E675", message, show if source.version else "see the documentation of the template"),
        "git": (NotFoundError, "E672", of_git, f"list the versions with `git ls-remote --tags {source.url}`"),
    }
    broken = f"the template `{name}` cannot be rendered: {message}"
    other = (InvalidInputError, "E678", broken, "report it to the author of the template")
    error, code, text, hint = faults.get(kind, other)
    return error(Diagnostic(code, text, hint=hint))
