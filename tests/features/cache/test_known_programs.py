"""Programs that may start others: by rule all that are not known to start none, or that the stage does not list."""

import re
import shutil
from pathlib import Path

import pytest

from orch23.features.cache import shell_programs
from orch23.features.cache.shell_programs import programs_in, starting_fault

RUNS = "runs other programs; list it and them in `tools`"
MAY = "may start other programs"


def faults(command, *tools: str) -> list[str]:
    """Return the faults of a command whose programs are binaries, except Python."""
    found = (
        starting_fault(one, tools, is_python=one.name.startswith("python"), is_script=False)
        for one in programs_in(command)
    )
    return [why for why in found if why is not None]


# ---- programs that run others -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("make -s o", "make"),
        ("gmake", "gmake"),
        ("prlimit --nofile=100 TOOL > p", "prlimit"),
        ("setpriv --reuid 1 TOOL", "setpriv"),
        ("linux64 date", "linux64"),
        ("setarch -R TOOL", "setarch"),
        ("run-parts .", "run-parts"),
        ("/lib64/ld-linux-x86-64.so.2 /usr/bin/env TOOL", "/lib64/ld-linux-x86-64.so.2"),
        ("/lib/ld-musl-x86_64.so.1 TOOL", "/lib/ld-musl-x86_64.so.1"),
        ("ls | xargs TOOL", "xargs"),
        ("timeout 5 TOOL", "timeout"),
        ("nohup nice TOOL", "nice"),
        ("env A=1 stdbuf -oL TOOL", "stdbuf"),
        ("sh x.sh", "sh"),
        ("exec bash -c TOOL", "bash"),
        ("/bin/bash -c TOOL", "/bin/bash"),
        ("busybox sh", "busybox"),
        ("sudo TOOL", "sudo"),
        ("npm run x", "npm"),
        ("mvn package", "mvn"),
        ("cargo build", "cargo"),
        ("cmake --build .", "cmake"),
        ("tox", "tox"),
        ("gcc -o a a.c", "gcc"),
        ("gcc-12 -o a a.c", "gcc-12"),
        ("clang++-16.0 a.c", "clang++-16.0"),
        ("x86_64-linux-gnu-gcc-12 a.c", "x86_64-linux-gnu-gcc-12"),
        ("rustc a.rs", "rustc"),
        ("sort a | docker run x", "docker"),
    ],
)
def test_programs_that_always_run_others_are_not_shared(command: str, program: str) -> None:
    assert faults(command) == [f"`{program}` {RUNS}"]
    assert faults(command, program) == [f"`{program}` runs other programs, and `tools` lists none of them"]
    assert faults(command, program, "TOOL") == []


@pytest.mark.parametrize(
    "command",
    [
        "git -c alias.x='!TOOL' x",
        "tar --to-command=TOOL -xf a.tar",
        "tar xzf a.tgz",
        "perl -e 'system(q(TOOL))'",
        "node x.js",
        "ruby x.rb",
        "php x.php",
        "java -jar x.jar",
        "Rscript x.R",
        "lua x.lua",
        "pandoc -o a.pdf a.md",
        "unknown-program x",
        "awk 'BEGIN { system(\"TOOL\") }'",
        "awk '{ print $1 }' a",
        "gawk -F: 1 a",
        "sed '1e TOOL' a",
        "sed s/a/b/ a",
        "sed --sandbox -n 5p a",
        "sort --compress-program=gzip a",
        "sort --comp gzip a",
        "sort a --compress-program gzip",
        "sort $X",
        'sort "${X}"',
        "sort {--compress-program=gzip,a}",
        "sort [-]-compress-program=gzip",
        "split --filter=date a",
        "split --fi date a",
        "diff -l a b",
        "diff -ul a b",
        "diff --paginate a b",
        "find . -exec TOOL ;",
        "find . -name x -execdir TOOL +",
        "find . -ok TOOL ;",
        "find . -okdir TOOL ;",
        "find . $X",
        "install -s a b",
        "rsync -e ssh a b:",
        "zip -T a.zip a",
        "patch -p1",
        "iconv a",
        "ed a",
        "m4 a",
        "curl x",
        "less a",
        "vi a",
        "egrep x",
    ],
)
def test_programs_that_may_start_others_are_not_shared_unless_tools_list_them(command: str) -> None:
    (why,) = faults(command)
    assert MAY in why
    assert "in `tools`" in why
    (called,) = programs_in(command)
    assert faults(command, called.name) == []


@pytest.mark.parametrize(
    "command",
    [
        "cat a | tr a b > c; wc -l < c",
        "python3 -c 'import subprocess'",
        "python x.py",
        "sort -u -k1,1 *.txt x-*.txt a/*",
        "sort --check a",
        "split -l 10 --additional-suffix=x a",
        "diff -u --label x a b",
        "find . -name '*.py' -print",
        "env LC_ALL=C nohup sort a",
        "printf x | grep -c x | head -1",
        "jq . a.json > b.json",
        "gzip -9 a; sha256sum a.gz",
        "/usr/bin/sort a",
    ],
)
def test_programs_that_start_no_other_are_shared(command: str) -> None:
    assert faults(command) == []


def test_tools_that_lack_a_program_of_the_command_do_not_share_it() -> None:
    assert faults("fetch-it x | sort", "sort") == ["`fetch-it` may start other programs; list it and them in `tools`"]


def test_a_script_is_known_only_if_python_runs_it() -> None:
    (called,) = programs_in("sort a")
    assert starting_fault(called, (), is_python=False, is_script=True) is not None
    assert starting_fault(called, (), is_python=True, is_script=False) is None
    (called,) = programs_in("snakemake")
    assert starting_fault(called, (), is_python=True, is_script=False) is not None, "its purpose is to run others"


# ---- the list ---------------------------------------------------------------------------------------

# Names in the table of symbols of a program that it needs to start another one.
STARTING = re.compile(rb"\0(?:exec[vl][pe]{0,2}|execvpe|posix_spawnp?|popen|system)\0")
RUN_THEIR_ARGUMENTS = {"env", "nohup"}


@pytest.mark.parametrize("name", sorted(shell_programs._STARTS_NONE))
def test_no_program_of_the_list_can_start_another_one(name: str) -> None:
    path = shutil.which(name, path="/usr/bin:/bin")
    if path is None:
        pytest.skip(f"{name} is not installed")
    real = Path(path).resolve()
    if not real.name.endswith(name):
        pytest.skip(f"{name} is a part of {real.name}")
    data = real.read_bytes()
    assert data.startswith(b"\x7fELF")
    assert (STARTING.search(data) is not None) == (name in RUN_THEIR_ARGUMENTS)


def test_the_two_lists_have_no_program_in_common() -> None:
    lists = shell_programs._STARTS_NONE, shell_programs._RUNS_OTHERS, frozenset(shell_programs._STARTING_OPTIONS)
    assert len(frozenset().union(*lists)) == sum(map(len, lists))
