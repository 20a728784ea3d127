"""The environment of a process."""

from pathlib import Path

import pytest

from orch23.execute.launch import cache_variables, process_environment, refused_pytest_variables, refused_variables
from orch23.execute.sandbox_tree import SANDBOX_EPOCH, SandboxDir
from orch23.model.action import Action

SANDBOX_DIR = SandboxDir(Path("/r/feed"), "feed")


def test_it_is_this_and_nothing_else() -> None:
    assert process_environment(SANDBOX_DIR, Path("/v/bin/python"), {"MODE": "x", "TZ": "Asia/Tokyo"}) == {
        "PATH": "/v/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/r/feed/home",
        "TMPDIR": "/r/feed/tmp",
        "GIT_CEILING_DIRECTORIES": "/r/feed",
        "__CARGO_TEST_ROOT": "/r/feed",
        "LANG": "C.UTF-8",
        "TZ": "Asia/Tokyo",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SOURCE_DATE_EPOCH": str(SANDBOX_EPOCH),
        "ORCH23_ROOM": "feed",
        "MODE": "x",
    }


def test_a_system_interpreter_adds_no_second_entry() -> None:
    assert process_environment(SANDBOX_DIR, Path("/usr/bin/python3"), {})["PATH"] == "/usr/bin:/usr/local/bin:/bin"


@pytest.mark.parametrize(
    "name",
    [
        "A_KEY",
        "a_key",
        "X_TOKEN",
        "X_SECRET",
        "PASSWORD",
        "DBPASSWORD",
        "LD_PRELOAD",
        "PYTEST_PLUGINS",
        "GIT_DIR",
        "SSH_AUTH_SOCK",
        "ORCH23_ROOM",
        "ORCH23_REPORT_FD",
        "HOME",
        "TMPDIR",
        "",
        "A=B",
        "1A",
        "A B",
        "A\n",
    ],
)
def test_these_are_refused(name: str) -> None:
    assert refused_variables({name: "x", "FINE": "x"}) == (name,)


def test_these_are_not() -> None:
    assert refused_variables({"PYTHONPATH": "src", "KEYBOARD": "us", "TOKENS": "3", "PATH": "/opt/bin", "_x": ""}) == ()


def test_a_nul_in_a_value_is_refused() -> None:
    assert refused_variables({"A": "x\0y"}) == ("A",)


def test_only_the_value_that_orch23_gives_is_let_through() -> None:
    assert refused_variables({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}) == ()
    assert refused_variables({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}) == ("PYTEST_DISABLE_PLUGIN_AUTOLOAD",)


def test_what_would_choose_another_pytest() -> None:
    assert refused_pytest_variables({"PYTHONPATH": ".", "PYTHONHOME": "/x", "MODE": "1"}) == (
        "PYTHONHOME",
        "PYTHONPATH",
    )


def caches(writable: tuple[str, ...] | None, *argv: str) -> dict[str, str]:
    return cache_variables(SANDBOX_DIR, Action(argv=argv or ("x",), inputs={}, writable=writable))


def test_caches_are_moved_where_the_tree_is_read_only() -> None:
    assert caches(None) == {}
    moved = caches(())
    assert moved.keys() >= {"COVERAGE_FILE", "MYPY_CACHE_DIR", "RUFF_CACHE_DIR"}
    assert moved.pop("PYTHONNOUSERSITE") == "1"
    assert all(path.startswith(f"{SANDBOX_DIR.tmp}/") for path in moved.values())


def test_compiled_files_are_moved_for_a_command_that_compiles_alone() -> None:
    """Elsewhere a planted one could be loaded in the place of a test, and no other would be found."""
    assert caches((), "python", "-m", "compileall", "-q", ".")["PYTHONPYCACHEPREFIX"] == f"{SANDBOX_DIR.tmp}/pycache"
    assert "PYTHONPYCACHEPREFIX" not in caches((), "python", "-m", "pytest")


def test_coverage_writes_where_it_is_declared() -> None:
    assert "COVERAGE_FILE" not in caches(("cov/.coverage",))
