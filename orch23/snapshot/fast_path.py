"""Answer `build` and `plan` from a snapshot when nothing has changed."""

import fcntl
import os
import sys
import time
import zlib

try:  # what hashlib stands on, without the library of OpenSSL, which takes longer to load than all of this
    from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore] # from Python 3.12 on
except ImportError:
    from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore]

from orch23.snapshot.stat_snapshot import SnapshotDifference, StatSnapshot, parse_snapshot, signature
from orch23.snapshot.store_registry import STORE_FOLDER as STORE
from orch23.snapshot.store_registry import is_trusted

TYPE_CHECKING = False  # as in `looks`
if TYPE_CHECKING:
    from collections.abc import Mapping

SNAPSHOT_FOLDER = ".orch23/snapshots"
LOCK_FILE = ".orch23/lock"
LOG_FOLDER = "logs"
ENVIRONMENT_NAMES = ("HOME", "PATH", "VIRTUAL_ENV")
"""What decisions take from the environment, besides every variable of `OPTIONS`."""
OPTION_PREFIX = "ORCH23_"
KNOWN_FLAGS = frozenset(
    {
        "--allow-unsandboxed",
        "--downstream",
        "--offline",
        "--only",
        "--overwrite-edited",
        "--quiet",
        "--replay",
        "--until",
        "--verbose",
        "-q",
        "-v",
    }
)
KNOWN_VALUE_OPTIONS = frozenset({"--budget", "--model", "--output", "--provider", "--set", "--vars"})
"""The options of `build` that change nothing but what is decided, besides --jobs and --keep-going.

A build with another option, such as one that is added later, is always decided. An option may be listed here if a build
with it that found nothing to do finds nothing again, as long as the files and the environment stay as they are.
"""
_COMPLETE = "_ORCH23_COMPLETE"
_PRIVATE = 0o600
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SUM = b',"sum":"'
_SUM_DIGITS = 16
_PID_DIGITS = 20


class StaleSnapshot:
    """What a build looked at that found nothing to do, and what of it is not as it was; `stamp` tells the file."""

    __slots__ = ("difference", "file_signature", "snapshot")

    def __init__(self, looks: StatSnapshot, difference: SnapshotDifference, file_signature: str) -> None:
        """Take all three."""
        self.snapshot, self.difference, self.file_signature = looks, difference, file_signature

    def is_current(self, root: str) -> bool:
        """Say whether nobody wrote or dropped the snapshot since it was read; for the holder of the build lock."""
        return signature(f"{root}/{snapshot_path(self.snapshot.facts['question'])}") == self.file_signature


def answer_from_snapshot(argv: list[str]) -> "int | StaleSnapshot | None":
    """Answer `build` or `plan` where nothing is to be done, and return the exit code; None where that is not known.

    Where something may have to be done, what is known of that.
    """
    if not argv or argv[0] not in ("build", "plan") or _COMPLETE in os.environ:
        return None
    if argv[0] == "plan" and any(argument.startswith("-") for argument in argv):
        return None
    try:
        here = os.getcwd()
        asked = command_identity(here, argv)
        root = None if asked is None else _root(here, snapshot_path(asked))
        if asked is None or root is None:
            return None
        os.chdir(root)
        try:
            return _build(asked) if argv[0] == "build" else _plan(asked)
        finally:
            os.chdir(here)
    except (OSError, ValueError, LookupError):
        return None


def pid_line(pid: int) -> bytes:
    """Return what the holder of the build lock writes into it: always as long, so that nothing is to be cut off."""
    return b"%-*d\n" % (_PID_DIGITS, pid)


def command_identity(here: str, argv: list[str]) -> str | None:
    """Return what is asked, and where: the same text for `build` and for the `plan` of it.

    With how many jobs something would be done, and whether it would go on after a failure, is no part of it. None if
    there is an option of which it is not known that a build with it can be answered: then it is decided.
    """
    words = _asked(argv[1:])
    if words is None:
        return None
    return "\n".join((here, *(word.replace("\\", "\\\\").replace("\n", "\\n") for word in words)))


