"""Assemble the seccomp filter of a step: what no honest program asks the kernel for is refused with EPERM.

Everything else is allowed, since a list of what honest programs need would never be complete. `clone3` alone is said
not to exist: its flags lie in memory, where no filter can look, and every libc then falls back to `clone`.
"""

import ctypes
import errno
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from operator import itemgetter
from typing import Final

from orch23.execute.sandbox.system_calls import AUDIT_ARCHITECTURES, call, checked, libc, number


class Sockets(Enum):
    """Which sockets a step may have."""

    OWN = "of a network of its own, where nobody else listens"
    SHARED = "of the internet family; none of the file system's, behind which services of this machine listen"
    NONE = "of the file system's family alone, and connected only in pairs"


_REFUSED_TEXT: Final = """
    mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick open_tree move_mount mount_setattr setns
    open_by_handle_at swapon swapoff quotactl quotactl_fd acct
    ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp move_pages migrate_pages
    keyctl add_key request_key
    bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register fanotify_init
    init_module finit_module delete_module kexec_load kexec_file_load
    reboot sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex syslog vhangup
    iopl ioperm modify_ldt lookup_dcookie nfsservctl uselib
"""
_OF_ALL_TEXT: Final = """
    shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open
"""
_ATTRIBUTES_TEXT: Final = """
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
"""

_NEW_NAMESPACE = 0x7E02_0000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_NEW_TIME = 0x80  # CLONE_NEWTIME, of unshare alone; in clone these bits are the signal
_S_IFMT, _S_IFCHR, _S_IFBLK = 0o170000, 0o020000, 0o060000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # put characters into a terminal; paste into a console
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_DATAGRAM, _TYPE = 2, 0xF
_WHOLE = 0xFFFF_FFFF

_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
_JUMP, _ANY_BIT, _AT_LEAST = 0x05, 0x45, 0x35
_ALLOW, _KILL, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_FIRST_X32 = 0x4000_0000
_FEW = 4  # rules that are tried one after the other

_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_SET_MODE_FILTER = 1


@dataclass(frozen=True, slots=True)
class _Test:
    """A test of the low half of one argument: that it equals a value under a mask, or has a bit of it."""

    argument: int
    value: int
    mask: int = _WHOLE
    any_bit: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class _Rule:
    """A call is refused if all of the tests hold."""

    name: str
    tests: tuple[_Test, ...] = ()
    error: int = errno.EPERM


