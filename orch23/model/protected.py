"""Name the files that configure tools, tests or orch23 itself (SECURITY.md, Protected names).

Three grades: `sealed` names are never written, `protected` ones only where the pipeline spells them out, and what
merely configures a `tool` is written with a warning. Upper and lower case are one, as on many disks.
"""

import unicodedata

from orch23.model.own_files import LOGS
from orch23.model.paths import IGNORABLE, is_glob

_SEALED_TEXT = ".git .hg .svn .jj .orch23 .orch23-aside"
SEALED_NAMES = frozenset(_SEALED_TEXT.split())
SEALED_AT_ROOT = frozenset({LOGS})

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


def folded(path: str) -> tuple[str, ...]:
    """Return the names of a path as the most careless disk takes them."""
    return tuple(_fold(name) for name in path.rstrip("/").split("/"))


def _fold(name: str) -> str:
    if not name.isascii():
        seen = (c for c in IGNORABLE.sub("", name) if unicodedata.category(c) != "Cf")  # not every disk keeps the rest
        name = unicodedata.normalize("NFC", unicodedata.normalize("NFC", "".join(seen)).casefold())
    name = name.lower().partition(":")[0].rstrip(" .") or name
    return ".git" if name == "git~1" else name


def sealed_reason(path: str) -> str | None:
    """Return which name of a path is never written by a stage, whatever the pipeline says, or None."""
    names = folded(path)
    if names[0] in SEALED_AT_ROOT:
        return f"`{names[0]}/` is orch23's own"
    found = next((name for name in names if name in SEALED_NAMES), None)
    return None if found is None else f"nothing below `{found}` is written by a stage"


def protected_reason(path: str) -> str | None:
    """Return which name of a path is protected, or None; those that are sealed are protected too."""
    names = folded(path)
    if names[0] in PROTECTED_AT_ROOT:
        return f"`{names[0]}/` is protected"
    found = next((name for name in names if _is_protected(name)), None)
    if found is None and names[-1].endswith(PROTECTED_SUFFIXES):
        found = names[-1]
    return None if found is None else f"`{found}` is a protected name"


def tool_name(path: str) -> str | None:
    """Return which name of a path configures a tool, or None."""
    return next((name for name in folded(path) if _is_of_tool(name)), None)


def spells(pattern: str, path: str, *, tools: bool = False) -> bool:
    """Return whether a pattern that matches a path spells out each name of it that is protected.

    With `tools`, also each that configures a tool. Below a folder that it spells, such as `.venv` or `.github`,
    everything counts as spelled; not so below `specs` and the like, which hold files of all kinds.
    """
    spelled = {name for name in folded(pattern) if not is_glob(name)}
    names = folded(path)
    for depth, name in enumerate(names):
        is_last = depth == len(names) - 1
        at_root = depth == 0 and name in PROTECTED_AT_ROOT
        is_protected = _is_protected(name) or (is_last and name.endswith(PROTECTED_SUFFIXES))
        if not at_root and not is_protected and not (tools and _is_of_tool(name)):
            continue
        if name not in spelled:
            return False
        if not at_root and not is_last:
            return True
    return True


def _is_protected(name: str) -> bool:
    return name in PROTECTED_NAMES or name.startswith(PROTECTED_PREFIXES)


def _is_of_tool(name: str) -> bool:
    """Return whether a name is listed, or of a form such as `.npmrc`, `.eslintrc.json` or `jest.config.ts`."""
    if name in TOOL_NAMES or name.endswith(_TOOL_SUFFIXES):
        return True
    stem, _, ending = name.removeprefix(".").partition(".")
    if name.startswith(".") and stem.endswith("rc") and stem not in ("rc", "src"):
        return not ending or ending in _TOOL_ENDINGS
    whole, _, ending = name.rpartition(".")
    return ending in _TOOL_ENDINGS and whole.endswith(".config") and not whole.startswith(".")
