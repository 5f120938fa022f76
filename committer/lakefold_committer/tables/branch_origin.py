"""Records a new branch in the table that it was made from.

A branch is a table of its own in a folder of that table, and exists from its first version on. The file that
describes it is stored at the root of the main branch, which the branch's own store can't reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from lakefold_table.branch_names import branch_root
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.roots import above
from lakefold_table.storage import open_canonical
from lakefold_table.uri import is_under
from lakefold_table.versions.refs import Refs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_table.storage.base import Storage

LOG = structlog.get_logger("lakefold.committer")


def record_branch(
    storage: Storage,
    branch: str,
    roots: Sequence[str] | None,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Writes the file that describes a branch, unless it exists. `storage`: the store of the branch itself.

    Nothing is written if the branch is not stored where its name says (it was copied), or if the root of the
    main branch is outside of `roots` (None: anywhere). If the file can't be written, a warning is logged: the
    branch's versions don't need it. Raises `RetryError` if the store can't be reached.
    """
    folder = branch_root(branch)
    main = above(storage.uri, folder)
    if main == storage.uri or not (roots is None or is_under(main, roots)):
        return
    try:
        recorded, why = (
            Refs(open_canonical(main, storage_options)).record_branch(branch),
            "its first version doesn't record it",
        )
    except (InvalidError, DamagedError) as error:
        recorded, why = False, str(error)
    if not recorded:
        LOG.warning("branch not described at the main line", table=main, branch=branch, why=why)
