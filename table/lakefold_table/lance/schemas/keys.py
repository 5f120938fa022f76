"""Keys that a table's schema declares and nobody enforces: metadata of a column says that it is part of one.

Lance reads them into fields of their own, and merges rows by the primary key (Lance fact 4.3).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakefold_table.errors import InvalidError
from lakefold_table.lance.schemas.data_files import means_true
from lakefold_table.lance.schemas.schema import by_id, children, paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.file_pb2 import Field

PRIMARY_KEY = "lance-schema:unenforced-primary-key"
CLUSTERING_KEY = "lance-schema:unenforced-clustering-key"
POSITION = re.compile(rb"\+?0*([0-9]{1,10})")
"""As many digits as a position may have; a text of any length may come from a log."""
MAX_POSITION = 2**32 - 1


def declare_keys(field: Field) -> None:
    """Set on the field what its metadata declares: its place in the primary key and in the clustering key.

    A position makes it part of the primary key, whatever the other entry says (Lance fact 4.3).
    """
    position = position_of(field, PRIMARY_KEY)
    field.unenforced_primary_key = position is not None or means_true(field.metadata.get(PRIMARY_KEY, b""))
    field.unenforced_primary_key_position = position or 0
    field.unenforced_clustering_key_position = position_of(field, CLUSTERING_KEY) or 0


def position_of(field: Field, key: str) -> int | None:
    """The position that the metadata gives; None where it gives none that pylance can read."""
    found = POSITION.fullmatch(field.metadata.get(f"{key}:position", b""))
    position = int(found[1]) if found else MAX_POSITION + 1
    return position if position <= MAX_POSITION else None


def check_primary_key(fields: Sequence[Field]) -> None:
    """Raise `InvalidError` naming the column where a primary key is declared that Lance refuses.

    It must be a leaf that can't be null, at the top level or in structs that can't be null either.
    """
    known, names, below = by_id(fields), paths(fields), children(fields)
    for field in fields:
        if not field.unenforced_primary_key:
            continue
        where = names[field.id]
        if field.id in below:
            raise InvalidError("a primary key can't have fields below it", where=where)
        one: Field | None = field
        while one is not None:
            if one.nullable:
                hint = f"declare {names[one.id]} as not nullable"
                raise InvalidError("a primary key and its parents can't be null", where=where, hint=hint)
            if one is not field and one.logical_type != "struct":
                raise InvalidError(f"a primary key can't lie in a {one.logical_type}", where=where)
            one = known.get(one.parent_id)
