"""Write the git bundles of orch23/features/templates from the runnable pipelines: `make templates`.

First, each template is built, to note in its scripted responses for which requests they were written.

A template whose files differ from the last version in its bundle gets a next version there; all others stay as they
are. So every version that was ever shipped stays in the bundle, and an update can be merged three-way.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

# Run as a file, so that `make` needs no package for it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.copier_template import (
    Blob,
    Description,
    TemplateError,
    catalogue_entry,
    descriptions,
    project_files,
    template_files,
)
from scripts.scripted_requests import write_requests

ROOT = Path(__file__).parents[1]
TEMPLATES = ROOT / "orch23" / "features" / "templates"
CATALOGUE = "catalogue.json"
_AUTHOR = {"NAME": "The orch23 authors", "EMAIL": "authors@orch23.invalid", "DATE": "2026-01-01T00:00:00Z"}


def main() -> int:
    """Make all templates and say which have a new version."""
    try:
        for one in descriptions(ROOT):
            write_requests(ROOT, one)
        made = make_all(ROOT, TEMPLATES)
    except TemplateError as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return 1
    for line in made:
        print(line)
    return 0


def make_all(root: Path, into: Path) -> list[str]:
    """Bring the bundles and the catalogue up to date and return a line for each template."""
    entries, reported = [], []
    for one in descriptions(root):
        version, new = make_bundle(into / f"{one.name}.bundle", one, template_files(root, one))
        entries.append(catalogue_entry(one, project_files(root, one), version))
        reported.append(f"{one.name} {version}{': new' if new else ''}")
    text = json.dumps({"orch23_templates": 1, "templates": entries}, indent=2, ensure_ascii=False) + "\n"
    path = into / CATALOGUE
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return reported


def make_bundle(bundle: Path, description: Description, files: Mapping[str, Blob]) -> tuple[str, bool]:
    """Add a version to a bundle if the files differ from its last; return the last version and whether it is new."""
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder)
        versions = opened(bundle, repository)
        tree = write_tree(repository, files)
        if versions and tree == git(repository, "rev-parse", f"v{versions}^{{tree}}"):
            return f"v{versions}", False
        version = f"v{versions + 1}"
        parents = ("-p", f"v{versions}") if versions else ()
        commit = git(repository, "commit-tree", tree, *parents, "-m", f"{description.name} {version}")
        git(repository, "update-ref", "refs/heads/main", commit)
        git(repository, "update-ref", f"refs/tags/{version}", commit)
        git(repository, "bundle", "create", "--quiet", str(bundle.resolve()), "HEAD", "--branches", "--tags")
    return version, True


def opened(bundle: Path, repository: Path) -> int:
    """Make a repository with what a bundle holds, if it is there, and return the number of its last version."""
    git(repository, "init", "--quiet")
    git(repository, "symbolic-ref", "HEAD", "refs/heads/main")
    if not bundle.exists():
        return 0
    refs = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
    git(repository, "fetch", "--quiet", "--update-head-ok", str(bundle.resolve()), *refs)
    return max(int(tag.removeprefix("v")) for tag in git(repository, "tag", "--list", "v*").split())


def write_tree(repository: Path, files: Mapping[str, Blob]) -> str:
    """Put files, and no others, into a repository and return the name of their tree."""
    entries = []
    for path, blob in sorted(files.items()):
        name = git(repository, "hash-object", "-w", "--no-filters", "--stdin", data=blob.data)
        entries.append(f"{'100755' if blob.executable else '100644'} {name}\t{path}\0")
    git(repository, "read-tree", "--empty")
    git(repository, "update-index", "-z", "--add", "--index-info", data="".join(entries).encode())
    return git(repository, "write-tree")


def git(repository: Path, *arguments: str, data: bytes = b"") -> str:
    """Run git with nothing of the user's configuration and return what it says."""
    people = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _AUTHOR.items()}
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        **people,
    }
    run = ["git", "-c", "pack.threads=1", "-c", "init.defaultBranch=main", *arguments]
    done = subprocess.run(run, cwd=repository, env=environment, input=data, capture_output=True, check=False)
    if done.returncode:
        message = f"git {' '.join(arguments)}: {done.stderr.decode(errors='replace').strip()}"
        raise TemplateError(message)
    return done.stdout.decode().strip()


if __name__ == "__main__":
    sys.exit(main())
