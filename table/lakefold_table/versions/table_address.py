"""The address of a table: where it is, and how its store is reached.

The two are needed together wherever a table is opened. A verb makes the address of them once, and everything
below it passes the address on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakefold_table.branch_names import root_of
from lakefold_table.storage import open_canonical
from lakefold_table.uri import FILE, parse_location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_table.storage.base import Storage


@dataclass(frozen=True, slots=True)
class TableAddress:
    """The canonical URI of a table's root, and the storage options as pylance takes them.

    The options may hold secrets, so they are not printed.
    """

    uri: str
    options: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def is_local(self) -> bool:
        """Whether the table is on a local disk."""
        return parse_location(self.uri).scheme == FILE

    def at(self, uri: str) -> TableAddress:
        """Returns the address of another table, which is reached by the same options."""
        return replace(self, uri=uri)

    def branch(self, name: str) -> TableAddress:
        """Returns the address of a branch; an empty name is the main branch."""
        return self.at(root_of(self.uri, name))

    def open(self) -> Storage:
        """Returns the store whose root is the table's. Raises as `open_canonical` does."""
        return open_canonical(self.uri, self.options)
