"""Fetch a template and render versions of it with copier in a temporary directory."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from orch23.execute.cleanup import temporary_folder
from orch23.execute.copier_runner import CopierCall, clone_bundle, clone_mirror, render_templates
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import (
    InvalidInputError,
    NotFoundError,
    Orch23Error,
    SafetyError,
    UsageError,
)
from orch23.templates import codes
from orch23.templates.changes import TemplateFile, read_rendered
from orch23.templates.source import TemplateSource

# Ends the answers of last time, so that those which a template has written anew can be told from them.
_LAST = b"\n# of last time\n"
_OURS = re.compile(r"v([0-9]+)")


class RenderRequest(Struct, frozen=True, kw_only=True):
    """One version of a template to render. `last` is the answers file of the project, `ref` None the newest version."""

    ref: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    suggested: Mapping[str, str] = field(default_factory=dict)
    last: bytes | None = None
    ask: bool = False


class RenderedTemplate(Struct, frozen=True, kw_only=True):
    """A rendered version: its files, and what is known of its questions."""

    version: str
    files: Mapping[str, TemplateFile]
    answers: Mapping[str, Any]
    questions: Mapping[str, Mapping[str, Any]]
    unanswered: tuple[str, ...]
    message: str


@contextmanager
def fetched_template(source: TemplateSource, environ: Mapping[str, str]) -> Iterator[Path]:
    """Give a temporary folder with all versions of a template in it.

    Raises:
        NotFoundError: git cannot read the repository.
        ConfigurationError: there is no git.

    """
    with temporary_folder("template") as folder:
        into = folder / "mirror"
        if source.bundle is not None:
            failed = clone_bundle(source.bundle, into, environ)
        else:
            failed = clone_mirror(source.url, into, environ)
        if failed is not None:
            hint = f"try `git ls-remote {source.url}`"
            message = f"the template `{source.name}` cannot be fetched: {failed}"
            raise NotFoundError(Diagnostic(codes.NOT_FETCHED, message, hint=hint))
        yield folder


def render_versions(
    source: TemplateSource, wanted: Sequence[RenderRequest], folder: Path, root: Path, environ: Mapping[str, str]
) -> tuple[RenderedTemplate, ...]:
    """Return versions of a template that was fetched into a folder, rendered for the project at `root`.

    Raises:
        Orch23Error: a version is not there, an answer does not fit, or the template has a fault.

    """
    for one in wanted:
        _refuse_newer(source, one.ref)
    calls = []
    for number, one in enumerate(wanted):
        # Templates may ask for the name of the project's folder.
        into = folder / str(number) / (root.name or "project")
        into.mkdir(parents=True)
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
        hint = f"it asks for {', '.join(result['questions']) or 'nothing'}"
        told = [Diagnostic(codes.BAD_ANSWER, f"`{source.name}` has no question `{one}`", hint=hint) for one in unknown]
        raise UsageError(*told)
    made = RenderedTemplate(
        version=result["version"],
        files=read_rendered(into),
        answers=result["answers"],
        questions=result["questions"],
        unanswered=tuple(result["unanswered"]),
        message=result["message"],
    )
    kept = made.files.get(source.answers_file)
    if kept is None or (wanted.last is not None and kept.data == wanted.last + _LAST):
        return _with_answers(source, made)
    return made


def _with_answers(source: TemplateSource, made: RenderedTemplate) -> RenderedTemplate:
    """Give a template that keeps no answers a file for them, so that it can be updated too. JSON is YAML."""
    kept = {"_commit": made.version, "_src_path": source.address, **made.answers}
    lines = (f"{json.dumps(name)[1:-1]}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in kept.items())
    text = "".join(lines)
    return RenderedTemplate(
        version=made.version,
        files={**made.files, source.answers_file: TemplateFile(text.encode())},
        answers=made.answers,
        questions=made.questions,
        unanswered=made.unanswered,
        message=made.message,
    )


def _refuse_newer(source: TemplateSource, ref: str | None) -> None:
    """Refuse a version of one of our templates that this orch23 does not bring, in words that say why."""
    if source.version is None or ref is None:
        return
    asked, last = _OURS.fullmatch(ref), _OURS.fullmatch(source.version)
    if asked is not None and last is not None and int(asked[1]) <= int(last[1]):
        return
    hint = "a newer orch23 may: upgrade it"
    message = f"this orch23 brings `{source.name}` up to {source.version}, not {ref}"
    raise NotFoundError(Diagnostic(codes.NOT_FETCHED, message, hint=hint))


def _fault(source: TemplateSource, wanted: RenderRequest, kind: str, message: str) -> Orch23Error:
    show = f"`orch23 template show {source.name}` lists the questions" if source.version else "see the template's pages"
    match kind:
        case "unsafe":
            hint = "orch23 runs no code of a template; if you trust its author: `copier copy --trust`"
            return SafetyError(Diagnostic(codes.RUNS_CODE, f"the template `{source.name}`: {message}", hint=hint))
        case "unanswered":
            hint = "`--data NAME=VALUE` answers a question"
            return UsageError(Diagnostic(codes.UNANSWERED, f"the template `{source.name}`: {message}", hint=hint))
        case "answer":
            return UsageError(Diagnostic(codes.BAD_ANSWER, message, hint=show))
        case "git":
            version = wanted.ref or "its newest version"
            hint = f"see which there are: `git ls-remote --tags {source.url}`"
            fault = f"`{source.name}` cannot be had at {version}: {message}"
            return NotFoundError(Diagnostic(codes.NOT_FETCHED, fault, hint=hint))
        case _:
            hint = "tell the template's author"
            fault = f"the template `{source.name}` cannot be rendered: {message}"
            return InvalidInputError(Diagnostic(codes.BROKEN, fault, hint=hint))
