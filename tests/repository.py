"""A project in a git repository, and a model whose answer shows what it was shown: for tests of who owns a file."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

from orch23.entry import main
from orch23.model.llm import Request, Response
from tests.project import Outcome, Project

PROMPT = "ask.md.j2"
PROMPT_TEXT = """\
{"item": {{ item | tojson }}, "inputs": [
{% for one in inputs %}[{{ one.path | tojson }}, {{ one.text | tojson }}, {{ one.base | tojson }}]\
{{ "" if loop.last else "," }}
{% endfor %}], "own": [
{% for one in own or [] %}[{{ one.path | tojson }}, {{ one.text | tojson }}]{{ "" if loop.last else "," }}
{% endfor %}], "brief": {{ (brief.kind if brief else "") | tojson }}}
"""
"""What the model is asked, as JSON: it answers as a function of this alone."""

LLM: Mapping[str, Any] = {"provider": "command", "command": ["true"], "model": "echo", "prompt": PROMPT}

_IDENTITY = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    "GIT_TERMINAL_PROMPT": "0",
}


# ---- the model -------------------------------------------------------------------------------------

DELETED = "delete it"
"""In place of a text in a spec: the model deletes the file."""


def spec(*lines: str) -> str:
    """Return the text of a spec: a line `PATH: TEXT` for each file that the model writes."""
    return "".join(f"{line}\n" for line in lines)


def addition(text: str) -> str:
    """Return the line that the model appends to a file."""
    return f"s({text!r})\n"


def answer(prompt: str) -> str:
    """Return what the model answers: each file is its base, with one line appended, or is deleted.

    The base of a file that a stage with `edits` changes is an input.
    """
    asked = json.loads(prompt)
    base = {path: text for path, text, is_base in asked["inputs"] if is_base or not path.endswith(".md")}
    item = asked["item"]
    lines = [] if item is None else [f"{path}: {item['text']}" for path in item["files"]]
    for path, text, is_base in asked["inputs"]:
        if item is None and path.endswith(".md") and not is_base:
            lines += text.splitlines()
    wanted = [line.partition(": ")[::2] for line in lines]
    writes = [{"path": p, "content": base.get(p, "") + addition(text)} for p, text in wanted if text != DELETED]
    deletes = [path for path, text in wanted if text == DELETED]
    return json.dumps({"summary": "as asked", "writes": writes, "deletes": deletes, "error": None})


@dataclass(frozen=True, slots=True)
class Asked:
    """What one call showed to the model: the files that it starts from, the inputs, its own last outputs."""

    base: Mapping[str, str]
    inputs: Mapping[str, str]
    own: Mapping[str, str]
    item: Any = None


@dataclass(slots=True)
class EchoModel:
    """Answers in the place of the program of `provider: command`, and remembers what it was shown."""

    calls: list[Asked] = field(default_factory=list)
    meanwhile: Callable[[], object] | None = None
    """What a user does before the next answer."""

    def complete(self, request: Request) -> Response:
        """Answer one request."""
        if (act := self.meanwhile) is not None:
            self.meanwhile = None
            act()
        prompt = request.messages[-1].content
        asked = json.loads(prompt)
        self.calls.append(
            Asked(
                base={path: text for path, text, is_base in asked["inputs"] if is_base},
                inputs={path: text for path, text, is_base in asked["inputs"] if not is_base},
                own=dict(asked["own"]),
                item=asked["item"],
            )
        )
        return Response(text=answer(prompt))

    @property
    def last(self) -> Asked:
        """Return the newest call."""
        return self.calls[-1]

    def bases(self, path: str) -> list[str | None]:
        """Return what the calls were shown as the base of a file, oldest first; None where that was no file."""
        return [asked.base.get(path) for asked in self.calls]

    @contextlib.contextmanager
    def answering(self) -> Iterator[Self]:
        """Answer all requests to `provider: command` until the end of the block."""

        def complete(_self: object, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
            return self.complete(request)

        with patch("orch23.providers.command.CommandProvider.complete", complete):
            yield self


# ---- the project -----------------------------------------------------------------------------------


def pipeline(stages: Mapping[str, Mapping[str, Any]], *, name: str = "a", **top: Any) -> dict[str, str]:
    """Return a pipeline file whose llm stages ask the echo model, and their prompt. JSON is YAML."""
    document = {"version": 1, "name": name, "jobs": 1, "defaults": {"llm": dict(LLM)}, **top, "stages": stages}
    return {f"{name}.yaml": json.dumps(document, indent=1), PROMPT: PROMPT_TEXT}


def llm(inputs: Sequence[str], outputs: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return an llm stage; the word `bad` in an output fails its verification."""
    return {
        "inputs": list(inputs),
        "outputs": list(outputs),
        "llm": {},
        "verify": [{"shell": f"! grep -rq bad {' '.join(outputs)}"}],
        "retry": 0,
        **more,
    }


class Repository(Project):
    """A project in a git repository of its own, run as the program runs it (the answer of a snapshot included)."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, main=lambda argv: main(list(argv)))

    def git(self, *argv: str) -> str:
        """Run git in the project and return what it prints."""
        done = subprocess.run(
            ["git", "-C", str(self.root), *argv],
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), **_IDENTITY},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"git {' '.join(argv)}: {done.stderr}"
        return done.stdout

    def init(self) -> None:
        """Make the repository, without background work, with the store ignored."""
        self.git("init", "-q", "-b", "main")
        with (self.root / ".git/config").open("a") as config:
            config.write("[gc]\n\tauto = 0\n[commit]\n\tgpgsign = false\n[maintenance]\n\tauto = false\n")
        self.write({".gitignore": ".orch23/\nlogs/\n"})

    def commit(self, *paths: str) -> None:
        """Commit these paths, by default everything; a commit without changes is made too."""
        self.git("add", "-A", "--", *(paths or (".",)))
        self.git("commit", "-q", "--allow-empty", "--no-verify", "-m", "a step")

    def clone(self, root: Path, *, store: bool = False) -> "Repository":
        """Clone what is committed into another folder, with a copy of the store and the journals if asked."""
        other = Repository(root)
        root.rmdir()
        other.root = root
        self.git("clone", "-q", "--no-hardlinks", str(self.root), str(root))
        if store:
            for folder in (".orch23", "logs"):
                if (self.root / folder).exists():
                    shutil.copytree(self.root / folder, root / folder, symlinks=True)
        return other


def ends(project: Project) -> dict[str, str]:
    """Return how each stage of the newest run ended."""
    return {event["role"]: event["data"]["status"] for event in project.events_of("stage_finished")}


def green(outcome: Outcome) -> Outcome:
    """Return the outcome of a command that must have exited with 0."""
    assert outcome.code == 0, outcome.out + outcome.err
    return outcome


def up_to_date(outcome: Outcome) -> None:
    """Check that a build had nothing to do."""
    green(outcome)
    assert "up to date" in outcome.out + outcome.err, outcome.out + outcome.err
