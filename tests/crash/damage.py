"""A project with every kind of file that orch23 keeps, and the ways in which any one of them can be damaged."""

import os
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orch23.execute.sandbox_dir import SandboxDirs
from orch23.store.promotion import Promoter
from orch23.store.run_logs import JournalLine, journal_paths, read_journal
from orch23.store.safe_files import DirectoryCache, is_temp
from tests.crash.harness import timeless
from tests.e2e.pipelines import calls, green, pipeline, prompt, proposing
from tests.project import Project

GARBAGE = b'\x00\xff{"damaged": '
_KILLED = 137
_MINE = "# mine\n"


def story(project: Project) -> None:
    """Write a pipeline that has a stage of every kind, with and without transcripts, and a chain of two attempts."""
    again = proposing(
        "edit {{ item }}{% if brief %} again{% endif %}",
        {"app.py": "inputs['app.py'].text ~ ('# good ' if brief else '# bad ') ~ item ~ ' ' ~ inputs['said.txt'].text"},
    )
    project.write(
        pipeline(
            """\
  ask: {inputs: [spec.md], outputs: [said.txt], llm: {prompt: ask.md.j2, returns: text, transcripts: heard}}
  plan: {inputs: [spec.md], outputs: [list.json], llm: {prompt: list.md.j2, returns: json}}
  edit:
    foreach: {in: [one, two], order: sequential}
    inputs: [said.txt]
    outputs: [app.py]
    llm: {prompt: edit.md.j2, returns: files}
    retry: 1
    verify: [{shell: 'tail -1 app.py | grep -q good'}]
  turn:
    foreach: {from: "list.json#/names", as: name}
    outputs: ["out/${{ name }}.txt"]
    shell: [sh, -c, 'mkdir -p out; echo $0 > out/$0.txt; echo made $0', "${{ name }}"]
  page: {inputs: ["out/*.txt"], outputs: [page.txt], render: {template: page.j2}}
  join: {inputs: [page.txt, app.py], outputs: [all.txt], shell: 'cat page.txt app.py > all.txt'}
  test: {inputs: [test_it.py], outputs: [tests.json], pytest: {args: [-q], report: tests.json}}
""",
            {
                "spec.md": "red\n",
                "app.py": _MINE,
                "ask.md.j2": prompt("ask", "{{ inputs['spec.md'].text }}"),
                "list.md.j2": prompt("list", '{"names": ["{{ inputs[0].text | trim }}", "b"]}'),
                "edit.md.j2": again,
                "page.j2": "{% for one in inputs %}{{ one.text }}{% endfor %}",
                "test_it.py": "def test_it():\n    assert True\n",
            },
        )
    )


def interrupted(project: Project) -> None:
    """Build, edit the spec, and kill the next build in a promotion: sandbox directories and a redo record are left."""
    story(project)
    green(project.build("-j1"))
    project.edit("spec.md", "blue\n")
    assert _die_in_promotion_of(project, "out/blue.txt") == _KILLED
    assert (project.root / ".orch23/promote.json").exists()
    assert any((project.root / ".orch23/rooms").iterdir())


