"""Name the files that configure tools, tests or orch23 itself (safety.md, Paths): no model may lead to them."""

import unicodedata

_PROTECTED_NAMES_TEXT = """
    .git .gitattributes .gitignore .gitmodules .hg .orch23 orch23.toml
    sitecustomize.py usercustomize.py conftest.py pytest.ini .pytest.ini tox.ini setup.cfg setup.py pyproject.toml
    makefile gnumakefile
    .vscode .idea .editorconfig .vim .nvim.lua .exrc .dir-locals.el .devcontainer
    .github .gitlab .gitlab-ci.yml .circleci .ci .travis.yml .drone.yml .buildkite azure-pipelines.yml jenkinsfile
    .husky .githooks .pre-commit-config.yaml .envrc lefthook.yml
    .claude claude.md agents.md gemini.md .cursor .cursorrules .aider.conf.yml .windsurfrules .mcp.json .codex
"""
PROTECTED_NAMES = frozenset(_PROTECTED_NAMES_TEXT.split())
PROTECTED_AT_ROOT = frozenset({"pipelines", "prompts", "specs", "logs"})
_PREFIXES = (".env",)
_SUFFIXES = (".pth", ".lock")


def protected_reason(path: str) -> str | None:
    """Return which name of a path is protected, or None. Upper and lower case are one, as on many disks."""
    names = [unicodedata.normalize("NFC", name).casefold() for name in path.rstrip("/").split("/")]
    if names[0] in PROTECTED_AT_ROOT:
        return f"`{names[0]}/` is protected"
    for name in names:
        if name in PROTECTED_NAMES or name.startswith(_PREFIXES):
            return f"`{name}` is a protected name"
    return f"`{names[-1]}` is a protected name" if names[-1].endswith(_SUFFIXES) else None