def _asked(words: list[str]) -> list[str] | None:
    """Return the words of a command line without those options that do not matter to a build with nothing to do."""
    kept: list[str] = []
    number = 0
    while number < len(words):
        word = words[number]
        if word == "--":
            return kept + words[number:]
        if length := _unimportant(words[number : number + 2]):
            number += length
            continue
        length = _known(words[number : number + 2]) if word.startswith("-") and word != "-" else 1
        if not length:
            return None
        kept += words[number : number + length]
        number += length
    return kept


def _known(words: list[str]) -> int:
    """Return how many words the option takes that these begin with; 0 if it is not known."""
    name, sign, _ = words[0].partition("=")
    if sign:
        return int(name in KNOWN_VALUE_OPTIONS and name.startswith("--"))
    if name in KNOWN_VALUE_OPTIONS:
        return 2 if words[1:] else 0
    return int(name in KNOWN_FLAGS)


def _unimportant(words: list[str]) -> int:
    """Return how many words the option takes that these begin with, if it is --jobs or --keep-going; else 0."""
    first, following = words[0], words[1:]
    if first in ("-k", "--keep-going"):
        return 1
    if first in ("-j", "--jobs"):
        return 2 if following and _is_number(following[0]) else 0
    for prefix in ("-j", "--jobs="):
        if first.startswith(prefix):
            return int(_is_number(first[len(prefix) :]))
    return 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and text.strip("0") != ""


def program_identity() -> str:
    """Return which orch23 this is, what runs it, and where that finds plugins: others may decide otherwise.

    The search path has all that PYTHONPATH, PYTHONHOME, PYTHONUSERBASE, a virtual environment and `.pth` files change.
    """
    return "\n".join((sys.executable, __file__, *map(str, sys.path)))


def snapshot_path(asked: str) -> str:
    """Return where the answer to a question lies, from the root."""
    return f"{SNAPSHOT_FOLDER}/{zlib.crc32(asked.encode('utf-8', 'surrogateescape')):08x}"


def environment_digests(environ: "Mapping[str, str]") -> dict[str, str]:
    """Return what of an environment has to be as it was: digests by name, since a value may be a secret."""
    return {
        name: _sha256(text.encode("utf-8", "surrogateescape"))
        for name, text in environ.items()
        if name in ENVIRONMENT_NAMES or name.startswith(OPTION_PREFIX)
    }


