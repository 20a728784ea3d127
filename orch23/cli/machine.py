"""What a machine may refuse, and what to do about it."""

import errno
from typing import Final

WAYS_OUT: Final = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room on the disk"),
    errno.EIO: "see what is wrong with the disk (`dmesg`)",
    errno.EROFS: "the file system is mounted read-only; mount it for writing",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (`ulimit -n`), or build with fewer jobs"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "let this user write there"),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP, errno.ENXIO),
        "something else stands in the place of a file or folder of orch23; move it away",
    ),
    errno.EINTR: "a signal interrupted a call of the file system",
    errno.ENAMETOOLONG: "take a shorter name, or a folder that lies less deep",
    **dict.fromkeys((errno.ENOMEM, errno.EAGAIN), "free memory, or build with fewer jobs"),
}
