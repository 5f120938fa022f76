"""Keeps a table from being created inside another table's folder, or around another table.

`lakefold drop` removes a folder with all that it holds, and so do Lance clients. They also clean up files in
a table's folder that belong to none of its versions. So a table inside another table's folder may lose its
files through operations on the outer table. Folders of branches belong to the table itself.

No table is created around another table either: unknown files at a new table's root are refused when it is
opened (`BEFORE_A_TABLE` of the versions). This module covers only what that check lets pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.branch_names import branch_root
from lakefold_table.entry import Invalid
from lakefold_table.format import Requirements
from lakefold_table.roots import above, below, parents

if TYPE_CHECKING:
    from collections.abc import Collection

DATA: Final = "data"
"""The folder of data files, which may exist before the table. A table could have this name."""


def needs_around(root: str, branch: str = "") -> Requirements:
    """Returns what must be known of the folders around a root before a table (or that branch) is created."""
    if not branch:
        return Requirements(neighbours=frozenset([*parents(root), below(root, DATA)]))
    main = _main(root, branch)
    return Requirements(neighbours=frozenset([main, *parents(main)]))


def neighbour_fault(root: str, neighbours: Collection[str], branch: str = "") -> Invalid | None:
    """Returns why no table can be created at this root, or None.

    `neighbours`: the other tables around it, as of `Fetched`.
    """
    if branch:
        main = _main(root, branch)
        if main in neighbours:
            return None
        root = main
    inner = below(root, DATA)
    if inner in neighbours:
        return Invalid(
            f"the table {inner} is inside the folder {root}, where this one would be created",
            "choose another path, or move that table first",
        )
    outer = next((parent for parent in parents(root) if parent in neighbours), None)
    if outer is None:
        return None
    return Invalid(
        f"the folder {root} is inside the table {outer}, which would be dropped and cleaned up with it",
        "choose a path outside that table; only its branches may be inside it",
    )


def _main(root: str, branch: str) -> str:
    return above(root, branch_root(branch))
