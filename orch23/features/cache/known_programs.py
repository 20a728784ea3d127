"""Decide whether the programs that a command names may start others, which its text does not show (ADR 58).

A program is known to start no other, or its stage lists it and those that it starts in `tools`. A list of programs that
start others would never be complete. Python is judged by the caller: its installed packages identify it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from orch23.model.fields import describe_value
from orch23.model.patterns import lazy_pattern


class Argument(Struct, frozen=True):
    """A word after a program. It is open if a variable or a pattern of the shell decides what it is."""

    text: str
    is_open: bool = False


class Invocation(Struct, frozen=True):
    """A program that a command names, as it is written there, with its arguments."""

    name: str
    arguments: tuple[Argument, ...] = ()


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(words.split())


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
    condition = None if is_script else _CONDITIONS.get(base)
    if condition is None:
        return f"`{name}` may start other programs; {_WAY_OUT}"
    why = condition(called.arguments)
    return None if why is None else f"`{name}` may start other programs ({why}); {_WAY_OUT}"


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _is_runner(base: str) -> bool:
    plain = _VERSION.sub("", base)
    is_compiler = plain.endswith(("-gcc", "-g++", "-cc", "-c++", "-clang", "-gfortran"))
    is_loader = base.startswith("ld") and ".so" in base
    return plain in _RUNS_OTHERS or base in _RUNS_OTHERS or is_compiler or is_loader


# ---- programs that start others only with some options --------------------------------------------


def _may_be_option(word: Argument) -> bool:
    """Return whether an open word may become an option: not `*.txt`, whose files the author knows."""
    return word.is_open and ("$" in word.text or word.text.startswith(("-", "[", "?", "{")))


def _without(
    options: str, may_be_option: Callable[[Argument], bool] = _may_be_option
) -> Callable[[Sequence[Argument]], str | None]:
    """Return a condition: no word begins like one of these options, which may be shortened."""
    pattern = lazy_pattern(options)

    def condition(arguments: Sequence[Argument]) -> str | None:
        for word in arguments:
            if pattern.match(word.text):
                return f"it has `{word.text}`"
            if may_be_option(word):
                return f"`{word.text}` may be an option"
        return None

    return condition


_AWK_SIGNS: Final = ("system", "|", "@")


def _of_awk(arguments: Sequence[Argument]) -> str | None:
    """Check the options up to the program text, and the text: `system(...)`, pipes, and what loads more text."""
    rest = iter(arguments)
    for word in rest:
        if word.text in {"-F", "-v"}:
            next(rest, None)
        elif word.is_open or (word.text.startswith("-") and not word.text.startswith(("-F", "-v"))):
            return f"it has `{word.text}`"
        elif not word.text.startswith("-"):
            text = word.text.replace("||", " ")
            return next((f"its text has `{sign}`" for sign in _AWK_SIGNS if sign in text), None)
    return None


_SED_OPTION = lazy_pattern(r"-[nErsuz]+i?|-i")
# Only d, p, q, and a substitution without the flags `e` and `w`, each for lines with a number or a pattern.
_SED_COMMAND = lazy_pattern(
    r"(?:(?:\d+|\$)(?:,(?:\d+|\$))?|/(?:\\.|[^/\\])++/)?!?"
    r"(?:[dpq]|s(?P<sign>[/|,#:!@%+])(?:\\.|(?!(?P=sign))[^\\])*+(?P=sign)"
    r"(?:\\.|(?!(?P=sign))[^\\])*+(?P=sign)[gpIi0-9]*)"
)


def _of_sed(arguments: Sequence[Argument]) -> str | None:
    """Check all words, since sed reads options after files, too. `--sandbox` refuses to run programs."""
    if arguments[:1] == (Argument("--sandbox"),):
        return None
    scripts: list[Argument] = []
    operands: list[Argument] = []
    rest = iter(arguments)
    for word in rest:
        if word.text == "-e":
            scripts += (one for one in (next(rest, None),) if one is not None)
        elif word.text.startswith("-") and (word.is_open or not _SED_OPTION.fullmatch(word.text)):
            return f"it has `{word.text}`"
        elif not word.text.startswith("-"):
            operands.append(word)
    scripts, files = (scripts, operands) if scripts else (operands[:1], operands[1:])
    for script in scripts:
        commands = (part.strip() for line in script.text.splitlines() for part in line.split(";"))
        if script.is_open or not all(_SED_COMMAND.fullmatch(one) for one in commands if one):
            return f"{describe_value(script.text)} is not a plain command; `sed --sandbox` runs none"
    return next((f"`{word.text}` may be an option" for word in files if _may_be_option(word)), None)


_CONDITIONS: Final[Mapping[str, Callable[[Sequence[Argument]], str | None]]] = {
    "awk": _of_awk,
    "diff": _without(r"-[^-]*l|--pag"),
    "find": _without(r"-(?:exec|ok)(?:dir)?\Z", lambda word: word.is_open),
    "gawk": _of_awk,
    "mawk": _of_awk,
    "original-awk": _of_awk,
    "sed": _of_sed,
    "sort": _without(r"--co"),
    "split": _without(r"--f"),
}
