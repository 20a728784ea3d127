"""The programs of a command: all that bash would start, or an error that says why they are not known."""

import shutil
import subprocess
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.features.cache.shell_programs import Invocation, Token, UnknownProgramsError, programs_in


def found(command) -> set[str]:
    return {one.name for one in programs_in(command)}


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("", ""),
        ("# nothing", ""),
        ("gcc -o a a.c", "gcc"),
        ("/usr/bin/gcc a.c", "/usr/bin/gcc"),
        ("sort a | uniq -c|head", "sort uniq head"),
        ("a && b || c; d & e", "a b c d e"),
        ("a\nb\n\n# c\nd # e; f\ng#h i", "a b d g#h"),
        ("a \\\n  b\nc", "a c"),
        ("X=1 Y='a b' make all", "make"),
        ("X=1", ""),
        ("a >out 2>err <in b", "a"),
        ("2>err a", "a"),
        ("a >out; b &>all | c 2>&1 | d", "a b c d"),
        ("a >|x <<< word >>log", "a"),
        (">empty", ""),
        ("(a; b) && { c; d; }", "a b c d"),
        ("if a; then b; elif c; then d; else e; fi", "a b c d e"),
        ("while a; do b; done | c", "a b c"),
        ("for x in p q; do a $x; done", "a"),
        ("until ! a; do b; done", "a b"),
        ("! a | b", "a b"),
        ("[ -f x ] && a", "a"),
        ("[[ -f x && -n $y || p < q ]] && a", "a"),
        ("test -f x; true; cd d && echo a | b", "b"),
        ("export A=1 B; set -x; read -r line; local z=$1; unset A", ""),
        ("printf '%s' x | a", "a"),
        ("exec a b", "a"),
        ("env A=1 B=$x a b", "env a"),
        ("nohup a b &", "nohup a"),
        ("env echo x", "env echo"),
        ('\'a b\' "c" d"e"', "a b"),
        ("a 'x; y' \"p && q | r\" \\; z", "a"),
        ("a '$(b)' '`c`' \\$\\(", "a"),
        ('a "$x" ${y} ${z:-w} $1 $# "$?"', "a"),
        ('a "5$" $', "a"),
        ("python -m pytest && python3 x.py", "python python3"),
        ("find . -name '*.py' -print", "find"),
        ("'if' x", "if"),
        ("ls | xargs a; exec sh -c b", "ls xargs sh"),
        ("[[ -f x && a == b ]] && read -r line && printf '$(x)'", ""),
    ],
)
def test_every_program_is_named(text, programs) -> None:
    assert found(text) == ({programs} if text.startswith("'a b'") else set(programs.split()))


@pytest.mark.parametrize(
    "text",
    [
        "a $(b)",
        'a "$(b)"',
        "a `b`",
        'a "`b`"',
        'a "`"',
        'a *"$(b)"',
        'a $x"`b`"',
        'a "$x$(b)"',
        'a "$$$(b)"',
        "a <(b)",
        "a >(b)",
        "cat <<EOF\nb\nEOF",
        "cat <<-EOF\nb\nEOF",
        "echo $((1 + 2))",
        "((x = 1))",
        "$X a",
        '"$X" a',
        "${X} a",
        "a$X",
        "X=1 $Y",
        "l* a",
        "{a,b} c",
        "eval a",
        "source x",
        ". x",
        "trap a EXIT",
        "alias a=b",
        "command a",
        "builtin eval a",
        "env -i a",
        "env -S 'a b'",
        "env PATH=x a",
        "env $X a",
        "exec -a x a",
        "PATH=x a",
        "LD_PRELOAD=x.so a",
        "env LD_LIBRARY_PATH=x a",
        "set -x; PS4='$(b)'; a",
        "read 'x[$(b)]'",
        "unset 'x[`b`]'",
        "test -v 'x[$(b)]'",
        "X='x[$(b)]'; [[ X -eq 1 ]]",
        "[[ -v 'x[$(b)]' ]]",
        "declare -i X='y[$(b)]'",
        "local -n X=PATH",
        "PATH+=:x a",
        "BASH_ENV=x a",
        "export PATH=x",
        'export "PATH=x"',
        "export PATH",
        "read PATH",
        "declare $X",
        "export $X=1",
        "printf -v PATH x",
        "for PATH in x; do a; done",
        "for x do a; done",
        "f() { a; }",
        "function f { a; }",
        "case x in y) a;; esac",
        "a=(x y)",
        "./a",
        "tools/a",
        "~/a",
        "a; ./b",
        "a 'open",
        'a "open',
        "[[ a",
        "a $'x'",
        'a $"x"',
        "a ${x//;/ b}",
        "a ${x:-$(b)}",
        "coproc a",
        "done a",
        "a >",
        "a > | b",
        "a () { b; }",
        "a | time b",
        "A=1 if",
        "> f for",
        "> f [[ a",
        "a \\",
    ],
)
def test_a_text_that_may_hide_a_program_is_refused(text) -> None:
    with pytest.raises(UnknownProgramsError) as error:
        programs_in(text)
    assert str(error.value)


