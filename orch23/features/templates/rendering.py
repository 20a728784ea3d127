"""Fetch a template and render versions of it with copier in a temporary directory."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.execute.cleanup import temporary_folder
from orch23.execute.copier_runner import CopierCall, clone_bundle, clone_mirror, render_templates
from orch23.features.templates.changes import TemplateFile, read_rendered
from orch23.features.templates.source import TemplateSource
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import InvalidInputError, NotFoundError, Orch23Error, SafetyError, UsageError

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
    unanswered: tuple[str, ...]
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
    rendered = RenderedTemplate(
        version=result["version"],
        files=read_rendered(into),
        answers=result["answers"],
        questions=result["questions"],
        unanswered=tuple(result["unanswered"]),
        message=result["message"],
    )
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
    show = (
        f"`orch23 template show {source.name}` lists the questions"
        if source.version
        else "see the documentation of the template"
    )
    name = source.name
    version = wanted.ref or "its newest version"
    faults: Mapping[str, tuple[type[Orch23Error], str, str, str]] = {
        "unsafe": (
            SafetyError,
            "E673",
            f"the template `{name}`: {message}",
            "orch23 does not run code of a template; if you trust its author, use `copier copy --trust`",
        ),
        "unanswered": (
            UsageError,
            "E674",
            f"the template `{name}`: {message}",
            "`--data NAME=VALUE` answers a question",
        ),
        "answer": (UsageError, "E675", message, show),
        "git": (
            NotFoundError,
            "E672",
            f"`{name}` cannot be rendered at {version}: {message}",
            f"list the versions with `git ls-remote --tags {source.url}`",
        ),
    }
    broken = f"the template `{name}` cannot be rendered: {message}"
    other = (InvalidInputError, "E678", broken, "report it to the author of the template")
    error, code, text, hint = faults.get(kind, other)
    return error(Diagnostic(code, text, hint=hint))
