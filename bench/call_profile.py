"""Count the Python calls and the system calls of commands, part by part, for orch23 and for the floor.

`python -m bench.call_profile` prints the tables: per stage of a first build (`sort`, `cat`), and for an edit of a leaf,
of one line of `inputs`, and of one file beside many inputs. It needs `strace`. Counts do not depend on what else the
machine does. Commands of stages are not counted, and Python calls only in the main process. `import` is the import
system, `libraries` are the standard library and packages.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from bench import many_inputs
from bench.environments import cache_folder
from bench.graph import Graph, make_graph
from bench.project import Project
from bench.scenarios import EDITED_INPUTS, LEAF, Scenario
from bench.table import markdown
from bench.tool import Tool
from bench.tools.floor import FLOOR, START
from bench.tools.orch23 import TRUSTED

FIRST_SIZES = (100, 300)
STAGES, FILES = 10_000, 20_000
ORCH23_START = "from orch23.entry import run; run()"
COUNTER = """\
import json, os, sys, threading
from collections import Counter
report, start, calls, end = sys.argv[1], sys.argv[2], Counter(), os._exit
def count(frame, event, _):
    if event == "call":
        calls[frame.f_code.co_filename] += 1
def leave(code):
    sys.setprofile(None)
    with open(report, "w") as file:
        json.dump(calls, file)
    end(code)