def _die_in_promotion_of(project: Project, path: str) -> int:
    """Build in a child that ends, as if killed, before it renames a file into place; return how it ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads: the child runs only what follows
        child = os.fork()
    if child == 0:
        code = 99
        try:
            real = Promoter._name

            def name(self: Promoter, places: DirectoryCache, at: str, *more: Any) -> bool:
                if at == path:
                    (self._root / "out/.orch23-1-1.tmp").write_text("half")
                    os._exit(_KILLED)
                return real(self, places, at, *more)

            setattr(Promoter, "_name", name)  # noqa: B010 - mypy refuses to assign to a method
            setattr(SandboxDirs, "discard", lambda *_: None)  # noqa: B010 - likewise
            code = project.build("-j1").code
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def bare(project: Project) -> None:
    """Take away what was made: what the store, the transcripts and the journals hold is all that there is."""
    for path in ("said.txt", "list.json", "page.txt", "all.txt", "tests.json", "pipeline.lock"):
        project.delete(path)
    shutil.rmtree(project.root / "out")
    project.edit("app.py", _MINE)


def kept_by_orch23(root: Path) -> list[str]:
    """Return the paths of all files that orch23 keeps for itself, and of those that it has people commit."""
    found = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*")) if path.is_file()]
    return [path for path in found if path.startswith((".orch23/", "logs/", "heard/")) or path == "pipeline.lock"]


def kind_of(path: str) -> str:
    """Return what a file is for: files of one kind are all of one form."""
    parts = path.split("/")
    if parts[0] != "logs":
        return "/".join(parts[:2]) if parts[0] == ".orch23" else parts[0]
    return "logs/" + ("journal" if path.endswith(".jsonl") else parts[-1])


# ---- damage -------------------------------------------------------------------------------------------


def _half(path: Path, other: Path) -> None:
    data = path.read_bytes()
    rewrite(path, data[: len(data) // 2])


def _empty(path: Path, other: Path) -> None:
    rewrite(path, b"")


def _bit(path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    data[len(data) // 2] ^= 4
    rewrite(path, bytes(data))


def _garbage(path: Path, other: Path) -> None:
    rewrite(path, path.read_bytes() + GARBAGE)


def _garbage_line(path: Path, other: Path) -> None:
    rewrite(path, path.read_bytes() + GARBAGE + b"\n")


def _first_line_lost(path: Path, other: Path) -> None:
    rewrite(path, path.read_bytes().partition(b"\n")[2])


def _other(path: Path, other: Path) -> None:
    rewrite(path, other.read_bytes())


def _gone(path: Path, other: Path) -> None:
    path.unlink()


def _folder(path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inner").write_text("inner\n")


def _link(path: Path, other: Path) -> None:
    outside = outside_of(path)
    outside.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(outside)


def _dangling(path: Path, other: Path) -> None:
    path.unlink()
    path.symlink_to(outside_of(path))


def _pipe(path: Path, other: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: Mapping[str, Callable[[Path, Path], None]] = {
    "half": _half,
    "empty": _empty,
    "bit": _bit,
    "garbage": _garbage,
    "garbage line": _garbage_line,
    "first line lost": _first_line_lost,
    "another's bytes": _other,
    "gone": _gone,
    "folder": _folder,
    "link": _link,
    "dangling link": _dangling,
    "pipe": _pipe,
}


def rewrite(path: Path, data: bytes) -> None:
    """Give a file other bytes, also where it is not to be written."""
    path.chmod(0o644)
    path.write_bytes(data)


def outside_of(path: Path) -> Path:
    """Return the file that a link leads to: far from every project."""
    return next(parent for parent in path.parents if parent.name == "project").parent / "outside.txt"


# ---- what must hold -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kept:
    """A project to be damaged, put back each time, and what a build makes of it where nothing is damaged.

    `released` are its files where neither the lock file nor a record says who made the output of a stage that ended:
    it is a person's then, and stays.
    """

    project: Project
    folder: Path
    files: Mapping[str, bytes]
    released: Mapping[str, bytes]
    calls: Counter[str]

    @classmethod
    def of(cls, project: Project) -> "Kept":
        """Keep a project as it is, and build it on."""
        folder = project.root.parent / "kept"
        shutil.copytree(project.root, folder, symlinks=True)
        kept = cls(project, folder, {}, {}, Counter())
        fresh = kept.restore()
        (fresh.root / "pipeline.lock").unlink(missing_ok=True)
        for record in (fresh.root / ".orch23/records").rglob("*"):
            if record.is_file() and b"turn@red" in record.read_bytes():
                record.unlink()
        green(fresh.build("-j1"))
        released = timeless(fresh.files())
        assert ("out/red.txt" in released) == (folder / "out/red.txt").exists()
        fresh = kept.restore()
        green(fresh.build("-j1"))
        return cls(project, folder, timeless(fresh.files()), released, Counter(calls(fresh)))

    def restore(self) -> Project:
        """Put it back."""
        shutil.rmtree(self.project.root, ignore_errors=True)
        shutil.copytree(self.folder, self.project.root, symlinks=True)
        for beside in (Path(f"{self.project.root}-calls.log"), self.project.root.parent / "outside.txt"):
            beside.unlink(missing_ok=True)
        return Project(self.project.root)

    def pairs(self) -> list[tuple[str, str]]:
        """Return every file with every damage."""
        return [(path, damage) for path in kept_by_orch23(self.folder) for damage in DAMAGES]

    def other_of(self, path: str) -> Path:
        """Return another file of the same kind with other bytes; where there is none, one of any kind."""
        here = (self.folder / path).read_bytes()
        files = kept_by_orch23(self.folder)
        files.sort(key=lambda one: (kind_of(one) != kind_of(path), one))
        return next(self.folder / one for one in files if (self.folder / one).read_bytes() != here)


READERS = (
    ("plan", "--json"),
    ("status",),
    ("explain", "edit@two"),
    ("runs",),
    ("log",),
    ("report", "-o", "-"),
    ("show", "ask"),
    ("show", "edit@two"),
    ("show", "ask", "--cost"),
    ("show", "edit@two", "--diff"),
)
_TOLD = {0, 3, 65, 66}
_WAYS_OUT = ("orch23 reset", "delete it", "move it away", "delete the file", "remove it")


_CLAIMS = {".orch23/records", "logs/journal"}
"""What says that outputs of an interrupted run are orch23's: the lock file does not know of them yet.

