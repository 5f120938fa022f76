"""Whether a table that was opened may be folded on: held against its log and against what was reported.

A table alone can't know that it was set back to a backup, nor that its log was made anew. Both would fold
entries twice, or never.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lakefold_committer.binding import accepted, check_reach, told
from lakefold_log.record import OUTCOMES
from lakefold_table.errors import StopError
from lakefold_table.lance.refs.names import branch_root
from lakefold_table.roots import above

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_committer.fold import Table
    from lakefold_committer.proofs import Proofs


def on_its_log(table: Table, proofs: Proofs) -> Table:
    """The table where its log is the proven one, and reaches as far as its marks; else as was accepted.

    The log is asked for its end only where the stamp doesn't tell that it reaches so far. Raises `GapError`.
    """
    marks = table.marks
    bound = marks.position
    known = bound is None or bound.log != proofs.log or bound.offset < proofs.answered
    end = sys.maxsize if known else proofs.end()
    if proofs.accept is None:
        check_reach(marks, proofs.log, end, table.uri)
        return table
    move = accepted(marks, proofs.accept, end, main_uri(table))
    return table if move is None else table.moving(move)


def check_reported(table: Table, properties: Mapping[str, str], proofs: Proofs) -> None:
    """Raises `StopError` where later versions were reported than the table has: a backup, or wiped marks.

    `properties`: those of the version that its marks were made for; they tell since when to look.
    """
    marks, witness = table.marks, proofs.witness
    if witness is None or table.state is None or marks.detached:
        return
    if marks.position is not None and marks.position.log.partition != proofs.log.partition:
        return
    last = witness.newest_committed(table.uri, marks.table_id, _since(properties, proofs.log.partition))
    if last is None:
        return
    if not marks.table_id:
        raise StopError(
            f"the table has no marks, but {told(last.position)} was folded into its version {last.version}, "
            f"as table {last.table_id}: its marks were wiped, and the versions that had them are gone",
            where=table.uri,
            hint="restore a version that has them; or bind it anew: lakefold adopt",
        )
    stands = "no position" if marks.position is None else told(marks.position)
    if last.version > (marks.version if properties else table.version):
        raise StopError(
            f"it stands at version {table.version}, its marks at version {marks.version} and {stands}, "
            f"but version {last.version} was reported, with {told(last.position)}: it was set back, as a "
            "backup is",
            where=table.uri,
            hint="bring the newer versions back; or accept what is there: lakefold rebind --restored",
        )


def main_uri(table: Table) -> str:
    """The name that the table's entries bear: a branch's lie under that of its main line."""
    branch = "" if table.state is None else table.state.branch
    return above(table.uri, branch_root(branch)) if branch else table.uri


def _since(properties: Mapping[str, str], partition: int) -> int:
    """Where outcomes of later versions begin; from the topic's start where the version doesn't tell."""
    number, _, offset = properties.get(OUTCOMES, "").partition("@")
    return int(offset) if number == str(partition) and offset.isdigit() else 0
