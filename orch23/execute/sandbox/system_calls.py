"""Make Linux system calls for which Python has no function, by their numbers."""

import ctypes
import errno
import os
from collections.abc import Mapping
from functools import cache
from typing import Final

from orch23.execute.supervisor_child import check_result, libc

AUDIT_ARCHITECTURES: Final[Mapping[str, int]] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The architectures in the data that the kernel passes to a seccomp filter, by machine."""

_COLUMNS: Final = {"x86_64": 0, "aarch64": 1}

# name -> (number on x86_64, number on aarch64); None if the machine does not have the call.
CALL_NUMBERS: Final[Mapping[str, tuple[int | None, int | None]]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "fallocate": (285, 47),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "fcntl": (72, 25),
    "file_setattr": (469, 469),
    "finit_module": (313, 273),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "getxattr": (191, 8),
    "getxattrat": (464, 464),
    "init_module": (175, 105),
    "inotify_add_watch": (254, 27),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "lchown": (94, None),
    "lgetxattr": (192, 9),
    "listxattr": (194, 11),
    "listxattrat": (465, 465),
    "llistxattr": (195, 12),
    "lookup_dcookie": (212, 18),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "migrate_pages": (256, 238),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}


@cache
def machine() -> str:
    """Return the kernel's name of this machine type."""
    return os.uname().machine


def call_number(name: str, on: str | None = None) -> int | None:
    """Return the number of a call on a machine, by default this one; None if the call or the machine is not known."""
    column = _COLUMNS.get(on if on is not None else machine())
    return None if column is None else CALL_NUMBERS[name][column]


def system_call(name: str, *arguments: object) -> int:
    """Make a system call in this thread and return its result.

    Raises:
        OSError: it failed, or this machine does not have the call.
    """
    this = call_number(name)
    if this is None:
        raise OSError(errno.ENOSYS, f"{name} is not known on this machine")
    return check_result(name, libc.syscall(ctypes.c_long(this), *arguments))
