"""A git repository with versions of a copier template, such as a company has one."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SETTINGS = {"_subdirectory": "files", "_envops": {"variable_start_string": "[[", "variable_end_string": "]]"}}
KEEPS = "files/[[ _copier_conf.answers_file ]].jinja"
ANSWERS = "[[ _copier_answers | to_nice_yaml -]]\n"
PIPELINE = "version: 1\nname: [[ name ]]\nstages:\n  say: {outputs: [said.txt], shell: echo [[ word ]] > said.txt}\n"
QUESTIONS = {
    "name": {"type": "str", "help": "The name", "default": "house"},
    "word": {"type": "str", "default": "hello"},
}


class TemplateRepository:
    """A folder with versions, or a copy of one; a version replaces all files of the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        git(folder, "init", "--quiet")

    @property
    def url(self) -> str:
        """Give its URL."""
        return self.folder.as_uri()

    def version(
        self,
        files: Mapping[str, str | bytes],
        tag: str | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        answers: bool = True,
    ) -> "TemplateRepository":
        """Commit a version with these files below `files/`, the two questions, and the answers file."""
        git(self.folder, "rm", "-r", "--quiet", "--ignore-unmatch", ".")
        reported = {**SETTINGS, **QUESTIONS, **(settings or {})}
        every: dict[str, str | bytes] = {"copier.yml": json.dumps(reported)}
        every |= {f"files/{path}": text for path, text in files.items()}
        every |= {KEEPS: ANSWERS} if answers else {}
        for path, text in every.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode() if isinstance(text, str) else text)
        return self.commit(tag)

    def commit(self, tag: str | None = None) -> "TemplateRepository":
        """Commit what stands in the folder."""
        git(self.folder, "add", "--all", "--force")
        git(self.folder, "commit", "--quiet", "--message", tag or "a version")
        if tag is not None:
            git(self.folder, "tag", tag)
        return self


def house(folder: Path) -> TemplateRepository:
    """Return a repository with one version of a small template."""
    return TemplateRepository(folder).version({"pipelines/house.yaml.jinja": PIPELINE, "notes.md": "one\n"}, "1.0")


def git(folder: Path, *arguments: str) -> str:
    """Run git with no configuration but what is said here."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    ended = subprocess.run(["git", *who, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return ended.stdout.strip()
