"""A text command of any length runs as a short one does, in each tier; arguments that are too long are told as such."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.model.action import Action, ActionOutcome, Completed, EngineUnavailable
from orch23.model.text import shorten_command
from orch23.resolve.commands import SHELL_COMMAND
from tests.doubles import memory
from tests.sandbox.probe import launcher
from tests.sandbox.users import need
from tests.unit.execute.test_local_executor import Source

pytestmark = pytest.mark.slow  # processes run

TIERS = ["none", "landlock", "namespaces", "bubblewrap"]
TEXT = """echo "$0 $# $-" > o.txt
env | grep -c ^orch23= >> o.txt || true
echo "${orch23-unset} $LINENO" >> o.txt
cat >> o.txt <<'END'
here ${x}
END
"""
LIMIT = 131_072


def run(tier: str, folder: Path, *argv: str) -> tuple[ActionOutcome, Mapping[str, bytes]]:
    if tier != "none":
        need(tier)
    kept = memory()
    executor = LocalExecutor(
        sandbox_dirs=SandboxDirs(folder, Source({})), contents=kept, workers=1, launcher=launcher(tier)
    )
    try:
        outcome = executor.run(Action(argv=argv, inputs={}))
    finally:
        executor.close()
    written = outcome.result.written if isinstance(outcome, Completed) else {}
    return outcome, {path: kept.get(entry.digest) for path, entry in written.items()}


def padded(text: str, size: int) -> str:
    return text + "#" * (size - len(text.encode()))


@pytest.mark.stride(2)
@pytest.mark.parametrize("tier", TIERS)
def test_a_long_text_does_what_a_short_one_does(tier: str, tmp_path: Path) -> None:
    short, expected = run(tier, tmp_path / "short", *SHELL_COMMAND, TEXT)
    assert isinstance(short, Completed)
    assert expected["o.txt"].endswith(b"\n0\nunset 3\nhere ${x}\n")
    for size in (LIMIT - 1, LIMIT, 3_000_000):
        outcome, written = run(tier, tmp_path / str(size), *SHELL_COMMAND, padded(TEXT, size))
        assert isinstance(outcome, Completed)
        assert (outcome.result.exit_code, outcome.result.output.text) == (0, "")
        assert written == expected


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("text", "exit_code"), [("exit 42\n", 42), ("false\necho > o\n", 1), ("false | true\n", 1), ("kill -9 $$\n", 137)]
)
def test_a_long_text_fails_as_a_short_one_does(tier: str, text: str, exit_code: int, tmp_path: Path) -> None:
    outcome, written = run(tier, tmp_path, *SHELL_COMMAND, padded(text, LIMIT))
    assert isinstance(outcome, Completed)
    assert outcome.result.exit_code == exit_code
    assert written == {}


def test_what_bash_says_of_a_long_text_names_no_file(tmp_path: Path) -> None:
    outcome, _ = run("none", tmp_path, *SHELL_COMMAND, padded("\nno-such-program\n", LIMIT))
    assert isinstance(outcome, Completed)
    assert outcome.result.output.text == "bash: line 2: no-such-program: command not found\n"


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("arguments", [("x" * LIMIT,), ("x" * 2000,) * 2000])
def test_arguments_that_are_too_long_are_reported_with_the_limit(
    tier: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    outcome, _ = run(tier, tmp_path, "sh", "-c", "true", *arguments)
    assert isinstance(outcome, EngineUnavailable)
    assert outcome.kind == "length"
    assert "the kernel takes 131,072 in one" in outcome.reason
    assert len(outcome.reason) < 200


def test_a_long_command_is_printed_by_its_ends() -> None:
    assert shorten_command("x" * 400) == "x" * 400
    shown = shorten_command("a" * 300 + "b" * 150_000 + "c" * 300)
    assert len(shown) < 400
    assert shown.startswith("aaa")
    assert shown.endswith("ccc")
    assert "150,280 characters" in shown
