"""The branches of a table, the main branch included. Each has versions of its own.

A branch is a table of Lance's under `tree/` of the main branch's root (Lance fact 1.7). Its entries are in
the partition of the main branch, since they have the same key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_table.branch_names import check_branch_name, root_of
from lakefold_table.entry import Invalid
from lakefold_table.errors import InvalidError
from lakefold_table.formats import BUILT_IN, Formats
from lakefold_table.storage import open_canonical, open_storage
from lakefold_table.uri import Location, parse_location
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import format_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_committer.recovery.recovery_context import RecoveryContext


def branch_location(uri: str, branch: str) -> Location | Invalid:
    """Returns the location of a branch's versions, or `Invalid` if no branch may have this name.

    An empty name is the main branch. A branch may also be named by its own root: both give equal locations.
    """
    if not branch:
        return parse_location(uri)
    try:
        check_branch_name(branch)
    except InvalidError as error:
        return Invalid(error.message, error.hint)
    return parse_location(root_of(uri, branch))


def open_branch(
    uri: str,
    branch: str,
    storage_options: Mapping[str, str] | None,
    roots: Sequence[str] | None = None,
    recovery: RecoveryContext | None = None,
    *,
    formats: Formats = BUILT_IN,
) -> TableWriter:
    """Opens a branch of the table at `uri`, by default the main one. Raises as `TableWriter` does.

    `formats`: those that a table may have. It is opened in the first of them. The writer tries the others if
    the table is none of the first, so a table of the first format costs no request more.
    """
    storage = open_canonical(root_of(uri, branch), storage_options)
    stored = StoredTable.on(storage, formats.first, storage_options, is_branch=bool(branch))
    return TableWriter(stored, roots=roots, recovery=recovery, formats=formats)


def branch_names(uri: str, storage_options: Mapping[str, str] | None) -> list[str]:
    """Returns the names of the table's branches; the last name is empty and means the main branch."""
    return [*sorted(Refs(open_storage(uri, storage_options)).branches()), ""]


def located(
    uri: str,
    branch: str,
    storage_options: Mapping[str, str] | None = None,
    formats: Formats = BUILT_IN,
) -> StoredTable:
    """Returns a branch as it is stored, in its format: the first of `formats` if it has no version."""
    storage = open_canonical(root_of(uri, branch), storage_options)
    return StoredTable.on(storage, format_at(storage, formats), storage_options, is_branch=bool(branch))