Where it is lost, they cannot be told from a person's edits: the build asks (6), names the flag that gives them up, and
that costs no answer.
"""


def faults(kept: Kept, path: str, damage: str) -> Iterator[str]:
    """Damage one file, look at the project, build it on, and say what does not hold.

    What only looks ends with a documented code and changes nothing. The build is green, or ends with 3 and a way out
    that works; where what is lost is all that claims an output, a person is asked. Then the files are those of an
    undisturbed build, no one was asked again for what is recorded, a further build runs nothing, and what a link leads
    to is as it was.
    """
    project = kept.restore()
    damaged = project.root / path
    DAMAGES[damage](damaged, kept.other_of(path))
    outside = outside_of(damaged)
    beyond = outside.read_bytes() if outside.exists() else None
    yield from _looking(project)
    built = project.build("-j1")
    if built.code == 3:
        yield from _follow(project, path, built.err)
        built = project.build("-j1")
    if built.code == 6 and kind_of(path) in _CLAIMS and "--overwrite-edited" in built.err:
        built = project.build("-j1", "--overwrite-edited")
    if built.code:
        yield f"the build ended with {built.code}\n{built.err}"
        return
    yield from _unlike(kept, project, path)
    green(project.build("-j1"))
    if ran := [line.event.role for line in read_journal(journal_paths(project.root / "logs")[0]) if _is_start(line)]:
        yield f"a further build still ran {ran}"
    if beyond != (outside.read_bytes() if outside.exists() else None):
        yield "it wrote through the link"


def _looking(project: Project) -> Iterator[str]:
    before = everything(project.root)
    for command in READERS:
        looked = project.run(*command)
        if looked.code not in _TOLD or "bug in orch23" in looked.err:
            yield f"{' '.join(command)} ended with {looked.code}\n{looked.err}"
        if everything(project.root) != before:
            yield f"{' '.join(command)} wrote {_differing(before, everything(project.root))}"
            before = everything(project.root)


def _unlike(kept: Kept, project: Project, path: str) -> Iterator[str]:
    found = _settled(timeless(project.files()), path)
    # Without its record, only the lock file says who made what an ended stage left: it stays, and a pattern reads it.
    lost = kind_of(path) == ".orch23/records" and "out/red.txt" in found
    wanted = _settled(kept.released if lost else kept.files, path)
    if found != wanted:
        yield f"other files: {_differing(found, wanted)}"
    if again := Counter(calls(project)) - kept.calls:
        yield f"asked again: {dict(again)}"


def _settled(files: Mapping[str, bytes], damaged: str) -> dict[str, bytes]:
    """Leave out a transcript that was damaged: it is written when its stage runs, and that may be fresh.

    A temporary file beside an output is left out too: without a redo record no one knows where to look for it.
    """
    heard = damaged.startswith("heard/")
    return {p: b for p, b in files.items() if not (heard and p.startswith(damaged)) and not is_temp(Path(p).name)}


def _is_start(line: JournalLine) -> bool:
    return line.event.type == "stage_started"


def _follow(project: Project, path: str, reported: str) -> Iterator[str]:
    """Do what the diagnostic says; it names the file, and a way out that is one of a few."""
    damaged = project.root / path
    ways = [way for way in _WAYS_OUT if way in reported]
    if not ways:
        yield f"no way out:\n{reported}"
    elif ways[0] == "orch23 reset":
        green(project.run("reset"))
    elif path not in reported:
        yield f"the file is not named:\n{reported}"
    elif damaged.is_dir() and not damaged.is_symlink():
        shutil.rmtree(damaged)
    else:
        damaged.unlink()


def everything(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Return all that is below a folder, with what a write would change even if it wrote the same."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[path.relative_to(root).as_posix()] = (status.st_ino, status.st_mtime_ns, status.st_mode, data)
    return found


def _differing(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
