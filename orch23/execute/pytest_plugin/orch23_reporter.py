"""Tell orch23 over an inherited socket what pytest collected and how each test ended.

Runs inside the tested project's own interpreter: standard library and pytest (7 to 9) alone, Python 3.8 and newer.
Each line is `<mac> <json>`; the key of the mac is read from the socket at import and kept in a closure, so that
neither a line that a test writes, nor one that it repeats or drops, is taken for ours.
"""

from __future__ import annotations

import os
import sys

_PATH = list(sys.path)
_TREE = os.path.join(os.path.realpath(os.getcwd()), "")
# Newer versions of pytest have put the tested tree first by now; a hmac.py in it is not what we want.
sys.path[:] = [p for p in _PATH if not os.path.join(os.path.realpath(p or "."), "").startswith(_TREE)]

import faulthandler  # noqa: E402 - after the path was cleared
import hashlib  # noqa: E402 - likewise
import hmac  # noqa: E402 - likewise
import json  # noqa: E402 - likewise
import signal  # noqa: E402 - likewise
from typing import TYPE_CHECKING, Any, Callable, Dict  # noqa: E402, UP035 - likewise; Python 3.8 has no other Callable

import pytest  # noqa: E402 - likewise

sys.path[:] = _PATH

if TYPE_CHECKING:
    from collections.abc import Generator

_Event = Dict[str, Any]  # noqa: UP006 - evaluated, and Python 3.8 has no dict[...]
_Send = Callable[[_Event], None]
_FD = "ORCH23_REPORT_FD"
_IDS_PER_LINE = 200
_TEXT_LIMIT = 20000
_RUNNERS = ("_pytest", "pluggy", "unittest")
_FUNCTIONS = (type(lambda: None), classmethod, staticmethod, property)
_KEY_BYTES = 32
# pytest's full diff of two lists takes the cube of their lines: half a second for 80 alike lines, minutes for 400.
_DIFF_LINES = 80
_DIFF_CHARS = 10000
_FULL_DIFF = 2


def _open_channel() -> _Send | None:
    """Return the function that sends one event, or None where nobody listens (a worker of xdist)."""
    number = os.environ.pop(_FD, None)
    if number is None:
        return None
    fd = int(number)
    os.set_inheritable(fd, False)  # noqa: FBT003 - the standard library has it so
    key = b""
    while len(key) < _KEY_BYTES:
        part = os.read(fd, _KEY_BYTES - len(key))
        if not part:
            return None
        key += part
    owner = os.getpid()
    sent = [0]
    dumps, new_mac, write, getpid = json.dumps, hmac.new, os.write, os.getpid

    def send(event: _Event) -> None:
        if getpid() != owner:  # a forked child that runs on into pytest speaks for nobody
            return
        body = dumps(event, sort_keys=True).encode("ascii")
        mac = new_mac(key, b"%d %s" % (sent[0], body), hashlib.sha256).hexdigest()
        sent[0] += 1
        line = mac.encode("ascii") + b" " + body + b"\n"
        while line:
            line = line[write(fd, line) :]

    return send


