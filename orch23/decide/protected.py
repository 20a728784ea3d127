"""Say which paths steer tools, so that only a literal entry of a fence may admit them (safety.md, Paths)."""

import unicodedata

from orch23.model.paths import is_glob, is_ignored, match, normal

NAMES = frozenset(
    {
        ".git",
        ".gitattributes",
        ".gitignore",
        ".gitmodules",
        ".hg",
        ".orch23",
        "orch23.toml",
        "sitecustomize.py",
        "usercustomize.py",
        "conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "tox.ini",
        "setup.cfg",
        "setup.py",
        "pyproject.toml",
        "makefile",
        "gnumakefile",
        # editors
        ".vscode",
        ".idea",
        ".editorconfig",
        ".vim",
        ".nvim.lua",
        ".exrc",
        ".dir-locals.el",
        ".devcontainer",
        # continuous integration
        ".github",
        ".gitlab-ci.yml",
        ".gitlab",
        ".circleci",
        ".ci",
        ".travis.yml",
        "azure-pipelines.yml",
        "jenkinsfile",
        # hooks
        ".husky",
        ".pre-commit-config.yaml",
        ".githooks",
        ".envrc",
        "lefthook.yml",
        # agents
        ".claude",
        "claude.md",
        "agents.md",
        "gemini.md",
        ".cursor",
        ".cursorrules",
        ".aider.conf.yml",
        ".windsurfrules",
        ".mcp.json",
    }
)
AT_ROOT = frozenset({"pipelines", "prompts", "specs", "logs"})
PREFIXES = (".env",)
SUFFIXES = (".pth", ".lock")


def is_protected(path: str, also: tuple[str, ...] = ()) -> bool:
    """Say whether a path, or a directory above it, has a protected name; `also` are patterns of this project's own.

    Upper and lower case are one, as they are on many disks.
    """
    names = [_fold(name) for name in path.split("/")]
    if names[0] in AT_ROOT or any(name in NAMES or name.startswith(PREFIXES) for name in names):
        return True
    return names[-1].endswith(SUFFIXES) or any(match(pattern, path) for pattern in also)


def admits(patterns: tuple[str, ...], path: str, also: tuple[str, ...] = ()) -> bool:
    """Say whether a fence's patterns let a path be written: a protected one only where it is named literally."""
    if any(not is_glob(pattern) and normal(pattern) == path for pattern in patterns):
        return True
    if is_protected(path, also):
        return False
    return any(match(pattern, path) and not is_ignored(path, normal(pattern)) for pattern in patterns)


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
