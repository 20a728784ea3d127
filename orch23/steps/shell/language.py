"""YAML syntax of a shell step."""

from typing import Annotated, TypeAlias

from msgspec import Meta

from orch23.model.fields import Problems
from orch23.model.language import Language, ProgramArguments
from orch23.steps.shell.spec import ShellStep

Shell: TypeAlias = (
    Annotated[str, Meta(min_length=1, description="A text for bash.")]
    | Annotated[
        ProgramArguments,
        Meta(
            description="One program and its arguments, without a shell.",
            extra_json_schema={"x-example": "shell: [python, -m, build]"},
        ),
    ]
)


def read_shell(value: Shell, at: Problems) -> ShellStep | None:
    """Return the step of a command; report an error and return None if it is invalid."""
    if isinstance(value, str):
        if not value.strip() or "\x00" in value:
            what = "contains a NUL character" if value.strip() else "is empty"
            at.add("shell", "E812", f"`shell` {what}", "write a command")
            return None
        return ShellStep(value)
    if value[0] == "":
        at.add("shell", "E812", "`shell` names no program", "write it as the first item: [python, -V]")
        return None
    return ShellStep(at.words("shell", value))


SHELL_LANGUAGE = Language(
    form=Shell,
    description="Run a program.",
    read=read_shell,
    verifies="A command that must succeed.",
    example="sort words.txt > sorted.txt",
    example_of_verify="ruff check src",
    elsewhere="cmd cmds command commands run script",
)
