"""Measure whether the map of `explore` has the function of a bug, for issues that describe only behavior.

`python -m bench.explore_recall [--packages FOLDER]` prints a table: for each case the tokens of the map up to the
function, and the place of its file. Packages are downloaded, or taken from a folder with a folder for each. The cases
of `planted` and `planted_2` change a copy of a package, and show that it behaves differently then.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from orch23.features.explore.outlines import FileOutline, outline_of
from orch23.features.explore.repo_map import map_of

CASES = Path(__file__).with_name("explore_cases.toml")
# What is required: the function in the first 4,000 tokens, its file among the ten best.
TOKENS, FILES = 4_000, 10


def main() -> None:
    """Print the table and the counts of each set of cases."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--packages", type=Path, help="a folder that has the packages; else they are downloaded")
    folder = parser.parse_args().packages
    cases = tomllib.loads(CASES.read_text())
    with tempfile.TemporaryDirectory() as place:
        packages = Path(place)
        if folder:
            shutil.copytree(folder, packages, dirs_exist_ok=True)
        else:
            _download(cases["packages"], packages)
        outlines: dict[str, dict[str, FileOutline]] = {}
        for name in cases["packages"]:
            files = _files_of(packages / name)
            begun = time.process_time()
            outlines[name] = {path: outline_of(path, text) for path, text in files.items()}
            size = sum(map(len, files.values()))
            print(f"{name}: {len(files)} files, {size:,} characters, {time.process_time() - begun:.2f} s to read")
        for group in ("known", "held_out", "last", "planted", "planted_2"):
            found = []
            for case in cases[group]:
                known, wanted = outlines[case["package"]], case.get("place", "")
                if not wanted:
                    wanted, planted = _planted(case, packages / case["package"])
                    known = known | {planted.path: planted}
                found.append(_measured(case["issue"], wanted, known.values()))
            shown, near = sum(0 < one <= TOKENS for one, _ in found), sum(0 < one <= FILES for _, one in found)
            print(f"{group}: function in {TOKENS:,} tokens {shown} of {len(found)}; file in the best {FILES} {near}\n")


def _planted(case: Mapping[str, str], package: Path) -> tuple[str, FileOutline]:
    """Return the definition that a case changes, and the outline of its file then. The package is unchanged afterwards.

    Raise ValueError if the text to replace is not there once, or the check does not pass before and fail after it.
    """
    file = package / case["file"]
    text = file.read_text("utf-8")
    changed = text.replace(case["old"], case["new"])
    results = [_passes(case, package)]
    file.write_text(changed, "utf-8")
    results.append(_passes(case, package))
    file.write_text(text, "utf-8")
    if text.count(case["old"]) != 1 or results != [True, False]:
        problem = f"{case['file']}: {case['old']!r} is there {text.count(case['old'])} times; passes {results}"
        raise ValueError(problem)
    outline = outline_of(case["file"], changed)
    line = text[: text.index(case["old"])].count("\n") + 1 + case["old"].startswith("\n")
    around = [one for one in outline.definitions if one.first <= line <= one.last]
    return f"{case['file']}#{max(around, key=lambda one: one.first).name}", outline


def _passes(case: Mapping[str, str], package: Path) -> bool:
    paths = [str(package.parent / name) for name in (package.name, *case.get("needs", "").split())]
    environment = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryDirectory() as empty:
        command = [sys.executable, "-c", case["check"]]
        return subprocess.run(command, check=False, env=environment, cwd=empty, capture_output=True).returncode == 0


def _measured(issue: str, place: str, outlines: Iterable[FileOutline]) -> tuple[int, int]:
    """Return the tokens of the map up to the function of a case, and the place of its file; 0 if it is missing."""
    begun = time.process_time()
    found = map_of(issue, outlines)
    spent = time.process_time() - begun
    path, _, name = place.partition("#")
    tokens = _tokens_to(found.render(4_000_000), path, name)
    file = [*found.files].index(path) + 1
    print(f"{tokens:8,} {file:5} {spent:6.2f} s  {place}")
    return tokens, file


def _tokens_to(text: str, path: str, name: str) -> int:
    length, above = 0, ""
    for line in text.splitlines(keepends=True):
        length += len(line)
        if not line.startswith(" "):
            above = line.split(" ")[0].strip()
        elif above == path and line.split()[2].partition("(")[0].rstrip(":") == name:
            return length // 4
    return 0


def _files_of(folder: Path) -> dict[str, str]:
    paths = sorted(folder.rglob("*.py"))
    return {path.relative_to(folder).as_posix(): path.read_bytes().decode("utf-8", "replace") for path in paths}


def _download(pinned: Mapping[str, str], place: Path) -> None:
    wanted = [f"{name}=={version}" for name, version in pinned.items()]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*command, "--dest", str(place), *wanted], check=True)
    for wheel in sorted(place.glob("*.whl")):
        name = wheel.name.partition("-")[0].replace("_", "-")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(place / name)


if __name__ == "__main__":
    main()
