"""Distributions that a test installs for itself, without pip."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

Install = Callable[..., str]

_numbers = itertools.count(1)


def distribution(site: Path, name: str, version: str, code: str, entries: str) -> None:
    """Write a distribution and its module, called alike, into a folder of the search path."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (site / f"{name}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entries)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install distributions under names that no other test has: Python keeps what it has loaded.

    In the texts `{name}` stands for that name, which is returned.
    """
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def made(code: str, entries: str, version: str = "1.0") -> str:
        name = f"acme_{next(_numbers)}"
        distribution(site, name, version, *(text.replace("{name}", name) for text in (code, entries)))
        return name

    return made
