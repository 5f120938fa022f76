"""Keeps a table from beginning inside another table's folder, or around another table.

`lakefold drop` removes a folder with all that it holds, and so do Lance clients. They also clean up what lies
in a table's folder and belongs to none of its versions. So whose table lies inside another one's folder may
lose its files by what is done to the other. Folders of branches are the table's own.

Around a table nothing begins either: what lies at a new table's root but no table brings along is refused
when it is opened (`BEFORE_A_TABLE` of the versions). Here is only asked for what that lets pass.
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
"""The folder of data files, which may lie there before the table: a name that a table could bear."""


def needs_around(root: str, branch: str = "") -> Requirements:
    """What must be known of the places around a root before a table begins there, or that branch of one."""
    if not branch:
        return Requirements(neighbours=frozenset([*parents(root), below(root, DATA)]))
    main = _main(root, branch)
    return Requirements(neighbours=frozenset([main, *parents(main)]))


def neighbour_fault(root: str, neighbours: Collection[str], branch: str = "") -> Invalid | None:
    """Why no table can begin at this root, with other tables at `neighbours` (as of `Fetched`)."""
    if branch:
        main = _main(root, branch)
        if main in neighbours:
            return None
        root = main
    inner = below(root, DATA)
    if inner in neighbours:
        return Invalid(
            f"the table {inner} lies inside the folder {root}, where this one would begin",
            "choose another place, or move that table first",
        )
    outer = next((one for one in parents(root) if one in neighbours), None)
    if outer is None:
        return None
    return Invalid(
        f"the folder {root} lies inside the table {outer}, which would be dropped and cleaned up with it",
        "choose a place beside that table; inside it lie only its branches",
    )


def _main(root: str, branch: str) -> str:
    return above(root, branch_root(branch))
