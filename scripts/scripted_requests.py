"""Write into pipelines/NAME.answers.yaml for which requests its responses were written.

A template is built with its scripted responses: as it is, and with each of the `examples` of its description, in a
project that was built before and in a new one. The digest of the first request of each stage is written to `requests`
of the case that responded (ADR 47).
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from scripts.copier_template import Description, TemplateError, project_files

# Prints a line for each response: the stage, the digest of its request, and the text.
_BUILD = """
import json, sys
from orch23.providers import scripted
respond = scripted.ScriptedProvider.complete
def noting(self, request, deadline_s, on_text):
    response = respond(self, request, deadline_s, on_text)
    if self.attempt == 1:
        print(json.dumps([self.stage, scripted.request_digest(request), response.text]))
    return response
scripted.ScriptedProvider.complete = noting
from orch23.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
_REQUESTS = re.compile(r"^(  - |    )requests: \[.*\]$", re.MULTILINE)


def write_requests(root: Path, description: Description) -> bool:
    """Update the file of responses of a template, if it has one; return whether it changed."""
    path = root / answers_path(description)
    if not path.exists():
        return False
    before = path.read_text(encoding="utf-8")
    unbound = without_requests(before)
    after = with_requests(unbound, seen_requests(root, description, unbound))
    if after != before:
        path.write_text(after, encoding="utf-8")
    return after != before


def answers_path(description: Description) -> str:
    """Return the path of the scripted responses of a template."""
    return f"pipelines/{description.name}.answers.yaml"


def without_requests(answers: str) -> str:
    """Return a file of responses in which every case is for any request."""
    return _REQUESTS.sub(r"\1requests: []", answers)


def with_requests(answers: str, seen: Sequence[tuple[str, str, str]]) -> str:
    """Return a file of responses whose cases are for the requests that they responded to.

    Raises:
        TemplateError: a case responded to none, so no example needs it.
    """
    found = []
    for stage, cases in yaml.safe_load(answers).items():
        for case in cases:
            if isinstance(case, str):
                continue
            digests = sorted({digest for name, digest, text in seen if name == stage and text == case["answers"][0]})
            if not digests:
                message = f"a case of `{stage}` responded in no example: {case.get('when', '')}"
                raise TemplateError(message)
            found.append(json.dumps(digests))
    parts = _REQUESTS.split(answers)
    return "".join((parts[0], *(f"{start}requests: {own}{rest}" for start, own, rest in _each(parts, found))))


def seen_requests(root: Path, description: Description, answers: str) -> list[tuple[str, str, str]]:
    """Build a template and its examples; return stage, digest and response of each first request."""
    seen: list[tuple[str, str, str]] = []
    for example in ((), *description.examples):
        # With and without the results of an earlier build, which may be part of a prompt.
        for builds in ([example], [(), example]) if example else ([()],):
            with tempfile.TemporaryDirectory() as folder:
                project = Path(folder) / "project"
                files = {path: blob.data for path, blob in project_files(root, description).items()}
                files[answers_path(description)] = answers.encode()
                for edits in builds:
                    seen += _build(project, description.name, {**files}, edits)
    return seen


def _build(
    project: Path, name: str, files: dict[str, bytes], edits: Sequence[Mapping[str, str]]
) -> Iterator[tuple[str, str, str]]:
    options: list[str] = []
    for one in edits:
        if "set" in one:
            options += ["--set", one["set"]]
        elif "text" in one:
            files[one["file"]] = one["text"].encode()
        else:
            files[one["file"]] = files[one["file"]].decode().replace(one["find"], one["with"]).encode()
    for path, data in files.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_bytes(data)
    command = [sys.executable, "-c", _BUILD, "build", f"pipelines/{name}.yaml", *options]
    home = {"HOME": str(project.parent), "XDG_STATE_HOME": "", "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, cwd=project, env={**os.environ, **home}, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{name} cannot be built: {done.stderr}"
        raise TemplateError(message)
    for line in done.stdout.splitlines():
        stage, digest, text = json.loads(line)
        yield stage, digest, text


def _each(parts: Sequence[str], found: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(parts[1::2], found, parts[2::2], strict=True)
