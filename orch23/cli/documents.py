"""What `build` gives about itself: files (`--junit FILE`, `--trace FILE`), the log by a template, spans."""

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from orch23.cli.console import Console
from orch23.cli.named_files import NamedFile, named_file
from orch23.cli.project_loading import Project
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import InvalidInputError, UsageError
from orch23.model.event import Observer
from orch23.model.features import DOCUMENTS, SPANS, load_feature
from orch23.model.sink import Sink
from orch23.report.formats import Document, Fanout, Guarded, View, sink_observer
from orch23.resolve.prompt_files import render_file
from orch23.store.run_logs import AttemptFiles
from orch23.store.safe_files import PRIVATE_FILE_MODE, read_regular, write_atomic

_MAX_SUMMARY_BYTES = 1_048_576


class Documents(Struct):
    """The documents of a build: `paths` by name; `spans` makes the sink that sends spans.

    A document that cannot be written stops neither the build nor its journal; `fault` is the first exception.
    """

    files: Mapping[str, NamedFile]
    spans: Document | None = None
    _observers: tuple[Guarded, ...] = ()

    def beside(self, screen: Observer, view: View) -> Observer:
        """Return an observer that shows a build on a screen, and writes the documents when it has ended."""
        for name, file in self.files.items():
            write = partial(_append if name == "summary" else NamedFile.write, file)
            sink: Sink = load_feature(DOCUMENTS[name])(replace(view, answer=write))
            self._observers += (Guarded(sink_observer(sink, view.clock)),)
        # After the screen: what the user sees does not wait for a slow disk.
        return Fanout(screen, *self._observers, *([self.spans(view)] if self.spans is not None else []))

    @property
    def fault(self) -> Exception | SystemExit | None:
        """The first exception while a document was written."""
        return next((one.fault for one in self._observers if one.fault is not None), None)


def open_documents(console: Console, files: Mapping[str, str], *, dry_run: bool, otel: bool) -> Documents:
    """Return the documents with these files, by name. Their paths are relative to the working directory.

    With `otel` spans are sent too; those of a dry run would say nothing.

    The folders are created now, and it is checked that the files can be written: a build that is paid for must not
    find this out at its end.

    Raises:
        UsageError: a file cannot be written, or nothing is built.
        SafetyError: its path leads through a link in the project.
        ConfigurationError: spans cannot be sent.
    """
    if dry_run and files:
        message = f"`--dry-run` builds nothing that `--{min(files)}` could describe"
        hint = "drop `--dry-run`; `orch23 plan --json` describes what a build would do"
        raise UsageError(Diagnostic("E641", message, hint=hint))
    named = {name: named_file(console.here, file) for name, file in files.items()}
    errors = [*filter(None, map(_unwritable, named, named.values()))]
    if errors:
        raise UsageError(*errors)
    if not otel or dry_run:
        return Documents(named)
    return Documents(named, load_feature(SPANS["build"])(console))


def _unwritable(name: str, file: NamedFile) -> Diagnostic | None:
    try:
        file.check()
    except OSError as error:
        why = error.strerror or "its folder cannot be created"
    else:
        if os.access(file.path.parent, os.W_OK | os.X_OK):
            return None
        why = "is in a folder that you cannot write to"
    source = "GITHUB_STEP_SUMMARY" if name == "summary" else f"--{name}"
    message = f"`{source}` cannot write `{file.path}`: {why}"
    return Diagnostic("E641", message, hint="name a file in a folder of your own")


def _append(named: NamedFile, text: str) -> None:
    """Append to the summary of a job: other steps have written to it. GitHub refuses one of more than 1 MiB."""
    with named.appending() as file:
        left = _MAX_SUMMARY_BYTES - file.tell()
        # The last lines are left out as a whole.
        data = text.encode("utf-8", "backslashreplace")
        file.write(data if len(data) <= left else data[: data.rfind(b"\n", 0, max(left, 0)) + 1])


def write_run_log(project: Project, template: str, folder: Path) -> None:
    """Write the template into the folder of a run, rendered with its events and the `text` that each is about.

    Raises:
        InvalidInputError: the template cannot be rendered.
    """
    events = [json.loads(line) for line in (read_regular(folder.with_suffix(".jsonl")) or b"").splitlines()]
    for event in events:
        name = event["data"].get("printed") or ("response.txt" if event["type"] == "attempt_finished" else "")
        kept = AttemptFiles(folder).read(event["role"], event["data"]["attempt"], name) if name else None
        event["text"] = kept[0].decode(errors="replace") if kept else ""
    text, problems = render_file(template, {"vars": project.pipeline.vars, "events": events}, project.tools.sources)
    if text is None:
        raise InvalidInputError(*problems)
    if text.strip():
        write_atomic(folder / PurePosixPath(template).stem, text.encode(), mode=PRIVATE_FILE_MODE)