def test_an_argv_is_one_program_that_no_shell_reads() -> None:
    assert programs_in(["gcc", "$(x)", "a;b"]) == (Invocation("gcc", (Token("$(x)"), Token("a;b"))),)
    assert found(["echo", "x"]) == {"echo"}, "a program, not the command of bash"
    assert found(["env", "A=1", "gcc"]) == {"env", "gcc"}
    for argv in (["eval", "a"], ["./a"], ["env", "PATH=x", "a"]):
        with pytest.raises(UnknownProgramsError):
            programs_in(argv)


def test_arguments_show_whether_a_variable_or_a_pattern_decides_them() -> None:
    (called,) = programs_in("sort -k 1 '*.txt' *.txt \"$x\"")
    assert [one.text for one in called.arguments if one.is_open] == ["*.txt", "$x"]
    assert [one.text for one in called.arguments] == ["-k", "1", "*.txt", "*.txt", "$x"]


NAMES = st.sampled_from(["alpha", "beta", "gamma"])
WORDS = st.sampled_from(["x", "'y z'", '"p;q"', "\\;", "$v", "a#b", "'#'", '"$v"', "-o", "> f", "2>&1", "'\n'"])
COMMANDS = st.recursive(
    st.builds(lambda name, words: " ".join([name, *words]), NAMES, st.lists(WORDS, max_size=3)),
    lambda below: st.one_of(
        st.builds(
            lambda a, sign, b: f"{a}{sign}{b}", below, st.sampled_from([" | ", " && ", "; ", "\n", " # c;d\n"]), below
        ),
        st.builds("if {}; then {}; fi".format, below, below),
        st.builds("( {} )".format, below),
        st.builds("{{ {}; }}".format, below),
        st.builds("for i in alpha beta; do {}; done".format, below),
        st.builds("V=beta {}".format, st.builds(lambda name: name, NAMES)),
        st.builds("[[ -n beta && x ]] || {}".format, below),
        st.builds("echo beta; {}".format, below),
    ),
    max_leaves=5,
)


@given(COMMANDS)
def test_the_programs_of_a_nested_text_are_those_that_it_was_made_of(text: str) -> None:
    made_of = {name for name in ("alpha", "beta", "gamma") if name in _commands_only(text)}
    assert found(text) == made_of


def _commands_only(text: str) -> str:
    for other in ("for i in alpha beta", "V=beta ", "[[ -n beta && x ]]", "echo beta"):
        text = text.replace(other, " ")
    return text


@pytest.mark.slow
@given(st.text("abdo ;|&\n'\"\\$#(){}<>=`", max_size=14))
def test_bash_starts_no_other_program_than_those_that_were_found(text: str) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    try:
        known = found(text)
    except UnknownProgramsError:
        return
    # bash calls this function for each program that it does not find; none exists here.
    script = f'command_not_found_handle() {{ printf "%s\\0" "$1" >&9; }}\n{text}'
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as called:
        subprocess.run(
            [bash, "--noprofile", "--norc", "-c", f"exec 9>&{called.fileno()}\n{script}"],
            cwd=folder,
            env={"PATH": "/nowhere", "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
            pass_fds=(called.fileno(),),
        )
        called.seek(0)
        ran = {name.decode() for name in called.read().split(b"\0")}
    assert ran <= known | {""}, (text, ran)
