"""The version of a program, from the files that real installers write beside it."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from orch23.features.toolchains import versions
from orch23.features.toolchains.versions import version_of

MANIFEST = '[pkg.cargo]\nversion = "0.96.0 (x)"\n\n[pkg.rust]\nversion = "1.95.0 (59807616e 2026-04-14)"\n'
CONDA = {"name": "nodejs", "version": "22.6.0", "files": ["bin/node", "share/x"]}


def read(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


@pytest.mark.parametrize(
    ("place", "files", "version"),
    [
        ("versions/node/v22.1.0/bin/node", {}, "22.1.0"),
        ("node-versions/v22.1.0/installation/bin/node", {}, "22.1.0"),
        ("installs/go/1.22/bin/go", {}, "1.22"),
        ("sdk/go1.22.3/bin/go", {}, "1.22.3"),
        ("sdk/current/bin/go", {"sdk/current/VERSION": "go1.22.3\ntime 2026\n"}, "1.22.3"),
        ("java/21-tem/bin/java", {}, "21"),
        ("java/21-tem/bin/java", {"java/21-tem/release": 'IMPLEMENTOR="E"\nJAVA_VERSION="21.0.4"\n'}, "21.0.4"),
        ("stable-x86_64/bin/cargo", {"stable-x86_64/lib/rustlib/multirust-channel-manifest.toml": MANIFEST}, "1.95.0"),
        ("Cellar/node/22.1.0/bin/node", {}, "22.1.0"),
        ("node-v22.1.0-linux-x64/bin/node", {}, "22.1.0"),
        ("0c9b7hash-node-22.1.0/bin/node", {}, "22.1.0"),
        ("env/bin/python3", {"env/pyvenv.cfg": "home = /usr/bin\nversion = 3.12.4\n"}, "3.12.4"),
        ("usr/bin/python3.12", {}, "3.12"),
        ("env/bin/ruff", {"env/lib/python3.12/site-packages/ruff-0.5.1.dist-info/METADATA": ""}, "0.5.1"),
        ("env/bin/pre-commit", {"env/lib/python3.12/site-packages/pre_commit-4.0.dist-info/METADATA": ""}, "4.0"),
        (
            "env/bin/rst2html",
            {"env/lib/python3.12/site-packages/docutils-0.21.dist-info/entry_points.txt": "[x]\nrst2html = d:m\n"},
            "0.21",
        ),
        ("conda/bin/node", {"conda/conda-meta/nodejs-22.6.0-h1.json": json.dumps(CONDA)}, "22.6.0"),
        ("bin/tool", {}, ""),
        ("bin/base64", {}, ""),
    ],
)
def test_the_files_beside_a_program_have_its_version(
    tmp_path: Path, place: str, files: Mapping[str, str], version: str
) -> None:
    for name, text in {place: "", **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert version_of(tmp_path / place, read) == version


def test_a_program_of_npm_has_the_version_of_its_package(tmp_path: Path) -> None:
    package = tmp_path / "v22.1.0/lib/node_modules/@x/tool"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"version": "3.4.5"}')
    (package / "bin/cli.js").touch()
    (tmp_path / "v22.1.0/bin").mkdir()
    (tmp_path / "v22.1.0/bin/tool").symlink_to(package / "bin/cli.js")
    assert version_of(tmp_path / "v22.1.0/bin/tool", read) == "3.4.5"


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="not a system with Debian packages")
@pytest.mark.parametrize("name", ["sed", "bash", "git", "perl"])
def test_a_program_of_a_debian_package_has_its_upstream_version(name: str) -> None:
    program = Path(shutil.which(name, path="/usr/bin:/bin") or "")
    places = (str(program.resolve()), str(program.resolve()).removeprefix("/usr"))
    found = subprocess.run(["dpkg-query", "-S", *places], capture_output=True, text=True, check=False)
    package = found.stdout.partition(":")[0]
    query = ["dpkg-query", "-W", "-f=${source:Upstream-Version} ${Version}", package]
    upstream = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    assert version_of(program, read) in upstream
    assert version_of(program, read)


@pytest.mark.parametrize("text", ['{"version": ' + "[" * 100_000, "[]", '{"version"'])
def test_a_package_that_cannot_be_parsed_has_no_version(tmp_path: Path, text: str) -> None:
    package = tmp_path / "node_modules/tool"
    package.mkdir(parents=True)
    (package / "package.json").write_text(text)
    (package / "cli.js").touch()
    assert version_of(package / "cli.js", read) == ""


def test_lists_of_packages_without_their_status_have_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Path("/usr/bin/env").resolve()
    (tmp_path / "coreutils.list").write_text(f"{program}\n")
    monkeypatch.setattr(versions, "_INFO", tmp_path)
    monkeypatch.setattr(versions, "_STATUS", tmp_path / "status")
    assert version_of(program, read) == ""
