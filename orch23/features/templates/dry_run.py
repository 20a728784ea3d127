"""Compute what `init` and `template update` would change."""

import re
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from orch23.execute.copier_runner import find_git, merge_texts
from orch23.features.templates.changes import (
    NEW_SUFFIX,
    ChangeKind,
    MergeFunctions,
    NotAFile,
    TemplateChange,
    TemplateFile,
    init_change,
    read_paths,
    update_changes,
)
from orch23.features.templates.rendering import (
    RenderedTemplate,
    RenderRequest,
    TemplateSource,
    fetched_template,
    find_source,
    render_versions,
)
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import NotFoundError, UsageError

_PREFIX, _SUFFIX = ".orch23-", ".answers.yml"
# The last line that matches decides: originals are bytes of the user, which git must not convert.
_ATTRIBUTES = {
    **dict.fromkeys((b"/pipeline.lock", b"/pipelines/*.lock"), b"linguist-generated text eol=lf"),
    b"**/*.transcripts/**": b"linguist-generated text eol=lf",
    b"**/*.transcripts/originals/**": b"-text",
}
_LINE = "^{}: *['\"]?([^'\"\n]*)['\"]?$"


class TemplateDryRun(Struct, frozen=True, kw_only=True):
    """The changes that `init` or `template update` would make; `former` is the version before an update."""

    source: TemplateSource
    rendered: RenderedTemplate
    changes: tuple[TemplateChange, ...]
    former: str = ""

    def of(self, kind: ChangeKind) -> tuple[TemplateChange, ...]:
        """Return the changes of one kind."""
        return tuple(one for one in self.changes if one.kind is kind)


def dry_run_init(
    source: TemplateSource,
    root: Path,
    wanted: RenderRequest,
    *,
    defaults: bool,
    existing: ChangeKind,
    environ: Mapping[str, str],
) -> TemplateDryRun:
    """Return the changes of `init`. Questions without an answer have the `defaults`, if they are not asked.

    Raises:
        Orch23Error: as `fetched_template` and `render_versions`; or a question has no answer.
    """
    with fetched_template(source, environ) as folder:
        (rendered,) = render_versions(source, (wanted,), folder, root, environ)
    if rendered.unanswered and not (wanted.ask or defaults):
        raise UsageError(_unanswered(source, rendered))
    there = read_paths(root, rendered.files)
    changes = tuple(init_change(path, file, there[path], existing) for path, file in sorted(rendered.files.items()))
    return TemplateDryRun(source=source, rendered=rendered, changes=_answers_last(changes, source))


def dry_run_update(
    name: str, root: Path, data: Mapping[str, str], *, ref: str | None, environ: Mapping[str, str]
) -> TemplateDryRun:
    """Return the changes of an update, from the version that the project has to a newer one, with the same answers.

    Raises:
        Orch23Error: as `fetched_template` and `render_versions`; or the project does not have the template.
    """
    last = _read_answers(root, name)
    address, former = (_copier_line(last, key) for key in ("_src_path", "_commit"))
    if not address or not former:
        hint = f"`orch23 init {name}` writes it again"
        message = f"{_PREFIX}{name}{_SUFFIX} lacks the address or the version of the template"
        raise NotFoundError(Diagnostic("E677", message, hint=hint))
    # The name of the answers file stays the same if the repository is renamed.
    source = replace(find_source(address, root), name=name)
    with fetched_template(source, environ) as folder:
        # The former version is rendered again: what differs between the two is what the template changed.
        wanted = (RenderRequest(ref=former, last=last), RenderRequest(ref=ref, last=last, data=data))
        base, theirs = render_versions(source, wanted, folder, root, environ)
        labels = ("yours", f"template {base.version}", f"template {theirs.version}")

        def beside(path: str) -> str:
            names = (f"{path}{NEW_SUFFIX}{number}" for number in ("", *range(2, 1000)))
            return next(name for name in names if name not in theirs.files and read_paths(root, [name])[name] is None)

        merging = MergeFunctions(texts=partial(merge_texts, labels, folder, find_git(environ)), beside=beside)
        paths = sorted(base.files.keys() | theirs.files.keys())
        there = read_paths(root, paths)
        # The answers file belongs to the template: it is written, not merged.
        there[source.answers_file] = base.files.get(source.answers_file)
        of_path = ((path, base.files.get(path), theirs.files.get(path), there[path], merging) for path in paths)
        changes = tuple(change for one in of_path for change in update_changes(*one))
    return TemplateDryRun(source=source, rendered=theirs, changes=_answers_last(changes, source), former=base.version)


