"""Two users share a cache: a difference of their environments that changes a result keeps them from sharing it.

Each row of the table is a stage that reads something, and a difference. `a` builds the stage, with and without a
sandbox, `b` builds it with the difference and the cache of `a`, and `c` with the difference and without a cache: what
`c` has is the truth. A row with a phrase is one of the few that are not compared: the page on the shared cache has it.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/shared-cache.md").read_text()
LOCAL = "/usr/local/share/orch23-test.txt"
TOOL = "/usr/local/bin/orch23-test-tool"
PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments")
NO_SANDBOX = "from orch23.execute.sandbox import tier_selection as t; t._CHOSEN.append(t.TierChoice(None)); "
SHARES = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


class Row(NamedTuple):
    """A stage that runs `script`, with bash or as Python after `py:`, and what is different at `b`.

    `before` runs in a mount namespace of its own, where VENV, HOME and PROJECT are set; `wrap` starts orch23.
    """

    script: str
    found: Literal["hit", "miss"]
    wrap: str = ""
    before: str = ""
    env: Mapping[str, str] = {}
    keys: str = ""
    phrase: str = ""
    place: str = "project"


def cover(path: str, text: str) -> str:
    """Return a command that lets a file of the machine have another text, for this user only."""
    return f"printf '{text}' > $HOME/covered; mount --bind $HOME/covered {path}"


def overlay(folder: str, command: str) -> str:
    """Return a command that changes a folder of the machine, for this user only."""
    below = "mkdir -p $HOME/up $HOME/work; mount -t overlay o -o"
    return f"{below} lowerdir={folder},upperdir=$HOME/up,workdir=$HOME/work {folder}; {command}"


def limit(name: str) -> str:
    """Return a script that writes the soft and the hard limit of a resource."""
    return f"py:import resource; open('o.txt', 'w').write(str(resource.getrlimit(resource.RLIMIT_{name})))"


ARCHIVE = """py:
import tarfile
with tarfile.open("o.txt", "w") as file:
    file.add("src")
"""
STARTS = """py:
import shutil, subprocess
name = shutil.which("orch23-test-tool")
open("o.txt", "w").write(subprocess.check_output([name], text=True) if name else "none")
"""
PROGRAM = "printf '#!/bin/sh\\necho one\\n'"
NEW_PROGRAM = f"{PROGRAM} > PLACE; chmod 755 PLACE"

TEST = f"""def test_look():
    assert not __import__("os").path.exists("{LOCAL}")
"""
HIDDEN = """def test_look():
    assert not __import__("os").path.exists("/srv/x")
