"""The filter of system calls, run by a small machine of our own for both kinds of processor."""

import os
import re
import struct
from pathlib import Path

import pytest

from orch23.execute.sandbox.seccomp import AllowedSockets, build_filter
from orch23.execute.sandbox.system_calls import AUDIT_ARCHITECTURES, CALL_NUMBERS, call_number

MACHINES = ("x86_64", "aarch64")
ALLOWED, KILLED, EPERM, ENOSYS, EOPNOTSUPP = 0x7FFF0000, 0x80000000, 0x50001, 0x50026, 0x5005F
NEWUSER, NEWNET, SIGCHLD, UNIX, INET, PACKET, NETLINK, STREAM, DATAGRAM = 1 << 28, 1 << 30, 17, 1, 2, 17, 16, 1, 2
RAW, PACKETS, TIPC = 3, 5, 30
ENOTTY, DONE = 0x50019, 0x50000
NO_ONE_GIVEN = (1 << 32) - 1


def verdict(code: bytes, machine: str, call: int, *arguments: int, architecture: int | None = None) -> int:
    """Run a classic BPF program as the kernel does, on the data of one call."""
    return run(code, machine, call, *arguments, architecture=architecture)[0]


def steps(code: bytes, machine: str, call: int) -> int:
    return run(code, machine, call)[1]


def run(code: bytes, machine: str, call: int, *arguments: int, architecture: int | None = None) -> tuple[int, int]:
    """Return the verdict and how many instructions it took."""
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    known = AUDIT_ARCHITECTURES[machine] if architecture is None else architecture
    data = struct.pack("<IIQ6Q", call, known, 0, *(one & (1 << 64) - 1 for one in padded))
    instructions = list(struct.iter_unpack("=HBBI", code))
    register = at = 0
    for taken in range(1, len(instructions) + 1):
        operation, jump_true, jump_false, value = instructions[at]
        at += 1
        match operation:
            case 0x20:
                register = struct.unpack_from("<I", data, value)[0]
            case 0x54:
                register &= value
            case 0x05:
                at += value
            case 0x15:
                at += jump_true if register == value else jump_false
            case 0x35:
                at += jump_true if register >= value else jump_false
            case 0x45:
                at += jump_true if register & value else jump_false
            case 0x06:
                return int(value), taken
            case _:
                raise AssertionError(operation)
    raise AssertionError(at)


def asked(
    name: str, *arguments: int, machine: str, sockets: AllowedSockets = AllowedSockets.OWN, alone: bool = True
) -> int | None:
    this = call_number(name, machine)
    return None if this is None else verdict(build_filter(sockets, machine, alone=alone), machine, this, *arguments)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["mount", "ptrace", "bpf", "keyctl", "setns", "reboot", "io_uring_setup", "fsopen"])
