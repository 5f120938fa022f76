"""A table that isn't there: whether it never was, was dropped on purpose, or its store is away.

The place looks the same. What was reported of it lies elsewhere: where a proposal was told as committed into
a table here, another one may only be refused once somebody has said that the table was dropped (an error of
the store is never a refusal).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.fold.binding import told
from lakefold_table.branch_names import branch_root
from lakefold_table.errors import PlaceError, RetryError, StopError
from lakefold_table.roots import above
from lakefold_table.storage import open_canonical
from lakefold_table.versions.dropped import was_dropped
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_committer.fold.fold import Table
    from lakefold_committer.recovery.recovery_context import RecoveryContext
    from lakefold_table.entry import Entry
    from lakefold_table.format import AnyFormat
    from lakefold_table.marks.marks import Marks
    from lakefold_table.position import Position


def answerable(
    table_format: AnyFormat,
    uri: str,
    group: Sequence[Entry],
    proofs: RecoveryContext | None,
    storage_options: Mapping[str, str] | None,
) -> Sequence[Entry]:
    """Those of the first entries of a group that can be answered where there is no table.

    What proposes to begin one is for the fold: who sent it saw none. Anything else would be refused, which is
    right only where no table is away. Raises as `check_absent` does.
    """
    if proofs is None or proofs.witness is None:
        return group
    beginners = next((number for number, entry in enumerate(group) if not entry.begins_table), len(group))
    if not beginners:
        check_absent(table_format, uri, group[0].envelope.branch, proofs, storage_options)
    return group[:beginners] or group


def check_absent(
    table_format: AnyFormat,
    uri: str,
    branch: str,
    proofs: RecoveryContext | None,
    storage_options: Mapping[str, str] | None,
    *,
    seen: str = "there is no table",
) -> None:
    """Raises `StopError` where there was a table at `uri`, and nobody has said that it was dropped.

    `branch`: what it is a branch of the table above as, where its entries say so. `seen`: what there is in
    its place. Raises `RetryError` where that can't be told now.
    """
    witness = None if proofs is None else proofs.witness
    last = None if witness is None else witness.last_committed(uri)
    if last is None:
        return
    main = above(uri, branch_root(branch)) if branch else uri
    try:
        dropped = was_dropped(uri, last.position, storage_options)
    except PlaceError:
        # Neither the table nor the folder above it is what it was.
        dropped = False
    ways = f"lakefold drop {main}"
    if branch and _is_there(table_format, main, storage_options):
        dropped = dropped or branch not in Refs(open_canonical(main, storage_options)).branches()
        ways = "delete the branch by a Lance client, which its table still knows"
    if dropped:
        return
    raise StopError(
        f"{seen}, yet {told(last.position)} was folded into version {last.version} of table {last.table_id} "
        "here: its store is away, or it was deleted",
        where=uri,
        hint="bring it back: was it moved, is its file system mounted? If it was deleted on purpose, say so: "
        f"{ways}",
    )


def is_dropped(versions: Versions, table: Table, storage_options: Mapping[str, str] | None) -> bool:
    """Whether a table that was opened is gone by now because it was dropped.

    Then it need not be waited for: what lies there by now, or nothing, is to be opened.
    """
    known = _last_folded(table.marks)
    try:
        return known is not None and not versions.numbers() and was_dropped(table.uri, known, storage_options)
    except (RetryError, PlaceError):
        return False


def _last_folded(marks: Marks) -> Position | None:
    """The last position that was folded; where the table follows no log, before it was let go of."""
    if marks.position is not None or not marks.moves:
        return marks.position
    return marks.moves[-1].before


def _is_there(table_format: AnyFormat, uri: str, storage_options: Mapping[str, str] | None) -> bool:
    storage = open_canonical(uri, storage_options)
    try:
        return Versions(storage, table_format.folder, table_format.detect).latest() > 0
    except PlaceError:
        return False