class _Reporter:
    """The hooks. Each report carries what was seen when it was made, so that later hooks cannot better it."""

    def __init__(self, send: _Send, config: Any) -> None:
        self.send = send
        self.root = os.path.realpath(str(config.rootpath))

    # ---- collection ---------------------------------------------------------------------------

    def pytest_sessionstart(self) -> None:
        self.send({"event": "start", "pytest": pytest.__version__.split(".")[0]})

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome != "passed":
            seen = getattr(report, "orch23_seen", None) or {}
            self.send(
                {
                    "event": "collect",
                    "id": report.nodeid,
                    "outcome": report.outcome,
                    "error": _error_in(str(report.longrepr)),
                    "place": seen.get("place", ""),
                    "reason": _reason_of(report),
                    "module": seen.get("module", ""),
                    "text": _cut(str(getattr(report, "longreprtext", "") or report.longrepr or "")),
                }
            )

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: Any) -> None:
        self._send_ids("collected", [item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Any) -> None:
        self._send_ids("collected", list(ids))

    @pytest.hookimpl(tryfirst=True)
    def pytest_deselected(self, items: Any) -> None:
        self._send_ids("deselected", [item.nodeid for item in items])

    def _send_ids(self, event: str, ids: list[str]) -> None:
        for start in range(0, len(ids), _IDS_PER_LINE):
            self.send({"event": event, "ids": ids[start : start + _IDS_PER_LINE]})

    # ---- tests --------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        seen, label = getattr(report, "orch23_seen", None), _label_of(report)
        is_plain = seen is not None and seen["made"] == report.outcome == "passed" and not seen["raised"]
        if is_plain and (report.when == "setup" or label):
            return
        event = dict(seen or {"raised": "", "place": "", "made": "", "module": ""})
        event.update(
            event="test",
            id=report.nodeid,
            when=report.when,
            outcome=report.outcome,
            xfail=hasattr(report, "wasxfail"),
            text=_cut(report.longreprtext) if report.outcome == "failed" else "",
            reason=_reason_of(report),
            **({"subtest": label} if label else {}),
        )
        self.send(event)

    # ---- the end ------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: Any) -> None:
        foreign = self._foreign_modules()
        if foreign:
            self.send({"event": "foreign", "modules": foreign})
        self.send({"event": "finish", "status": int(exitstatus)})

    def _foreign_modules(self) -> list[list[str]]:
        """Return [name, file] of loaded modules that stand below the root too, but came from elsewhere."""
        root = os.path.join(self.root, "")
        bases = [self.root] + [os.path.realpath(p) for p in sys.path if os.path.realpath(p).startswith(root)]
        bases = list(dict.fromkeys(bases))
        tops = {base: set(_listed(base)) for base in bases}
        standard = os.path.join(os.path.dirname(os.path.realpath(os.__file__)), "")
        mine: list[Any] = []
        found: list[tuple[str, str]] = []
        for name, module in sorted(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if not isinstance(file, str) or name in ("__main__", __name__):
                continue
            file = os.path.realpath(file)
            if file.startswith(root):
                mine.append(module)
            elif any(_stands(base, name, tops[base]) for base in bases):
                found.append((name, file))
        used = _names_used(mine)
        return [
            [name, file]
            for name, file in found
            # A file called like a module of the standard library matters where the project imports that name.
            if not (file.startswith(standard) and "site-packages" not in file) or name in used
        ]

    def place(self, excinfo: Any) -> str:
        """Return `file:line` of the last frame that lies below the root, or an empty string."""
        root = os.path.join(self.root, "")
        for entry in reversed(list(getattr(excinfo, "traceback", None) or ())):
            file = os.path.realpath(str(entry.path))
            if file.startswith(root):
                return f"{file[len(root) :]}:{entry.lineno + 1}"
        return ""


class _Witness:
    """Note on each report what was raised, before any other hook can change it; in xdist's workers too.

    What a collector raised is noted here, too: pytest drops it before it tells of the report.
    """

    def __init__(self, place: Callable[[Any], str], config: Any) -> None:
        self.place = place
        self.plugins = config.pluginmanager

    def replaced(self) -> str:
        """Return a function of the runner that was replaced, but for those that a plugin or a conftest.py replaced."""
        for names, name, key, value, function, code in _RUNNER:
            now = names.get(key)
            if now is not value or getattr(function, "__code__", None) is not code:
                origin = str(getattr(getattr(now, "__func__", now), "__globals__", {}).get("__name__"))
                plugins = {getattr(one, "__name__", "") for one in self.plugins.get_plugins()}
                if now is value or origin not in plugins or origin.partition(".")[0] in _RUNNERS:
                    return f"{name}.{key}"
        return ""

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_make_collect_report(self) -> Generator[None, Any, None]:
        answer = yield
        report = answer.get_result()
        raised = getattr(getattr(report, "call", None), "excinfo", None)
        if raised is not None:
            report.orch23_seen = {"place": self.place(raised), "module": _wanted_module(raised)}

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: Any) -> Generator[None, Any, None]:
        raised = call.excinfo
        if isinstance(getattr(raised, "_excinfo", None), pytest.ExceptionInfo):
            raised = raised._excinfo  # noqa: SLF001 - pytest-subtests wraps a skip of unittest twice
        answer = yield
        report = answer.get_result()
        report.orch23_seen = {
            "raised": raised.typename if raised is not None else "",
            "place": self.place(raised) if raised is not None else "",
            # Once a test, and before it runs: this takes 0.2 ms.
            "made": (call.when == "setup" and self.replaced()) or report.outcome,
            "module": _wanted_module(raised),
        }


class _FullDiffs:
    """Makes pytest show the whole difference of two values, as with `-vv`, if they are small.

    Only the text of assertions changes: neither what pytest prints for each test nor its options.
    """

    def __init__(self, config: Any) -> None:
        self.wanted = True
        chosen = config.get_verbosity

        def verbosity(kind: Any = None) -> int:
            level: int = chosen(kind)
            return max(level, _FULL_DIFF) if kind == "assertions" and self.wanted else level

        config.get_verbosity = verbosity

    @pytest.hookimpl(tryfirst=True)
    def pytest_assertrepr_compare(self, left: Any, right: Any) -> None:
        self.wanted = _is_small(left) and _is_small(right)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, None]:
        self.wanted = True
        yield


