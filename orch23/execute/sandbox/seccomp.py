"""Assemble the seccomp filter of a step: which system calls are refused.

Everything else is allowed, since a list of what honest programs need would never be complete. `clone3` alone is said
not to exist: its flags lie in memory, where no filter can look, and every libc then falls back to `clone`.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import cache
from typing import Final, NamedTuple

from orch23.execute.sandbox.system_calls import AUDIT_ARCHITECTURES, call_number, check_result, libc, system_call


class AllowedSockets(Enum):
    """Which sockets a step may have."""

    OWN = "of a network of its own, where nobody else listens"
    SHARED = "of the internet family; none of the file system's, behind which services of this machine listen"
    NONE = "connected pairs alone: one with a name could pass for a service of this machine"


_REFUSED_TEXT: Final = """
    mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick open_tree open_tree_attr move_mount mount_setattr
    setns
    open_by_handle_at swapon swapoff quotactl quotactl_fd acct
    ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp move_pages migrate_pages
    keyctl add_key request_key
    bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register fanotify_init
    init_module finit_module delete_module kexec_load kexec_file_load
    reboot sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex syslog vhangup
    iopl ioperm modify_ldt lookup_dcookie nfsservctl uselib
"""
_OF_ALL_TEXT: Final = """
    shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink
    file_setattr inotify_init inotify_init1 inotify_add_watch
"""
_ATTRIBUTES_TEXT: Final = """
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
    getxattr lgetxattr getxattrat listxattr llistxattr listxattrat