def test_calls_that_no_program_needs_are_refused(name: str, machine: str) -> None:
    assert asked(name, machine=machine) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", (SIGCHLD,), ALLOWED),
        ("clone", (0x3D0F00,), ALLOWED),  # a thread
        ("clone", (NEWUSER | SIGCHLD,), EPERM),
        ("clone", (NEWUSER | SIGCHLD | 1 << 32,), EPERM),
        ("clone3", (1, 2), ENOSYS),
        ("unshare", (NEWNET,), EPERM),
        ("unshare", (0x80,), EPERM),  # of time
        ("unshare", (0x400,), ALLOWED),  # of open files
        ("mknodat", (0, 0, 0o060600), EPERM),
        ("mknodat", (0, 0, 0o020600), EPERM),
        ("mknodat", (0, 0, 0o010600), ALLOWED),
        ("mknod", (0, 0o060600), EPERM),
        ("ioctl", (0, 0x5412), EPERM),
        ("ioctl", (0, 0x5412 | 1 << 32), EPERM),  # the kernel looks at the low half alone
        ("ioctl", (0, 0x5401), ALLOWED),
    ],
)
def test_arguments_decide(name: str, arguments: tuple[int, ...], expected: int, machine: str) -> None:
    assert asked(name, *arguments, machine=machine) in (expected, None)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("sockets", "allowed", "refused"),
    [
        (
            AllowedSockets.OWN,
            [(UNIX, STREAM), (UNIX, DATAGRAM), (INET, STREAM), (10, DATAGRAM), (NETLINK, 3, 0)],
            [(PACKET, 3)],
        ),
        (
            AllowedSockets.SHARED,
            [(INET, STREAM), (10, DATAGRAM), (NETLINK, 3, 0)],
            [(UNIX, STREAM), (40, 1), (NETLINK, 3, 15)],
        ),
        (
            AllowedSockets.NONE,
            [],
            [(UNIX, STREAM), (UNIX, DATAGRAM), (UNIX, RAW | 0o2000000), (INET, STREAM), (NETLINK, 3, 0)],
        ),
    ],
)
def test_families_of_sockets(sockets: AllowedSockets, allowed: list, refused: list, machine: str) -> None:
    assert [asked("socket", *one, machine=machine, sockets=sockets) for one in allowed] == [ALLOWED] * len(allowed)
    assert [asked("socket", *one, machine=machine, sockets=sockets) for one in refused] == [EPERM] * len(refused)
    assert asked("connect", 3, machine=machine, sockets=sockets) == (
        EPERM if sockets is AllowedSockets.NONE else ALLOWED
    )
    for kind in (DATAGRAM, RAW, RAW | 0o2000000):  # of either, one end can send to the addresses of others
        pair = asked("socketpair", UNIX, kind, machine=machine, sockets=sockets)
        assert pair == (ALLOWED if sockets is AllowedSockets.OWN else EPERM)
    for kind in (STREAM, PACKETS, STREAM | 0o2000000):
        assert asked("socketpair", UNIX, kind, machine=machine, sockets=sockets) == ALLOWED
    assert asked("socketpair", TIPC, STREAM, machine=machine, sockets=sockets) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_what_shares_namespaces_may_reach_no_other_process(machine: str) -> None:
    for name in ("shmget", "shmat", "msgget", "mq_open"):
        assert asked(name, machine=machine) == ALLOWED
        assert asked(name, machine=machine, alone=False) == EPERM
    assert asked("setxattr", machine=machine, alone=False) == EOPNOTSUPP
    assert asked("prlimit64", 0, 7, machine=machine, alone=False) == ALLOWED
    assert asked("prlimit64", 4711, 7, machine=machine, alone=False) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("mq_unlink", (0,), EPERM),
        ("setpriority", (0, 0, 5), ALLOWED),
        ("setpriority", (2, 0, 5), EPERM),  # all processes of this user
        ("setpriority", (0, 4711, 5), EPERM),
        ("ioprio_set", (1, 0, 0), ALLOWED),
        ("ioprio_set", (3, 0, 0), EPERM),
        ("ioprio_set", (1, 4711, 0), EPERM),
        ("sched_setaffinity", (0, 8, 1), ALLOWED),
        ("sched_setaffinity", (4711, 8, 1), EPERM),
        ("sched_setscheduler", (4711, 3, 1), EPERM),
        ("sched_setparam", (4711, 1), EPERM),
        ("sched_setattr", (4711, 1, 0), EPERM),
        ("chmod", (1, 0o755), ALLOWED),
        ("chmod", (1, 0o4755), EPERM),
        ("fchmod", (1, 0o2755), EPERM),
        ("fchmodat", (1, 2, 0o2755), EPERM),
        ("fchmodat2", (1, 2, 0o6755, 0), EPERM),
        ("fchmodat2", (1, 2, 0o755, 0), ALLOWED),
        ("file_setattr", (1, 2, 3), EPERM),
        ("inotify_add_watch", (1, 2, 3), EPERM),
        ("getxattr", (1, 2, 3), EOPNOTSUPP),
        ("fcntl", (1, 1026, 1), EPERM),  # F_NOTIFY
        ("fcntl", (1, 6, 1), ALLOWED),  # F_SETLK
        ("ioctl", (1, 0x40086602), ENOTTY),  # FS_IOC_SETFLAGS
        ("ioctl", (1, 0x40086602 | 1 << 32), ENOTTY),
        ("ioctl", (1, 0x5000940E), ENOTTY),  # BTRFS_IOC_SUBVOL_CREATE
        ("ioctl", (1, 0x40049409), ALLOWED),  # FICLONE
        ("ioctl", (1, 0x4020940D), ALLOWED),  # FICLONERANGE
    ],
)
def test_what_shares_namespaces_may_change_no_other_file_and_process(
    name: str, arguments: tuple[int, ...], expected: int, machine: str
) -> None:
    assert asked(name, *arguments, machine=machine, alone=False) in (expected, None)
    assert asked(name, *arguments, machine=machine) in (ALLOWED, None)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["chown", "fchown", "lchown", "fchownat"])
