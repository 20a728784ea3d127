"""Classify files by name: ignored by git, protected from writes, or holding secrets.

Names have three grades. `sealed` names are never written: each can be used to run code or to forge results.
`protected` names are written only if the pipeline contains them literally. Names that only configure a tool are written
with a warning: refusing `package.json` would break ordinary pipelines (ADR 26). Upper and lower case are not
distinguished, because many file systems do not.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

from msgspec import Struct

from orch23.model.paths import (
    IGNORABLE_CHARACTERS,
    LOGS_FOLDER,
    PatternSet,
    is_glob,
    match,
    match_any,
    normalize_pattern,
)

GITIGNORE = ".gitignore"
_MAX_CACHED = 1 << 18
_UNNAMED = "no entry of `outputs` or `allowed_paths.write` names it"


class _Rule(Struct, frozen=True):
    """One line of a file: its pattern, whether it matches only folders, and whether it ignores (`!` does not).

    The pattern of the library has at most one group: the `/` after a folder that matches, if the path is below it.
    """

    pattern: re.Pattern[str]
    of_folders: bool
    ignores: bool

    def matches(self, path: str) -> bool:
        """Return whether the path itself matches, and not a folder above it."""
        if self.of_folders:
            return any(found.end() == len(path) + 1 for found in self.pattern.finditer(f"{path}/"))
        found = self.pattern.search(path)
        return found is not None and found.lastindex is None


class GitignoreRules:
    """The rules of the `.gitignore` files from the root down to a folder. The nearest file decides first, as in git.

    Rules and results are cached, because many patterns list the same folders.
    """

    __slots__ = ("_below", "_levels", "_results")

    def __init__(self, levels: tuple[tuple[str, tuple[_Rule, ...]], ...] = ()) -> None:
        """Set the folders that have such a file (`""` or ending in `/`), the root first, each with its rules."""
        self._levels = levels
        self._below: dict[tuple[str, bytes], GitignoreRules] = {}
        self._results: dict[tuple[str, bool], bool] = {}

    def with_file(self, folder: str, data: bytes) -> "GitignoreRules":
        """Return these rules with those of the file in a folder below."""
        if (folder, data) not in self._below:
            if len(self._below) >= _MAX_CACHED:
                self._below.clear()
            self._below[folder, data] = GitignoreRules((*self._levels, (folder, _parsed(data))))
        return self._below[folder, data]

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Return whether the rules ignore the path itself; the caller checks the folders above it."""
        if not self._levels:
            return False
        if (path, is_folder) not in self._results:
            if len(self._results) >= _MAX_CACHED:
                self._results.clear()
            self._results[path, is_folder] = self._result(path, is_folder=is_folder)
        return self._results[path, is_folder]

    def _result(self, path: str, *, is_folder: bool) -> bool:
        for folder, rules in reversed(self._levels):
            below = path.removeprefix(folder)
            for rule in reversed(rules):
                if (is_folder or not rule.of_folders) and rule.matches(below):
                    return rule.ignores
        return False


class _IgnoredFolder(GitignoreRules):
    """The rules below an ignored folder: as in git, no rule can include anything in it again."""

    __slots__ = ()

    def with_file(self, folder: str, data: bytes) -> GitignoreRules:
        del folder, data
        return self

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        del path, is_folder
        return True


NO_GITIGNORE_RULES = GitignoreRules()
IGNORED_FOLDER_RULES = _IgnoredFolder()


@lru_cache(maxsize=256)
def _parsed(data: bytes) -> tuple[_Rule, ...]:
    """Return the rules of a file in their order; the last match decides. Invalid lines are skipped, as in git."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - only where there is such a file

    rules: list[_Rule] = []
    for line in data.decode("utf-8", "surrogateescape").splitlines():
        of_folders = line.rstrip().endswith("/")
        with suppress(ValueError):
            for one in GitIgnoreSpec.from_lines([line]).patterns:
                if one.include is not None and one.regex is not None:  # else it is a comment
                    rules += [_Rule(one.regex, of_folders, one.include)]
    return tuple(rules)


_SEALED_TEXT = ".git .hg .svn .jj .orch23 .orch23-aside"
SEALED_NAMES = frozenset(_SEALED_TEXT.split())
SEALED_AT_ROOT = frozenset({LOGS_FOLDER})

# Programs run files with these names, or read their configuration from them, by themselves: git and continuous
# integration, Python at its start, pytest, editors when they open the folder, coding agents.
_PROTECTED_TEXT = """
    .gitattributes .gitignore .gitmodules orch23.toml
    .venv node_modules __pycache__ .pytest_cache .mypy_cache .ruff_cache .hypothesis
    sitecustomize.py usercustomize.py conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml tox.ini setup.cfg
    setup.py pyproject.toml pyvenv.cfg
    makefile gnumakefile
    .vscode .idea .zed .fleet .editorconfig .vim .vimrc .nvimrc .nvim.lua .exrc .dir-locals.el .devcontainer
    .devcontainer.json .gitpod.yml
    .github .gitlab .gitlab-ci.yml .circleci .ci .travis.yml .drone.yml .buildkite azure-pipelines.yml jenkinsfile
    appveyor.yml .appveyor.yml bitbucket-pipelines.yml .woodpecker .woodpecker.yml .cirrus.yml .semaphore
    .gitea .forgejo
    .husky .githooks .pre-commit-config.yaml .pre-commit-hooks.yaml lefthook.yml .lefthook.yml .direnv
    .claude claude.md agents.md gemini.md .gemini .cursor .cursorrules .aider.conf.yml .windsurf .windsurfrules
    .clinerules .roo .junie .kiro .opencode opencode.json .mcp.json .codex
