"""What tags and branches may be called, and where what they name lies (Lance facts 1.6 and 1.7).

A tag and a branch are each a small JSON file below the root of the table's main line. A branch is a table of
its own in a folder below that root, whichever branch it was made from.
"""

from __future__ import annotations

import re

from lakefold_table.errors import InvalidError
from lakefold_table.roots import below

TAGS = "_refs/tags"
BRANCHES = "_refs/branches"
TREE = "tree"
MAIN = "main"
SUFFIX = ".json"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")
_ENCODED = re.compile(rb"%([0-9A-Fa-f]{2})")


def tag_path(name: str) -> str:
    """The file of a tag, relative to the root of the main line."""
    return f"{TAGS}/{_encoded(name)}{SUFFIX}"


def branch_path(name: str) -> str:
    """The file that describes a branch, relative to the root of the main line."""
    return f"{BRANCHES}/{_encoded(name)}{SUFFIX}"


def branch_root(name: str | None) -> str:
    """The folder of a branch's table, relative to the root of the main line; empty for the main line."""
    return "" if name is None or name == MAIN else f"{TREE}/{name}"


def root_of(uri: str, branch: str) -> str:
    """The URI of a branch's own root; of the table itself if `branch` is empty."""
    return below(uri, branch_root(branch)) if branch else uri


def ref_name(file_name: str) -> str | None:
    """The tag or branch that the name of a file in its folder stands for; None for any other file."""
    if not file_name.endswith(SUFFIX) or file_name == SUFFIX:
        return None
    encoded = file_name.removesuffix(SUFFIX).encode(errors="surrogateescape")
    try:
        return _ENCODED.sub(lambda found: bytes([int(found[1], 16)]), encoded).decode()
    except UnicodeDecodeError:
        return None


def check_tag_name(name: str) -> None:
    """Raises `InvalidError` for a name that no tag can have (Lance fact 1.6)."""
    _check_text("a tag", name)
    if not name:
        raise _refused("a tag", name, "the name is empty")
    if name[0] == "." or name[-1] == ".":
        raise _refused("a tag", name, "a dot can't stand first or last")
    if ".." in name:
        raise _refused("a tag", name, "two dots can't follow each other")
    if name.endswith(".lock"):
        raise _refused("a tag", name, "it can't end with .lock")
    _check_characters("a tag", name, name)


def check_new_tag_name(name: str) -> None:
    """`check_tag_name`, and ASCII only.

    pylance 14.0.2 makes and opens tags with other letters, but where there is one, its listing of tags and
    its clean-up of old versions fail, whatever they were asked for (Lance fact 1.6).
    """
    check_tag_name(name)
    if not name.isascii():
        raise _refused("a new tag", name, "with letters beyond ASCII, pylance can't list the table's tags")


def check_branch_name(name: str) -> None:
    """Raises `InvalidError` for a name that no branch can have (Lance fact 1.7)."""
    _check_text("a branch", name)
    if not name:
        raise _refused("a branch", name, "the name is empty")
    if name == MAIN:
        raise _refused("a branch", name, "it is the name of the line that every table has")
    if name[0] == "/" or name[-1] == "/" or "//" in name:
        raise _refused("a branch", name, "a slash stands between two parts of a name")
    if ".." in name or "\\" in name:
        raise _refused("a branch", name, "it can hold neither .. nor a backslash")
    if name.endswith(".lock"):
        raise _refused("a branch", name, "it can't end with .lock")
    for part in name.split("/"):
        _check_part(name, part)


def _check_text(what: str, name: object) -> None:
    if not isinstance(name, str):
        raise _refused(what, name, f"a name is text, not {type(name).__name__}")


def _check_part(name: str, part: str) -> None:
    _check_characters("a branch", name, part)
    if part == ".":
        raise _refused("a branch", name, "a part of it can't be a single dot")


def _check_characters(what: str, name: str, part: str) -> None:
    wrong = sorted({one for one in part if not (one.isalnum() or one in ".-_")})
    if wrong:
        told = " ".join(ascii(one) for one in wrong)
        raise _refused(what, name, f"it is made of letters, digits and . - _, not of {told}")


def _encoded(name: str) -> str:
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in name.encode())


def _refused(what: str, name: object, why: str) -> InvalidError:
    return InvalidError(f"{name!a} can't be the name of {what}: {why}", hint="choose another name")
