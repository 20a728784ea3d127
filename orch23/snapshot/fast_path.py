"""Answer `build`, `plan` and `status` from a snapshot when nothing has changed."""

import fcntl
import os
import sys
import time
from _blake2 import blake2b

from orch23.snapshot.signatures import sha256_hex, signature
from orch23.snapshot.stat_snapshot import SnapshotDifference, StatSnapshot, parse_facts, parse_snapshot
from orch23.snapshot.store_registry import STORE_FOLDER as STORE
from orch23.snapshot.store_registry import bytes_of, is_trusted, sealing_key

TYPE_CHECKING = False  # see stat_snapshot
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO, TypeVar

    Answer = TypeVar("Answer")

SNAPSHOT_FOLDER = ".orch23/snapshots"
LOCK_FILE = ".orch23/lock"
LOG_FOLDER = "logs"
# The environment variables that decisions depend on, besides all that begin with `OPTION_PREFIX`.
ENVIRONMENT_NAMES = ("HOME", "PATH", "VIRTUAL_ENV")
OPTION_PREFIX = "ORCH23_"
# The options of `build` with which a snapshot can answer, besides --jobs.
# With any other option, such as one that is added later, a build decides everything. An option may be listed here if a
# build with it that found nothing to do finds nothing again, as long as the files and the environment stay the same.
KNOWN_FLAGS = frozenset({"--downstream", "--only", "--quiet", "--until", "--verbose", "-q", "-v"})
# These change what a build does, but not whether it has something to do, so builds with and without them share a
# snapshot. With --overwrite-edited, a stage may run that is otherwise kept, but a stage that is fresh stays fresh.
SHARED_FLAGS = frozenset(
    {"--allow-unsandboxed", "--cache-write", "--keep-going", "--offline", "--overwrite-edited", "--replay", "-k"}
)
# A build with one of these always runs something. If nothing is left to do then, the next build without it is answered.
_FORCE = ("-f", "--force")
_CONTRADICTION = frozenset({"--offline", "--replay"})
KNOWN_VALUE_OPTIONS = frozenset(
    f"--{name}" for name in ("budget", "cache", "executor", "model", "output", "provider", "scheduler", "set", "vars")
)
# The commands that only show what a build would do.
SHOWN = ("plan", "status")
# With this environment variable, a shell asks for completions.
COMPLETE = "_ORCH23_COMPLETE"
_PRIVATE = 0o600
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SUM = b',"sum":"'
_SUM_DIGITS = 16
_PID_DIGITS = 20


class StaleSnapshot:
    """A snapshot that differs from the files now. `file_signature` identifies the version of its file."""

    __slots__ = ("difference", "file_signature", "snapshot")

    def __init__(self, snapshot: StatSnapshot, difference: SnapshotDifference) -> None:
        """Create it for a snapshot of the working directory."""
        self.snapshot, self.difference = snapshot, difference
        self.file_signature = signature(snapshot_path(snapshot.facts["question"]))

    def is_current(self, root: str) -> bool:
        """Return whether the file was neither written nor removed since then; call it with the build lock."""
        return signature(f"{root}/{snapshot_path(self.snapshot.facts['question'])}") == self.file_signature


def answer_from_snapshot(argv: list[str]) -> "int | StaleSnapshot | None":
    """Answer `build`, `plan` or `status` if nothing has changed, and return the exit code.

    Return the snapshot and the differences if something has changed, and None if the command needs a full decision.
    """
    command = argv[0] if argv else ""
    has_option = any(argument.startswith("-") for argument in argv)
    if command in SHOWN:  # the variable of an option, such as ORCH23_PLAN_JSON, is an option
        has_option = has_option or any(name.startswith(f"{OPTION_PREFIX}{command.upper()}_") for name in os.environ)
    is_known = command == "build" or (command in SHOWN and not has_option)
    if not is_known or COMPLETE in os.environ:
        return None

    def answer(identity: str, _root: str) -> "int | StaleSnapshot | None":
        return _build(identity) if command == "build" else _show(identity, command)

    return last_snapshot(argv) if any(word.startswith(_FORCE) for word in argv) else _in_project(argv, answer)


def last_snapshot(argv: list[str], known: "StaleSnapshot | None" = None) -> "StaleSnapshot | None":
    """Return the snapshot of the last build with a command line, and what has changed since, which may be nothing.

    None if there is none that can be compared. Writes nothing, and does not need the build lock. `known` is what an
    earlier call returned: it is not read again if its file is the same, and no file is hashed twice.
    """

    def compare(identity: str, root: str) -> "StaleSnapshot | None":
        if known is not None and known.is_current(root):
            snapshot: StatSnapshot | None = known.snapshot
            known.snapshot.update_times(known.difference)
        else:
            snapshot = _read(identity, sys.stderr)
        difference = None if snapshot is None else snapshot.compare()
        return None if snapshot is None or difference is None else StaleSnapshot(snapshot, difference)

    return _in_project(argv, compare)


