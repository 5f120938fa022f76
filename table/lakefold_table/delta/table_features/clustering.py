"""Clustered tables: the columns by which another client clusters rows, of which all files need statistics.

The columns are the configuration of a domain, by their names in data files (Delta fact 6.12). Nothing here
clusters rows: new files are unclustered, and files that a client has clustered stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.delta.json_text import parse_object
from lakefold_table.delta.record_counts import NULL_COUNT, statistics_members
from lakefold_table.delta.table_features.columns import stored_columns
from lakefold_table.delta.table_features.simple_types import decimal_digits
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from lakefold_table.delta.actions.file_actions import AddFile
    from lakefold_table.delta.actions.table_actions import DomainMetadata, TableMetadata

    Path = tuple[str, ...]

FEATURE: Final = "clustering"
DOMAIN: Final = "delta.clustering"
"""The domain whose configuration has the columns."""
_KINDS: Final = frozenset({"byte", "short", "integer", "long", "float", "double", "string", "date"}) | {
    "timestamp",
    "timestamp_ntz",
}
"""The types of which statistics have bounds, beside decimals."""
_NAMES: Final = "list the columns, each by its name in data files, or by those of its path"
_KEEP: Final = "keep the column with its type, or name columns as data files do"
_STATISTICS: Final = "write nullCount of it, and its bounds, into the statistics of each file"


def clustering_columns(domains: Iterable[DomainMetadata], features: Collection[str]) -> tuple[Path, ...]:
    """Returns the columns by which a table with these features is clustered, by their paths in data files.

    `domains`: the last one of this name counts. Raises `DamagedError` if its configuration is malformed.
    """
    if FEATURE not in features:
        return ()
    last = next((each for each in reversed([*domains]) if each.domain == DOMAIN), None)
    if last is None or last.removed:
        return ()
    named = parse_object(last.configuration.encode(), DOMAIN).get("clusteringColumns")
    if not isinstance(named, list):
        raise DamagedError("the domain names no clusteringColumns", where=DOMAIN, hint=_NAMES)
    # The specification has a name for each column, delta-spark a list of names.
    paths = [[each] if isinstance(each, str) else each for each in named]
    for path in paths:
        if not isinstance(path, list) or not path or not all(isinstance(name, str) for name in path):
            raise DamagedError("a clustering column has no name", where=DOMAIN, hint=_NAMES)
    return tuple(map(tuple, paths))


def clustering_faults(
    columns: Collection[Path], metadata: TableMetadata, before: TableMetadata | None = None
) -> Iterator[tuple[str, str]]:
    """Yields why a table with this metadata can't be clustered by these columns, each with what to do.

    `before`: that of a version which has the columns, so that they are named as in SQL.
    Raises `DamagedError` if there is no schema.
    """
    if not columns:
        return
    if metadata.partition_columns:
        yield "the table has partition columns, so it can't be clustered", "partition it, or cluster it"
    kinds = {path: column.kinds[0] for path, column in stored_columns(metadata)}
    names = {} if before is None else {path: column.name for path, column in stored_columns(before)}
    for path in columns:
        kind = kinds.get(path)
        shown = names.get(path, ".".join(path))
        if kind is None:
            yield f"the clustering column {shown!r} is not in the schema", _KEEP
        elif kind not in _KINDS and decimal_digits(kind) is None:
            message = (
                f"the clustering column {shown!r} has the type {kind}, of which statistics have no bounds"
            )
            yield message, "cluster by numbers, texts, dates or times"


def lacking_statistics(file: AddFile, columns: Collection[Path]) -> tuple[str, str] | None:
    """Returns of which clustering column a file has no statistics, with what to do, or None.

    A file that has only nulls in a column, or a value that can't be a bound, says no more than their number.
    """
    if not columns:
        return None
    counts = statistics_members(file).get(NULL_COUNT)
    for path in columns:
        count = counts
        for name in path:
            count = count.get(name) if isinstance(count, dict) else None
        if count is None:
            return f"{file.path!r} has no statistics of the clustering column {'.'.join(path)!r}", _STATISTICS
    return None
