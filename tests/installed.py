"""A distribution with one of each that a plugin can add, and distributions that a test installs without pip."""

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from orch23.model import plugins

Install = Callable[..., str]

_numbers = itertools.count(1)

CODE = """\
from typing import ClassVar

from msgspec import Struct

from orch23.checks.check import Check
from orch23.attempt.attempt import AttemptResult, ProcessStepRunner, StepRunner
from orch23.attempt.failures import command_failed
from orch23.attempt.process_runner import FinishedProcess, StepCommand
from orch23.model.action import ActionResult, Completed
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.language import Document, Language
from orch23.model.llm import Response
from orch23.model.step import ProcessStep, Step
from orch23.providers.adapter import Adapter
from orch23.report.formats import Format


def run(given):
    bad = [path for path, data in given.outputs.items() if b"forbidden" in data]
    return tuple(Diagnostic("ACME1", f"`{path}` has a forbidden word", hint="use another") for path in bad)


CODES = {"ACME1": ("a forbidden word", "An output has a word that may not be there. Use another one.")}
NO_WORD = Check("no_word", 3, run)
NOT_A_CHECK = 5


class UpperDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    '''Write a text in capitals.'''

    text: str
    times: int = 1


class UpperStep(Step, Struct, frozen=True, omit_defaults=True, tag="upper"):
    kind: ClassVar[str] = "upper"
    language: ClassVar[str] = "acme_checks:LANGUAGE"
    run: ClassVar[str] = "acme_checks:RUN"
    show: ClassVar[str] = "acme_checks:show"
    text: str
    times: int = 1

    def aspects(self, facts):
        return {"kind": "upper", "command": [self.text, self.times]}


def show(step):
    return step.text


class Upper(StepRunner):
    def attempt(self, attempts, step, turn):
        data = (step.text.upper() * step.times).encode()
        return AttemptResult({attempts.resolved.stage.outputs[0]: FileEntry(attempts.contents.put(data))})


RUN = Upper()
LANGUAGE = Language(
    form=UpperDocument,
    description="Write a text in capitals.",
    read=lambda document, at: UpperStep(document.text, document.times),
)


class LacksDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    '''Fail if a file has a word.'''

    file: str
    word: str
    report: str | None = None


class LacksStep(ProcessStep, Struct, frozen=True, omit_defaults=True, tag="lacks"):
    kind: ClassVar[str] = "lacks"
    language: ClassVar[str] = "acme_checks:LACKS_LANGUAGE"
    run: ClassVar[str] = "acme_checks:LACKS_RUN"
    show: ClassVar[str] = "acme_checks:show_lacks"
    judges: ClassVar[bool] = True
    output_keys: ClassVar[tuple[str, ...]] = ("report",)
    file: str
    word: str
    report: str | None = None

    @property
    def declared(self):
        return [self.file, self.word]

    words = declared

    def aspects(self, facts):
        return {"kind": "lacks", "command": self.declared}


def show_lacks(step):
    return f"{step.file} lacks {step.word}"


class Lacks(ProcessStepRunner):
    def distrusted(self, step, runner, files):
        return ()

    def launch(self, step, runner):
        return StepCommand(("grep", "--quiet", "--", step.word, step.file))

    def judge(self, step, runner, files, command, result, printed):
        if result.exit_code == 1:
            return FinishedProcess(command, result)
        return command_failed("verify_failed", command, exit_code=result.exit_code, output=printed)


LACKS_RUN = Lacks()
LACKS_LANGUAGE = Language(
    form=LacksDocument,
    description="Fail if a file has a word.",
    read=lambda document, at: LacksStep(document.file, document.word, document.report),
    verifies="A word that a file must not have.",
)


class Parrot:
    def __init__(self, step):
        self.step = step

    def complete(self, request, *arguments, **more):
        return Response(text=f"```\\n{self.step.model} says {len(request.messages)}\\n```\\n", stop="end")

    def __getattr__(self, name):
        return lambda *arguments, **more: None


class ParrotAdapter(Adapter):
    sends = ()
    endpoint = "parrot"
    api = "parrot/1"
    pricing = "free"
    is_remote = False

    def make(self, setting, asking):
        return Parrot(self.step)


class Pretending:
    '''Runs nothing: the first output of each action is what it was asked to run.'''

    def __init__(self, surroundings):
        self.contents = surroundings.contents

    def run(self, action, hear=None):
        entry = FileEntry(self.contents.put(" ".join(action.argv).encode()))
        return Completed(ActionResult(exit_code=0, written={action.argv[-1]: entry}))

    def cancel(self):
        pass

    def close(self):
        pass


def observer(view):
    class Shouting:
        def notice(self, event):
            if event.type == "stage_finished":
                view.answer(f"{event.role}: {event.data.status}!\\n")

    return Shouting()


SHOUT = Format(make=observer, is_alone=True)
"""
ENTRIES = """\
[orch23.checks]
no_word = acme_checks:NO_WORD
odd = acme_checks:NOT_A_CHECK
[orch23.steps]
upper = acme_checks:UpperStep
lacks = acme_checks:LacksStep
[orch23.providers]
parrot = acme_checks:ParrotAdapter
[orch23.executors]
pretend = acme_checks:Pretending
[orch23.reports]
shout = acme_checks:SHOUT
"""


def distribution(site: Path, name: str, version: str, code: str, entries: str) -> None:
    """Write a distribution and its module, called alike, into a folder of the search path."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (site / f"{name}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entries)


@contextlib.contextmanager
def searched(site: Path) -> Iterator[None]:
    """Let Python find the distributions in a folder, and orch23 forget which it found."""
    site.mkdir(exist_ok=True)
    with patch.object(sys, "path", [str(site), *sys.path]), patch.object(plugins, "_KNOWN", {}):
        yield


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    """Install distributions under names that no other test has: Python keeps what it has loaded.

    In the texts `{name}` stands for that name, which is returned.
    """
    site = tmp_path / "site"

    def made(code: str, entries: str, version: str = "1.0") -> str:
        name = f"acme_{next(_numbers)}"
        distribution(site, name, version, *(text.replace("{name}", name) for text in (code, entries)))
        return name

    with searched(site):
        yield made
