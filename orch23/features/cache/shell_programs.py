"""Find the programs that a command names, as far as its text shows them, and whether these may start others.

A text for bash is read by a small lexer. Whatever could hide a program, such as `$(...)` or `eval`, is refused: the
caller must not conclude from the programs that are left. `shlex` is not enough, since it does not know comments within
words, substitutions in double quotes and ends of lines.

A program is known to start no other, or its stage lists it and those that it starts in `tools` (ADR 58). A list of
programs that start others would never be complete, and the scripts of `sed` and `awk` are not read. Python is judged by
the caller: its installed packages identify it.
"""

import re
from collections.abc import Collection, Container, Iterator, Sequence
from itertools import dropwhile
from typing import Final, Literal, NoReturn

from msgspec import Struct

from orch23.model.patterns import lazy_pattern

_VARIABLE = lazy_pattern(
    r"\$(?:[A-Za-z_]\w*|[0-9@*#?$!-]|\{(?:[A-Za-z_]\w*|[0-9@*#?$!-])(?::?[-=+?][\w./:@-]*)?\})", re.ASCII
)
_ASSIGNMENT = lazy_pattern(r"([A-Za-z_]\w*)(?:\[\w*\])?\+?=", re.ASCII)
_TOKEN = lazy_pattern(
    r"(?P<skipped>[ \t]+|\\\n|#[^\n]*)|(?P<refused><<(?!<)|<\(|>\(|\(\(|;;|;&)"
    r"|(?P<redirection><<<|<&|<>|<|&>>|&>|>>|>&|>\||>)|(?P<operator>&&|&|\|\||\|&|\||;|\(|\)|\n)"
)
_PIECE = lazy_pattern(
    r"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*+)"|\\(?P<escaped>.)"""
    r"""|(?P<sign>[$`])|(?P<plain>[^ \t\n;&|<>()'"\\$`]++)""",
    re.DOTALL,
)
"""A part of a word."""
_IN_QUOTES = lazy_pattern(r"""\\([$`"\\\n])|`|\$(?!["']|\Z)\$?""")
"""What is not itself in double quotes: within them, `$"` and `$'` are only a dollar sign."""
_EXPANSIONS: Final = ("$(", "${", "$[", "$'", '$"')
_PATTERN_SIGNS = frozenset("*?[]{}")
_UNREADABLE, _OPEN_QUOTE = "it cannot be read", "it has an open quote"
# Then bash takes the word for a program.
_LATE_KEYWORD = "it has a keyword after an assignment or a redirection"


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(words.split())


_BEFORE_COMMAND: Final = word_set("if then else elif while until do { !")
_AFTER_COMMAND: Final = word_set("fi done }")
_KEYWORDS: Final = _BEFORE_COMMAND | _AFTER_COMMAND | {"for", "[["}
_BUILTINS: Final = word_set(": [ break cd continue echo exit false kill pwd return set shift test true umask wait")
"""Commands of bash that start no program and set no variable that the user names."""
_SETTERS: Final = word_set("declare export getopts local printf read readonly typeset unset")
"""Commands of bash that start no program, but set variables."""
_PRINTERS: Final = word_set(": echo false printf true")
_COMPUTING: Final = word_set("-eq -ne -lt -le -gt -ge -v -R")
_PREFIXES: Final = word_set("env exec nohup")
"""Commands whose first word, after the assignments of `env`, is a program."""
_HIDING: Final = word_set(
    "eval source . trap alias shopt hash enable builtin command complete compgen coproc function case select type "
    "mapfile readarray bind fc history let bg fg jobs time"
)
"""Commands of bash that run text or another program in a way that is not read here."""
_HIDING_VARIABLES: Final = word_set("PATH BASH_ENV ENV PS4")


class UnknownProgramsError(Exception):
    """The text of a command does not show all programs that it runs: a clause such as "it has `eval`"."""


def _refuse(why: str) -> NoReturn:
    raise UnknownProgramsError(why)


class Token(Struct, frozen=True):
    """A word, an operator between commands, or a redirection, whose file is the next word.

    The word `is_open` if a variable or a pattern decides what it is. Its first `plain` characters have no quotes and
    escapes; an unquoted word has -1.
    """

    text: str
    is_open: bool = False
    plain: int = -1
    kind: Literal["word", "operator", "redirection"] = "word"

    def is_keyword(self, known: Container[str]) -> bool:
        """Return whether it is one of these words for bash, too: quoted ones are not keywords."""
        return self.kind == "word" and self.plain < 0 and self.text in known


class Invocation(Struct, frozen=True):
    """A program that a command names, as it is written there, with its arguments."""

    name: str
    arguments: tuple[Token, ...] = ()


def programs_in(command: str | Sequence[str]) -> tuple[Invocation, ...]:
    """Return the programs that a text for bash or an argv names, with their arguments; without bash itself.

    A program may start others: `starting_fault` judges that.

    Raises:
        UnknownProgramsError: the command may run others too.
    """
    if isinstance(command, str):
        return tuple(dict.fromkeys(_of_text(command)))
    return tuple(dict.fromkeys(_of_program([Token(word) for word in command], in_shell=False)))


# ---- commands ---------------------------------------------------------------------------------


def _of_text(text: str) -> Iterator[Invocation]:
    words: list[Token] = []
    is_late = False
    tokens = iter([*_tokens(text), Token("\n", kind="operator")])
    for token in tokens:
        if token.kind == "redirection":
            if next(tokens).kind != "word":
                _refuse(_UNREADABLE)
            is_late = True
        elif token.kind == "operator":
            if token.text == "(" and _without_keywords(words):
                _refuse(_UNREADABLE)
            yield from _of_command(words)
            words, is_late = [], False
        elif is_late and token.is_keyword(_KEYWORDS) and not _without_keywords(words):
            _refuse(_LATE_KEYWORD)
        elif token.is_keyword({"[["}) and not _without_keywords(words):
            _skip_condition(tokens)
            words = [Token(":")]
        else:
            words.append(token)


def _skip_condition(tokens: Iterator[Token]) -> None:
    """Skip the words up to `]]`, without numbers: bash runs `$(...)` in the value of a variable that it computes."""
    for token in tokens:
        if token.is_keyword({"]]"}):
            return
        if token.is_keyword(_COMPUTING):
            _refuse(f"it has `[[ {token.text}`")
    _refuse(_UNREADABLE)


def _without_keywords(words: list[Token]) -> list[Token]:
    return list(dropwhile(lambda word: word.is_keyword(_BEFORE_COMMAND), words))


def _of_command(words: list[Token]) -> Iterator[Invocation]:
    command = _without_keywords(words)
    rest = list(dropwhile(_is_assignment, command))
    if not rest:
        return
    if len(rest) < len(command) and rest[0].is_keyword(_KEYWORDS):
        _refuse(_LATE_KEYWORD)
    is_loop = rest[0].is_keyword({"for"})
    if not (is_loop or rest[0].is_keyword(_AFTER_COMMAND)):
        yield from _of_program(rest, in_shell=True)
    # `for x do echo; done` needs no end of line before `do`.
    elif any(word.is_keyword({"do"}) for word in rest) or (len(rest) > 1 and not is_loop):
        _refuse(_UNREADABLE)
    elif len(rest) > 1:
        _check_name(rest[1].text)


def _is_assignment(word: Token) -> bool:
    found = _ASSIGNMENT.match(word.text)
    if found is None or 0 <= word.plain < found.end():
        return False
    _check_name(found[1])
    return True


def hides_programs(variable: str) -> bool:
    """Return whether an environment variable decides which programs or libraries are used."""
    return variable in _HIDING_VARIABLES or variable.startswith(("LD_", "BASH_FUNC_"))


def _check_name(variable: str) -> None:
    if hides_programs(variable):
        _refuse(f"it sets {variable}")


def _of_program(words: list[Token], *, in_shell: bool) -> Iterator[Invocation]:
    """Yield the program that is the first of some words, and those that it starts. `in_shell`: bash reads the words."""
    first, arguments = words[0], words[1:]
    name, base = first.text, first.text.rpartition("/")[2]
    if first.is_open:
        _refuse(f"the program `{name}` is a variable or a pattern")
    if "/" in name and not name.startswith("/"):
        _refuse(f"`{name}` is a file of the project, which may run other programs")
    if base in _HIDING:
        _refuse(f"it has `{base}`, which runs other programs")
    # Such as `read 'a[$(b)]'`: bash computes the index.
    is_computed = in_shell and name in (_BUILTINS | _SETTERS) - _PRINTERS
    if is_computed and any("$(" in word.text or "`" in word.text for word in arguments):
        _refuse(f"`{name}` has a command in quotes")
    if in_shell and name in _SETTERS:
        _check_setter(name, arguments)
    elif base in _PREFIXES:
        yield from () if name == "exec" else (Invocation(name),)
        yield from _of_prefix(base, arguments)
    elif not (in_shell and name in _BUILTINS):
        yield Invocation(name, tuple(arguments))


def _check_setter(name: str, arguments: list[Token]) -> None:
    """Refuse a command that sets the search path of programs, or a variable that is not known."""
    if name == "printf":
        if any(word.text.startswith("-v") for word in arguments[:1]):
            _refuse("it has `printf -v`")
        return
    for word in arguments:
        # Values are computed (-i), or name another variable (-n).
        if name != "read" and word.text.startswith(("-", "+")) and {"i", "n"} & set(word.text):
            _refuse(f"it has `{name} {word.text}`")
        # Quotes do not matter here: `export "PATH=x"` sets it too.
        found = _ASSIGNMENT.match(word.text)
        _check_name(word.text if found is None else found[1])
        if word.is_open and found is None:
            _refuse(f"`{name}` has a variable for a name")


def _of_prefix(name: str, arguments: list[Token]) -> Iterator[Invocation]:
    while name == "env" and arguments and "=" in arguments[0].text and not arguments[0].text.startswith("-"):
        _check_name(arguments[0].text.partition("=")[0])
        if "$" in arguments[0].text.partition("=")[0]:
            _refuse("`env` has a variable for a name")
        arguments = arguments[1:]
    if arguments and arguments[0].text.startswith("-"):
        _refuse(f"`{name}` has options")
    if arguments:
        yield from _of_program(arguments, in_shell=False)


# ---- words ------------------------------------------------------------------------------------


def _tokens(text: str) -> Iterator[Token]:
    """Yield the words and operators of a text for bash. Raises UnknownProgramsError: a sign could hide a program."""
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            token, at = _word(text, at)
            # The number of a descriptor: `2>file`.
            if not (token.plain < 0 and token.text.isdigit() and text[at : at + 1] in {"<", ">"}):
                yield token
            continue
        at = found.end()
        if found["refused"]:
            _refuse("it has a here-document" if found[0] == "<<" else f"it has `{found[0]}`")
        if not found["skipped"]:
            yield Token(found[0], kind="operator" if found["operator"] else "redirection")


def _word(text: str, at: int) -> tuple[Token, int]:
    """Return the word that begins at an index, and the index after it."""
    word, plain, is_open = "", -1, False
    while piece := _PIECE.match(text, at):
        kind = piece.lastgroup
        value = piece[kind or 0]
        at = piece.end()
        if kind == "sign":
            value = _expansion(text, piece.start())
            at = piece.start() + len(value)
        elif kind == "double":
            expanded = [_expansion(value, sign.start()) for sign in _IN_QUOTES.finditer(value) if not sign[1]]
            is_open = is_open or bool(expanded)
            value = _IN_QUOTES.sub(lambda sign: (sign[1] or sign[0]).strip("\n"), value)
        elif kind == "escaped":
            value = value.strip("\n")
        is_open = is_open or kind == "sign" or (kind == "plain" and not _PATTERN_SIGNS.isdisjoint(value))
        if plain < 0 and kind in {"single", "double", "escaped"} and piece[0] != "\\\n":
            plain = len(word)
        word += value
    if text.startswith(("'", '"'), at):
        _refuse(_OPEN_QUOTE)
    if text.startswith("\\", at):
        _refuse(_UNREADABLE)
    if text.startswith("(", at):
        _refuse("it has a function, an array or a pattern")
    # These are commands and keywords, not patterns.
    is_open = is_open and not (plain < 0 and word in {"[", "]", "[[", "]]", "{", "}"})
    return Token(word, is_open, plain), at


def _expansion(text: str, at: int) -> str:
    """Return the variable that is expanded at an index, or a dollar sign alone."""
    if text[at] == "`":
        _refuse("it has a backtick")
    if found := _VARIABLE.match(text, at):
        return found[0]
    if text.startswith(_EXPANSIONS, at):
        _refuse(f"it has `{text[at : at + 2]}`")
    return "$"


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
