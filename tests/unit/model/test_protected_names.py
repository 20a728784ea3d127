"""Which names are protected, in each spelling and at each depth."""

import re
from pathlib import Path

import pytest

from orch23.model.file_policy import (
    PROTECTED_AT_ROOT,
    PROTECTED_NAMES,
    PROTECTED_PREFIXES,
    PROTECTED_SUFFIXES,
    SEALED_AT_ROOT,
    SEALED_NAMES,
    TOOL_NAMES,
    protected_reason,
    sealed_reason,
    spells_protected_names,
    tool_file_name,
)
from orch23.model.paths import IGNORED_NAMES, LOGS_FOLDER

SECURITY = Path(__file__).parents[3] / "SECURITY.md"


@pytest.mark.parametrize("name", sorted(PROTECTED_NAMES))
def test_a_protected_name_is_one_at_any_depth_and_in_any_case(name: str) -> None:
    assert protected_reason(name) is not None
    assert protected_reason(f"src/{name}") is not None
    assert protected_reason(f"src/{name.upper()}/x.py") is not None


@pytest.mark.parametrize("name", sorted(PROTECTED_AT_ROOT))
def test_some_folders_are_protected_at_the_root_alone(name: str) -> None:
    assert protected_reason(f"{name}/a.txt") is not None
    assert protected_reason(f"src/{name}/a.txt") is None


@pytest.mark.parametrize("path", [".env", "a/.env.local", "a/x.pth", "a/quickstart.lock", ".orch23-app.answers.yml"])
def test_prefixes_and_suffixes(path: str) -> None:
    assert protected_reason(path) is not None


@pytest.mark.parametrize("path", ["src/app.py", "environment.py", "a/path.py", "locker.txt", "docs/git.md"])
def test_ordinary_names_are_not(path: str) -> None:
    assert protected_reason(path) is None
    assert tool_file_name(path) is None


@pytest.mark.parametrize(
    "path",
    [
        *(
            ".git",
            ".git/config",
            "a/.git/HEAD",
            "a/.GIT",
            ".gIt/x",
            ".g\u200cit/x",
            ".git\ufe0f/x",
            ".git./x",
            ".git /x",
        ),
        *(".git::$INDEX_ALLOCATION/config", "GIT~1/config", ".orch23/x", "a/.orch23/VERSION", "logs/a.jsonl", "LOGS/a"),
        *(".hg/hgrc", ".svn/x", ".jj/x"),
    ],
)
def test_some_names_are_sealed_however_they_are_spelled(path: str) -> None:
    assert sealed_reason(path) is not None
    assert protected_reason(path) is not None


@pytest.mark.parametrize("path", [".gitignore", "git/config", "a.git/config", "src/logs/a", ".github/x", "orch23/x"])
def test_other_names_are_not_sealed(path: str) -> None:
    assert sealed_reason(path) is None


def test_all_that_no_wildcard_enters_is_protected() -> None:
    assert IGNORED_NAMES <= PROTECTED_NAMES
    assert LOGS_FOLDER in PROTECTED_AT_ROOT


@pytest.mark.parametrize(
    "path",
    [
        *(
            ".npmrc",
            "web/.npmrc",
            ".bashrc",
            ".zshrc",
            ".eslintrc.json",
            ".babelrc.js",
            ".vimrc",
            "justfile",
            "Justfile",
        ),
        *("mise.toml", "jest.config.ts", "web/eslint.config.mjs", "a.code-workspace", "Dockerfile", "Cargo.toml"),
        *("package.json", ".cargo/config.toml", ".ssh/authorized_keys", "CMakeLists.txt", ".tool-versions"),
    ],
)
def test_names_that_configure_tools(path: str) -> None:
    assert tool_file_name(path) is not None or protected_reason(path) is not None


@pytest.mark.parametrize("path", ["src/app.ts", "arc", "config.js", "a.config", "docker/a.txt", ".src/a.py", ".rc/x"])
def test_names_that_only_sound_like_it(path: str) -> None:
    assert (tool_file_name(path), protected_reason(path)) == (None, None)


def test_no_name_is_of_two_grades() -> None:
    assert not TOOL_NAMES & PROTECTED_NAMES
    assert all(name == name.casefold() for name in TOOL_NAMES | PROTECTED_NAMES)


@pytest.mark.parametrize(
    ("pattern", "path", "spelled"),
    [
        ("**", "a/x.txt", True),
        ("**", "a/conftest.py", False),
        ("**/conftest.py", "a/conftest.py", True),
        ("**/Makefile", "a/makefile", True),
        ("vendor/**/setup.py", "vendor/.github/setup.py", False),
        (".venv/", ".venv/lib/x.pth", True),
        ("*/.venv/**", "a/.venv/bin/python", True),
        ("specs/", "specs/a.md", True),
        ("specs/", "specs/conftest.py", False),
        ("*.lock", "x.lock", False),
        ("**/poetry.lock", "a/poetry.lock", True),
        ("**", "a/.npmrc", True),
    ],
)
def test_what_a_pattern_spells(pattern: str, path: str, spelled: bool) -> None:
    assert spells_protected_names(pattern, path) is spelled


@pytest.mark.parametrize(
    ("pattern", "spelled"), [("**", False), ("web/**", False), ("**/.npmrc", True), ("web/.npmrc", True)]
)
def test_what_a_pattern_spells_of_tools(pattern: str, spelled: bool) -> None:
    assert spells_protected_names(pattern, "web/.npmrc", tools=True) is spelled


def test_security_md_lists_all_of_them() -> None:
    text = SECURITY.read_text()
    section = text[text.index("## Protected names") :]
    listed = set(re.findall(r"`([^`]+)`", section[: section.index("\n## ", 1)]))
    places = {f"{name}/" for name in PROTECTED_AT_ROOT | SEALED_AT_ROOT}
    ends = {f"{one}*" for one in PROTECTED_PREFIXES} | {f"*{one}" for one in PROTECTED_SUFFIXES}
    wanted = PROTECTED_NAMES | SEALED_NAMES | TOOL_NAMES | places | ends
    assert wanted - {one.casefold() for one in listed} == set()
