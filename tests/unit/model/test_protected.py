"""Which names are protected, wherever they stand, however they are written."""

import pytest

from orch23.model.protected import PROTECTED_AT_ROOT, PROTECTED_NAMES, protected_reason


@pytest.mark.parametrize("name", sorted(PROTECTED_NAMES))
def test_a_protected_name_is_one_at_any_depth_and_in_any_case(name: str) -> None:
    assert protected_reason(name) is not None
    assert protected_reason(f"src/{name}") is not None
    assert protected_reason(f"src/{name.upper()}/x.py") is not None


@pytest.mark.parametrize("name", sorted(PROTECTED_AT_ROOT))
def test_some_folders_are_protected_at_the_root_alone(name: str) -> None:
    assert protected_reason(f"{name}/a.txt") is not None
    assert protected_reason(f"src/{name}/a.txt") is None


@pytest.mark.parametrize("path", [".env", "a/.env.local", "a/x.pth", "a/quickstart.lock"])
def test_prefixes_and_suffixes(path: str) -> None:
    assert protected_reason(path) is not None


@pytest.mark.parametrize("path", ["src/app.py", "environment.py", "a/path.py", "locker.txt", "docs/git.md"])
def test_ordinary_names_are_not(path: str) -> None:
    assert protected_reason(path) is None