"""
_OF_OTHERS: Final = (  # calls on a process, and which argument names it: 0 is whoever calls
    *(("prlimit64", 0), ("setpriority", 1), ("ioprio_set", 1)),
    *((name, 0) for name in ("sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")),
)
_OF_USERS: Final = (("setpriority", 2), ("ioprio_set", 3))  # and the kind that means all processes of a user
_OWNERS: Final = (("chown", 1), ("fchown", 1), ("lchown", 1), ("fchownat", 2))  # where the user stands; then the group
_MODES: Final = (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2))

_NEW_NAMESPACE = 0x7E02_0000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_NEW_TIME = 0x80  # CLONE_NEWTIME, of unshare alone; in clone these bits are the signal
_S_IFMT, _S_IFCHR, _S_IFBLK = 0o170000, 0o020000, 0o060000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # put characters into a terminal; paste into a console
_SPACE_REQUESTS = 0x5800  # blocks of a file, and its flags
_INODE_REQUESTS = (0x6600, 0x7600)  # flags, versions, encryption, seals of a file that is open for reading
_BTRFS_REQUESTS, _CLONE, _CLONE_RANGE, _REQUEST_KIND = 0x9400, 0x4004_9409, 0x4020_940D, 0xFF00
_SETLEASE, _SETDELEG, _NOTIFY = 1024, 1040, 1026  # F_*
_PUNCH_HOLE = 2
_S_ISUID_S_ISGID = 0o6000
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _PACKETS, _TYPE = 1, 5, 0xF
_WHOLE = 0xFFFF_FFFF

_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
_JUMP, _ANY_BIT, _AT_LEAST = 0x05, 0x45, 0x35
_ALLOW, _KILL, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_FIRST_X32 = 0x4000_0000
_FEW = 4  # rules that are tried one after the other
_FURTHEST = 0xFF  # instructions that a comparison can jump over

_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_SET_MODE_FILTER = 1


class _Test(NamedTuple):
    """A test of the low half of one argument: that it equals a value under a mask, or has a bit of it."""

    argument: int
    value: int
    mask: int = _WHOLE
    any_bit: bool = False
    negated: bool = False


class _Rule(NamedTuple):
    """A call is refused if all of the tests hold."""

    name: str
    tests: tuple[_Test, ...] = ()
    error: int = errno.EPERM


@cache
def build_filter(sockets: AllowedSockets, machine: str, *, alone: bool = True) -> bytes:
    """Return the filter as the kernel, and bubblewrap, take it.

    What is not `alone` in namespaces is also refused what reaches other processes, or files it may not write.

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
    rules: dict[int, list[_Rule]] = {}
    for rule in _rules(sockets, alone=alone):
        if (this := call_number(rule.name, machine)) is not None:
            rules.setdefault(this, []).append(rule)
    code += _searched(sorted(rules.items()))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def give_up_privileges() -> None:
    """Let no program that this thread starts gain privileges by its file: what a filter asks for.

    Raises:
        OSError: the kernel does not know how.

    """
    check_result("no_new_privs", libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def install_filter(filter_program: bytes) -> None:
    """Give up, for this thread and what it starts, what the filter refuses.

    Raises:
        OSError: the kernel has no such filters, or the thread could still gain privileges.

    """
    buffer = ctypes.create_string_buffer(filter_program, len(filter_program))
    header = ctypes.create_string_buffer(
        struct.pack("@HP", len(filter_program) // struct.calcsize("=HBBI"), ctypes.addressof(buffer))
    )
    system_call("seccomp", ctypes.c_uint(_SECCOMP_SET_MODE_FILTER), ctypes.c_uint(0), header)


def _rules(sockets: AllowedSockets, *, alone: bool) -> Iterator[_Rule]:
    yield from (_Rule(name) for name in _REFUSED_TEXT.split())
    if not alone:
        yield from _rules_among_others()
    yield from (_Rule("fcntl", (_Test(1, command),)) for command in (_SETLEASE, _SETDELEG))  # they keep others waiting
    # What takes gigabytes in no time could not be noticed in time. Programs write instead.
    yield _Rule("fallocate", (_Test(1, _PUNCH_HOLE, _PUNCH_HOLE, negated=True),), errno.EOPNOTSUPP)
    yield _Rule("ioctl", (_Test(1, _SPACE_REQUESTS, _REQUEST_KIND),), errno.ENOTTY)
    yield _Rule("clone3", error=errno.ENOSYS)
    yield _Rule("clone", (_Test(0, _NEW_NAMESPACE, any_bit=True),))
    yield _Rule("unshare", (_Test(0, _NEW_NAMESPACE | _NEW_TIME, any_bit=True),))
    for kind in (_S_IFCHR, _S_IFBLK):
        yield _Rule("mknod", (_Test(1, kind, _S_IFMT),))
        yield _Rule("mknodat", (_Test(2, kind, _S_IFMT),))
    yield from (_Rule("ioctl", (_Test(1, request),)) for request in (_TIOCSTI, _TIOCLINUX))
    yield from _socket_rules(sockets)


def _socket_rules(sockets: AllowedSockets) -> Iterator[_Rule]:
    match sockets:
        case AllowedSockets.OWN:
            yield _families(_UNIX, _INET, _INET6, _NETLINK)
        case AllowedSockets.SHARED:
            yield _families(_INET, _INET6, _NETLINK)
        case AllowedSockets.NONE:
            yield _Rule("socket")
            yield _Rule("connect")
    if sockets is not AllowedSockets.NONE:  # of the kernel's own sockets, those of addresses alone: libc asks there
        yield _Rule("socket", (_Test(0, _NETLINK), _Test(2, 0, negated=True)))
    yield _Rule("socketpair", (_Test(0, _UNIX, negated=True),))
    if sockets is not AllowedSockets.OWN:  # a pair of any other type can send to the addresses of others
        yield _Rule("socketpair", tuple(_Test(1, one, _TYPE, negated=True) for one in (_STREAM, _PACKETS)))


def _rules_among_others() -> Iterator[_Rule]:
    """Give what is refused where other processes, and other files, are within reach."""
    yield from (_Rule(name) for name in _OF_ALL_TEXT.split())
    yield from (_Rule(name, error=errno.EOPNOTSUPP) for name in _ATTRIBUTES_TEXT.split())
    yield from (_Rule(name, (_Test(at, 0, negated=True),)) for name, at in _OF_OTHERS)
    yield from (_Rule(name, (_Test(0, kind),)) for name, kind in _OF_USERS)
    yield from (_Rule(name, (_Test(at, _S_ISUID_S_ISGID, any_bit=True),)) for name, at in _MODES)
    for name, at in _OWNERS:  # files of the room are this user's already: to give them to it is done by doing nothing
        for place, own in ((at, os.getuid()), (at + 1, os.getgid())):
            yield _Rule(name, tuple(_Test(place, one, negated=True) for one in (_WHOLE, own)))
        yield _Rule(name, error=0)
    yield _Rule("fcntl", (_Test(1, _NOTIFY),))
    for kind in _INODE_REQUESTS:
        yield _Rule("ioctl", (_Test(1, kind, _REQUEST_KIND),), errno.ENOTTY)
    clones = (_Test(1, one, negated=True) for one in (_CLONE, _CLONE_RANGE))
    yield _Rule("ioctl", (_Test(1, _BTRFS_REQUESTS, _REQUEST_KIND), *clones), errno.ENOTTY)


def _families(*allowed: int) -> _Rule:
    return _Rule("socket", tuple(_Test(0, family, negated=True) for family in allowed))


def _searched(rules: Sequence[tuple[int, Sequence[_Rule]]]) -> list[tuple[int, int, int, int]]:
    """Return the instructions that find the rules of a number by halves: the kernel tries each number at loading."""
    if len(rules) <= _FEW:
        return [*(step for this, of_it in rules for step in _assembled(this, of_it)), _give(_ALLOW)]
    middle = len(rules) // 2
    lower, upper = _searched(rules[:middle]), _searched(rules[middle:])
    if len(lower) <= _FURTHEST:
        return [(_AT_LEAST, len(lower), 0, rules[middle][0]), *lower, *upper]
    return [(_AT_LEAST, 0, 1, rules[middle][0]), (_JUMP, 0, 0, len(lower)), *lower, *upper]


def _assembled(this: int, rules: Sequence[_Rule]) -> list[tuple[int, int, int, int]]:
    """Return the instructions of the rules of one call, whose number is in the register, and stays where it is not."""
    body = [*(step for rule in rules for step in _refused(rule)), _give(_ALLOW)]
    return [(_EQUAL, 0, len(body), this), *body]


def _refused(rule: _Rule) -> Iterator[tuple[int, int, int, int]]:
    """Give the instructions that return the error of a rule if all of its tests hold."""
    for at, test in enumerate(rule.tests):
        left = sum(_length(one) for one in rule.tests[at + 1 :]) + 1  # to the instruction after the return
        yield (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * test.argument)
        if test.mask != _WHOLE:
            yield (_AND, 0, 0, test.mask)
        compare = _ANY_BIT if test.any_bit else _EQUAL
        yield (compare, left, 0, test.value) if test.negated else (compare, 0, left, test.value)
    yield _give(_ERRNO | rule.error)


def _length(test: _Test) -> int:
    return 2 + (test.mask != _WHOLE)


def _give(value: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, value)