def _is_small(value: Any) -> bool:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a value of the tested code
        return False
    # An item of a list or dict is a line of the difference, also where `repr` has no line break.
    return len(text) <= _DIFF_CHARS and text.count(",") + text.count("\n") + text.count("\\n") <= _DIFF_LINES


def _runner_functions() -> list[Any]:
    """Return the functions of pytest and unittest: the names around each, its place, key, value, function and code."""
    found = []
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _RUNNERS and name != "unittest.mock":
            classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == name]
            owners: list[Any] = [module, *classes]
            for owner in owners:
                where = name if owner is module else f"{name}.{owner.__name__}"
                for key, value in vars(owner).items():
                    if isinstance(value, _FUNCTIONS):
                        function = getattr(value, "__func__", value)
                        found.append((vars(owner), where, key, value, function, getattr(function, "__code__", None)))
    return found


def _stands(base: str, name: str, top: set[str]) -> bool:
    parts = name.split(".")
    if parts[0] not in top and parts[0] + ".py" not in top:
        return False
    path = os.path.join(base, *parts)
    return os.path.isfile(path + ".py") or os.path.isfile(os.path.join(path, "__init__.py"))


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _names_used(modules: list[Any]) -> set[str]:
    """Return the names of all modules that these modules hold, or hold something of."""
    used = set()
    for module in modules:
        for value in list(vars(module).values()):
            name = getattr(value, "__name__" if isinstance(value, type(sys)) else "__module__", None)
            if isinstance(name, str):
                used.add(name)
    return used


def _error_in(text: str) -> str:
    """Return the exception's name of a traceback's text: pytest keeps no excinfo for import errors."""
    for line in reversed(text.splitlines()):
        word = line[1:].strip().split(":")[0] if line.startswith("E ") else line.split(":")[0].strip()
        if word.replace(".", "").isidentifier() and word.endswith(("Error", "Exception", "Exit", "Interrupt")):
            return word.rpartition(".")[2]
    return "Error"


def _reason_of(report: Any) -> str:
    """Return why pytest says that something was skipped, or an empty string where it was not."""
    longrepr = report.longrepr
    if report.outcome != "skipped" or not isinstance(longrepr, tuple) or len(longrepr) != len(("path", "line", "why")):
        return ""
    why = str(longrepr[2])
    prefix = "Skipped: "  # Python 3.8 has no removeprefix
    return _cut(why[len(prefix) :] if why.startswith(prefix) else why)  # noqa: FURB188


def _label_of(report: Any) -> str:
    """Return how pytest 9, or the plugin pytest-subtests, labels a subtest: `[message] (name=value)`; else nothing."""
    if not hasattr(report, "context"):
        return ""
    label = getattr(report, "_sub_test_description", None) or report.sub_test_description
    return " ".join(label()[:200].split())


def _wanted_module(excinfo: Any) -> str:
    """Return the module that `pytest.importorskip` could not import, or an empty string for any other exception."""
    for entry in reversed(list(getattr(excinfo, "traceback", None) or ())):
        if entry.name == "importorskip" and os.path.basename(str(entry.path)) == "outcomes.py":
            return str(entry.frame.f_locals.get("modname", ""))
    return ""


def _cut(text: str) -> str:
    text = str(text)
    if len(text) <= _TEXT_LIMIT:
        return text
    return text[: _TEXT_LIMIT // 2] + "\n...\n" + text[-_TEXT_LIMIT // 2 :]


_SEND = _open_channel()
if _SEND is not None and hasattr(faulthandler, "register"):
    # Write the stack into the output at SIGQUIT, which orch23 sends before it kills pytest at a timeout. From C, so
    # also while other C code runs; and without a thread, about which Python would warn at each fork.
    faulthandler.register(signal.SIGQUIT, os.dup(2), all_threads=False)
_RUNNER: Any = []


def pytest_load_initial_conftests() -> None:
    """Note what runs the tests, before any file of the tree is loaded, and after pytest has patched itself."""
    _RUNNER[:] = _runner_functions()


def pytest_configure(config: Any) -> None:
    """Register the hooks: the witness always, the reporter where orch23 listens."""
    reporter = _Reporter(_SEND or (lambda _event: None), config)
    config.pluginmanager.register(_Witness(reporter.place, config), "orch23-witness")
    if hasattr(config, "get_verbosity"):  # pytest 8 and newer
        config.pluginmanager.register(_FullDiffs(config), "orch23-full-diffs")
    if _SEND is not None:
        config.pluginmanager.register(reporter, "orch23-reporter")
