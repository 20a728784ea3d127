"""Attacks on the kernel and what it holds for the whole machine.

What would disturb the machine if it worked asks for what is so already, or is tried in a sandbox alone.
"""

import contextlib
import ctypes
import os
import resource
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from attacking import LIBC, attack, checked, system_call


def only_in_a_sandbox(world):
    if not world["sandboxed"]:
        raise OSError(0, "not tried on the machine itself")


@attack("said", plain="nobody")
def mount_a_file_system(world):
    only_in_a_sandbox(world)
    folder = Path(os.environ["TMPDIR"], "mounted")
    folder.mkdir()
    checked(LIBC.mount(b"none", os.fsencode(folder), b"tmpfs", 0, None))


@attack("said", plain="nobody")
def mount_the_new_way(world):
    only_in_a_sandbox(world)
    system_call(430, 430, b"tmpfs", ctypes.c_uint(0))  # fsopen


@attack("said", plain="nobody")
def unmount(world):
    only_in_a_sandbox(world)
    checked(LIBC.umount2(b"/proc", 2))


@attack("said", plain="nobody")
def make_writable_again(world):
    only_in_a_sandbox(world)
    checked(LIBC.mount(None, b"/usr", None, 32 | 4096, None))  # remount, bind


@attack("said")
def new_user_namespace(world):
    checked(LIBC.unshare(0x10000000))


@attack("said", plain="root")
def new_mount_namespace(world):
    checked(LIBC.unshare(0x00020000))


@attack("said")
def clone_a_user_namespace(world):
    child = system_call(56, 220, ctypes.c_ulong(0x10000000 | signal.SIGCHLD), None, None, None, None)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@attack("said")
def clone3_a_user_namespace(world):
    arguments = struct.pack("=11Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)
    child = system_call(435, 435, arguments, ctypes.c_size_t(len(arguments)))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@attack("said", plain="root")
def join_a_namespace(world):
    checked(LIBC.setns(os.open(f"/proc/{world['neighbour']}/ns/net", os.O_RDONLY), 0))


@attack("said", plain="root")
def make_a_device(world):
    path = Path(os.environ["TMPDIR"], "disk")
    os.mknod(path, 0o600 | 0o060000, os.makedev(254, 0))
    path.unlink()


@attack("said", plain="nobody")
def read_memory_of_the_kernel(world):
    for path in ("/dev/mem", "/dev/kmem", "/proc/kcore"):
        with contextlib.suppress(OSError), open(path, "rb") as memory:
            if memory.read(1):
                return
    raise OSError(0, "none could be read")


@attack("said", plain="root")
def write_core_pattern(world):
    path = Path("/proc/sys/kernel/core_pattern")
    path.write_text(path.read_text())


@attack("said", plain="root")
def write_a_switch(world):
    path = Path("/proc/sys/vm/swappiness")
    path.write_text(path.read_text())


@attack("said", plain="nobody")
def press_sysrq(world):
    only_in_a_sandbox(world)
    Path("/proc/sysrq-trigger").write_text("h")


@attack("said", plain="nobody")
def write_to_sys(world):
    only_in_a_sandbox(world)
    path = Path("/sys/devices/system/cpu/cpu1/online")
    path.write_text(path.read_text())


@attack("said", plain="nobody")
def set_the_clock(world):
    only_in_a_sandbox(world)
    time.clock_settime(time.CLOCK_REALTIME, time.time())


@attack("said", plain="root")
def set_the_host_name(world):
    name = socket.gethostname().encode()
    checked(LIBC.sethostname(name, len(name)))


@attack("said", plain="nobody")
def forbid_control_alt_delete(world):
    only_in_a_sandbox(world)
    system_call(169, 142, ctypes.c_uint(0xFEE1DEAD), ctypes.c_uint(672274793), ctypes.c_uint(0), None)


@attack("said", plain="nobody")
def load_a_module(world):
    only_in_a_sandbox(world)
    system_call(313, 273, ctypes.c_int(os.open("/dev/null", os.O_RDONLY)), b"", ctypes.c_int(0))


@attack("said", plain="root")
def read_the_log_of_the_kernel(world):
    system_call(103, 116, ctypes.c_int(3), ctypes.create_string_buffer(64), ctypes.c_int(64))


@attack("said", plain="nobody")
def use_bpf(world):
    attributes = ctypes.create_string_buffer(struct.pack("=IIII", 2, 4, 4, 1) + b"\0" * 112)
    system_call(321, 280, ctypes.c_int(0), attributes, ctypes.c_uint(128))


@attack("said", plain="nobody")
def use_perf(world):
    attributes = ctypes.create_string_buffer(struct.pack("=II", 1, 128) + b"\0" * 120)
    system_call(298, 241, attributes, ctypes.c_int(0), ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_ulong(0))


@attack("said", plain="nobody")
def use_io_uring(world):
    system_call(425, 425, ctypes.c_uint(1), ctypes.create_string_buffer(120))


@attack("said", plain="nobody")
def use_userfaultfd(world):
    system_call(323, 282, ctypes.c_int(0))


@attack("said", plain="nobody")
def use_the_key_ring(world):
    system_call(248, 217, b"user", b"probe", b"x", ctypes.c_size_t(1), ctypes.c_int(-2))


@attack("said", plain="nobody")
def use_quotas(world):
    only_in_a_sandbox(world)
    checked(LIBC.quotactl(0x80000100, b"/dev/vda", 0, None))


@attack("said", plain="nobody")
def use_swap(world):
    only_in_a_sandbox(world)
    checked(LIBC.swapoff(b"/swapfile"))


@attack("said", plain="nobody")
def watch_the_file_system(world):
    checked(LIBC.fanotify_init(0, 0))


@attack("said", plain="root")
def use_a_privilege(world):
    status = Path("/proc/self/status").read_text()
    if int(status.partition("CapEff:")[2].split()[0], 16) == 0:
        raise OSError(0, "no privilege is left")


@attack("said", plain="root")
def become_somebody_else(world):
    if os.getuid() == 0:
        child = os.fork()
        if child == 0:
            with contextlib.suppress(OSError):
                os.setuid(1)
            os._exit(os.getuid() != 1)
        if os.waitpid(child, 0)[1] != 0:
            raise OSError(0, "root stays root")
        return
    done = subprocess.run(["/bin/su", "-c", "true"], stdin=subprocess.DEVNULL, check=False, capture_output=True)
    if done.returncode != 0:
        raise OSError(0, "su gave nothing")


@attack("said", plain="nobody")
def write_files_of_any_size(world):
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@attack("said", plain="nobody")
def type_into_the_terminal(world):
    import fcntl  # noqa: PLC0415 - of this attack alone

    fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, b"x")  # TIOCSTI


@attack("said", plain="nobody")
def use_the_32_bit_door(world):
    """Call by the numbers of a third machine, which a filter could take for harmless ones of its own."""
    if os.uname().machine != "x86_64":
        raise OSError(0, "there is no such door")
    checked(LIBC.syscall(ctypes.c_long(0x40000000 | 272), ctypes.c_ulong(0x10000000)))  # x32 unshare
