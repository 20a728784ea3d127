"""Fields, key and description of a shell step."""

from collections.abc import Mapping
from typing import ClassVar, assert_never

from msgspec import Struct

from orch23.model.digest import Json
from orch23.model.record import Facts
from orch23.model.step import ProcessStep
from orch23.model.text import shorten_command

_MAX_LENGTH = 60
STDOUT = "stdout"


class ReportPlace(Struct, frozen=True, omit_defaults=True):
    """Where a program reports: the key of the pipeline, the format, and the place, `stdout` or a pattern of files.

    `line` is the pattern of lines with results, for the format `regex`.
    """

    key: str

    form: str
    place: str
    line: str = ""


class ShellStep(ProcessStep, Struct, frozen=True, omit_defaults=True, tag="shell"):
    """Run a program: a tuple is argv without a shell, a string is `bash -euo pipefail -c`."""

    kind: ClassVar[str] = "shell"
    language: ClassVar[str] = "orch23.steps.shell.language:SHELL_LANGUAGE"
    run: ClassVar[str] = "orch23.runners.shell:SHELL_RUNNER"
    show: ClassVar[str] = "orch23.steps.shell.spec:show_shell"
    is_cheap: ClassVar[bool] = True
    may_edit: ClassVar[bool] = True

    command: tuple[str, ...] | str
    report: ReportPlace | None = None
    reruns: int = 0

    @property
    def declared(self) -> Json:
        """Return the command as it is written."""
        match self.command:
            case str():
                return self.command
            case tuple():
                return list(self.command)
            case _:
                assert_never(self.command)

    @property
    def words(self) -> Json:
        """Return the command as it is written."""
        return self.declared

    @property
    def judged_by(self) -> Mapping[str, Json]:
        """Return the place of its report, and its reruns."""
        at, reruns = self.report, super().judged_by
        return reruns if at is None else {at.key: [*filter(None, (at.form, at.place, at.line))], **reruns}

    def aspects(self, facts: Facts) -> Mapping[str, Json]:
        """Return the command, its reports, and the version of the interpreter that `python` means in it."""
        return {"kind": self.kind, "command": self.declared, "python": facts.python, **self.judged_by}


def show_shell(step: ShellStep) -> str:
    """Return the first line of the command, or its argv."""
    if isinstance(step.command, str):
        return step.command.strip().splitlines()[0][:_MAX_LENGTH]
    return shorten_command(" ".join(step.command))
