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
    """The file of a tag, relative to the root of the main line."""
    return f"{TAGS}/{_encoded(name)}{SUFFIX}"


def branch_path(name: str) -> str:
    """The file that describes a branch, relative to the root of the main line."""
    return f"{BRANCHES}/{_encoded(name)}{SUFFIX}"


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
    check_text("a tag", name)
    if not name:
        raise refused("a tag", name, "the name is empty")
    if name[0] == "." or name[-1] == ".":
        raise refused("a tag", name, "a dot can't stand first or last")
    if ".." in name:
        raise refused("a tag", name, "two dots can't follow each other")
    if name.endswith(".lock"):
        raise refused("a tag", name, "it can't end with .lock")
    check_characters("a tag", name, name)


def check_new_tag_name(name: str) -> None:
    """`check_tag_name`, and ASCII only.

    pylance 14.0.2 makes and opens tags with other letters, but where there is one, its listing of tags and
    its clean-up of old versions fail, whatever they were asked for (Lance fact 1.6).
    """
    check_tag_name(name)
    if not name.isascii():
        raise refused("a new tag", name, "with letters beyond ASCII, pylance can't list the table's tags")


def _encoded(name: str) -> str:
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in name.encode())
