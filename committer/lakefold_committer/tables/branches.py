"""The lines of a table: its main line and its branches, each with versions of its own.

A branch is a table of Lance's under `tree/` of the main line's root (Lance fact 1.7). Its entries
lie in the main line's partition, since they bear its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_table.entry import Invalid
from lakefold_table.errors import InvalidError
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.refs.names import check_branch_name, root_of
from lakefold_table.storage import open_canonical
from lakefold_table.uri import place
from lakefold_table.versions.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_committer.recovery.recovery_context import RecoveryContext
    from lakefold_table.uri import Place


def line_of(uri: str, branch: str) -> Place | Invalid:
    """Where the versions of this line lie, the main line where `branch` is empty; why no branch is called so.

    Two names of one place are one line: a branch may also be named by its own root.
    """
    if not branch:
        return place(uri)
    try:
        check_branch_name(branch)
    except InvalidError as error:
        return Invalid(error.message, error.hint)
    return place(root_of(uri, branch))


def open_line(
    uri: str,
    branch: str,
    storage_options: Mapping[str, str] | None,
    roots: Sequence[str] | None = None,
    proofs: RecoveryContext | None = None,
    *,
    transaction_files: bool = True,
) -> TableWriter:
    """One line of the table at `uri`; the main line where `branch` is empty. Raises as `TableWriter` does."""
    versions = versions_of(uri, branch, storage_options)
    return TableWriter(
        LanceFormat(transaction_files=transaction_files),
        versions,
        root_of(uri, branch),
        roots=roots,
        proofs=proofs,
        storage_options=storage_options,
    )


def versions_of(uri: str, branch: str, storage_options: Mapping[str, str] | None = None) -> Versions:
    """The versions of one line of the table at `uri`."""
    table_format = LanceFormat()
    return Versions(
        open_canonical(root_of(uri, branch), storage_options),
        table_format.folder,
        table_format.detect,
        is_branch=bool(branch),
    )
