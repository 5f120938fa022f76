"""Branches: what the table that a branch was made from has to know of it.

A branch is a table of its own in a folder of that table, and comes to be by its first version. The file that
describes it lies at the root of the main line, outside of what the branch's own store reaches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.lance.ref_names import branch_root
from lakefold_table.refs import Refs
from lakefold_table.storage import open_storage
from lakefold_table.uri import is_under

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_table.storage.base import Storage


def record_branch(storage: Storage, branch: str, roots: Sequence[str] | None) -> None:
    """Write the file of the branch whose table lies at the store's root, unless it is there.

    Nothing is written for a branch that lies elsewhere than its name says (it was copied), nor where the main
    line's root is outside of `roots` (None: anywhere).
    """
    folder = branch_root(branch)
    main = storage.uri.removesuffix(f"/{folder}")
    if main == storage.uri or not (roots is None or is_under(main, roots)):
        return
    Refs(open_storage(main)).record_branch(branch)
