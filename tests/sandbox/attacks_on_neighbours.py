"""Attacks on other processes of the machine: their memory, their descriptors, their lives, and what they listen on."""

import array
import contextlib
import ctypes
import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from attacking import LIBC, attack, checked, system_call


@attack("secret")
def read_environment_of_neighbour(world):
    return Path(f"/proc/{world['neighbour']}/environ").read_text()


@attack("secret", plain="root")
def read_environment_of_builder(world):
    return Path(f"/proc/{world['builder']}/environ").read_text()


@attack("secret")
def read_all_environments(world):
    found = ""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            found += path.read_text(errors="replace")
    return found


@attack("secret")
def read_command_line_of_neighbour(world):
    return Path(f"/proc/{world['neighbour']}/cmdline").read_text()


@attack("secret")
def read_descriptor_of_neighbour(world):
    return Path(f"/proc/{world['neighbour']}/fd/0").read_text()


@attack("secret")
def read_memory_of_neighbour(world):
    length = len(world["secret_inside"])
    buffer = ctypes.create_string_buffer(length)
    local = struct.pack("@PL", ctypes.addressof(buffer), length)
    remote = struct.pack("@PL", world["address"], length)
    numbers = (ctypes.c_int(world["neighbour"]), local, ctypes.c_ulong(1), remote, ctypes.c_ulong(1), ctypes.c_ulong(0))
    system_call(310, 270, *numbers)
    return buffer.raw.decode(errors="replace")


@attack("secret")
def read_memory_by_proc(world):
    with open(f"/proc/{world['neighbour']}/mem", "rb") as memory:
        memory.seek(world["address"])
        return memory.read(len(world["secret_inside"])).decode(errors="replace")


@attack("secret")
def take_descriptor_of_neighbour(world):
    handle = os.pidfd_open(world["neighbour"])
    taken = system_call(438, 438, ctypes.c_int(handle), ctypes.c_int(0), ctypes.c_uint(0))
    os.lseek(taken, 0, 0)
    return os.read(taken, 4096).decode()


@attack("secret", plain="nobody")
def use_inherited_descriptors(world):
    found = ""
    for number in range(3, 256):
        with contextlib.suppress(OSError):
            os.lseek(number, 0, 0)
            found += os.read(number, 4096).decode(errors="replace")
    return found


@attack("secret")
def read_shared_segment(world):
    LIBC.shmat.restype = ctypes.c_void_p
    address = LIBC.shmat(ctypes.c_int(world["segment"]), None, 0o10000)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "shmat")
    return ctypes.string_at(address, len(world["secret_inside"])).decode(errors="replace")


@attack("said")
def trace_neighbour(world):
    checked(LIBC.ptrace(0x4206, world["neighbour"], None, None))  # PTRACE_SEIZE


# ---- signals ----------------------------------------------------------------------------------------------------


@attack("killed")
def kill_neighbour(world):
    os.kill(world["prey"]["kill_neighbour"], signal.SIGKILL)


@attack("killed")
def kill_neighbour_by_handle(world):
    signal.pidfd_send_signal(os.pidfd_open(world["prey"]["kill_neighbour_by_handle"]), signal.SIGKILL)


@attack("killed")
def kill_group_of_neighbour(world):
    os.killpg(world["prey"]["kill_group_of_neighbour"], signal.SIGKILL)


@attack("killed")
def queue_a_signal(world):
    checked(LIBC.sigqueue(world["prey"]["queue_a_signal"], int(signal.SIGKILL), None))


@attack("killed")
def kill_with_a_program(world):
    subprocess.run(["/bin/sh", "-c", f"kill -9 {world['prey']['kill_with_a_program']}"], check=False)


@attack("treated")
def slow_neighbour_down(world):
    os.setpriority(os.PRIO_PROCESS, world["prey"]["slow_neighbour_down"], 19)


@attack("treated")
def limit_neighbour(world):
    import resource  # noqa: PLC0415 - of this attack alone

    resource.prlimit(world["prey"]["limit_neighbour"], resource.RLIMIT_NOFILE, (3, 3))


@attack("treated", plain="nobody")
def slow_all_of_this_user_down(world):
    if os.getuid() == 0:
        raise OSError(0, "not tried as root, whose processes are the machine's")
    os.setpriority(os.PRIO_USER, 0, os.getpriority(os.PRIO_PROCESS, 0) + 1)


@attack("treated")
def reschedule_neighbour(world):
    os.sched_setscheduler(world["prey"]["reschedule_neighbour"], os.SCHED_BATCH, os.sched_param(0))


@attack("treated")
def reschedule_neighbour_by_attributes(world):
    attributes = struct.pack("=IIQiIQQQ", 48, os.SCHED_BATCH, 0, 19, 0, 0, 0, 0)
    number = ctypes.c_int(world["prey"]["reschedule_neighbour_by_attributes"])
    system_call(314, 274, number, attributes, ctypes.c_uint(0))


@attack("treated")
def bind_neighbour_to_a_processor(world):
    os.sched_setaffinity(world["prey"]["bind_neighbour_to_a_processor"], {0})


