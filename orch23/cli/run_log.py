"""Render the log of a run that a pipeline describes by a template, from the events of the run."""

import json
from pathlib import Path, PurePosixPath

from orch23.cli.project_loading import Project
from orch23.model.errors import InvalidInputError
from orch23.resolve.prompt_files import render_file
from orch23.store.run_logs import AttemptFiles
from orch23.store.safe_files import PRIVATE_FILE_MODE, read_regular, write_atomic


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