"""
PROTECTED_NAMES = frozenset(_PROTECTED_TEXT.split()) | SEALED_NAMES
PROTECTED_PLACES = frozenset({"pipelines", "prompts", "specs"})
PROTECTED_AT_ROOT = PROTECTED_PLACES | SEALED_AT_ROOT
PROTECTED_PREFIXES = (".env", ".orch23-")
PROTECTED_SUFFIXES = (".pth", ".lock")

# Ordinary pipelines write many of these, so a stage that writes one only causes a warning (ADR 26).
_TOOLS_TEXT = """
    .profile .bash_profile .bash_login .bash_logout .bash_aliases .zshenv .zprofile .zlogin .zlogout .login _netrc
    _vimrc .pam_environment .ssh .gnupg .aws .kube .docker .gitconfig .tmux.conf .emacs .emacs.d .gdbinit .lldbinit
    .config .local .my.cnf .rprofile .renviron package.json .pnpmfile.cjs .pnp.cjs .pnp.loader.mjs pnpm-workspace.yaml
    .node-version .yarn gulpfile.js gulpfile.ts gruntfile.js nodemon.json lerna.json nx.json turbo.json deno.json
    deno.jsonc bunfig.toml tsconfig.json jsconfig.json justfile .justfile mise.toml .mise.toml mise.local.toml .mise
    .tool-versions taskfile.yml taskfile.yaml rakefile gemfile .bundle guardfile capfile podfile fastfile dangerfile
    brewfile vagrantfile procfile dockerfile containerfile docker-compose.yml docker-compose.yaml compose.yml
    compose.yaml cmakelists.txt cmakepresets.json cmakeuserpresets.json meson.build sconstruct wscript build.ninja
    build.gradle build.gradle.kts settings.gradle settings.gradle.kts gradle.properties gradlew mvnw pom.xml .mvn
    build.xml build.sbt build.rs cargo.toml .cargo rust-toolchain rust-toolchain.toml go.work build.bazel
    workspace.bazel module.bazel .buckconfig directory.build.props directory.build.targets nuget.config flake.nix
    shell.nix default.nix devenv.nix snakefile dvc.yaml .dvc dodo.py noxfile.py fabfile.py .nox .tox mypy.ini .mypy.ini
    ruff.toml .ruff.toml .flake8 .isort.cfg pyrightconfig.json pipfile uv.toml pip.conf .python-version
    ipython_config.py .ipython .jupyter activate_this.py mix.exs .iex.exs rebar.config stack.yaml .ghci composer.json
    phpunit.xml .htaccess .user.ini web.config .clangd .clang-tidy .ctags .ctags.d .rubocop.yml .golangci.yml
    ansible.cfg .watchmanconfig .projectile .project .classpath .settings .continue .goosehints .roomodes .amazonq
    warp.md netlify.toml vercel.json fly.toml buildspec.yml cloudbuild.yaml renovate.json package-lock.json
    npm-shrinkwrap.json pnpm-lock.yaml requirements.txt constraints.txt environment.yml .ruby-version .java-version
    .terraform .terraform.lock.hcl tiltfile skaffold.yaml earthfile .foreman crontab nextflow.config biome.json
    cypress.json angular.json rush.json bower.json .lessfilter .lesskey .xprofile .xsession .xresources .spacemacs
    .nvmrc .go-version .sdkmanrc
    .pystartup .rspec makefile.pl build.pl .clang-format pants.toml xmake.lua premake5.lua sconscript configure.ac
    makefile.am kbuild doxyfile conf.py mkdocs.yml .readthedocs.yml .readthedocs.yaml _config.yml alembic.ini
    gunicorn.conf.py celeryconfig.py hatch_build.py hatch.toml manifest.in .bumpversion.cfg .bumpversion.toml pylintrc
    .yamllint .hadolint.yaml sonar-project.properties codecov.yml .codecov.yml dependabot.yml codeowners .mergify.yml
    action.yml action.yaml config.fish .mailcap tox.toml poetry.toml pdm.toml .pdm.toml pixi.toml clippy.toml
    .clippy.toml rustfmt.toml .rustfmt.toml go.mod .golangci.yaml .air.toml magefile.go .goreleaser.yml .goreleaser.yaml
    .sqlfluff terragrunt.hcl serverless.yml samconfig.toml cdk.json pulumi.yaml kustomization.yaml global.json
    project.clj deps.edn package.swift cartfile pubspec.yaml startup.jl build.zig tasks.py invoke.yaml kubeconfig
