"""What honest programs do: each must work inside a sandbox. `honest.py` says which did not."""

import asyncio
import concurrent.futures
import ctypes
import datetime as dt
import grp
import http.client
import http.server
import json
import locale
import mmap
import multiprocessing
import multiprocessing.shared_memory
import os
import pwd
import resource
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zoneinfo
from collections.abc import Callable
from pathlib import Path

WORKS: dict[str, Callable[[], None]] = {}


def work(function):
    WORKS[function.__name__] = function
    return function


def square(number):
    return number * number


def put(queue, lock):
    with lock:
        queue.put(os.getpid())


@work
def temporary_files():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a").write_text("x" * 100_000)
    for folder in ("/tmp", "/var/tmp") if os.environ["HONEST_TIER"] in ("bubblewrap", "namespaces") else ():
        Path(folder, "a").write_text("x")


@work
def a_temporary_file_becomes_a_result():
    with tempfile.NamedTemporaryFile("w", delete=False) as file:
        file.write("x")
    os.replace(file.name, "result.txt")
    os.link("result.txt", "second.txt")
    os.unlink("second.txt")


@work
def modes_times_and_links():
    Path("run.sh").write_text("#!/bin/sh\necho ran\n")
    os.chmod("run.sh", 0o755)
    assert subprocess.check_output(["./run.sh"]) == b"ran\n"
    os.utime("run.sh", (1, 1))
    os.symlink("run.sh", "link")
    os.unlink("link")
    os.mkfifo("pipe")
    os.unlink("pipe")


@work
def processes_by_fork():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(square, range(10)) == [square(n) for n in range(10)]


@work
def processes_by_spawn():
    context = multiprocessing.get_context("spawn")
    queue, lock = context.Queue(), context.Lock()
    child = context.Process(target=put, args=(queue, lock))
    child.start()
    assert queue.get(timeout=20) == child.pid
    child.join()


@work
def processes_by_forkserver():
    context = multiprocessing.get_context("forkserver")
    queue, lock = context.Queue(), context.Lock()
    child = context.Process(target=put, args=(queue, lock))
    child.start()
    assert queue.get(timeout=20) == child.pid
    child.join()


@work
def a_manager():
    with multiprocessing.get_context("fork").Manager() as manager:
        manager.dict()["a"] = 1


@work
def a_pool_of_processes():
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(square, range(5))) == [0, 1, 4, 9, 16]


@work
def shared_memory():
    one = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
    assert one.buf is not None
    one.buf[:3] = b"abc"
    one.close()
    one.unlink()
    with mmap.mmap(-1, 4096) as pages:
        pages[:3] = b"abc"


@work
def threads():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(square, range(100))) == sum(map(square, range(100)))


@work
def an_event_loop():
    async def main():
        child = await asyncio.create_subprocess_exec("echo", "out", stdout=subprocess.PIPE)
        out, _ = await child.communicate()
        await asyncio.gather(*(asyncio.sleep(0.001) for _ in range(50)))
        return out

    assert asyncio.run(main()) == b"out\n"


@work
def a_database():
    with sqlite3.connect("base.sqlite") as base:
        base.execute("pragma journal_mode = wal")
        base.execute("create table t (a)")
        base.executemany("insert into t values (?)", [(n,) for n in range(1000)])
        base.commit()
        assert base.execute("select count(*) from t").fetchone() == (1000,)
    base.close()
    for path in Path().glob("base.sqlite*"):
        path.unlink()


@work
def a_loopback_server():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = http.client.HTTPConnection("localhost", server.server_address[1], timeout=5)
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"hello"
        server.shutdown()


@work
def datagrams_on_the_loopback():
    one, other = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
    one.bind(("127.0.0.1", 0))
    other.sendto(b"x", one.getsockname())
    one.settimeout(5)
    assert one.recv(10) == b"x"


@work
def a_server_on_a_path():
    path = str(Path(os.environ["TMPDIR"], "socket"))
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen()
        client.connect(path)
        client.sendall(b"x")
        assert server.accept()[0].recv(10) == b"x"


