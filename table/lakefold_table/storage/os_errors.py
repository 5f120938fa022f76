"""What a failed system call means for the caller: try again, or mend the request.

The operating system says what happened; a committer must know what to do next, and a person what to mend. The
rule: what may pass by itself or by making room is a `RetryError`; what stays wrong until somebody changes a
permission or a mount is an `InvalidError`; where the path itself is wrong it is a `PlaceError`. An unknown
fault is a `RetryError`: it decides nothing.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError, PlaceError, RetryError

if TYPE_CHECKING:
    from lakefold_table.errors import LakefoldError

# What to do, by the error's number.
_MEND: Final = {
    errno.EACCES: "give this user read and write permission on the table's folder",
    errno.EPERM: "the file system refuses this: check its attributes, and that it has hard links",
    errno.EROFS: "the file system is mounted read-only: remount it, or choose another place",
    errno.EMLINK: "the file system allows no more links: choose another place",
    errno.ENOTSUP: "the file system lacks hard links or syncing folders: choose another place",
    errno.EFBIG: "the file is larger than the file system or this process's limit allows (ulimit -f)",
}
_CHOOSE: Final = {
    errno.ENOTDIR: "a part of this path is a file: name a folder",
    errno.EISDIR: "a folder stands here: choose another name",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "the symbolic links of this path go round in a circle: remove one",
}
_RETRY: Final = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the disk quota is used up: free some space or raise it",
    errno.EMFILE: "this process has too many open files: raise its limit (ulimit -n)",
    errno.ENFILE: "the system has too many open files: raise fs.file-max",
    errno.ENOMEM: "the system has no memory left",
    errno.EIO: "the disk reports an error: look at the system's log",
    errno.ESTALE: "the file server has lost this file handle: try again",
    errno.ENOENT: "the folder went away while it was used: is something deleting the table?",
}


def failure(error: OSError, path: str) -> LakefoldError:
    """The typed error that tells what `error`, met at `path`, asks of the caller."""
    number = error.errno or 0
    message = error.strerror or str(error)
    if number in _CHOOSE:
        return PlaceError(message, where=path, hint=_CHOOSE[number])
    if number in _MEND:
        return InvalidError(message, where=path, hint=_MEND[number])
    return RetryError(message, where=path, hint=_RETRY.get(number, "try again"))
