"""Opens another branch of a table, which is a table of its own below the root of the main branch.

Tags and branches are stored at that root alone, so a client that opened a branch by its own URI is led there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_reader.versions.listing import newest_of
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.roots import above, below
from lakefold_table.versions.refs import Refs

if TYPE_CHECKING:
    from lakefold_reader.format.source import Source


def main_and_branch(source: Source) -> tuple[Source, str]:
    """Returns the main branch of the table, and the name of the branch `source`.

    The name is empty for the main branch.
    """
    root = _root(source)
    if root is source:
        return root, ""
    newest = source.summary(newest_of(source), whole=True)
    return root, (newest.branch or "") if newest is not None else ""


def fork_of(source: Source, branch: str) -> str:
    """Returns the identifier of the fork that a branch began with, from the branch's file.

    Returns an empty text for the main branch (`branch` is empty), and if no file records it. A branch that is
    removed and created again under its name has another origin.
    """
    if not branch:
        return ""
    main = above(source.uri, source.format.branch_root(branch))
    refs = Refs(source.other(main).storage)
    try:
        lineage = refs.branch(branch).lineage
    except (InvalidError, DamagedError):
        return ""
    return lineage[-1][1] if lineage else ""


def with_history(source: Source, version: int) -> Source:
    """Returns the branch whose earlier versions lead to this version, which is its branch's newest.

    This is the branch itself, or the one that it was made from if it has no version of its own yet: its only
    version is a copy of that branch's version of the same number. Raises `UnknownRefError` if no file records
    the branch.
    """
    root, name = main_and_branch(source)
    while name:
        made = Refs(root.storage).branch(name)
        if made.parent_version != version:
            break
        name = made.parent or ""
        source = branched(root, name) if name else root
    return source


def tagged(source: Source, tag: str) -> tuple[Source, int]:
    """Returns the branch that has a tag's version, and the version.

    Raises `UnknownRefError`, `InvalidError`.
    """
    root = _root(source)
    target = Refs(root.storage).resolve_tag(tag)
    return _below(root, target.folder), target.version


def branched(source: Source, branch: str) -> Source:
    """Returns the branch of this name; `main` is the main branch.

    Raises `UnknownRefError`, `InvalidError`.
    """
    root = _root(source)
    return _below(root, Refs(root.storage).resolve_branch(branch))


def _root(source: Source) -> Source:
    """Returns the main branch of the table, to which the newest version's branch name leads."""
    newest = source.summary(newest_of(source), whole=True)
    folder = source.format.branch_root(newest.branch or "") if newest is not None else ""
    main = above(source.uri, folder) if folder else source.uri
    return source if main == source.uri else source.other(main)


def _below(root: Source, folder: str) -> Source:
    return root.other(below(root.uri, folder)) if folder else root
