"""What tags may be called, and the names of the files of tags and branches (Lance facts 1.6 and 1.7).

A tag and a branch are each a small JSON file below the root of the table's main branch. What branches may be
called and where their tables are is the same in every format: `lakefold_table.branch_names`.
"""

from __future__ import annotations

import re

from lakefold_table.branch_names import check_characters, check_text, refused

TAGS = "_refs/tags"
BRANCHES = "_refs/branches"
SUFFIX = ".json"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")
_ENCODED = re.compile(rb"%([0-9A-Fa-f]{2})")


def tag_path(name: str) -> str:
    """Returns the path of a tag's file, relative to the root of the main branch."""
    return f"{TAGS}/{_encoded(name)}{SUFFIX}"


def branch_path(name: str) -> str:
    """Returns the path of the file that describes a branch, relative to the root of the main branch."""
    return f"{BRANCHES}/{_encoded(name)}{SUFFIX}"


def ref_name(file_name: str) -> str | None:
    """Returns the tag or branch that has a file of this name in its folder, or None for any other file."""
    if not file_name.endswith(SUFFIX) or file_name == SUFFIX:
        return None
    encoded = file_name.removesuffix(SUFFIX).encode(errors="surrogateescape")
    try:
        return _ENCODED.sub(lambda match: bytes([int(match[1], 16)]), encoded).decode()
    except UnicodeDecodeError:
        return None


def check_tag_name(name: str) -> None:
    """Raises `InvalidError` for a name that no tag can have (Lance fact 1.6)."""
    check_text("a tag", name)
    if not name:
        raise refused("a tag", name, "the name is empty")
    if name[0] == "." or name[-1] == ".":
        raise refused("a tag", name, "it can't begin or end with a dot")
    if ".." in name:
        raise refused("a tag", name, "it can't contain two dots in a row")
    if name.endswith(".lock"):
        raise refused("a tag", name, "it can't end with .lock")
    check_characters("a tag", name, name)


def check_new_tag_name(name: str) -> None:
    """Checks what `check_tag_name` does, and accepts ASCII only.

    pylance 14.0.2 makes and opens tags with other letters. But if a table has such a tag, pylance's listing
    of tags and its clean-up of old versions fail, whatever they are called with (Lance fact 1.6).
    """
    check_tag_name(name)
    if not name.isascii():
        raise refused("a new tag", name, "with letters beyond ASCII, pylance can't list the table's tags")


def _encoded(name: str) -> str:
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in name.encode())
