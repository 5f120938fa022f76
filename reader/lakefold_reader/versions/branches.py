"""From a table to another line of its versions: a branch is a table of its own below the main line's root.

Tags and branches are known at that root alone, so who opened a branch by its own URI is led there first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_reader.versions.source import newest_of, open_source, read_step
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.refs.names import branch_root
from lakefold_table.roots import above, below
from lakefold_table.versions.refs import Refs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_reader.versions.source import Source


def open_line(uri: str, branch: str | None, storage_options: Mapping[str, str] | None = None) -> Source:
    """The table at `uri`, or a branch of the same table. Raises `UnknownRefError`, `InvalidError`."""
    source = open_source(uri, storage_options)
    return source if branch is None else branched(source, branch)


def line_of(source: Source) -> tuple[Source, str]:
    """The main line of the table, and the branch that `source` is (empty: the main line itself)."""
    root = _root(source)
    if root is source:
        return root, ""
    newest = read_step(source, newest_of(source), whole=True)
    return root, (newest.branch or "") if newest is not None else ""


def fork_of(source: Source, branch: str) -> str:
    """The identifier of the fork that a branch began with, as its file tells it.

    Empty for the main line (`branch` is empty), and where no file tells it. A branch that is removed and made
    again under its name has another one.
    """
    if not branch:
        return ""
    main = above(source.uri, branch_root(branch))
    refs = Refs(open_source(main, source.options).storage)
    try:
        lineage = refs.branch(branch).lineage
    except (InvalidError, DamagedError):
        return ""
    return lineage[-1][1] if lineage else ""


def tagged(source: Source, tag: str) -> tuple[Source, int]:
    """The line that a tag's version lies in, and the version. Raises `UnknownRefError`, `InvalidError`."""
    root = _root(source)
    target = Refs(root.storage).resolve_tag(tag)
    return _below(root, target.folder), target.version


def branched(source: Source, branch: str) -> Source:
    """The line of a branch; `main` is the main line. Raises `UnknownRefError`, `InvalidError`."""
    root = _root(source)
    return _below(root, Refs(root.storage).resolve_branch(branch))


def _root(source: Source) -> Source:
    """The main line of the table that `source` is, or is a branch of: the newest version names its branch."""
    newest = read_step(source, newest_of(source), whole=True)
    folder = branch_root(newest.branch) if newest is not None else ""
    main = above(source.uri, folder) if folder else source.uri
    return source if main == source.uri else open_source(main, source.options)


def _below(root: Source, folder: str) -> Source:
    return open_source(below(root.uri, folder), root.options) if folder else root
