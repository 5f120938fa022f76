"""Keys that a table's schema declares but that are not enforced.

The metadata of a column declares that it is part of a key. Lance stores that in separate fields as well, and
merges rows by the primary key (Lance fact 4.3).
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
"""The most digits that a position may have, since the text of a proposal may have any length."""
MAX_POSITION = 2**32 - 1


def declare_keys(field: Field) -> None:
    """Sets on the field what its metadata declares: its position in the primary and clustering keys.

    A field with a position is part of the primary key, whatever the other entry states (Lance fact 4.3).
    """
    position = position_of(field, PRIMARY_KEY)
    field.unenforced_primary_key = position is not None or means_true(field.metadata.get(PRIMARY_KEY, b""))
    field.unenforced_primary_key_position = position or 0
    field.unenforced_clustering_key_position = position_of(field, CLUSTERING_KEY) or 0


def position_of(field: Field, key: str) -> int | None:
    """Returns the position in the metadata, None if there is none that pylance can read."""
    match = POSITION.fullmatch(field.metadata.get(f"{key}:position", b""))
    position = int(match[1]) if match else MAX_POSITION + 1
    return position if position <= MAX_POSITION else None


def check_primary_key(fields: Sequence[Field]) -> None:
    """Raises `InvalidError` naming the column if a primary key is declared that Lance refuses.

    It must be a non-nullable leaf, at the top level or below non-nullable structs.
    """
    fields_by_id, names, below = by_id(fields), paths(fields), children(fields)
    for field in fields:
        if not field.unenforced_primary_key:
            continue
        where = names[field.id]
        if field.id in below:
            raise InvalidError("a primary key can't have child fields", where=where)
        level: Field | None = field
        while level is not None:
            if level.nullable:
                hint = f"declare {names[level.id]} as non-nullable"
                raise InvalidError(
                    "a primary key and its parents must be non-nullable", where=where, hint=hint
                )
            if level is not field and level.logical_type != "struct":
                raise InvalidError(f"a primary key can't be inside a {level.logical_type}", where=where)
            level = fields_by_id.get(level.parent_id)