def test_a_file_can_be_given_to_its_owner_alone_and_nothing_is_done(name: str, machine: str) -> None:
    before = (1, 2) if name == "fchownat" else (1,)
    own, group = os.getuid(), os.getgid()
    for user, of in ((own, group), (own, NO_ONE_GIVEN), (NO_ONE_GIVEN, group), (NO_ONE_GIVEN, NO_ONE_GIVEN)):
        assert asked(name, *before, user, of, machine=machine, alone=False) in (DONE, None)
    for user, of in ((own + 1, group), (own, group + 1), (NO_ONE_GIVEN, group + 1)):
        assert asked(name, *before, user, of, machine=machine, alone=False) in (EPERM, None)
        assert asked(name, *before, user, of, machine=machine) in (ALLOWED, None)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("alone", [True, False])
def test_no_step_keeps_others_waiting_or_takes_the_disk_in_no_time(alone: bool, machine: str) -> None:
    for command in (1024, 1040):  # F_SETLEASE, F_SETDELEG
        assert asked("fcntl", 1, command, 1, machine=machine, alone=alone) == EPERM
    for mode in (0, 1, 0x10):  # to keep the size; to write zeros
        assert asked("fallocate", 1, mode, 0, 1 << 40, machine=machine, alone=alone) == EOPNOTSUPP
    for request in (0x4030582A, 0x401C5820):  # FS_IOC_RESVSP64, FS_IOC_FSSETXATTR
        assert asked("ioctl", 1, request, machine=machine, alone=alone) == ENOTTY
    assert asked("fallocate", 1, 3, 0, 1 << 40, machine=machine, alone=alone) == ALLOWED  # a hole is punched


@pytest.mark.parametrize("machine", MACHINES)
def test_another_machines_numbers_are_death(machine: str) -> None:
    code = build_filter(AllowedSockets.OWN, machine)
    assert verdict(code, machine, 0, architecture=0x40000003) == KILLED  # i386


def test_the_third_machine_of_x86_64_is_not_there() -> None:
    assert verdict(build_filter(AllowedSockets.OWN, "x86_64"), "x86_64", 0x40000000) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_everything_else_is_allowed(machine: str) -> None:
    code = build_filter(AllowedSockets.OWN, machine)
    known = {call_number(name, machine) for name in CALL_NUMBERS}
    assert {verdict(code, machine, call) for call in range(600) if call not in known} == {ALLOWED}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("sockets", AllowedSockets)
def test_a_verdict_takes_few_steps(sockets: AllowedSockets, machine: str) -> None:
    """The kernel runs the filter for every number there is when it is installed: before each process."""
    code = build_filter(sockets, machine, alone=False)
    assert max(steps(code, machine, call) for call in range(500)) < 30


def test_a_machine_that_is_not_known_has_no_filter() -> None:
    with pytest.raises(ValueError, match="riscv64"):
        build_filter(AllowedSockets.OWN, "riscv64")


@pytest.mark.parametrize(
    ("machine", "header"),
    [("x86_64", "x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")],
)
def test_the_numbers_are_the_kernels(machine: str, header: str) -> None:
    path = Path("/usr/include", header)
    if not path.exists():
        pytest.skip(f"there is no {path}")
    found = {m[1]: int(m[2]) for m in re.finditer(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text())}
    ours = {name: call_number(name, machine) for name in CALL_NUMBERS}
    newer = {"setxattrat", "getxattrat", "listxattrat", "removexattrat", "fchmodat2", "file_setattr", "open_tree_attr"}
    assert {n: v for n, v in ours.items() if n not in newer or n in found} == {
        n: found.get(n) for n in ours if n not in newer or n in found
    }
