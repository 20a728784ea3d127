"""Assemble the seccomp filter of a step: which system calls are refused.

All others are allowed, since a list of the calls that programs need would never be complete. `clone3` fails as unknown:
its flags are in memory, which a filter cannot read, and every libc then falls back to `clone`.
"""

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import cache
from typing import Final, NamedTuple

from orch23.execute.sandbox.system_calls import AUDIT_ARCHITECTURES, call_number


class AllowedSockets(Enum):
    """Which sockets a step may have."""

    OWN = "all, since the step has a network namespace in which no other process listens"
    SHARED = "internet sockets, but no Unix sockets, on which services of this machine listen"
    NONE = "connected pairs alone, since a socket with a name could pass for a service of this machine"


_ALWAYS_REFUSED: Final = """
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
_REFUSED_IF_SHARED: Final = """
    shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink
    file_setattr inotify_init inotify_init1 inotify_add_watch
"""
_EXTENDED_ATTRIBUTES: Final = """
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
    getxattr lgetxattr getxattrat listxattr llistxattr listxattrat
"""
# Calls on a process, and the index of the argument with its pid: 0 is the caller itself.
_ON_PROCESSES: Final = (
    *(("prlimit64", 0), ("setpriority", 1), ("ioprio_set", 1)),
    *((name, 0) for name in ("sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")),
)
# Calls on processes, and the kind that means all processes of a user.
_ON_USERS: Final = (("setpriority", 2), ("ioprio_set", 3))
# Calls that change the owner, and the index of the argument with the user; the next one is the group.
_OWNERS: Final = (("chown", 1), ("fchown", 1), ("lchown", 1), ("fchownat", 2))
_MODES: Final = (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2))

_NEW_NAMESPACE = 0x7E02_0000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
# CLONE_NEWTIME, for unshare alone: in clone these bits are the signal.
_NEW_TIME = 0x80
_S_IFMT, _S_IFCHR, _S_IFBLK = 0o170000, 0o020000, 0o060000
# ioctl: type into a terminal, paste into a console.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# ioctl: blocks and flags of a file.
_SPACE_REQUESTS = 0x5800
# ioctl: flags, versions, encryption and seals of a file, which need only a descriptor for reading.
_INODE_REQUESTS = (0x6600, 0x7600)
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
# A list of at most so many calls is compared one after the other.
_MAX_LINEAR = 4
# The most instructions that a comparison can jump over.
_MAX_JUMP = 0xFF


class _Test(NamedTuple):
    """A test of the low 32 bits of an argument: it equals a value under a mask, or has a bit of it."""

    argument: int
    value: int
    mask: int = _WHOLE
    any_bit: bool = False
    negated: bool = False


class _Rule(NamedTuple):
    """A call is refused with this error if all tests hold."""

    name: str
    tests: tuple[_Test, ...] = ()
    error: int = errno.EPERM


@cache
def build_filter(sockets: AllowedSockets, machine: str, *, alone: bool = True) -> bytes:
    """Return the BPF program, as the kernel and bubblewrap take it.

    A process that is not `alone` in namespaces is also refused calls on other processes, and on files that it must not
    write.

    Raises:
        ValueError: the machine is not known.
    """
    architecture = AUDIT_ARCHITECTURES.get(machine)
    if architecture is None:
        message = f"no filter is known for {machine}"
        raise ValueError(message)
    code = [(_LOAD, 0, 0, _MACHINE_AT), (_EQUAL, 1, 0, architecture), _return(_KILL), (_LOAD, 0, 0, _NUMBER_AT)]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _FIRST_X32), _return(_ERRNO | errno.ENOSYS)]
    rules: dict[int, list[_Rule]] = {}
    for rule in _rules(sockets, alone=alone):
        if (this := call_number(rule.name, machine)) is not None:
            rules.setdefault(this, []).append(rule)
    code += _search_tree(sorted(rules.items()))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _rules(sockets: AllowedSockets, *, alone: bool) -> Iterator[_Rule]:
    yield from (_Rule(name) for name in _ALWAYS_REFUSED.split())
    if not alone:
        yield from _rules_if_shared()
    # A lease makes other processes wait that open the file.
    yield from (_Rule("fcntl", (_Test(1, command),)) for command in (_SETLEASE, _SETDELEG))
    # Gigabytes would be allocated before the limit of the disk is checked. Programs fall back to writing.
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
    # Only the netlink sockets of addresses and routes, which libc uses.
    if sockets is not AllowedSockets.NONE:
        yield _Rule("socket", (_Test(0, _NETLINK), _Test(2, 0, negated=True)))
    yield _Rule("socketpair", (_Test(0, _UNIX, negated=True),))
    # A pair of datagram sockets can send to addresses of other sockets; streams and packets are connected.
    if sockets is not AllowedSockets.OWN:
        yield _Rule("socketpair", tuple(_Test(1, one, _TYPE, negated=True) for one in (_STREAM, _PACKETS)))


def _rules_if_shared() -> Iterator[_Rule]:
    """Yield what is refused if other processes and other files are within reach: without namespaces."""
    yield from (_Rule(name) for name in _REFUSED_IF_SHARED.split())
    yield from (_Rule(name, error=errno.EOPNOTSUPP) for name in _EXTENDED_ATTRIBUTES.split())
    yield from (_Rule(name, (_Test(at, 0, negated=True),)) for name, at in _ON_PROCESSES)
    yield from (_Rule(name, (_Test(0, kind),)) for name, kind in _ON_USERS)
    yield from (_Rule(name, (_Test(at, _S_ISUID_S_ISGID, any_bit=True),)) for name, at in _MODES)
    # A change to this user succeeds without doing anything: files of the sandbox directory are this user's already.
    # A refusal would break `cp -a` and `tar`, and the call could change the group of files outside.
    for name, at in _OWNERS:
        for argument, own in ((at, os.getuid()), (at + 1, os.getgid())):
            yield _Rule(name, tuple(_Test(argument, one, negated=True) for one in (_WHOLE, own)))
        yield _Rule(name, error=0)
    yield _Rule("fcntl", (_Test(1, _NOTIFY),))
    for kind in _INODE_REQUESTS:
        yield _Rule("ioctl", (_Test(1, kind, _REQUEST_KIND),), errno.ENOTTY)
    clones = (_Test(1, one, negated=True) for one in (_CLONE, _CLONE_RANGE))
    yield _Rule("ioctl", (_Test(1, _BTRFS_REQUESTS, _REQUEST_KIND), *clones), errno.ENOTTY)


def _families(*allowed: int) -> _Rule:
    return _Rule("socket", tuple(_Test(0, family, negated=True) for family in allowed))


def _search_tree(rules: Sequence[tuple[int, Sequence[_Rule]]]) -> list[tuple[int, int, int, int]]:
    """Return the instructions that find the rules of a call by binary search."""
    # The kernel runs the filter for every call number when it is loaded, so a linear list would slow down each start.
    if len(rules) <= _MAX_LINEAR:
        return [*(step for this, of_it in rules for step in _rules_of_call(this, of_it)), _return(_ALLOW)]
    middle = len(rules) // 2
    lower, upper = _search_tree(rules[:middle]), _search_tree(rules[middle:])
    if len(lower) <= _MAX_JUMP:
        return [(_AT_LEAST, len(lower), 0, rules[middle][0]), *lower, *upper]
    return [(_AT_LEAST, 0, 1, rules[middle][0]), (_JUMP, 0, 0, len(lower)), *lower, *upper]


def _rules_of_call(this: int, rules: Sequence[_Rule]) -> list[tuple[int, int, int, int]]:
    """Return the instructions of the rules of one call. They leave the number of another call in the register."""
    body = [*(step for rule in rules for step in _refuse_if(rule)), _return(_ALLOW)]
    return [(_EQUAL, 0, len(body), this), *body]


def _refuse_if(rule: _Rule) -> Iterator[tuple[int, int, int, int]]:
    """Yield the instructions that return the error of a rule if all of its tests hold."""
    for at, test in enumerate(rule.tests):
        # The distance to the instruction after the return.
        left = sum(2 + (one.mask != _WHOLE) for one in rule.tests[at + 1 :]) + 1
        yield (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * test.argument)
        if test.mask != _WHOLE:
            yield (_AND, 0, 0, test.mask)
        compare = _ANY_BIT if test.any_bit else _EQUAL
        yield (compare, left, 0, test.value) if test.negated else (compare, 0, left, test.value)
    yield _return(_ERRNO | rule.error)


def _return(value: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, value)
