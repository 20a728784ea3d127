"""Decide whether the programs that a command names may start others, which its text does not show (ADR 58).

A program is known to start no other, or its stage lists it and those that it starts in `tools`. A list of programs that
start others would never be complete, and the scripts of `sed` and `awk` are not read. Python is judged by the caller:
its installed packages identify it.
"""

from collections.abc import Collection
from typing import Final

from orch23.features.cache.shell_programs import Invocation, word_set
from orch23.model.patterns import lazy_pattern

_STARTS_NONE: Final = word_set(
    # GNU coreutils, without those below that run a program
    "[ arch b2sum base32 base64 basename basenc cat chgrp chmod chown cksum comm cp csplit cut date dd df dir "
    "dircolors dirname du echo expand expr factor false fmt fold groups head hostid id join link ln logname ls "
    "md5sum mkdir mkfifo mknod mktemp mv nl nproc numfmt od paste pathchk pinky pr printenv printf ptx pwd readlink "
    "realpath rm rmdir seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep stat stty sum sync tac "
    "tail tee test touch tr true truncate tsort tty uname unexpand uniq unlink uptime users vdir wc who whoami yes "
    # env and nohup: their command is the next word, which is judged too
    "env nohup "
    "bzip2 cmp column envsubst grep gzip hexdump jq lz4 nm readelf rev size strings unzip xxd xz zstd"
)
"""Programs that start no other, whatever their options are."""

_RUNS_OTHERS: Final = word_set(
    # shells, and programs whose arguments are a command
    "ash bash busybox bwrap ccache chroot chrt csh dash distcc doas docker entr fakechroot fakeroot faketime fish "
    "flock gdb gosu hyperfine i386 ionice ksh linux32 linux64 ltrace mksh newgrp nice nsenter numactl parallel perf "
    "pkexec podman prlimit proot pwsh rbash rsh run-parts runcon runuser sccache schroot screen script setarch "
    "setpriv setsid sg sh socat sponge ssh sshpass start-stop-daemon stdbuf strace su sudo systemd-run taskset tcsh "
    "time timeout tini tmux toybox uname26 unshare valgrind watch x86_64 xargs xvfb-run zsh "
    # builds, and compilers, which run assemblers and linkers
    "ant autoconf automake autoreconf bazel bazelisk bmake buck buck2 bun bundle c++ c89 c99 cabal cargo cc clang "
    "clang++ cmake composer configure conda cpack ctest deno doit dotnet dune dvc f77 f95 flang g++ gcc gfortran "
    "ghc gmake go gradle gradlew just latexmk lein libtool make mamba meson mill mix mvn mvnw ninja nix nox npm npx "
    "opam pants pdm pipenv pipx pixi pnpm poetry pre-commit rake rebar3 rustc rustup samu sbt scons snakemake stack "
    "swift swiftc task tox uv uvx waf yarn zig"
)
"""Programs that always run others: one of them alone in `tools` cannot be complete."""

_STARTING_OPTIONS: Final = {
    "diff": lazy_pattern(r"-[^-]*l|--pag"),
    "find": lazy_pattern(r"-(?:exec|ok)(?:dir)?\Z"),
    "sort": lazy_pattern(r"--co"),
    "split": lazy_pattern(r"--f"),
}
"""Programs that start others only with these options, which may be shortened."""

_WAY_OUT: Final = "list it and them in `tools`"
_VERSION = lazy_pattern(r"(?<!\d)(?<!\d\.)-?\d+(?:\.\d+)*+$")


def starting_fault(called: Invocation, tools: Collection[str], *, is_python: bool, is_script: bool) -> str | None:
    """Return why a program may start others that are not known; None if it does not, or `tools` lists them.

    A script is a text that another program than Python interprets.
    """
    name, base = called.name, _base(called.name)
    if name in tools:
        is_alone = _is_runner(base) and all(_is_runner(_base(tool)) for tool in tools)
        return f"`{name}` runs other programs, and `tools` lists none of them" if is_alone else None
    if _is_runner(base):
        return f"`{name}` runs other programs; {_WAY_OUT}"
    if is_python or (base in _STARTS_NONE and not is_script):
        return None
    options = None if is_script else _STARTING_OPTIONS.get(base)
    if options is None:
        return f"`{name}` may start other programs; {_WAY_OUT}"
    for word in called.arguments:
        # The author knows the files of `*.txt`, so it is not one; but `find` takes any word as an option.
        is_hidden = word.is_open and (base == "find" or "$" in word.text or word.text.startswith(("-", "[", "?", "{")))
        if (found := options.match(word.text)) or is_hidden:
            why = f"it has `{word.text}`" if found else f"`{word.text}` may be an option"
            return f"`{name}` may start other programs ({why}); {_WAY_OUT}"
    return None


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _is_runner(base: str) -> bool:
    plain = _VERSION.sub("", base)
    is_compiler = plain.endswith(("-gcc", "-g++", "-cc", "-c++", "-clang", "-gfortran"))
    is_loader = base.startswith("ld") and ".so" in base
    return plain in _RUNS_OTHERS or base in _RUNS_OTHERS or is_compiler or is_loader
