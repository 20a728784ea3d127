"""Hints for errors of the operating system (E650)."""

import errno
from typing import Final

OS_ERROR_HINTS: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free space on the disk"),
    errno.EIO: "check the disk (`dmesg`)",
    errno.EROFS: "mount the file system for writing",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (`ulimit -n`), or build with fewer jobs"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "give this user permission"),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP, errno.ENXIO),
        "move away what is at the path of a file or folder of orch23",
    ),
    errno.EINTR: "a signal interrupted the file system",
    errno.ENAMETOOLONG: "use a shorter name or a less deep folder",
    **dict.fromkeys((errno.ENOMEM, errno.EAGAIN), "free memory, or build with fewer jobs"),
}
