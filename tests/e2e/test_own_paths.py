"""Each path that a command writes is replaced by something else beforehand: nothing outside of the project changes.

`make thorough` tries each replacement at each path. Otherwise the commands share the work: each tries one or two
replacements at each of its paths, other ones at the next path, and another command begins with another one.
"""

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

import click
import pytest

from orch23.cli.group import orch23
from orch23.entry import main
from orch23.model import features
from tests.e2e.test_planted_stores import Untrusting
from tests.project import Outcome, Project, files_answer, scripted
from tests.repository import Repository, green
from tests.template_repository import PIPELINE, TemplateRepository

ELSEWHERE = {
    "watch": "each of its builds is a build",
    "view": "a server that reads",
    "worker": "it writes into a folder of its own machine",
    "init": "below: its project is new",
    "template": "below, with `init`",
    "model": "it writes into a cache of the user",
}
WRITERS = {
    "build": "build --trace out/trace.json --junit out/deep/j.xml",
    "build with nothing to do": "build",
    "build of one stage": "build render",
    "cancel": "cancel",
    "accept": "accept render",
    "approve": "approve held.yaml held",
    "reject": "reject held.yaml held -m red",
    "release": "release render",
    "clean": "clean --force",
    "reset": "reset --outputs",
    "gc": "gc --keep 0B",
    "cache": "cache verify",
    "trust": "trust",
    "plan": "plan --out out/plan.json",
    "schema": "schema --out out/schema.json",
    "report": "report -o out/report.html",
    "shell": "shell render -- true",
}
READERS = {
    "plan": "plan",
    "status": "status",
    "validate": "validate",
    "graph": "graph",
    "vars": "vars",
    "doctor": "doctor",
    "runs": "runs",
    "log": "log",
    "log of events": "log --json",
    "explain": "explain render",
    "show": "show render",
    "diff": "diff HEAD",
    "affected": "affected --since HEAD",
    "cache": "cache stats",
    "help": "help E691",
}
HELD = "version: 1\nstages:\n  held: {outputs: [held.txt], shell: touch held.txt, approve: true}\n"
APPROVAL = 8
LLM = {"returns": "files", "transcripts": "recorded"}
ORDER = [*WRITERS.values(), *READERS.values()]
QUICK = {"report"}
PLACES = (
    *(
        f".orch23/{name}"
        for name in ("partial", "rooms", "trees", "batches", "running", "snapshots", "exchanges/originals")
    ),
    *("logs", "logs/.gitignore", ".orch23-aside", "recorded/originals"),
)
"""Places that a command may write without leaving anything there."""

Replacement = Callable[[Path, Path], None]


@pytest.mark.needs("templates")
def test_each_command_is_run_with_each_option_that_names_a_file() -> None:
    lines = {**{name: [line] for name, line in READERS.items()}}
    for name, line in WRITERS.items():
        lines.setdefault(name, []).append(line)
    context = click.Context(orch23)
    for name in orch23.list_commands(context):
        command = orch23.get_command(context, name)
        assert command is not None
        assert (name in lines) != (name in ELSEWHERE), name
        written = {"--out", "--trace", "--junit"} & {text for one in command.params for text in one.opts}
        said = " ".join(lines.get(name, ())).replace(" -o ", " --out ")
        # Needs a failure: tests/features/inspecting/test_show_withheld.py.
        written -= {"--out"} if name == "show" else set()
        assert written == {word for word in said.split() if word in ("--out", "--trace", "--junit")}, name


# ---- a project -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Give a project that was built and committed, and whose input was edited afterwards."""
    project = Repository(tmp_path_factory.mktemp("own") / "project")
    project.write(
        {
            **scripted(
                {
                    "ask": {"inputs": ["in.txt"], "outputs": ["made/asked.txt"], "llm": LLM},
                    "render": {"inputs": ["in.txt"], "outputs": ["rendered.txt"], "render": {"template": "r.j2"}},
                },
                {"ask": [files_answer({"made/asked.txt": "x\n"})] * 4},
            ),
            "held.yaml": HELD,
            "in.txt": "a\n",
            "r.j2": "{{ inputs[0].text }}",
            ".gitignore": ".orch23*/\nlogs/\n",
        }
    )
    project.git("init", "-q")
    green(runs(project.root, "build"))
    assert runs(project.root, "build held.yaml").code == APPROVAL
    project.git("add", "-A")
    project.git("commit", "-qm", "built")
    return project


def runs(root: Path, line: str) -> Outcome:
    """Run a command line; each run of the project has the same id, so that its paths are known beforehand."""
    with patch("orch23.cli.build_run.new_run_id", lambda *_: "20260101T000000Z-00000000"):
        return Untrusting(root, main=lambda argv: main([*argv[2:]])).run(*line.split())


@contextlib.contextmanager
def copied(built: Project, line: str, place: Path) -> Iterator[Path]:
    """Give a copy of the project, in the state in which the command has something to do."""
    root = place / "project"
    shutil.copytree(built.root, root, symlinks=True)
    if line != "build":
        (root / "in.txt").write_text("b\n")
    if line.startswith("accept"):
        (root / "rendered.txt").write_text("by hand\n")
    try:
        yield root
    finally:
        shutil.rmtree(place)


# ---- what is put in the place of its paths -------------------------------------------------------


def link(path: Path, outside: Path) -> None:
    """Replace a path by a link to the same outside of the project."""
    target = outside / "target"
    if path.is_dir():
        shutil.move(path, target)
    else:
        target.write_bytes(path.read_bytes() if path.exists() else b"mine\n")
        path.unlink(missing_ok=True)
    path.symlink_to(target)