@work
def pairs_of_sockets():
    one, other = socket.socketpair()
    one.sendall(b"x")
    assert other.recv(10) == b"x"


@work
def pipelines_of_a_shell():
    script = "set -euo pipefail; seq 1 1000 | sort -r | head -1 | sed s/9/x/ > out; cat <(echo a) >> out; grep a out"
    subprocess.check_call(["bash", "-c", script], stdout=subprocess.DEVNULL)
    assert Path("out").read_text() == "x99\na\n"


@work
def version_control():
    if shutil.which("git") is None:
        return
    Path("repository").mkdir()
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    Path("repository/a").write_text("x")
    for command in (["init", "-q"], ["add", "."], [*name, "commit", "-qm", "first"], ["gc", "-q"], ["fsck"]):
        subprocess.check_call(["git", *command], cwd="repository", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shutil.rmtree("repository")


@work
def a_compiler():
    if shutil.which("cc") is None:
        return
    Path("a.c").write_text('#include <stdio.h>\n#include <threads.h>\nint main(void) { puts("compiled"); return 0; }\n')
    subprocess.check_call(["cc", "-O1", "-o", "a.out", "a.c", "-lm", "-pthread"])
    assert subprocess.check_output(["./a.out"]) == b"compiled\n"


@work
def places_and_times():
    locale.setlocale(locale.LC_ALL, "")
    assert dt.datetime.now(zoneinfo.ZoneInfo("Europe/Berlin")).tzinfo is not None
    assert time.strftime("%Z") == "UTC"


@work
def who_and_where():
    entry = pwd.getpwuid(os.getuid()) if os.getuid() != 65534 else pwd.getpwnam("root")
    assert entry.pw_name
    assert grp.getgrgid(0).gr_name
    assert Path.home().is_dir()
    assert socket.gethostname()
    assert os.cpu_count()


@work
def limits_and_priorities_of_ones_own():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    os.nice(1)
    os.sched_setaffinity(0, os.sched_getaffinity(0))


@work
def signals_among_ones_own():
    child = subprocess.Popen(["sleep", "100"])
    child.send_signal(signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM


@work
def devices():
    Path("/dev/null").write_text("x")
    assert len(os.urandom(16)) == 16
    with open("/dev/urandom", "rb") as chance, open("/dev/zero", "rb") as zero:
        assert len(chance.read(8)) == 8
        assert zero.read(2) == b"\0\0"
    assert Path("/proc/self/status").read_text()
    assert Path("/dev/fd/1").exists()


@work
def copies_and_archives():
    Path("tree/deep").mkdir(parents=True)
    Path("tree/deep/ä ö").write_text("x")
    subprocess.check_call(["cp", "-a", "tree", "copy"])
    subprocess.check_call(["tar", "-czf", "tree.tgz", "tree"])
    with tarfile.open("tree.tgz") as archive:
        archive.extractall("unpacked")
    subprocess.check_call(["touch", "-d", "2001-01-01", "copy/deep/ä ö"])
    for folder in ("tree", "copy", "unpacked"):
        shutil.rmtree(folder)
    os.unlink("tree.tgz")


@work
def certificates():
    ssl.create_default_context()


@work
def a_library_by_its_name():
    assert ctypes.CDLL("libc.so.6").getpid() == os.getpid()


@work
def packages_of_the_environment():
    script = "import importlib.metadata as m; print(len(list(m.distributions())))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 0
    expected = os.environ.get("HONEST_PACKAGE")
    if expected:
        subprocess.check_call([sys.executable, "-c", f"import {expected}"])


def main():
    failed = {}
    for name, function in WORKS.items():
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                function()
            except BaseException as problem:  # noqa: BLE001 - it is told
                Path(f"{name}.failed").write_text(repr(problem))
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            path = Path(f"{name}.failed")
            failed[name] = path.read_text() if path.exists() else "it ended without a word"
    Path("failed.json").write_text(json.dumps(failed))


if __name__ == "__main__":
    main()