"""
TOOL_NAMES = frozenset(_TOOLS_TEXT.split())
_TOOL_ENDINGS = frozenset(
    {"js", "cjs", "mjs", "ts", "cts", "mts", "json", "jsonc", "json5", "yaml", "yml", "toml", "py"}
)
_TOOL_SUFFIXES = (".code-workspace", ".sublime-project")


@lru_cache(maxsize=1024)
def fold_names(path: str) -> tuple[str, ...]:
    """Return the names of a path as the most tolerant file system reads them.

    A model could otherwise write `.GIT/config`, or a name with an invisible character, and reach `.git`.
    """
    return tuple(_fold(name) for name in path.rstrip("/").split("/"))


def _fold(name: str) -> str:
    if not name.isascii():
        import unicodedata  # noqa: PLC0415 - few names need it

        # Some file systems ignore characters that are not visible.
        visible = (c for c in IGNORABLE_CHARACTERS.sub("", name) if unicodedata.category(c) != "Cf")
        name = unicodedata.normalize("NFC", unicodedata.normalize("NFC", "".join(visible)).casefold())
    # On NTFS `name:stream` is the same file, and dots and spaces at the end are dropped; `git~1` is the short name of
    # `.git` there.
    name = name.lower().partition(":")[0].rstrip(" .") or name
    return ".git" if name == "git~1" else name


@lru_cache(maxsize=1024)
def sealed_reason(path: str) -> str | None:
    """Return why no stage may write a path, even if the pipeline declares it, or None."""
    names = fold_names(path)
    if names[0] in SEALED_AT_ROOT:
        return f"`{names[0]}/` is orch23's own"
    found = next((name for name in names if name in SEALED_NAMES), None)
    return None if found is None else f"nothing below `{found}` is written by a stage"


@lru_cache(maxsize=1024)
def protected_reason(path: str) -> str | None:
    """Return which name of a path is protected, or None; sealed names are protected too."""
    names = fold_names(path)
    if names[0] in PROTECTED_AT_ROOT:
        return f"`{names[0]}/` is protected"
    last = len(names) - 1
    found = next((name for depth, name in enumerate(names) if _is_protected(name, is_last=depth == last)), None)
    return None if found is None else f"`{found}` is a protected name"


def tool_file_name(path: str) -> str | None:
    """Return which name of a path configures a tool, or None."""
    return next((name for name in fold_names(path) if _is_of_tool(name)), None)


def spells_protected_names(pattern: str, path: str, *, tools: bool = False) -> bool:
    """Return whether a pattern that matches a path contains each protected name of the path literally.

    With `tools`, also each name that configures a tool. Below a protected folder that the pattern contains, such as
    `.venv` or `.github`, everything is allowed: archives and installations have too many protected files to list.
    This does not hold below `specs` and the like, which have files of all kinds.
    """
    spelled = {name for name in fold_names(pattern) if not is_glob(name)}
    names = fold_names(path)
    for depth, name in enumerate(names):
        at_root = depth == 0 and name in PROTECTED_AT_ROOT
        is_protected = at_root or _is_protected(name, is_last=depth == len(names) - 1)
        if is_protected or (tools and _is_of_tool(name)):
            if name not in spelled:
                return False
            if not at_root:
                return True
    return True


def _is_protected(name: str, *, is_last: bool) -> bool:
    is_named = name in PROTECTED_NAMES or name.startswith(PROTECTED_PREFIXES)
    return is_named or (is_last and name.endswith(PROTECTED_SUFFIXES))


def _is_of_tool(name: str) -> bool:
    """Return whether a name is listed, or has a form such as `.npmrc`, `.eslintrc.json` or `jest.config.ts`."""
    if name in TOOL_NAMES or name.endswith(_TOOL_SUFFIXES):
        return True
    stem, _, ending = name.removeprefix(".").partition(".")
    if name.startswith(".") and stem.endswith("rc") and stem not in ("rc", "src"):
        return not ending or ending in _TOOL_ENDINGS
    whole, _, ending = name.rpartition(".")
    return ending in _TOOL_ENDINGS and whole.endswith(".config") and not whole.startswith(".")


# Patterns in the inputs of an llm stage never match these files: their content would be sent to a provider
# (docs/secrets.md).
_FOLDERS = frozenset({".git", ".hg", ".svn", ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"})
_NAMES_TEXT = """
    .netrc _netrc .npmrc .yarnrc.yml .pypirc .pgpass .my.cnf .htpasswd .git-credentials .dockercfg .dockerconfigjson
    .vault-token .boto .s3cfg credentials