def _in_project(argv: list[str], answer: "Callable[[str, str], Answer]") -> "Answer | None":
    """Call a function in the root that has the snapshot of a command line, with the identity of this and the root.

    Return None if there is none, or if it raises an error, which the full program reports.
    """
    try:
        here = os.getcwd()
        identity = command_identity(here, argv)
        root = None if identity is None else _root(here, snapshot_path(identity))
        if identity is None or root is None:
            return None
        os.chdir(root)
        try:
            return answer(identity, root)
        finally:
            os.chdir(here)
    except (OSError, ValueError, LookupError):
        return None


def pid_line(pid: int) -> bytes:
    """Return what the holder of the build lock writes into it.

    It has a fixed length, so that it overwrites the line of an earlier build without a truncation.
    """
    return b"%-*d\n" % (_PID_DIGITS, pid)


def command_identity(here: str, argv: list[str]) -> str | None:
    """Return the directory and the arguments as one text, the same for a `build`, its `plan` and its `status`.

    --jobs and `SHARED_FLAGS` are left out: they change how a build runs, not whether it has something to do. So is
    --force: a build with it is not answered, and stores what the next one without it does. None if an option is not
    known here, or two contradict each other.
    """
    words = _relevant_words(argv[1:])
    if words is None or _CONTRADICTION.issubset(argv):
        return None
    return "\n".join((here, *(word.replace("\\", "\\\\").replace("\n", "\\n") for word in words)))


def _relevant_words(words: list[str]) -> list[str] | None:
    kept: list[str] = []
    while words:
        if words[0] == "--":
            return kept + words
        length, is_relevant = _argument(words)
        if not length:
            return None
        if is_relevant:
            kept += words[:length]
        words = words[length:]
    return kept


def _argument(words: list[str]) -> tuple[int, bool]:
    """Return how many words the first argument takes, 0 for an unknown option, and whether it is relevant."""
    word, following = words[0], words[1:2]
    if not word.startswith("-") or word == "-":
        return 1, True
    if word in SHARED_FLAGS:
        return 1, False
    if word in ("-j", "--jobs"):
        return (2 if following and _is_number(following[0]) else 0), False
    for prefix in ("-j", "--jobs="):
        if word.startswith(prefix):
            return int(_is_number(word[len(prefix) :])), False
    name, sign, value = word.partition("=")
    if name == "--wait-lock":  # other values, and whether the next word is one, are left to the full program
        is_bare = not sign and not (following and following[0][:1].isdigit())
        return int(is_bare or _is_number(value[:-1] if value[-1:] in "hms" else value)), False
    if name in KNOWN_VALUE_OPTIONS or name in _FORCE:
        return 1 if sign else 2 * len(following), name not in _FORCE
    return int(word in KNOWN_FLAGS), True


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and text.strip("0") != ""


def program_identity() -> str:
    """Return the interpreter, the path of orch23 and the search path of modules: another one may decide differently.

    PYTHONPATH, PYTHONHOME, PYTHONUSERBASE, a virtual environment and `.pth` files all change the search path, and with
    it the version of a plugin.
    """
    return "\n".join((sys.executable, __file__, *map(str, sys.path)))


def snapshot_path(identity: str) -> str:
    """Return the path of the snapshot of a command, relative to the root."""
    return f"{SNAPSHOT_FOLDER}/{blake2b(identity.encode('utf-8', 'surrogateescape'), digest_size=4).hexdigest()}"


def environment_digests(environ: "Mapping[str, str]") -> dict[str, str]:
    """Return the variables that must not change, as digests: a value may be a secret."""
    names = [name for name in environ if name in ENVIRONMENT_NAMES or name.startswith(OPTION_PREFIX)]
    return {name: sha256_hex(environ[name].encode("utf-8", "surrogateescape")) for name in names}