def project_templates(root: Path) -> tuple[str, ...]:
    """Return the names of the templates that a project has."""
    found = (path.name for path in sorted(root.glob(f"{_PREFIX}*{_SUFFIX}")))
    return tuple(name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for name in found)


def no_template_error(root: Path, name: str | None = None) -> NotFoundError:
    """Return the error that a project does not have a template, or, without a name, any template."""
    has = project_templates(root)
    hint = f"it has {', '.join(has)}" if has else "`orch23 init` adds one"
    wanted = f" `{name}`" if name is not None else ""
    return NotFoundError(Diagnostic("E677", f"this project has no template{wanted}", hint=hint))


def marker_changes(root: Path) -> tuple[TemplateChange, ...]:
    """Return the creation of the file that marks the root; none if it exists, or a git repository marks the root."""
    marker = "orch23.toml"
    if read_paths(root, [marker])[marker] is not None or (root / ".git").exists():
        return ()
    file = TemplateFile(b"# This folder is the root of an orch23 project: all paths start from here.\n")
    return (TemplateChange(path=marker, kind=ChangeKind.CREATE, after=file),)


def attribute_changes(root: Path, changes: Collection[TemplateChange]) -> tuple[TemplateChange, ...]:
    """Return the change of `.gitattributes` for lock files and transcripts; none if it has them."""
    path = ".gitattributes"
    before = read_paths(root, [path])[path] or TemplateFile(b"")
    if isinstance(before, NotAFile) or any(one.path == path for one in changes):
        return ()
    known = {line.split(maxsplit=1)[0] for line in before.data.splitlines() if line.strip()}
    added = b"".join(b"%b %b\n" % one for one in _ATTRIBUTES.items() if one[0] not in known)
    if not added:
        return ()
    after = replace(before, data=before.data + (b"" if before.data[-1:] in (b"", b"\n") else b"\n") + added)
    return (TemplateChange(path=path, kind=ChangeKind.MERGE if known else ChangeKind.CREATE, after=after),)


def _read_answers(root: Path, name: str) -> bytes:
    if name in project_templates(root):
        path = f"{_PREFIX}{name}{_SUFFIX}"
        there = read_paths(root, [path])[path]
        if isinstance(there, TemplateFile):
            return there.data
        if there is not None:
            hint = "move it away, and restore the file from version control"
            raise NotFoundError(Diagnostic("E677", f"`{path}` {there.what}", hint=hint))
    raise no_template_error(root, name)


def _copier_line(answers: bytes, key: str) -> str:
    # The file is not parsed as YAML, since a commit can look like a number.
    found = re.search(_LINE.format(key), answers.decode("utf-8", "replace"), re.MULTILINE)
    return found[1].strip() if found else ""


def _answers_last(changes: tuple[TemplateChange, ...], source: TemplateSource) -> tuple[TemplateChange, ...]:
    # The answers file is written last: if the command is interrupted, the project does not look complete.
    return tuple(sorted(changes, key=lambda one: one.path == source.answers_file))


def _unanswered(source: TemplateSource, rendered: RenderedTemplate) -> Diagnostic:
    questions = "; ".join(
        f"{name} ({rendered.questions[name].get('help', 'no help')}) [{rendered.answers.get(name)}]"
        for name in rendered.unanswered
    )
    hint = f"`--defaults` takes the values in brackets; `--data {rendered.unanswered[0]}=...` answers one question"
    return Diagnostic("E674", f"questions of `{source.name}` have no answer: {questions}", hint=hint)
