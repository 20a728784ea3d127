"""The command that adds a library fits how orch23 was installed."""

import importlib.util
import json
import sys
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution
from pathlib import Path

import pytest

from orch23.providers import installation
from orch23.providers.installation import install_command

PIP = f"{sys.executable} -m pip install"
METADATA = """Metadata-Version: 2.4
Name: orch23
Version: 0.1.0
Requires-Dist: anthropic<3,>=2
Requires-Dist: openai<4,>=3; extra == 'test'
Requires-Dist: xllamacpp>=2026.1; extra == 'local'
Requires-Dist: openai<4,>=3; extra == 'openai'
Requires-Dist: google-auth[requests]>=2.40; extra == 'vertex'
"""


@pytest.fixture(autouse=True)
def with_pip(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())


def installed(tmp_path: Path, installer: str = "pip", **files: object) -> Distribution:
    """Return an installed orch23, with files of its `.dist-info`."""
    folder = tmp_path / "orch23-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    (folder / "INSTALLER").write_text(f"{installer}\n")
    if files:
        (folder / "direct_url.json").write_text(json.dumps(files))
    return PathDistribution(folder)


@pytest.mark.parametrize(
    ("library", "requirement"),
    [
        ("xllamacpp", "'xllamacpp>=2026.1'"),
        ("openai", "'openai<4,>=3'"),
        ("google-auth", "'google-auth[requests]>=2.40'"),
        ("anthropic", "'anthropic<3,>=2'"),
        ("unknown", "unknown"),
    ],
)
def test_pip_installs_the_library_that_is_on_pypi(tmp_path, library, requirement) -> None:
    assert install_command(library, prefix=str(tmp_path), found=installed(tmp_path)) == f"{PIP} {requirement}"


def test_an_environment_without_pip_is_named_to_another_pip(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    command = install_command("xllamacpp", prefix=str(tmp_path), found=installed(tmp_path))
    assert command == f"pip --python {sys.executable} install 'xllamacpp>=2026.1'"


def test_an_environment_of_uv_is_changed_by_uv(tmp_path) -> None:
    command = install_command("xllamacpp", prefix=str(tmp_path), found=installed(tmp_path, "uv"))
    assert command == f"uv pip install --python {sys.executable} 'xllamacpp>=2026.1'"


def test_pipx_injects_into_its_environment(tmp_path) -> None:
    prefix = tmp_path / "orch23-dev"
    prefix.mkdir()
    (prefix / "pipx_metadata.json").write_text("{}")
    found = installed(tmp_path, url="file:///src/orch23", dir_info={})
    assert install_command("xllamacpp", prefix=str(prefix), found=found) == "pipx inject orch23-dev 'xllamacpp>=2026.1'"


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        ({}, "orch23[local,openai]"),
        ({"url": "file:///src/orch23", "dir_info": {}}, "orch23[local,openai] @ file:///src/orch23"),
        ({"url": "https://h/o.whl", "archive_info": {}}, "orch23[local,openai] @ https://h/o.whl"),
        (
            {"url": "https://h/o.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "orch23[local,openai] @ git+https://h/o.git@c0ffee",
        ),
        (
            {"url": "https://h/o.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee", "requested_revision": "v1"}},
            "orch23[local,openai] @ git+https://h/o.git@v1",
        ),
    ],
)
def test_uv_tool_installs_again_from_the_same_source_with_its_extras(tmp_path, origin, requirement) -> None:
    (tmp_path / "uv-receipt.toml").write_text(
        '[tool]\nrequirements = [{ name = "orch23", extras = ["openai"], directory = "/src/orch23" }]\n'
    )
    command = install_command("xllamacpp", prefix=str(tmp_path), found=installed(tmp_path, "uv", **origin))
    assert command == f"uv tool install --reinstall '{requirement}'"


@pytest.mark.parametrize("receipt", ["[", "[tool]\n", "[tool]\nrequirements = [1]\n"])
def test_a_damaged_receipt_and_origin_are_ignored(tmp_path, receipt) -> None:
    (tmp_path / "uv-receipt.toml").write_text(receipt)
    found = installed(tmp_path, "uv", vcs_info=[])
    assert install_command("anthropic", prefix=str(tmp_path), found=found) == "uv tool install --reinstall orch23"


def test_a_source_tree_has_no_metadata(tmp_path, monkeypatch) -> None:
    def missing(name: str) -> Distribution:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installation, "distribution", missing)
    assert install_command("xllamacpp", prefix=str(tmp_path)) == f"{PIP} xllamacpp"