def color_by_environment(environ: "Mapping[str, str]", *, terminal: bool) -> bool:
    """Return whether a stream gets colors if no option decides: by NO_COLOR, CLICOLOR_FORCE, and TERM on a terminal."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return terminal and environ.get("TERM", "dumb") != "dumb"


def _root(here: str, snapshot: str) -> str | None:
    """Return the nearest directory from here upwards that has the snapshot and may be trusted."""
    folder = here
    while True:
        if os.path.lexists(f"{folder}/{snapshot}") and _is_own(folder, here):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _is_own(folder: str, here: str) -> bool:
    # A clone can bring a store, and another user can put one into a parent directory such as /tmp (ADR 21).
    return (folder == here or os.stat(folder).st_uid == os.geteuid()) and is_trusted(f"{folder}/{STORE}")


def _read(identity: str, stream: "TextIO") -> StatSnapshot | None:
    """Return the snapshot of a command; None if its text cannot be repeated to this stream by this program."""
    key = sealing_key(STORE)
    # A link would lead out of the project: the full program reports it.
    if key is None or any(map(os.path.islink, (STORE, SNAPSHOT_FOLDER, LOG_FOLDER))):
        return None
    snapshot = parse_snapshot(bytes_of(snapshot_path(identity)), key)
    if snapshot is None or snapshot.environ != environment_digests(os.environ):
        return None
    # The name of the file is a checksum, which two commands can share.
    now = {
        "question": identity,
        "root": os.getcwd(),
        "program": program_identity(),
        "encoding": stream.encoding,
    }
    if any(snapshot.facts[name] != value for name, value in now.items()):
        return None
    # The text is stored without colors, but a terminal shows the word `warning` in color.
    has_color = "warning" in snapshot.facts["told"]
    return None if has_color and color_by_environment(os.environ, terminal=sys.stderr.isatty()) else snapshot


def _show(identity: str, command: str) -> "int | StaleSnapshot | None":
    snapshot = _read(identity, sys.stdout)
    difference = None if snapshot is None else snapshot.compare()
    if snapshot is None or difference is None:
        return None
    if difference.changed:
        return StaleSnapshot(snapshot, difference)
    colored = color_by_environment(os.environ, terminal=sys.stdout.isatty())
    # Looked up before anything is written: an earlier version may not have stored it.
    text = snapshot.facts[f"{command} in colour" if colored else command]
    _write(2, snapshot.facts["warnings"])
    _write(1, text)
    return 0


def _build(identity: str) -> "int | StaleSnapshot | None":
    snapshot = _read(identity, sys.stderr)
    if snapshot is None:
        return None
    lock = os.open(LOCK_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # the full program reports which build runs
            return None
        difference = snapshot.compare()
        if difference is None:
            return None
        if difference.changed:
            return StaleSnapshot(snapshot, difference)
        os.write(lock, pid_line(os.getpid()))
        # With the new times, the next build does not hash these files and list these directories again.
        if difference.touched or difference.aged:
            snapshot.update_times(difference)
            write_snapshot(snapshot)
        _write_journal(snapshot)
        fcntl.flock(lock, fcntl.LOCK_UN)
    finally:
        os.close(lock)
    _write(2, snapshot.facts["told"])
    return 0


def write_snapshot(snapshot: StatSnapshot) -> None:
    """Write a snapshot into the working directory, which is the root; call it with the build lock.

    It is not synced to disk: after a power failure its checksum does not match, and the next build decides everything.
    None is written without a key (ADR 60).
    """
    target, key = snapshot_path(snapshot.facts["question"]), sealing_key(STORE)
    if key is None:
        return
    data = snapshot.to_bytes(key)
    os.makedirs(SNAPSHOT_FOLDER, 0o700, exist_ok=True)
    temporary = f"{target}.new"
    if os.path.lexists(temporary):  # left by a build that was killed
        os.unlink(temporary)
    descriptor = os.open(temporary, _NEW, _PRIVATE)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
    os.rename(temporary, target)


def remove_snapshots(root: str, pipeline: str) -> None:
    """Remove all snapshots of a pipeline, and those that cannot be read; call it with the build lock."""
    folder = f"{root}/{SNAPSHOT_FOLDER}"
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    key = sealing_key(f"{root}/{STORE}")
    for name in names:
        facts = None if key is None else parse_facts(bytes_of(f"{folder}/{name}"), key)
        if facts is None or facts["pipeline"] == pipeline:
            os.unlink(f"{folder}/{name}")


def _write_journal(snapshot: StatSnapshot) -> None:
    facts = snapshot.facts
    now = time.time()
    seconds = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(now)) + f"{int(now * 1000) % 1000:03d}Z"
    run_id, journal = _open_journal(f"{seconds}-{facts['key']}")
    lines = [facts[name].replace(facts["run id"], run_id) for name in ("began", "ended")]
    try:
        os.write(journal, b"".join(_with_checksum(line.replace(facts["moment"], moment)) for line in lines))
    finally:
        os.close(journal)


def _open_journal(run_id: str) -> tuple[str, int]:
    """Return the first free id of a run, and a descriptor of its journal."""
    candidate, number = run_id, 1
    while True:
        try:
            return candidate, os.open(f"{LOG_FOLDER}/{candidate}.jsonl", _NEW | os.O_APPEND, _PRIVATE)
        except FileExistsError:
            number += 1
            candidate = f"{run_id}-{number}"


def _with_checksum(line: str) -> bytes:
    inner = line.encode("utf-8", "backslashreplace")
    return inner + _SUM + sha256_hex(inner)[:_SUM_DIGITS].encode() + b'"}\n'


def _write(descriptor: int, text: str) -> None:
    """Write a text to stdout (1) or stderr (2), which may be a closed pipe."""
    stream = sys.stdout if descriptor == 1 else sys.stderr
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:  # Python flushes the stream again at its exit, which must not fail
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, descriptor)
        os.close(devnull)
