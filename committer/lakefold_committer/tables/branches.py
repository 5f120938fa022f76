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
from lakefold_table.uri import Location, parse_location
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import format_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_committer.recovery.recovery_context import RecoveryContext
    from lakefold_table.versions.table_address import TableAddress


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
    address: TableAddress,
    branch: str,
    roots: Sequence[str] | None = None,
    recovery: RecoveryContext | None = None,
    *,
    formats: Formats = BUILT_IN,
) -> TableWriter:
    """Opens a branch of the table at an address; an empty name is the main one. Raises as `TableWriter` does.

    `formats`: those that a table may have. It is opened in the first of them. The writer tries the others if
    the table is none of the first, so a table of the first format costs no request more.
    """
    storage = address.branch(branch).open()
    stored = StoredTable.on(storage, formats.first, address.options, is_branch=bool(branch))
    return TableWriter(stored, roots=roots, recovery=recovery, formats=formats)


def branch_names(address: TableAddress) -> list[str]:
    """Returns the names of the table's branches; the last name is empty and means the main branch."""
    return [*sorted(Refs(address.open()).branches()), ""]


def located(address: TableAddress, branch: str = "", formats: Formats = BUILT_IN) -> StoredTable:
    """Returns a branch as it is stored, in its format: the first of `formats` if it has no version."""
    storage = address.branch(branch).open()
    return StoredTable.on(storage, format_at(storage, formats), address.options, is_branch=bool(branch))