"""
_NAMES = frozenset(_NAMES_TEXT.split())
_KEYS = ("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519")
_SUFFIXES = (".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".ppk", ".kdbx")
_OF_SECRETS = frozenset({"credentials", "secrets", "secret"})
_OF_DATA = frozenset({"json", "yaml", "yml", "toml", "ini", "cfg", "conf", "txt", "csv", "xml", "env", "properties"})


def secret_file_reason(path: str) -> str | None:
    """Return which name of a path is usual for files with secrets, or None. Case is not distinguished."""
    if not path.isascii():
        import unicodedata  # noqa: PLC0415 - few names need it

        path = unicodedata.normalize("NFC", path)
    names = path.rstrip("/").casefold().split("/")
    folder = next((name for name in names[:-1] if name in _FOLDERS), None)
    if folder is not None:
        return f"`{folder}/` holds secrets"
    return f"`{names[-1]}` holds secrets" if _is_private(names[-1]) else None


def _is_private(name: str) -> bool:
    stem, _, suffix = name.partition(".")
    return (
        name in _NAMES
        or name.startswith(".env")
        or (name.startswith(_KEYS) and not name.endswith(".pub"))
        or name.endswith(_SUFFIXES)
        or (stem in _OF_SECRETS and suffix.rpartition(".")[2] in _OF_DATA)
    )


def is_protected(path: str, also: tuple[str, ...] = ()) -> bool:
    """Return whether a path, or a directory above it, has a protected name; `also` are patterns of the project."""
    return protected_reason(path) is not None or match_any(also, path)


def allows_write(patterns: tuple[str, ...], path: str, also: tuple[str, ...] = ()) -> bool:
    """Return whether the patterns let a model write a path: a protected one only if it is named literally."""
    if sealed_reason(path) is not None:
        return False
    if any(not is_glob(pattern) and normalize_pattern(pattern) == path for pattern in patterns):
        return True
    # A model needs a literal entry: a pattern of a user does not mean `conftest.py` (ADR 26).
    return not is_protected(path, also) and match_any(patterns, path)


class DeclaredPatterns(PatternSet):
    """An index over the patterns that stages may write, for paths of protected names.

    An entry declares a path if it is that path, or a pattern that contains its protected names literally (ADR 26).
    """

    def __init__(self, patterns: Iterable[str], also: tuple[str, ...] = (), never: tuple[str, ...] = ()) -> None:
        """Index the patterns; `also` are patterns of protected files of the project, `never` of sealed files."""
        super().__init__(patterns)
        self._also = also
        self._never = never

    def write_error(self, path: str) -> str | None:
        """Return why a path may not be written or removed, or None. Only names are checked, not the write scope."""
        sealed = sealed_reason(path)
        if sealed is None and match_any(self._never, path):
            sealed = "only orch23 writes it"
        if sealed is not None or path in self.literal:
            return sealed
        if match_any(self._also, path):
            return f"it belongs to orch23, and {_UNNAMED}"
        reason = protected_reason(path)
        return None if reason is None or self._is_spelled(path) else f"{reason}, and {_UNNAMED}"

    def is_undeclared_tool_file(self, path: str) -> bool:
        """Return whether a path configures a tool and no pattern names it."""
        return not (tool_file_name(path) is None or path in self.literal or self._is_spelled(path, tools=True))

    def _is_spelled(self, path: str, *, tools: bool = False) -> bool:
        """Return whether a pattern matches a path and contains its protected names literally."""
        matching = (pattern for pattern in self.globs if match(pattern, path))
        return any(spells_protected_names(pattern, path, tools=tools) for pattern in matching)


NO_DECLARED_PATTERNS = DeclaredPatterns(())