def link_to_folder(path: Path, outside: Path) -> None:
    """Replace a path by a link to a folder of the user, with folders in it."""
    remove(path)
    (outside / "home/ab/deep").mkdir(parents=True)
    (outside / "home/ab/deep/mine.txt").write_text("mine\n")
    (outside / "home/1").mkdir()
    path.symlink_to(outside / "home")


def dangling(path: Path, outside: Path) -> None:
    remove(path)
    path.symlink_to(outside / "nothing")


def fifo(path: Path, outside: Path) -> None:
    del outside
    remove(path)
    os.mkfifo(path)


def other(path: Path, outside: Path) -> None:
    """Replace a file by a folder, and a folder by a file."""
    del outside
    is_folder = path.is_dir()
    remove(path)
    if is_folder:
        path.write_text("a file\n")
    else:
        path.mkdir()
        (path / "mine.txt").write_text("mine\n")


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


REPLACEMENTS = (link, link_to_folder, dangling, fifo, other)
_THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def replacements(number: int) -> Sequence[Replacement]:
    """Return what is tried at a path, the how-many-th of all."""
    return REPLACEMENTS if _THOROUGH else (REPLACEMENTS[number % len(REPLACEMENTS)],)


def states(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return all that is in a folder, with what a write would change even if it wrote the same."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[path.relative_to(folder).as_posix()] = (status.st_ino, status.st_mtime_ns, data)
    return found


def written_paths(built: Project, line: str, place: Path) -> list[str]:
    """Return the paths that a command writes, with the folders above them; of similar ones the first."""
    with copied(built, line, place) as root:
        before = states(root)
        runs(root, line)
        after = states(root)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    changed |= {above for path in changed for above in map(str, Path(path).parents) if above != "."}
    similar: dict[str, str] = {}
    for path in sorted(changed | {*PLACES}):
        if not path.startswith(".git/") and path != ".git":
            similar.setdefault(re.sub(r"[0-9a-f]{8,}|\b[0-9a-f]{2}\b|\d{8}T\d{6}Z", "*", path), path)
    return list(similar.values())


def faults(built: Project, line: str, paths: list[str], place: Path) -> list[str]:
    """Run a command once for each path and its replacements, and return what it did wrong."""
    found = []
    first = ORDER.index(line) if line in ORDER else 0
    # Readers open much the same files: each tries every fourth path, and the next ones the others.
    shares = 4 if line in READERS.values() and not _THOROUGH else 1
    mine = list(enumerate(paths, first))[first % shares :: shares]
    tried = [(path, put) for at, path in mine for put in replacements(at)]
    for number, (path, put) in enumerate(tried):
        outside = place / f"outside-{number}"
        outside.mkdir()
        with copied(built, line, place / f"case-{number}") as root:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            put(root / path, outside)
            before = states(outside)
            outcome = runs(root, line)
            if states(outside) != before:
                found.append(f"{path} {put.__name__}: changed what is outside")
            if outcome.code == 70 or "this is a bug" in outcome.err:
                found.append(f"{path} {put.__name__}: {outcome.err}")
            elif outcome.code and not is_explained(path, outcome):
                found.append(f"{path} {put.__name__}: exits with {outcome.code}, and does not say why: {outcome.err}")
        shutil.rmtree(outside)
    return found


def is_explained(path: str, outcome: Outcome) -> bool:
    said = outcome.err + outcome.out
    if outcome.code == 6 or "there are no runs" in said:
        return True
    has_way = any(text in said for text in ("help: ", "(replace the link", "(restore the file"))
    return has_way and any(name in said for name in path.split("/"))


def marked(lines: Mapping[str, str]) -> list[object]:
    def marks(name: str, line: str) -> list[pytest.MarkDecorator]:
        places = [place for word, place in features.COMMANDS.items() if word == line.split(maxsplit=1)[0]]
        places += [place for word, place in features.DOCUMENTS.items() if f"--{word}" in line]
        needed = [pytest.mark.needs(place.partition(".")[0]) for place in places]
        return [*needed, *([] if name in QUICK else [pytest.mark.slow])]

    return [pytest.param(line, id=name, marks=marks(name, line)) for name, line in lines.items()]


@pytest.mark.stride(3)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("line", marked(WRITERS))
def test_a_writer_changes_nothing_outside(built: Project, line: str, tmp_path: Path) -> None:
    paths = written_paths(built, line, tmp_path / "first")
    assert faults(built, line, paths, tmp_path) == []


@pytest.mark.stride(4)
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("line", marked(READERS))
def test_a_reader_changes_nothing_outside_and_waits_for_no_pipe(built: Project, line: str, tmp_path: Path) -> None:
    paths = written_paths(built, WRITERS["build"], tmp_path / "first")
    assert faults(built, line, paths, tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("prepared_copier")
def test_templates_change_nothing_outside(tmp_path: Path) -> None:
    """`init` into a folder that a clone brought, and `template update`."""
    files = {"pipelines/house.yaml.jinja": PIPELINE, "notes.md": "one\n", "deep/old.md": "old\n"}
    repository = TemplateRepository(tmp_path / "house").version(files, "1.0")
    project = Untrusting(tmp_path / "project")
    line = f"init {repository.url} --defaults"
    answers = ".orch23-house.answers.yml"
    assert faults(project, line, ["pipelines", "notes.md", "orch23.toml", answers], tmp_path) == []
    green(runs(project.root, line))
    repository.version({**files, "notes.md": "two\n"}, "2.0")
    assert faults(project, "template update", ["notes.md", answers, ".orch23/pipeline.schema.json"], tmp_path) == []
