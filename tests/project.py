"""A project in a folder of its own, built by orch23 in this process: the stage on which story tests play."""

import contextlib
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

_TRACEBACK = re.compile(r"^Traceback \(most recent call last\)", re.MULTILINE)
_KEPT_VARIABLES = (
    "PATH",
    "LANG",
    "TMPDIR",
    "XDG_STATE_HOME",
    "PYTEST_CURRENT_TEST",
    "PYTEST_XDIST_WORKER",
    "ORCH23_ALLOW_UNSANDBOXED",
)
_GRANTED = {"ORCH23_TRUST": "1"}
"""A test writes its pipelines itself; those about consent take this away again."""

_KEPT_PREFIXES = ("COV_", "COVERAGE_")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of the command line gave."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Return what stdout holds, read as JSON."""
        return json.loads(self.out)


class Project:
    """A folder, and orch23 run on it. Paths are POSIX and relative to the root.

    `main` is what is run, by default `orch23.cli.main.main`.
    """

    def __init__(self, root: Path, *, main: Callable[[Sequence[str]], int] | None = None) -> None:
        self.root = root
        self._main = main or _orch23
        self.home = root.parent / f"{root.name}-home"
        self.root.mkdir(parents=True, exist_ok=True)
        self._share_state()

    def _share_state(self) -> None:
        """Let what runs with this home register stores where the tests themselves do."""
        state, place = os.environ.get("XDG_STATE_HOME"), self.home / ".local/state"
        if state is not None and not os.path.lexists(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(state)

    def copy(self, root: Path) -> "Project":
        """Copy the project with everything that orch23 keeps in it, and return the copy."""
        shutil.copytree(self.root, root, symlinks=True)
        return Project(root)

    # ---- files ------------------------------------------------------------------------------------

    def write(self, files: Mapping[str, str | bytes]) -> "Project":
        """Make these files, and the folders they need."""
        for path, content in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
        return self

    def edit(self, path: str, text: str) -> None:
        """Give a file that is there another text; it is a mistake of the test if nothing changes."""
        target = self.root / path
        assert target.read_text() != text, f"{path} already has this text"
        target.write_text(text)

    def replace(self, path: str, old: str, new: str) -> None:
        """Change one place in a file."""
        text = self.read(path)
        assert text.count(old) == 1, f"{path} has {text.count(old)} places that read {old!r}"
        self.edit(path, text.replace(old, new))

    def read(self, path: str) -> str:
        """Return a file's text."""
        return (self.root / path).read_text()

    def exists(self, path: str) -> bool:
        """Say whether a file or folder is there."""
        return (self.root / path).exists()

    def delete(self, path: str) -> None:
        """Remove a file."""
        (self.root / path).unlink()

    def files(self, under: str = "") -> dict[str, bytes]:
        """Return all files below a folder, without what orch23 keeps for itself and its logs."""
        found: dict[str, bytes] = {}
        for path in sorted((self.root / under).rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if path.is_file() and not name.startswith((".orch23/", "logs/")):
                found[name] = path.read_bytes()
        return found

    # ---- runs -------------------------------------------------------------------------------------

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> Outcome:
        """Run `orch23 -C root argv...` in this process, in an environment that holds nothing of the caller's.

        A traceback on stderr fails the test: whatever went wrong, a user never gets to see one.
        """
        out, err = _stream(), _stream()
        with (
            _environment({"HOME": str(self.home), **_GRANTED, **(env or {})}),
            contextlib.chdir(self.root),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = self._main(["-C", str(self.root), *argv])
        outcome = Outcome(int(code), _text(out), _text(err))
        sys.stderr.write(outcome.err)  # pytest shows it if the test fails
        assert not _TRACEBACK.search(outcome.err), f"a traceback on stderr:\n{outcome.err}"
        return outcome

    def build(self, *argv: str, env: Mapping[str, str] | None = None) -> Outcome:
        """Run `orch23 build argv...`."""
        return self.run("build", *argv, env=env)

    def plan(self, *argv: str, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """Run `orch23 plan --json argv...` and return what it decides for each stage."""
        outcome = self.run("plan", "--json", *argv, env=env)
        assert outcome.code == 0, outcome.err
        return decisions(outcome.out)

    # ---- what happened ----------------------------------------------------------------------------

    def journals(self) -> list[Path]:
        """Return the journals, oldest first: by the time of their last line, since two runs may share a second."""
        return sorted((self.root / "logs").glob("*.jsonl"), key=lambda path: (path.stat().st_mtime_ns, path.name))

    def events(self, run: str | None = None) -> list[dict[str, Any]]:
        """Return the events of a run, by default those of the newest."""
        journals = self.journals()
        assert journals, "no run has a journal"
        journal = journals[-1] if run is None else self.root / "logs" / f"{run}.jsonl"
        return [json.loads(line) for line in journal.read_text().splitlines()]

    def events_of(self, kind: str, *, run: str | None = None) -> list[dict[str, Any]]:
        """Return the events of one type."""
        return [event for event in self.events(run) if event["type"] == kind]

    def ran(self) -> list[str]:
        """Return the stages that the newest run started, in order."""
        return [event["role"] for event in self.events_of("stage_started")]


def _orch23(argv: Sequence[str]) -> int:
    """Run a command line; programs that answer are not confined, since stories count their calls from outside."""
    from orch23.cli.main import main  # noqa: PLC0415  a test of one folder must not load the whole tool
    from orch23.execute import program_runner, supervisor  # noqa: PLC0415  likewise
    from tests.model_program import answering_runner, keep_supervisors  # noqa: PLC0415  likewise

    with (
        patch.object(program_runner, "LocalProgramRunner", answering_runner),
        patch.object(supervisor, "close_idle_supervisors", keep_supervisors),
    ):
        return main(argv)


def confined(root: Path) -> Project:
    """Return a project whose programs run in the sandbox of this machine, and to which nothing is granted."""
    from orch23.cli.main import main  # noqa: PLC0415  likewise

    state = os.environ.get("XDG_STATE_HOME")

    def run(argv: Sequence[str]) -> int:
        del os.environ["ORCH23_TRUST"]
        if os.environ.get("XDG_STATE_HOME") == state:
            os.environ.pop("XDG_STATE_HOME", None)
        return main(argv)

    project = Project(root, main=run)
    (project.home / ".local/state").unlink(missing_ok=True)  # a state directory of its own
    return project


def decisions(plan: str | Mapping[str, Any]) -> dict[str, str]:
    """Return stage -> action of a plan's JSON, `{"stages": [{"stage": "a", "action": "run", ...}]}`."""
    document = json.loads(plan) if isinstance(plan, str) else plan
    return {entry["stage"]: entry["action"] for entry in document["stages"]}


# ---- pipelines whose answers are written down ------------------------------------------------------


def scripted(
    stages: Mapping[str, Mapping[str, Any]],
    answers: Mapping[str, Sequence[str]],
    *,
    name: str = "pipeline",
    **top: Any,
) -> dict[str, str]:
    """Return the files of a pipeline whose models are lists of answers: stage (or `stage@item`) -> one an attempt.

    An llm stage that names no prompt gets one that shows its inputs and the brief. JSON is YAML.
    """
    llm = {"provider": "scripted", "model": "scripted", "answers": f"{name}.answers.yaml", "prompt": f"{name}.md.j2"}
    document = {"version": 1, "name": name, "defaults": {"llm": llm}, **top, "stages": stages}
    return {
        f"{name}.yaml": json.dumps(document, indent=2, ensure_ascii=False),
        f"{name}.answers.yaml": json.dumps({stage: list(texts) for stage, texts in answers.items()}, indent=2),
        f"{name}.md.j2": _PROMPT,
    }


def files_answer(files: Mapping[str, str], *, summary: str = "as asked", deletes: Sequence[str] = ()) -> str:
    """Return the answer of a model that proposes these files, in the envelope of `returns: files`."""
    writes = [{"path": path, "content": text} for path, text in files.items()]
    return json.dumps({"summary": summary, "writes": writes, "deletes": list(deletes), "error": None})


_PROMPT = """\
{% for input in inputs %}
{{ input.path }}
{{ input.text }}
{% endfor %}
{% if brief %}
It failed: {{ brief.kind }}
{{ brief.excerpt }}
{% endif %}
"""


# ---- the process around a run ----------------------------------------------------------------------


def _stream() -> io.TextIOWrapper:
    """Give a text stream with bytes below it, as the real ones have; no terminal."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8")


@contextlib.contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    """Let os.environ hold what a process needs, and `added`; put all of it back afterwards."""
    before = dict(os.environ)
    kept = {k: v for k, v in before.items() if k in _KEPT_VARIABLES or k.startswith(_KEPT_PREFIXES)}
    os.environ.clear()
    os.environ.update({**kept, **added})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