os._exit, sys.argv[1:] = leave, sys.argv[3:]
threading.setprofile(count)
sys.setprofile(count)
exec(compile(start, "<start>", "exec"))
leave(0)
"""
_KINDS = {
    "status of files": "stat lstat fstat newfstatat statx access faccessat faccessat2 readlink readlinkat statfs "
    "fstatfs",
    "opened and closed": "open openat close dup dup2 dup3 fcntl",
    "read": "read pread64 readv lseek mmap getdents64 getdents copy_file_range sendfile splice",
    "written": "write pwrite64 writev ftruncate fallocate fsync fdatasync sync syncfs",
    "names: created, renamed, removed": "mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat "
    "symlink symlinkat chmod fchmod fchmodat utimensat chdir fchdir flock ioctl",
    "processes, locks and waiting": "fork vfork clone clone3 execve wait4 waitid exit exit_group poll ppoll select "
    "pselect6 epoll_wait epoll_ctl epoll_create1 pipe pipe2 kill futex prctl setsid setpgid rt_sigaction "
    "rt_sigprocmask rt_sigreturn socketpair sendmsg recvmsg sendto recvfrom pidfd_open "
    "pidfd_send_signal gettid getpid getppid",
    "memory": "brk munmap mremap mprotect madvise",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
_CALL = re.compile(r"(?:\[pid +\d+\] )?(\w+)\(")

# ---- counting -------------------------------------------------------------------------------------------


def _environment(home: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "ORCH23_ALLOW_UNSANDBOXED": "1"}


def _run(argv: Iterable[str], root: Path) -> None:
    done = subprocess.run([*argv], cwd=root, env=_environment(root.parent), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = f"exit status {done.returncode}: {done.stderr[-400:]}"
        raise SystemExit(message)


def python_calls(start: str, arguments: Iterable[str], root: Path) -> Counter[str]:
    """Run a program under a profile; return its calls by package of orch23, or by what else they are of."""
    report = root.parent / "calls.json"
    _run((sys.executable, "-c", COUNTER, str(report), start, *arguments), root)
    found: Counter[str] = Counter()
    for file, calls in json.loads(report.read_text(encoding="utf-8")).items():
        found[_part(file)] += calls
    return found


def _part(file: str) -> str:
    _, inside, rest = file.rpartition("/orch23/")
    if inside and "site-packages" not in rest:
        return f"`{rest.partition('/')[0].removesuffix('.py')}`"
    if "/bench/floor" in file:
        return "the floor"
    if file.startswith("<frozen importlib"):
        return "import"
    return "libraries"


def system_calls(start: str, arguments: Iterable[str], root: Path) -> Counter[str]:
    """Run a program under `strace`; return its system calls by kind. Commands of stages are left out."""
    with tempfile.TemporaryDirectory(dir=root.parent) as name:
        strace = ("strace", "-f", "-ff", "-qq", "-s", "0", "-o", f"{name}/of")
        _run((*strace, sys.executable, "-c", start, *arguments), root)
        found: Counter[str] = Counter()
        for place, file in enumerate(sorted(Path(name).iterdir(), key=_number)):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                call = _CALL.match(line)
                if call is None:
                    continue
                found[_KIND_OF.get(call[1], "other")] += 1
                if place > 0 and call[1] == "execve" and line.endswith(" = 0"):
                    break  # from here on it is the command of a stage
    return found


def _number(file: Path) -> int:
    return int(file.suffix[1:])


# ---- what is counted ------------------------------------------------------------------------------------

Count = Callable[[str, Iterable[str], Path], Counter[str]]
Program = tuple[str, Tool, str, tuple[str, ...]]
PROGRAMS: tuple[Program, ...] = (
    ("orch23", TRUSTED, ORCH23_START, ("build", "pipeline.yaml", "-j1")),
    ("floor", FLOOR, START, ("build",)),
)


def first_build(program: Program, count: Count, *, cat: bool) -> Mapping[str, float]:
    """Return the calls that a stage adds to a first build: the difference of two sizes."""
    _, tool, start, arguments = program
    found = []
    for size in FIRST_SIZES:
        with _folder() as name:
            _placed(Path(name, "p"), tool, make_graph(size, cat=cat))
            found.append(count(start, arguments, Path(name, "p")))
    few, many = found
    return {part: (many[part] - few[part]) / (FIRST_SIZES[1] - FIRST_SIZES[0]) for part in many}


def edit(program: Program, count: Count, scenario: Scenario) -> Mapping[str, float]:
    """Return the calls of a build after an edit."""
    _, tool, start, arguments = program
    with _folder() as name:
        project = _placed(Path(name, "p"), tool, make_graph(STAGES))
        command = (sys.executable, "-c", start, *arguments)
        for number in range(2):  # the second edit is of a settled project, as in the bench
            _run(command, project.root)
            scenario.prepare(project, number)
        return count(start, arguments, project.root)


def edit_beside_many(program: Program, count: Count) -> Mapping[str, float]:
    """Return the calls of a build after an edit of one of many inputs, without a sandbox."""
    _, _, start, arguments = program
    with _folder() as name:
        root = Path(name, "p")
        many_inputs.write_files(root, FILES)
        for number in range(2):
            many_inputs.write_edit(root, many_inputs.EDITED, number, sandbox="off")
            _run((sys.executable, "-c", start, *arguments), root)
        many_inputs.write_edit(root, many_inputs.EDITED, 2, sandbox="off")
        return count(start, arguments, root)


def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder on disk: in memory, large folders of inputs are copied for each attempt."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="calls-", dir=cache_folder())


def _placed(root: Path, tool: Tool, graph: Graph) -> Project:
    project = Project(root, graph, tool.describe)
    project.place_()
    return project


CASES: Mapping[str, Callable[[Program, Count], Mapping[str, float]]] = {
    "a stage of a first build, `sort`": lambda program, count: first_build(program, count, cat=False),
    "a stage of a first build, `cat`": lambda program, count: first_build(program, count, cat=True),
    f"one leaf edited, {STAGES:,} stages": lambda program, count: edit(program, count, LEAF),
    f"one line of `inputs` edited, {STAGES:,} stages": lambda program, count: edit(program, count, EDITED_INPUTS),
    f"one other file edited, {FILES:,} unchanged input files": edit_beside_many,
}


def main() -> int:
    """Count, and print a table for each kind of calls: orch23 : floor."""
    for what, count in (("Python calls", python_calls), ("System calls", system_calls)):
        columns = [[measure(program, count) for program in PROGRAMS] for measure in CASES.values()]
        parts = sorted({part for programs in columns for one in programs for part in one})
        rows = [[part, *(_cell([one.get(part, 0) for one in programs]) for programs in columns)] for part in parts]
        rows.append(["**all**", *(_cell([sum(one.values()) for one in programs]) for programs in columns)])
        print(markdown([what, *CASES], rows) + "\n", flush=True)
    return 0


def _cell(numbers: Iterable[float]) -> str:
    return " : ".join(f"{number:,.0f}" if round(number) else "-" for number in numbers)


if __name__ == "__main__":
    raise SystemExit(main())
