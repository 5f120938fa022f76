"""Which files of the log are in the table, however their paths are written.

Clients may name a file of the table by an absolute path (Delta fact 3.1). It is read, and it is not cleaned
up, as if its path were relative. A file that is elsewhere is neither: the log must not lead a reader, with
its credentials, to the files of others.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakefold_table.delta.actions.file_actions import AddFile, ChangeFile, RemoveFile
from lakefold_table.delta.actions.paths import file_path
from lakefold_table.delta.deletion_vectors.storage import ABSOLUTE, relative_vector
from lakefold_table.delta.rows.vectors import file_of
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.uri import canonical, parse_location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakefold_table.delta.actions.file_actions import DeletionVector
    from lakefold_table.delta.actions.table_actions import Action


def path_inside(encoded: str, uri: str) -> str | None:
    """Returns the path below the root `uri` of the file that a path of the log names.

    Returns None if the file is elsewhere. Raises `DamagedError` if it can't be a file's path.
    """
    path = file_path(encoded, uri)
    if not path.absolute:
        return path.text
    try:
        # `parse_location` decodes a URI; a path without a scheme is taken as it is.
        file = parse_location(canonical(path.text if encoded.startswith("/") else encoded))
    except InvalidError:
        return None
    root = parse_location(uri)
    above, within = file.segments[: len(root.segments)], file.segments[len(root.segments) :]
    is_inside = (file.scheme, file.authority, above) == (root.scheme, root.authority, root.segments)
    return "/".join(within) if is_inside and within else None


def vector_inside(vector: DeletionVector | None, uri: str) -> str | None:
    """Returns the path of the file in the table that holds a deletion vector; None if no such file does."""
    if vector is None or vector.storage_type != ABSOLUTE:
        return file_of(vector)
    with suppress(DamagedError):
        return path_inside(vector.path_or_inline, uri)
    return None


def relative_to(vector: DeletionVector, uri: str) -> DeletionVector | None:
    """Returns a deletion vector as the log of the table at `uri` names it itself: not by an absolute path.

    Returns None if it is not in the table, or under a name that only an absolute path can give.
    """
    if vector.storage_type != ABSOLUTE:
        return vector
    inside = vector_inside(vector, uri)
    return None if inside is None else relative_vector(vector, inside)


def files_named_by(actions: Iterable[Action], uri: str) -> Iterator[str]:
    """Yields the paths of data files, deletion vectors and change files in the table at `uri`."""
    for action in actions:
        if not isinstance(action, AddFile | RemoveFile | ChangeFile):
            continue
        path = path_inside(action.path, uri)
        if path is not None:
            yield path
        vector = None if isinstance(action, ChangeFile) else vector_inside(action.deletion_vector, uri)
        if vector is not None:
            yield vector
