"""Measure a server of the Remote Execution API on this machine while it is killed and started again.

`python -m bench.remote_reapi [ACTIONS]`

Prints how often actions were submitted and started, and the time in comparison with this machine. The server is that of
the tests, in Python.
"""

import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orch23.features.cache.registry import open_shared_cache
from orch23.features.remote.reapi_engine import make_executor
from orch23.model.action import Action, ActionOutcome, Completed
from orch23.model.digest import FileEntry
from orch23.model.ports import Surroundings
from orch23.store.content_store import DiskContentStore
from tests.features.remote.engines import local_rig
from tests.reapi_workers import ServerProcess

ACTIONS = 1000
AT_ONCE = 8
RESTART_EACH_S = 5.0
"""The mean time between two kills of the server."""
_SEED = 23
# Without a sandbox, so that each start leaves a line outside.
_COMMAND = "echo $0 >> $1; sleep 0.2 & wait; { cat in.txt; seq 200; } > out.txt"


def main(count: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="orch23-bench-") as name:
        folder = Path(name)
        with local_rig(folder / "local", AT_ONCE, allowed=True) as rig:
            here, local_s, _ = measured(rig.executor.run, rig.contents, folder / "local-starts", count)
        print(f"local, {AT_ONCE} at once: {count} actions in {local_s:.1f} s")
        report("workers without orch23", here, *remote(folder / "plain", count, plain=True, restarts=False))
        report("workers without orch23", here, *remote(folder / "killed", count, plain=True, restarts=True))
        report("workers with orch23", here, *remote(folder / "orch23", count, plain=False, restarts=False))
        report("workers with orch23", here, *remote(folder / "killed23", count, plain=False, restarts=True))


def report(name: str, here: list[str], there: list[str], duration_s: float, starts: int, sent: int, kills: int) -> None:
    """Print the figures of one measurement."""
    print(
        f"server, {name}, killed {kills} times: {len(there)} actions in {duration_s:.1f} s, {sent} submissions, "
        f"{starts} starts; outputs identical: {here == there}"
    )


def remote(folder: Path, count: int, *, plain: bool, restarts: bool) -> tuple[list[str], float, int, int, int]:
    """Return the outputs on a server, the time, how many were started and submitted, and how often it was killed."""
    contents, server = DiskContentStore(folder / "contents"), ServerProcess(folder / "server")
    ended, kills = threading.Event(), [0]
    address = server.plain if plain else server.scheduler
    surroundings = Surroundings(
        contents=contents,
        workers=AT_ONCE,
        environ={},
        redact=str,
        open_cache=open_shared_cache,
        scheduler=address,
    )
    executor = make_executor(surroundings)
    killer = threading.Thread(target=kill_again, args=(server, ended, kills))
    try:
        if restarts:
            killer.start()
        found, duration_s, starts = measured(executor.run, contents, folder / "starts", count)
    finally:
        ended.set()
        if restarts:
            killer.join()
        executor.close()
        server.kill()
    return found, duration_s, starts, executor.submissions, kills[0]


def kill_again(server: ServerProcess, ended: threading.Event, kills: list[int]) -> None:
    """Kill the server with signal 9 and start it again, again and again."""
    numbers = random.Random(_SEED)  # noqa: S311 - the same kills each time
    while not ended.wait(RESTART_EACH_S * numbers.uniform(0.5, 1.5)):
        server.kill()
        kills[0] += 1
        server.start()


def measured(
    run: Callable[[Action], ActionOutcome], contents: DiskContentStore, starts: Path, count: int
) -> tuple[list[str], float, int]:
    """Return the digests of all outputs, the time in seconds, and how many actions were started."""
    starts.touch()

    def one(number: int) -> str:
        entry = FileEntry(contents.put(f"{number}\n".encode()))
        argv = ("bash", "-c", _COMMAND, str(number), str(starts))
        outcome = run(Action(argv=argv, inputs={"in.txt": entry}, sandbox=False))
        assert isinstance(outcome, Completed), outcome
        return outcome.result.written["out.txt"].digest.sha256

    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = list(threads.map(one, range(count)))
    return found, time.monotonic() - began, len(starts.read_text().splitlines())


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else ACTIONS)
