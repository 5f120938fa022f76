"""Keeps a table from being created inside another table's folder, around another table, or as a part of one.

`lakefold drop` removes a folder with all that it holds, and so do Lance clients. They also clean up files in
a table's folder that belong to none of its versions. So a table inside another table's folder may lose its
files through operations on the outer table. Folders of branches belong to the table itself.

No table is created around another table either: unknown files at a new table's root are refused when it is
opened (`BEFORE_A_TABLE` of the versions). This module covers only what that check lets pass.

Names that formats give to parts of a table are no names of tables, nor of folders above one: a table
`lake/_delta_log` would make a Delta table of the folder `lake`, which hides all tables in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.branch_names import main_of
from lakefold_table.entry import Invalid
from lakefold_table.format import Requirements
from lakefold_table.roots import below, parents, segments

if TYPE_CHECKING:
    from collections.abc import Collection

DATA: Final = "data"
"""The folder of data files, which may exist before the table. A table could have this name."""
PARTS: Final = frozenset(
    {
        "_change_data",
        "_checkpoints",
        "_commits",
        "_deletions",
        "_delta_index",
        "_delta_log",
        "_indices",
        "_lakefold",
        "_metadata",
        "_mem_wal",
        "_refs",
        "_sidecars",
        "_spark_metadata",
        "_staged_commits",
        "_temporary",
        "_transactions",
        "_versions",
    },
)
"""The folders that Lance, Delta, Spark or Lakefold itself make in a table's folder or beside data files.

`data` and `tree` are missing, which people call tables: inside a table's folder they are refused as well.
"""


def name_fault(root: str) -> Invalid | None:
    """Returns why no table may be created at this root because of its name, or None."""
    for segment in segments(root):
        if segment.casefold() in PARTS:
            return Invalid(
                f"{segment!r} in the path {root} is the name of a part of a table, not of a table",
                "choose a path without it: the folder above would be taken for a table",
            )
    return None


def needs_around(root: str, branch: str = "") -> Requirements:
    """Returns what must be known of the folders around a root before a table (or that branch) is created."""
    if not branch:
        return Requirements(neighbours=frozenset([*parents(root), below(root, DATA)]))
    main = main_of(root, branch)
    return Requirements(neighbours=frozenset([main, *parents(main)]))


def neighbour_fault(root: str, neighbours: Collection[str], branch: str = "") -> Invalid | None:
    """Returns why no table can be created at this root, or None.

    `neighbours`: the other tables around it, as of `Fetched`.
    """
    if branch:
        main = main_of(root, branch)
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
        return name_fault(root)
    return Invalid(
        f"the folder {root} is inside the table {outer}, which would be dropped and cleaned up with it",
        "choose a path outside that table; only its branches may be inside it",
    )
