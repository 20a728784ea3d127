"""Run the program: answer from a snapshot if possible, else load the command line; exit."""

import _signal  # type: ignore[import-not-found]  # `signal` builds enumerations on import, which is slow
import atexit
import os
import sys

from orch23 import __version__


def open_streams() -> None:
    """Open each standard stream that was closed before the start on `/dev/null`.

    Otherwise the next file that is opened gets its number, and printed text is written into that file.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process lives
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - likewise
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - likewise


def restart_in_utf8_mode() -> None:
    """Replace the process by one in Python's UTF-8 mode if the locale has another encoding, such as ASCII.

    Pipelines are UTF-8: their commands and file names could not be passed to the kernel otherwise. The streams keep
    the encoding of the terminal.
    """
    if sys.getfilesystemencoding() == "utf-8" or not sys.executable:
        return
    environ = {"PYTHONIOENCODING": f"{sys.stdout.encoding}:backslashreplace", **os.environ}
    os.execve(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]], environ)  # noqa: S606 - no shell


def exit_process(code: int) -> None:
    """Run exit handlers, flush the streams and exit.

    Python's own shutdown is skipped: to free the modules of a vendor's library takes it half a second.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - no public name; coverage, for one, needs it
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - the fast path does not load `contextlib`
            stream.flush()
        except (OSError, ValueError):  # its reader is gone, or it is closed
            pass
    os._exit(code)


_GC_THRESHOLD = 200_000
"""New containers until the garbage collector runs: loaded modules have no cycles that are worth its time."""


_INTERRUPTED = 130
_running: list[bool] = []
"""Not empty while a command runs: only then does something handle a KeyboardInterrupt."""


def run() -> None:
    """Run the command line and exit with its code."""
    # Set first: an interrupt during imports would show a traceback.
    _signal.signal(_signal.SIGINT, _interrupted)
    open_streams()
    restart_in_utf8_mode()
    exit_process(main(sys.argv[1:]))


def _interrupted(signum: int, frame: object) -> None:
    """Exit at once if the program is starting or exiting: no file is being written then."""
    if not _running:
        os._exit(_INTERRUPTED)
    _signal.default_int_handler(signum, frame)


def main(argv: list[str]) -> int:
    """Run a command line and return its exit code; never raises."""
    if sys.platform not in _SYSTEMS and argv != _VERSION:
        return _refuse_system(sys.platform)
    # Without the modules of a build: only names are before the option, so it cannot be a value of another one.
    is_help = argv[-1:] in (["--help"], ["-h"]) and not any(word.startswith("-") for word in argv[:-1])
    if (is_help or argv == _VERSION) and _has_answered(argv):
        return 0
    try:
        from orch23.snapshot.fast_path import answer_from_snapshot  # noqa: PLC0415 - a signal may interrupt the import

        answer = answer_from_snapshot(argv)
    except KeyboardInterrupt:
        return _INTERRUPTED
    if isinstance(answer, int):
        return answer
    import _datetime  # type: ignore[import-not-found]  # noqa: PLC0415 - the fast path does not need it
    import gc  # noqa: PLC0415 - as above

    # `datetime` of Python 3.11 defines the same classes in Python before it takes these. msgspec needs these, too.
    sys.modules.setdefault("datetime", _datetime)
    gc.set_threshold(_GC_THRESHOLD)
    _import_libraries("msgspec", "pathlib", *["subprocess"] * (argv[:1] == ["build"]))
    from orch23.cli.main import main as run_command  # noqa: PLC0415 - heavy

    _running.append(True)
    try:
        return run_command(argv, answer)
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        _running.clear()


_SYSTEMS = ("linux",)
_VERSION = ["--version"]
_UNSUPPORTED = 78
_CONTAINER = """in a container, from the directory of your project; CHECKOUT is the directory of orch23's source code:

    docker run --rm -it -v "$PWD:/project" -v "CHECKOUT:/orch23" -w /project python:3.13 bash
    pip install /orch23
    orch23 build
"""
_WSL = """in WSL2:

    wsl --install
    wsl
    sudo apt install --yes pipx
    pipx install CHECKOUT
    orch23 build

CHECKOUT is the directory of orch23's source code, as WSL2 sees it. Or run it in a container, such as `python:3.13`.
"""


def _refuse_system(system: str) -> int:
    """Report that orch23 does not run on this system. Imports nothing: modules of Linux are missing here."""
    name = {"darwin": "macOS", "win32": "Windows", "cygwin": "Cygwin"}.get(system, system)
    way = _WSL if system in ("win32", "cygwin") else _CONTAINER
    sys.stderr.write(f"error: orch23 runs on Linux, and this is {name}: its sandbox and locks need the Linux kernel\n")
    sys.stderr.write(f"  = help: run it {way}")
    return _UNSUPPORTED


_UNUSED = {
    "msgspec": ("platform", "msgspec.inspect", "msgspec._json_schema", "msgspec.toml", "msgspec.yaml"),
    "pathlib": ("urllib.parse",),
    "subprocess": ("locale", "selectors", "signal"),
}
"""Libraries, and what they import for functions that few commands call: a third of the time that they take."""


class _Later(type(sys)):  # type: ignore[misc]  # the class of modules
    """A module that is imported when one of its functions is called."""

    __name__: str

    def system(self) -> str:
        """Return what `platform.system` returns, which `uuid` calls when it is imported."""
        return os.uname().sysname

    def __getattr__(self, name: str) -> object:
        """Return a function that imports the module and calls its function; later the module's own value."""
        from importlib import import_module  # noqa: PLC0415 - few commands need it

        def call(*given: object, **named: object) -> object:
            return getattr(import_module(self.__name__), name)(*given, **named)

        return call if sys.modules.get(self.__name__) is self else getattr(import_module(self.__name__), name)


def _import_libraries(*libraries: str) -> None:
    """Import libraries without some of their imports.

    typing_extensions takes as long to load as msgspec, which takes from it only what `typing` has since Python 3.11.
    """
    for library in libraries:
        replaced = {"typing_extensions": None, **{name: _Later(name) for name in _UNUSED[library]}}
        replaced = {name: one for name, one in replaced.items() if name not in sys.modules}
        sys.modules.update(replaced)  # type: ignore[arg-type]  # an import of None fails
        try:
            __import__(library)
        except Exception:  # noqa: BLE001, S110 - of one that requires them: it is imported again without this
            pass
        finally:
            for name in replaced:
                sys.modules.pop(name, None)


def _has_answered(argv: list[str]) -> bool:
    """Write the version, or the help of a command; return False if that failed: the command line reports the error."""
    try:
        if argv == _VERSION:
            sys.stdout.write(f"orch23 {__version__}\n")
        else:
            from orch23.cli.group import write_help  # noqa: PLC0415 - loads click

            write_help(argv)
        sys.stdout.flush()
    except Exception:  # noqa: BLE001 - whatever it was happens there again
        return False
    return True
