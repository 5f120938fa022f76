"""What a failed system call means for the caller: try again, or change something first.

The operating system reports what happened. A committer must know what to do next, and a person what to
change. An error that may pass by itself, or when space is freed, is a `RetryError`. An error that lasts until
a permission or a mount is changed is an `InvalidError`. If the path itself is wrong it is a `LocationError`.
An unknown error is a `RetryError`, which decides nothing.
"""

from __future__ import annotations

import errno
from typing import Final

from lakefold_table.errors import InvalidError, LakefoldError, LocationError, RetryError

# What to do, by the error's number.
_TO_FIX: Final = {
    errno.EACCES: "give this user read and write permission on the table's folder",
    errno.EPERM: "the file system refuses this: check its attributes, and that it has hard links",
    errno.EROFS: "the file system is mounted read-only: remount it, or choose another path",
    errno.EMLINK: "the file system allows no more links: choose another path",
    errno.ENOTSUP: "the file system lacks hard links or syncing folders: choose another path",
    errno.EFBIG: "the file is larger than the file system or this process's limit allows (ulimit -f)",
}
_CHOOSE: Final = {
    errno.ENOTDIR: "a part of this path is a file: name a folder",
    errno.EISDIR: "this is a folder: choose another name",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "the symbolic links of this path form a circle: remove one",
}
_RETRY: Final = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the disk quota is used up: free some space or raise it",
    errno.EMFILE: "this process has too many open files: raise its limit (ulimit -n)",
    errno.ENFILE: "the system has too many open files: raise fs.file-max",
    errno.ENOMEM: "the system has no memory left",
    errno.EIO: "the disk reports an error: read the system's log",
    errno.ESTALE: "the file server has lost this file handle: try again",
    errno.ENOENT: "the folder was removed while it was used: is another program deleting the table?",
}


def failure(error: OSError, path: str) -> LakefoldError:
    """Returns the error class that says what the caller must do about `error`, which happened at `path`."""
    number = error.errno or 0
    message = error.strerror or str(error)
    if number in _CHOOSE:
        return LocationError(message, where=path, hint=_CHOOSE[number])
    if number in _TO_FIX:
        return InvalidError(message, where=path, hint=_TO_FIX[number])
    return RetryError(message, where=path, hint=_RETRY.get(number, "try again"))
