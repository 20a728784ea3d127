"""Where version managers install toolchains, and which variables their programs need.

A step sees the installation that it uses, and nothing else of a home directory: what is not in this table stays hidden.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct


class Manager(Struct, frozen=True):
    """A version manager. Each directory that `installed` matches, below `home`, is an installation with a folder `bin`.

    `variable` is the environment variable that moves `home`. `language` is what toolchain files call what it installs;
    empty if the first part of `installed` names it. Programs in `shims` start those of an installation: by default
    of the version that the file `default` names. Both are below `home`, unless they begin with `~/`.
    """

    name: str
    home: str
    installed: str
    language: str = ""
    variable: str = ""
    shims: str = ""
    default: str = ""


MANAGERS: Final = (
    Manager("rustup", "~/.rustup", "toolchains/*", "rust", "RUSTUP_HOME", "~/.cargo/bin", "settings.toml"),
    Manager("nvm", "~/.nvm", "versions/node/*", "node", "NVM_DIR", default="alias/default"),
    Manager("fnm", "~/.local/share/fnm", "node-versions/*/installation", "node", "FNM_DIR"),
    Manager("pyenv", "~/.pyenv", "versions/*", "python", "PYENV_ROOT", "shims", "version"),
    Manager("mise", "~/.local/share/mise", "installs/*/*", "", "MISE_DATA_DIR", "shims"),
    Manager("asdf", "~/.asdf", "installs/*/*", "", "ASDF_DATA_DIR", "shims", "~/.tool-versions"),
    Manager("sdkman", "~/.sdkman", "candidates/*/*", "", "SDKMAN_DIR"),
    Manager("Go", "~/sdk", "go*", "go"),
    *(
        Manager("conda", home, installed, "python")
        for home in ("~/miniconda3", "~/miniforge3", "~/anaconda3", "~/mambaforge", "~/.conda", "~/micromamba")
        for installed in ("", "envs/*")
    ),
    Manager("uv", "~/.local/share/uv/python", "*", "python", "UV_PYTHON_INSTALL_DIR"),
    Manager("uv", "~/.local/share/uv/tools", "*", "tool", "UV_TOOL_DIR"),
    Manager("pipx", "~/.local/share/pipx", "venvs/*", "tool", "PIPX_HOME"),
    Manager("Homebrew", "/home/linuxbrew/.linuxbrew", "", "brew", "HOMEBREW_PREFIX"),
    Manager("/opt", "/opt", "*", "opt"),
)
"""In this order, if several have a program."""

SHOWN: Final = (
    *("bin", "lib", "lib64", "libexec", "include", "share", "jre", "conf", "jmods", "legal", "release"),
    *("pkg", "src", "VERSION", "go.env", "ssl", "pyvenv.cfg", "*-linux-gnu", "Cellar", "opt", "Frameworks"),
)
"""What a step sees of an installation, without files whose names are usual for secrets; not `etc`, and not `var`."""

SINGLE_FILES: Final = ("~/.local/bin", "~/bin", "~/.cargo/bin", "~/go/bin", "~/.nix-profile/bin")
"""Directories of programs that consist of one file each. A step sees the file, and not the directory."""

VARIABLES: Final[Mapping[str, Mapping[str, str]]] = {
    # Another rustc can come first on PATH.
    "rust": {"RUSTC": "{}/bin/rustc", "RUSTDOC": "{}/bin/rustdoc"},
    "go": {"GOROOT": "{}", "GOTOOLCHAIN": "local"},
    "java": {"JAVA_HOME": "{}"},
    "node": {"NODE_PATH": "{}/lib/node_modules"},
}
"""The variables of a language; `{}` is the installation."""

OFFLINE: Final[Mapping[str, Mapping[str, str]]] = {"rust": {"CARGO_NET_OFFLINE": "true"}}
"""Variables of a language for processes without network: they fail at once, with a message that says so."""

LANGUAGES: Final[Mapping[str, str]] = {"nodejs": "node", "golang": "go"}
"""Other names of languages, in `.tool-versions` and in the directories of mise and asdf."""

VERSION_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "rust": ("rust-toolchain.toml", "rust-toolchain"),
    "node": (".nvmrc", ".node-version"),
    "python": (".python-version",),
    "go": (".go-version",),
    "": (".sdkmanrc", ".tool-versions", "mise.toml", ".mise.toml"),
}
"""Toolchain files by language, in the working directory of a stage or above it in the project.

The first one that names a language decides; those of `""` name several.
"""