"""

ROWS: dict[str, Row] = {
    # ---- the terminal
    "umask": Row("umask > o.txt", "hit", "umask 077; "),
    "umask in an archive": Row(ARCHIVE, "hit", "umask 007; "),
    "umask and folders": Row("stat -c '%a %n' src src/inner src/inner/a.txt > o.txt", "hit", "umask 077; "),
    "open files, soft": Row(limit("NOFILE"), "hit", "ulimit -Sn 300; "),
    "open files, hard": Row(limit("NOFILE"), "miss", "ulimit -n 300; "),
    "stack": Row(limit("STACK"), "hit", "ulimit -Ss 4000; "),
    "processes": Row(limit("NPROC"), "hit", "ulimit -Su 9000; "),
    "pending signals": Row(limit("SIGPENDING"), "hit", "ulimit -Si 77; "),
    "locked memory": Row(limit("MEMLOCK"), "hit", "ulimit -Sl 77; "),
    "processor time": Row(limit("CPU"), "miss", "ulimit -t 1000; "),
    "ignored signals": Row(
        "py:import signal; open('o.txt', 'w').write(str(signal.getsignal(1)))", "hit", "trap '' HUP; "
    ),
    "PATH": Row(
        "py:import os; open('o.txt', 'w').write(os.environ['PATH'].partition(':')[2])",
        "hit",
        env={"PATH": f"/sbin:{os.defpath}"},
    ),
    "locale": Row(
        "py:import locale; open('o.txt', 'w').write(str(locale.setlocale(0, '')))", "hit", env={"LC_ALL": "C"}
    ),
    "time zone": Row("py:import time; open('o.txt', 'w').write(time.strftime('%Z'))", "hit", env={"TZ": "Asia/Tokyo"}),
    "variables": Row("echo ${CI-none} ${PYTHONPATH-none} > o.txt", "hit", env={"CI": "1", "PYTHONPATH": "/srv"}),
    "SOURCE_DATE_EPOCH": Row("echo $SOURCE_DATE_EPOCH > o.txt", "hit", env={"SOURCE_DATE_EPOCH": "5"}),
    "hash seed": Row("py:open('o.txt', 'w').write(str(hash('a')))", "hit", env={"PYTHONHASHSEED": "7"}),
    "terminal": Row("py:import os; open('o.txt', 'w').write(str(os.isatty(0)))", "hit", env={"TERM": "vt100"}),
    "priority": Row(
        "py:import os; open('o.txt', 'w').write(str(os.nice(0)))", "hit", "exec nice -n 7 ", phrase="priority"
    ),
    # ---- the user
    "HOME": Row("echo $HOME; ls -A ~ > o.txt", "hit", before="touch $HOME/of-b"),
    "user id": Row("id -u > o.txt; id -g >> o.txt", "hit", "exec unshare --user --map-user=4321 --map-group=4321 "),
    "user name": Row(
        "py:import getpass; open('o.txt', 'w').write(getpass.getuser())",
        "hit",
        before=cover("/etc/passwd", "b:x:0:0:b:/:/bin/sh\\n"),
    ),
    "owner in an archive": Row(ARCHIVE, "hit", "exec unshare --user --map-user=4321 --map-group=4321 "),
    "user site": Row(
        "py:import os, site; open('o.txt', 'w').write(str(os.path.isdir(site.getusersitepackages())))",
        "hit",
        before="mkdir -p $HOME/.local/lib/python3.11/site-packages",
    ),
    "pip's settings": Row(
        "cat ~/.config/pip/pip.conf > o.txt || echo none > o.txt",
        "hit",
        before="mkdir -p $HOME/.config/pip; echo x > $HOME/.config/pip/pip.conf",
    ),
    "git's settings": Row("cat ~/.gitconfig > o.txt || echo none > o.txt", "hit", before="echo x > $HOME/.gitconfig"),
    # ---- the machine
    "host name": Row(
        "py:import socket; open('o.txt', 'w').write(socket.gethostname())", "hit", "hostname b-host; exec ", before=""
    ),
    "hosts": Row("cat /etc/hosts > o.txt", "hit", before=cover("/etc/hosts", "9.9.9.9 b\\n")),
    "accounts": Row("cat /etc/passwd /etc/group > o.txt", "hit", before=cover("/etc/group", "b:x:0:\\n")),
    "machine id": Row(
        "cat /etc/machine-id /etc/hostname > o.txt || echo none > o.txt",
        "hit",
        before=overlay("/etc", "echo b > /etc/machine-id; echo b > /etc/hostname"),
    ),
    "other settings": Row(
        "ls /etc/orch23-test > o.txt || echo none > o.txt", "hit", before=overlay("/etc", "touch /etc/orch23-test")
    ),
    "fonts": Row(
        "ls /etc/fonts > o.txt || echo none > o.txt",
        "hit",
        before=overlay("/etc", "mkdir -p /etc/fonts; touch /etc/fonts/b.conf"),
        phrase="settings of the system in `/etc`",
    ),
    "version of the system": Row(
        "echo x > o.txt", "miss", before=cover("/etc/os-release", "ID=other\\nVERSION_ID=9\\n")
    ),
    "processors": Row("nproc > o.txt", "hit", "exec taskset -c 0 ", phrase="the number of processors and their model"),
    "clock": Row("date +%N > o.txt", "hit", phrase="the time"),
    "/tmp": Row("ls -A /var/tmp > o.txt", "hit", before="mount -t tmpfs t /var/tmp; touch /var/tmp/of-b"),
    "/opt and /srv": Row(
        "ls -A /opt /srv > o.txt 2>&1 || echo none > o.txt",
        "hit",
        before="mount -t tmpfs t /opt; mkdir /opt/b; mount -t tmpfs t /srv; touch /srv/b",
    ),
    "size of a file system": Row(
        "py:import os; open('o.txt', 'w').write(str(os.statvfs('/tmp').f_blocks))",
        "hit",
        before="mount -t tmpfs -o size=9m t /var/tmp",
    ),
    # ---- files of no package
    "/usr/local/share": Row(
        f"cat {LOCAL} > o.txt || echo none > o.txt", "miss", before=overlay("/usr/local/share", f"echo two > {LOCAL}")
    ),
    "a list of /usr/local/bin": Row(
        "ls /usr/local/bin > o.txt", "miss", before=overlay("/usr/local/bin", f"touch {TOOL}")
    ),
    "an empty folder of /usr/local": Row(
        "ls /usr/local/etc > o.txt", "miss", before=overlay("/usr/local/etc", "mkdir /usr/local/etc/b")
    ),
    "a link in /usr/local": Row(
        "ls /usr/local/etc > o.txt", "miss", before=overlay("/usr/local/etc", "ln -s b /usr/local/etc/c")
    ),
    "a mode in /usr/local": Row(
        "stat -c %a /usr/local/etc/* > o.txt || echo none > o.txt",
        "miss",
        before=overlay("/usr/local/etc", "touch /usr/local/etc/b; chmod 600 /usr/local/etc/b"),
    ),
    "a large file in /usr/local": Row(
        "ls -l /usr/local/etc > o.txt", "miss", before=overlay("/usr/local/etc", "truncate -s 1M /usr/local/etc/b")
    ),
    "a program that Python starts": Row(
        STARTS, "miss", before=overlay("/usr/local/bin", NEW_PROGRAM.replace("PLACE", TOOL))
    ),
    "a program beside Python": Row(STARTS, "miss", before=NEW_PROGRAM.replace("PLACE", "$VENV/bin/orch23-test-tool")),
    "a file of /usr/share": Row(
        "cat /usr/share/orch23-test > o.txt || echo none > o.txt",
        "hit",
        before=overlay("/usr/share", "echo b > /usr/share/orch23-test"),
        phrase="files of system packages",
    ),
    "bytes of a tool": Row(
        "cut -c 1 in.txt > o.txt",
        "miss",
        before="cp /usr/bin/cut $HOME/cut; echo x >> $HOME/cut; mount --bind $HOME/cut /usr/bin/cut",
    ),
    # ---- Python
    "a package's version": Row(
        "py:open('o.txt', 'w').write('x')",
        "miss",
        before="cd $VENV/lib/python*/site-packages; echo x,, >> pluggy-*.dist-info/RECORD",
    ),
    "a package without a record": Row(
        "py:open('o.txt', 'w').write('x')",
        "miss",
        before="mkdir $VENV/lib/python3.11/site-packages/loose; touch $VENV/lib/python3.11/site-packages/loose/a.py",
    ),
    "a module without a record": Row(
        "py:open('o.txt', 'w').write('x')", "miss", before="touch $VENV/lib/python3.11/site-packages/loose.py"
    ),
    "a package in editable mode": Row(
        "py:open('o.txt', 'w').write('x')", "miss", before="echo /srv > $VENV/lib/python3.11/site-packages/edit.pth"
    ),
    "a build of Python": Row(
        "py:open('o.txt', 'w').write('x')",
        "miss",
        before="cp --remove-destination $(realpath $VENV/bin/python) $VENV/bin/python; echo x >> $VENV/bin/python",
    ),
    # ---- the project
    "depth of the folder": Row("pwd > o.txt", "hit", place="deep/er/and/deeper/project"),
    "a linked project": Row("pwd > o.txt", "hit", before="mv $PROJECT $PROJECT-real; ln -s $PROJECT-real $PROJECT"),
    "times of inputs": Row("stat -c %Y in.txt > o.txt", "hit", before="touch -d 2001-01-01 $PROJECT/in.txt"),
    # ---- tests
    "a test of /usr/local": Row(TEST, "miss", before=overlay("/usr/local/share", f"echo two > {LOCAL}")),
    "a test of a hidden file": Row(HIDDEN, "hit", before="mount -t tmpfs t /srv; touch /srv/x"),
    "pytest's version": Row(
        TEST, "miss", before="cd $VENV/lib/python*/site-packages; echo x,, >> pytest-*.dist-info/RECORD"
    ),
    "no sandbox": Row(
        "cat /srv/x > o.txt || echo none > o.txt",
        "miss",
        keys='sandbox: "off", ',
        before="mount -t tmpfs t /srv; echo b > /srv/x",
    ),
}


class Users:
    """The users of one row: each has a home and a checkout, and a virtual environment."""

    def __init__(self, folder: Path, venv: Path, row: Row) -> None:
        self.folder, self.venv, self.row = folder, venv, row

    def build(self, user: str, *options: str, differs: bool = False, sandbox: bool = True) -> tuple[str, bytes]:
        """Build as a user; return what orch23 printed, and the output, or the kind of a failure."""
        home, row = self.folder / user, self.row
        before, wrap, place = (row.before, row.wrap, row.place) if differs else ("", "", "project")
        venv, project = self.venv, home / place
        project.mkdir(parents=True)
        if "$VENV" in before:
            venv = shutil.copytree(self.venv, home / "venv", symlinks=True)
        self.checkout(project)
        start = (sys.executable, "-c", f"{'' if sandbox else NO_SANDBOX}from orch23.entry import run; exit(run())")
        allow = [] if sandbox and not row.keys else ["--allow-unsandboxed"]
        lines = [
            "mount --make-rprivate /",
            before,
            "cd $PROJECT",
            wrap + shlex.join([*start, "build", *options, *allow]),
        ]
        done = subprocess.run(
            ["unshare", "--mount", "--uts", "bash", "-ec", "\n".join(lines)],
            env={
                "PATH": os.defpath,
                "PYTHONDONTWRITEBYTECODE": "1",
                **(row.env if differs else {}),
                "PROJECT": str(project),
                "HOME": str(home),
                "XDG_STATE_HOME": str(home),
                "ORCH23_TRUST": "1",
                **dict.fromkeys(("VENV", "VIRTUAL_ENV"), str(venv)),
            },
            capture_output=True,
            check=False,
        )
        printed = (done.stdout + done.stderr).decode()
        output = project / "o.txt"
        assert " 1 stage: " in printed, printed
        return printed, output.read_bytes() if output.exists() else b"failed" if done.returncode else b"passed"

    def checkout(self, project: Path) -> None:
        row = self.row
        script = row.script.removeprefix("py:").lstrip()
        for path, text in {"src/inner/a.txt": "a", "in.txt": "in\n", "look.py": script, "test_look.py": script}.items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text)
        inputs = "inputs: [in.txt, look.py, src/inner/a.txt, test_look.py]"
        quoted = script.replace("'", "''")
        runs = "[python, look.py]" if row.script.startswith("py:") else f"'{quoted}'"
        body = f"outputs: [o.txt], tools: [sh, cat, ls, stat, nproc, id, date], shell: {runs}"
        body = "pytest: [test_look.py]" if row.script.startswith("def test") else body
        text = f"version: 1\nname: x\nstages:\n  a: {{{inputs}, {row.keys}{body}}}\n"
        (project / "pipeline.yaml").write_text(text)


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment whose packages have records."""
    made = tmp_path_factory.mktemp("venv") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    own = Path(pytest.__file__).parents[1]
    site = next(made.glob("lib/python*/site-packages"))
    for name in PACKAGES:
        shutil.copytree(own / name, site / name)
        for info in own.glob(f"{name}-*.dist-info"):
            shutil.copytree(info, site / info.name)
    shutil.copy(own / "py.py", site / "py.py")
    return made


@pytest.fixture
def users(request: pytest.FixtureRequest, tmp_path: Path, venv: Path) -> Users:
    if not SHARES:
        pytest.skip("needs root, to have a mount namespace")
    return Users(tmp_path, venv, request.param)


@pytest.mark.stride(43)
@pytest.mark.parametrize("users", ROWS.values(), ids=ROWS, indirect=True)
def test_a_difference_is_seen_or_has_no_effect_or_is_documented(users: Users) -> None:
    row, cache, of_none = users.row, str(users.folder / "cache"), str(users.folder / "cache-of-none")
    said, first = users.build("a", "--cache", cache)
    users.build("a-none", "--cache", of_none, sandbox=False)
    with_cache = users.build("b", "--cache", cache, differs=True)
    without_sandbox = users.build("b-none", "--cache", of_none, differs=True)
    truth = users.build("c", differs=True)[1]
    is_hit = "restored" in with_cache[0] or "fresh" in with_cache[0]
    assert ("hit" if is_hit else "miss") == row.found, (said, with_cache[0])
    assert "restored" not in without_sandbox[0]
    if row.phrase:
        assert row.phrase in PAGE
    else:
        assert (with_cache[1], without_sandbox[1]) == (truth, truth), first
