"""Read the pipeline, its lock file and its artifacts at a git revision."""

from contextlib import suppress

from orch23.cli.project_loading import Project, model_override_of
from orch23.execute.git_revision import GitRevision
from orch23.features.metrics.revision_view import ReadEntry
from orch23.load.pipeline import parse_pipeline
from orch23.load.yaml_errors import decode_text
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import MissingBytesError, NotFoundError
from orch23.model.pipeline import Pipeline


def bytes_of_artifacts(project: Project, revision: GitRevision) -> ReadEntry:
    """Return the reader of artifacts: from the store, the working tree or git. Fetches nothing."""

    def bytes_of(path: str, entry: FileEntry) -> bytes | None:
        # The store first: it has the bytes of results that were never committed.
        with suppress(MissingBytesError):
            return project.store.sources.read(path, entry)
        data = None
        with suppress(NotFoundError):  # a partial clone does not have it
            data = revision.read(path)
        return data if data is not None and digest_bytes(data) == entry.digest else None

    return bytes_of


def pipeline_at(project: Project, revision: GitRevision) -> Pipeline | None:
    """Return the pipeline at a revision, with the vars of the command line; None if it is missing or not valid."""
    settings, file = project.settings, project.pipeline.file
    text = _text_at(revision, file)
    if text is None:
        return None
    vars_file = settings.vars_file
    vars_name = "" if vars_file is None else vars_file.resolve().relative_to(settings.root.resolve()).as_posix()
    return parse_pipeline(
        text,
        file,
        sets=settings.sets,
        vars_text=_text_at(revision, vars_name) if vars_name else None,
        vars_name=vars_name,
        override=model_override_of(settings),
    ).pipeline


def _text_at(revision: GitRevision, path: str) -> str | None:
    data = revision.read(path)
    if data is None:
        return None
    text, refused = decode_text(data, path)
    return None if refused else text
