"""Ten kinds of daemon, each of which tries to outlive the step that started it: `daemons.py KIND TAG [SECONDS]`.

With SECONDS, the step ends once there is a file `seen`, and after that time at the latest.

Every one ends as a process whose command line holds the tag, by which it is looked for from outside.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

LIBC = ctypes.CDLL(None)


def sleep_on(tag: str) -> None:
    """Become the daemon."""
    with open(os.devnull, "r+b") as nothing:
        for number in range(3):
            os.dup2(nothing.fileno(), number)
    os.closerange(3, 256)
    for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(one, signal.SIG_IGN)
    os.execv("/bin/sleep", ["sleep", tag])


def forked(*then) -> bool:
    """Fork; the child does these and says True, the parent says False."""
    if os.fork():
        return False
    for act in then:
        act()
    return True


def double_fork(tag):
    if forked(os.setsid):
        if forked():
            sleep_on(tag)
        os._exit(0)


def new_session(tag):
    if forked(os.setsid):
        sleep_on(tag)


def new_group(tag):
    if forked(os.setpgrp):
        sleep_on(tag)


def no_environment(tag):
    subprocess.Popen(["/bin/sleep", tag], env={}, start_new_session=True)


def by_nohup(tag):
    subprocess.Popen(["/bin/sh", "-c", f"nohup sleep {tag} >/dev/null 2>&1 & "])


def by_setsid_of_a_shell(tag):
    subprocess.Popen(["/bin/sh", "-c", f"(setsid setsid sleep {tag} &) &"], stdout=subprocess.DEVNULL)


def other_name(tag):
    if forked(os.setsid):
        LIBC.prctl(15, b"kworker/0:1", 0, 0, 0)  # PR_SET_NAME
        sleep_on(tag)


def chain_of_births(tag):
    """Be born again every few milliseconds, so that no number of a process stays true."""
    if forked(os.setsid):
        for _ in range(300):
            if os.fork():
                os._exit(0)
            time.sleep(0.002)
        sleep_on(tag)


def subreaper(tag):
    """Take in its own orphans, so that they are nobody else's."""
    if forked(os.setsid):
        LIBC.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        if forked(os.setsid):
            if forked():
                sleep_on(tag)
            os._exit(0)
        time.sleep(1000)


def from_a_thread(tag):
    def work():
        if forked(os.setsid):
            sleep_on(tag)

    threading.Thread(target=work).start()


def many_at_once(tag):
    for _ in range(40):
        if forked(os.setsid):
            sleep_on(tag)


def watching_each_other(tag):
    """Two that start each other again."""
    script = f"while :; do sleep {tag} & wait $!; done"
    subprocess.Popen(["/bin/sh", "-c", f"trap '' TERM HUP; setsid sh -c '{script}' & exit 0"], start_new_session=True)


KINDS = {
    one.__name__: one
    for one in (
        *(double_fork, new_session, new_group, no_environment, by_nohup, by_setsid_of_a_shell, other_name),
        *(chain_of_births, subreaper, from_a_thread, many_at_once, watching_each_other),
    )
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](sys.argv[2])
    time.sleep(0.05)  # so that most of them are well on their way when their parent ends
    until = time.monotonic() + float((*sys.argv[3:], "0")[0])
    while not os.path.exists("seen") and time.monotonic() < until:
        time.sleep(0.01)
