"""Start processes one at a time from a process that is small itself, so that their peak memory is their own.

A child's peak counts what its parent held when it was started. So this runs as a program with hardly an import. It
reads what to start from its standard input: values of `marshal`, each with its length before it.
"""

import marshal
import posix
import select
import signal
import sys
import time

PATIENCE_S = 3.0
KIB = 1024


def run(order: tuple[list[str], dict[str, str], str, str, float]) -> dict[str, float | int | bool]:
    """Start one process, wait for its end or for its time to be over, and return what it took."""
    argv, environment, folder, output, limit_s = order
    posix.chdir(folder)
    actions = [
        (posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0),
        (posix.POSIX_SPAWN_OPEN, 1, output, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC, 0o600),
        (posix.POSIX_SPAWN_DUP2, 1, 2),
    ]
    began = time.perf_counter()
    process = posix.posix_spawn(argv[0], argv, environment, file_actions=actions, setpgroup=0)
    late = not _ends(process, limit_s)
    if late:
        posix.killpg(process, signal.SIGTERM)
        _ends(process, PATIENCE_S)
        posix.killpg(process, signal.SIGKILL)
    _, status, usage = posix.wait4(process, 0)
    return {
        "wall_s": time.perf_counter() - began,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_bytes": usage.ru_maxrss * KIB,
        "code": posix.waitstatus_to_exitcode(status),
        "late": late,
    }


def _ends(process: int, limit_s: float) -> bool:
    descriptor = posix.pidfd_open(process)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    try:
        return bool(poll.poll(limit_s * 1000))
    finally:
        posix.close(descriptor)


def main() -> None:
    """Carry out orders until there are no more."""
    orders, answers = sys.stdin.buffer, sys.stdout.buffer
    while size := orders.read(4):
        answer = marshal.dumps(run(marshal.loads(orders.read(int.from_bytes(size)))))  # noqa: S302 - from our own parent
        answers.write(len(answer).to_bytes(4) + answer)
        answers.flush()


if __name__ == "__main__":
    main()