@attack("treated")
def lower_the_disk_priority_of_neighbour(world):
    prey = ctypes.c_int(world["prey"]["lower_the_disk_priority_of_neighbour"])
    system_call(251, 30, ctypes.c_int(1), prey, ctypes.c_int(3 << 13))  # of a process; idle


@attack("unqueued")
def remove_a_queue(world):
    system_call(241, 181, world["unique"].encode())


# ---- sockets ----------------------------------------------------------------------------------------------------


@attack("reached")
def connect_tcp(world):
    socket.create_connection(("127.0.0.1", world["tcp"]), 2).sendall(b"connect_tcp;")


@attack("reached")
def connect_by_fast_open(world):
    socket.socket().sendto(b"connect_by_fast_open;", socket.MSG_FASTOPEN, ("127.0.0.1", world["tcp"]))


@attack("reached")
def connect_without_waiting(world):
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", world["tcp"]))
    time.sleep(0.05)
    one.sendall(b"connect_without_waiting;")


@attack("reached")
def connect_by_ipv6(world):
    one = socket.socket(socket.AF_INET6)
    one.connect(("::ffff:127.0.0.1", world["tcp"]))
    one.sendall(b"connect_by_ipv6;")


@attack("reached")
def connect_to_the_address_of_the_machine(world):
    socket.create_connection((world["address_of_machine"], world["tcp"]), 2).sendall(
        b"connect_to_the_address_of_the_machine;"
    )


@attack("reached")
def send_udp(world):
    socket.socket(type=socket.SOCK_DGRAM).sendto(b"send_udp;", ("127.0.0.1", world["udp"]))


@attack("reached")
def connect_path_socket(world):
    one = socket.socket(socket.AF_UNIX)
    one.connect(world["path_socket"])
    one.sendall(b"connect_path_socket;")


@attack("reached")
def connect_abstract_socket(world):
    one = socket.socket(socket.AF_UNIX)
    one.connect("\0" + world["unique"])
    one.sendall(b"connect_abstract_socket;")


@attack("reached")
def send_to_path_socket(world):
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"send_to_path_socket;", world["path_datagrams"])


@attack("reached")
def send_from_a_pair(world):
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    address = struct.pack("=H", socket.AF_UNIX) + os.fsencode(world["path_datagrams"]) + b"\0"
    checked(LIBC.connect(pair[0].fileno(), address, len(address)))
    pair[0].send(b"send_from_a_pair;")


def _send_to(one, path, data):
    """Send to a path or, where that begins with a NUL, to an abstract name."""
    one.sendmsg([data], [], 0, path)


def _raw():
    return socket.socket(socket.AF_UNIX, socket.SOCK_RAW)  # Linux gives a socket of datagrams


def _pair(kind):
    return socket.socketpair(socket.AF_UNIX, kind)[0]


_KINDS = {
    "a_raw_socket": _raw,
    "a_raw_pair": lambda: _pair(socket.SOCK_RAW),
    "a_pair_of_datagrams": lambda: _pair(socket.SOCK_DGRAM),
}


def _send_by(kind, where, name):
    return lambda world: _send_to(_KINDS[kind](), world[where], f"{name};".encode())


for _kind in _KINDS:
    for _where in ("path_datagrams", "abstract_datagrams"):
        _name = f"send_by_{_kind}_to_{_where}"
        attack("reached", name=_name)(_send_by(_kind, _where, _name))


@attack("reached")
def pass_a_descriptor(world):
    own = os.open(os.curdir, os.O_RDONLY)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [own]))]
    for kind in _KINDS.values():
        with contextlib.suppress(OSError):
            kind().sendmsg([b"pass_a_descriptor;"], rights, 0, world["path_datagrams"])


@attack("reached")
def pass_for_a_service(world):
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(2)
    one.bind("\0" + world["unique"] + "-service")
    one.listen()
    one.accept()[0].sendall(b"pass_for_a_service;")
    time.sleep(0.1)


@attack("reached")
def connect_with_a_shell(world):
    script = f"echo -n 'connect_with_a_shell;' > /dev/tcp/127.0.0.1/{world['tcp']}"
    subprocess.run(["/bin/bash", "-c", script], check=False)


@attack("said", plain="root")
def open_a_raw_socket(world):
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).sendto(b"x" * 8, ("127.0.0.1", 0))


@attack("said", plain="root")
def open_a_packet_socket(world):
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)


@attack("said", plain="nobody")
def talk_to_the_hypervisor(world):
    socket.socket(40, socket.SOCK_STREAM)  # AF_VSOCK


@attack("said")
def listen_to_the_kernel(world):
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)  # NETLINK_KOBJECT_UEVENT


# ---- persistence ------------------------------------------------------------------------------------------------


@attack("made_cron_job", plain="nobody")
def leave_a_cron_job(world):
    Path("/etc/cron.d", world["unique"]).write_text("# nothing\n")


@attack("made_by_systemd", plain="nobody")
def run_by_systemd(world):
    target = f"/tmp/{world['unique']}-systemd"
    for scope in ((), ("--user",)):
        subprocess.run(["systemd-run", *scope, "touch", target], check=False, capture_output=True, timeout=3)