def color_by_environment(environ: "Mapping[str, str]", *, terminal: bool) -> bool:
    """Say whether a stream gets colours where no option says so: by NO_COLOR, CLICOLOR_FORCE, and what it is."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return terminal and environ.get("TERM", "dumb") != "dumb"


def _root(here: str, snapshot: str) -> str | None:
    """Return the nearest folder from here upwards that has a snapshot; it is no root unless the snapshot says so.

    Its store has to be the user's own, since anything can be in one that came with a clone; a parent directory too, as
    `cli.project` has it: its owner can put any snapshot's files there.
    """
    folder = here
    while True:
        if os.path.lexists(f"{folder}/{snapshot}") and _counts(folder, here):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _counts(folder: str, here: str) -> bool:
    return (folder == here or os.stat(folder).st_uid == os.geteuid()) and is_trusted(f"{folder}/{STORE}")


def _read(asked: str) -> StatSnapshot | None:
    try:
        with open(snapshot_path(asked), "rb") as stream:
            looks = parse_snapshot(stream.read())
    except OSError:
        return None
    if looks is None or looks.facts["question"] != asked or looks.facts["root"] != os.getcwd():
        return None
    if looks.facts["program"] != program_identity():
        return None
    return looks if looks.environ == environment_digests(os.environ) else None


def _plan(asked: str) -> "int | StaleSnapshot | None":
    looks = _read(asked)
    if looks is None or looks.facts["encoding"] != sys.stdout.encoding or not _is_told_plainly(looks):
        return None
    difference = looks.compare()
    if difference is None or difference.changed:
        return None if difference is None else _unrest(looks, difference)
    _write(2, looks.facts["warnings"])
    colored = color_by_environment(os.environ, terminal=sys.stdout.isatty())
    _write(1, looks.facts["plan in colour" if colored else "plan"])
    return 0


def _build(asked: str) -> "int | StaleSnapshot | None":
    looks = _read(asked)
    if looks is None or looks.facts["encoding"] != sys.stderr.encoding or not _is_told_plainly(looks):
        return None
    lock = os.open(LOCK_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        difference = looks.compare()
        if difference is None:
            return None
        if difference.changed:
            return _unrest(looks, difference)
        os.write(lock, pid_line(os.getpid()))
        if difference.touched:
            looks.update_ctimes(difference)
            write_snapshot(looks)
        _note(looks)
        fcntl.flock(lock, fcntl.LOCK_UN)
    finally:
        os.close(lock)
    _write(2, looks.facts["told"])
    return 0


def _unrest(looks: StatSnapshot, difference: SnapshotDifference) -> StaleSnapshot:
    return StaleSnapshot(looks, difference, signature(snapshot_path(looks.facts["question"])))


def _is_told_plainly(looks: StatSnapshot) -> bool:
    """Say whether no line that is told would be in colours now: warnings may be."""
    return "warning" not in looks.facts["told"] or not color_by_environment(os.environ, terminal=sys.stderr.isatty())


def write_snapshot(looks: StatSnapshot) -> None:
    """Write a snapshot to its place, from the root; only for the holder of the build lock.

    It is not made durable: what a power cut leaves of it does not match its checksum.
    """
    replace_snapshot_file(snapshot_path(looks.facts["question"]), looks.to_bytes())


def replace_snapshot_file(target: str, data: bytes) -> None:
    """Write a file of the snapshots, as a whole or not at all."""
    os.makedirs(SNAPSHOT_FOLDER, 0o700, exist_ok=True)
    fresh = f"{target}.new"
    if os.path.exists(fresh):  # of a build that was killed
        os.unlink(fresh)
    descriptor = os.open(fresh, _NEW, _PRIVATE)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
    os.rename(fresh, target)


def remove_snapshots(root: str, pipeline: str) -> None:
    """Remove all snapshots of a pipeline, and those that cannot be read; only for the holder of the build lock."""
    folder = f"{root}/{SNAPSHOT_FOLDER}"
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        with open(f"{folder}/{name}", "rb") as stream:
            looks = parse_snapshot(stream.read())
        if looks is None or looks.facts["pipeline"] == pipeline:
            os.unlink(f"{folder}/{name}")


def _note(looks: StatSnapshot) -> None:
    """Write the journal of a run that did nothing: that it began, and that it ended."""
    facts = looks.facts
    now = time.time()
    seconds = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(now)) + f"{int(now * 1000) % 1000:03d}Z"
    run_id, journal = _journal(f"{seconds}-{facts['key']}")
    lines = [facts[name].replace(facts["run id"], run_id) for name in ("began", "ended")]
    try:
        os.write(journal, b"".join(_sealed(line.replace(facts["moment"], moment)) for line in lines))
    finally:
        os.close(journal)


def _journal(run_id: str) -> tuple[str, int]:
    """Return the first free id of a run, and a descriptor of its journal."""
    candidate, number = run_id, 1
    while True:
        try:
            return candidate, os.open(f"{LOG_FOLDER}/{candidate}.jsonl", _NEW | os.O_APPEND, _PRIVATE)
        except FileExistsError:
            number += 1
            candidate = f"{run_id}-{number}"


def _sealed(line: str) -> bytes:
    """Return a line of a journal with its checksum."""
    inner = line.encode("utf-8", "backslashreplace")
    return inner + _SUM + _sha256(inner)[:_SUM_DIGITS].encode() + b'"}\n'


def _sha256(data: bytes) -> str:
    digest: str = sha256(data).hexdigest()
    return digest


def _write(descriptor: int, text: str) -> None:
    """Write a text that the stream's encoding holds; nobody may be there to read it."""
    stream = sys.stdout if descriptor == 1 else sys.stderr
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
