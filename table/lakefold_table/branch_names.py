"""Which names branches can have and where they are stored: the same in every table format (Lance fact 1.7).

A branch is a table of its own in a folder below the root of the table's main branch, whichever branch it was
made from. So the log, the outcomes and the committer can address a branch before anything of it is read.
"""

from __future__ import annotations

from lakefold_table.errors import InvalidError
from lakefold_table.roots import above, below

TREE = "tree"
MAIN = "main"


def branch_root(name: str | None) -> str:
    """Returns the folder of a branch's table, below the main branch's root; "" for the main branch itself."""
    return "" if name is None or name == MAIN else f"{TREE}/{name}"


def root_of(uri: str, branch: str) -> str:
    """Returns the URI of a branch's own root, or of the table itself if `branch` is empty."""
    return below(uri, branch_root(branch)) if branch else uri


def main_of(root: str, branch: str) -> str:
    """Returns the URI of the table whose branch has this root; `root` itself if it ends otherwise."""
    return above(root, branch_root(branch)) if branch else root


def names_of(uri: str, branch: str) -> frozenset[str]:
    """Returns the names of tables that entries for a branch have: that of the main branch, `uri`, or its own.

    Writers that open a branch by its own root name that as the table, and no branch.
    """
    return frozenset((uri, root_of(uri, branch)))


def check_branch_name(name: str) -> None:
    """Raises `InvalidError` for a name that no branch can have (Lance fact 1.7)."""
    check_text("a branch", name)
    if not name:
        raise refused("a branch", name, "the name is empty")
    if name == MAIN:
        raise refused("a branch", name, "every table's first branch has this name")
    if name[0] == "/" or name[-1] == "/" or "//" in name:
        raise refused("a branch", name, "slashes are only allowed between two parts of a name")
    if ".." in name or "\\" in name:
        raise refused("a branch", name, "it can't contain .. or a backslash")
    if name.endswith(".lock"):
        raise refused("a branch", name, "it can't end with .lock")
    for part in name.split("/"):
        check_characters("a branch", name, part)
        if part == ".":
            raise refused("a branch", name, "a part of it can't be a single dot")


def check_text(what: str, name: object) -> None:
    """Raises `InvalidError` if the name of `what` is not a text."""
    if not isinstance(name, str):
        raise refused(what, name, f"a name is text, not {type(name).__name__}")


def check_characters(what: str, name: str, part: str) -> None:
    """Raises `InvalidError` if this part of the name of `what` has a character that is not allowed."""
    wrong = sorted({letter for letter in part if not (letter.isalnum() or letter in ".-_")})
    if wrong:
        listed = " ".join(ascii(letter) for letter in wrong)
        raise refused(what, name, f"it can contain letters, digits and . - _, but not {listed}")


def refused(what: str, name: object, why: str) -> InvalidError:
    """Returns the error for a name that `what` can't have."""
    return InvalidError(f"{name!a} can't be the name of {what}: {why}", hint="choose another name")