@cache
def program(sockets: Sockets, machine: str, *, alone: bool = True) -> bytes:
    """Return the filter as the kernel, and bubblewrap, take it.

    What is not `alone` in namespaces is also refused what reaches other processes, or files it may not open.

    Raises:
        ValueError: the machine is not known.

    """
    architecture = AUDIT_ARCHITECTURES.get(machine)
    if architecture is None:
        message = f"no filter is known for {machine}"
        raise ValueError(message)
    code = [(_LOAD, 0, 0, _MACHINE_AT), (_EQUAL, 1, 0, architecture), _give(_KILL), (_LOAD, 0, 0, _NUMBER_AT)]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _FIRST_X32), _give(_ERRNO | errno.ENOSYS)]
    numbered = ((number(rule.name, machine), rule) for rule in _rules(sockets, alone=alone))
    code += _searched(sorted(((this, rule) for this, rule in numbered if this is not None), key=itemgetter(0)))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def give_up_privileges() -> None:
    """Let no program that this thread starts gain privileges by its file: what a filter asks for.

    Raises:
        OSError: the kernel does not know how.

    """
    checked("no_new_privs", libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def install(filter_program: bytes) -> None:
    """Give up, for this thread and what it starts, what the filter refuses.

    Raises:
        OSError: the kernel has no such filters, or the thread could still gain privileges.

    """
    buffer = ctypes.create_string_buffer(filter_program, len(filter_program))
    header = ctypes.create_string_buffer(
        struct.pack("@HP", len(filter_program) // struct.calcsize("=HBBI"), ctypes.addressof(buffer))
    )
    call("seccomp", ctypes.c_uint(_SECCOMP_SET_MODE_FILTER), ctypes.c_uint(0), header)


def _rules(sockets: Sockets, *, alone: bool) -> Iterator[_Rule]:
    yield from (_Rule(name) for name in _REFUSED_TEXT.split())
    if not alone:
        yield from (_Rule(name) for name in _OF_ALL_TEXT.split())
        yield from (_Rule(name, error=errno.EOPNOTSUPP) for name in _ATTRIBUTES_TEXT.split())
        yield _Rule("prlimit64", (_Test(0, 0, negated=True),))
        yield _Rule("setpriority", (_Test(1, 0, negated=True),))
    yield _Rule("clone3", error=errno.ENOSYS)
    yield _Rule("clone", (_Test(0, _NEW_NAMESPACE, any_bit=True),))
    yield _Rule("unshare", (_Test(0, _NEW_NAMESPACE | _NEW_TIME, any_bit=True),))
    for kind in (_S_IFCHR, _S_IFBLK):
        yield _Rule("mknod", (_Test(1, kind, _S_IFMT),))
        yield _Rule("mknodat", (_Test(2, kind, _S_IFMT),))
    yield from (_Rule("ioctl", (_Test(1, request),)) for request in (_TIOCSTI, _TIOCLINUX))
    yield from _socket_rules(sockets)


def _socket_rules(sockets: Sockets) -> Iterator[_Rule]:
    match sockets:
        case Sockets.OWN:
            yield _families(_UNIX, _INET, _INET6, _NETLINK)
        case Sockets.SHARED:
            yield _families(_INET, _INET6, _NETLINK)
        case Sockets.NONE:
            yield _families(_UNIX)
            yield _Rule("socket", (_Test(1, _DATAGRAM, _TYPE),))
            yield _Rule("connect")
    if sockets is not Sockets.NONE:  # of the kernel's own sockets, those of addresses alone: libc asks there
        yield _Rule("socket", (_Test(0, _NETLINK), _Test(2, 0, negated=True)))
    if sockets is not Sockets.OWN:  # a pair of these can send to the addresses of others
        yield _Rule("socketpair", (_Test(1, _DATAGRAM, _TYPE),))


def _families(*allowed: int) -> _Rule:
    return _Rule("socket", tuple(_Test(0, family, negated=True) for family in allowed))


def _searched(rules: Sequence[tuple[int, _Rule]]) -> list[tuple[int, int, int, int]]:
    """Return the instructions that find the rules of a number by halves: the kernel tries each number at loading."""
    middle = len(rules) // 2
    while middle and rules[middle - 1][0] == rules[middle][0]:  # the rules of one call stay together
        middle -= 1
    if len(rules) <= _FEW or not middle:
        return [*(step for this, rule in rules for step in _assembled(rule, this)), _give(_ALLOW)]
    lower, upper = _searched(rules[:middle]), _searched(rules[middle:])
    return [(_AT_LEAST, len(lower), 0, rules[middle][0]), *lower, *upper]


def _assembled(rule: _Rule, this: int) -> list[tuple[int, int, int, int]]:
    """Return the instructions of a rule; the number of the call is in the register before them and after them."""
    body: list[tuple[int, int, int, int]] = []
    for at, test in enumerate(rule.tests):
        left = sum(_length(one) for one in rule.tests[at + 1 :]) + 1  # to the instruction after the return
        body.append((_LOAD, 0, 0, _ARGUMENTS_AT + 8 * test.argument))
        if test.mask != _WHOLE:
            body.append((_AND, 0, 0, test.mask))
        compare = _ANY_BIT if test.any_bit else _EQUAL
        body.append((compare, left, 0, test.value) if test.negated else (compare, 0, left, test.value))
    body.append(_give(_ERRNO | rule.error))
    if rule.tests:
        body.append((_LOAD, 0, 0, _NUMBER_AT))
    return [(_EQUAL, 0, len(body), this), *body]


def _length(test: _Test) -> int:
    return 2 + (test.mask != _WHOLE)


def _give(value: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, value)
