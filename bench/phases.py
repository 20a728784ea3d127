"""Where the processor time of a first build goes, by its parts: `python -m bench.phases [STAGES] [cat]`.

Builds in this process, with the parts' methods wrapped: what each takes is the processor time of its thread, in the
program and in the system, without what other parts take within it. The commands are what the children took.
"""

import contextlib
import functools
import io
import resource
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.graph import make_graph
from bench.project import Project
from bench.tools.orch23 import trusted

STAGES = 1_000


def parts() -> Mapping[str, list[tuple[type, str]]]:
    """Return the parts: classes with the names of their methods."""
    from orch23.attempt.stage_work import Worker  # noqa: PLC0415 - heavy
    from orch23.decide.decisions import StageDecider  # noqa: PLC0415 - heavy
    from orch23.engine.result_writer import ResultWriter  # noqa: PLC0415 - heavy
    from orch23.execute.cleanup import BackgroundCleaner  # noqa: PLC0415 - heavy
    from orch23.execute.local_executor import LocalExecutor  # noqa: PLC0415 - heavy
    from orch23.execute.sandbox_dir import SandboxDirs  # noqa: PLC0415 - heavy
    from orch23.report.text import TextScreen  # noqa: PLC0415 - heavy
    from orch23.store.content_store import DiskContentStore  # noqa: PLC0415 - heavy
    from orch23.store.project_store import ProjectStore  # noqa: PLC0415 - heavy
    from orch23.store.records import Records  # noqa: PLC0415 - heavy
    from orch23.store.run_logs import Journal  # noqa: PLC0415 - heavy
    from orch23.store.run_state import StateFile  # noqa: PLC0415 - heavy
    from orch23.text.secrets import Secrets  # noqa: PLC0415 - heavy

    return {
        "deciding: inputs, manifest, key, records": [(StageDecider, "decide")],
        "inputs and outputs copied into the store": [
            (ProjectStore, "add_file"),
            (DiskContentStore, "adopt"),
            (DiskContentStore, "put"),
        ],
        "inputs staged": [(SandboxDirs, "stage")],
        "sandbox directories scanned": [(SandboxDirs, "scan_open")],
        "sandbox directories removed": [
            (SandboxDirs, "recycle"),
            (SandboxDirs, "discard"),
            (BackgroundCleaner, "_run"),
        ],
        "processes started and waited for": [(LocalExecutor, "_start")],
        "searched for secrets": [(Secrets, "find"), (Secrets, "may_contain"), (Secrets, "redact")],
        "journal, state and screen": [(Journal, "notice"), (StateFile, "notice"), (TextScreen, "notice")],
        "records": [(Records, "put")],
        "promoted, and written": [(ResultWriter, "promote"), (ResultWriter, "change"), (ResultWriter, "write_lock")],
        "the rest of a stage's work": [(Worker, "work")],
    }


def spent(stages: int, *, cat: bool = False) -> Mapping[str, float]:
    """Return the milliseconds of a stage by part, with the commands and with what is left.

    With `cat` the graph is the one whose commands are texts for a shell.
    """
    from orch23.cli.main import main  # noqa: PLC0415 - heavy

    found: dict[str, float] = defaultdict(float)
    watch = _Watch(found)
    graph = make_graph(stages, cat=cat)
    with tempfile.TemporaryDirectory(prefix="orch23-phases-") as name, contextlib.ExitStack() as undo:
        Project(Path(name), graph, trusted).place_()
        for part, methods in parts().items():
            for kind, method in methods:
                undo.callback(setattr, kind, method, getattr(kind, method))
                setattr(kind, method, watch.around(getattr(kind, method), part))
        before, children = time.process_time(), _children_s()
        undo.enter_context(contextlib.redirect_stderr(io.StringIO()))
        if main(["-C", name, "build", "-j1", "--allow-unsandboxed"]) != 0:
            message = "the build failed"
            raise AssertionError(message)
        own, children = time.process_time() - before, _children_s() - children
    found["all else: reading, planning, the loop, the second look"] = own - sum(found.values())
    found["the commands themselves"] = children
    return {part: seconds * 1000 / stages for part, seconds in found.items()}


class _Watch:
    """Adds up, part by part, the time of threads in methods that are wrapped."""

    def __init__(self, found: dict[str, float]) -> None:
        self._found = found
        self._within = threading.local()
        self._adding = threading.Lock()

    def around(self, method: Callable[..., Any], part: str) -> Callable[..., Any]:
        """Return a method that is timed, without what is timed within it."""

        @functools.wraps(method)
        def timed(*args: Any, **options: Any) -> Any:
            above, self._within.seconds = getattr(self._within, "seconds", 0.0), 0.0
            before = time.thread_time()
            try:
                return method(*args, **options)
            finally:
                took = time.thread_time() - before
                with self._adding:
                    self._found[part] += took - self._within.seconds
                self._within.seconds = above + took

        return timed


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word != "cat"]
    number = numbers[0] if numbers else STAGES
    each = spent(number, cat="cat" in sys.argv[1:])
    print(f"a first build of {number:,} stages, -j1: {sum(each.values()):.2f} ms of processor time a stage")
    for part in sorted(each, key=lambda one: -each[one]):
        print(f"{each[part]:8.2f}  {part}")
