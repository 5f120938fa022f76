"""Branches: what the table that a branch was made from has to know of it.

A branch is a table of its own in a folder of that table, and comes to be by its first version. The file that
describes it lies at the root of the main line, outside of what the branch's own store reaches.
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
    """Write the file of the branch whose table lies at the store's root, unless it is there.

    Nothing is written for a branch that lies elsewhere than its name says (it was copied), nor where the main
    line's root is outside of `roots` (None: anywhere). Where it can't be written for good, that is logged:
    the branch's versions stand without it. Raises `RetryError` where the store can't be reached.
    """
    folder = branch_root(branch)
    main = above(storage.uri, folder)
    if main == storage.uri or not (roots is None or is_under(main, roots)):
        return
    try:
        recorded, why = (
            Refs(open_canonical(main, storage_options)).record_branch(branch),
            "its first version doesn't tell",
        )
    except (InvalidError, DamagedError) as error:
        recorded, why = False, str(error)
    if not recorded:
        LOG.warning("branch not described at the main line", table=main, branch=branch, why=why)
