"""What the driver plans for one read of a version: which version, which columns, which fragments together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_reader.columns import schema_of
from lakefold_reader.lines import open_line, tagged
from lakefold_reader.snapshot import version_as_of
from lakefold_reader.source import missing, numbers_of, open_source, read_state
from lakefold_reader.spark_plan import MAX_PARTITION_BYTES, Cut, grouped, size_of
from lakefold_reader.spark_rows import VersionRows
from lakefold_reader.spark_types import readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakefold_reader.columns import TableSchema
    from lakefold_reader.source import Source
    from lakefold_reader.spark_options import Given


@dataclass(frozen=True)
class Pinned:
    """The version that a read stays with, decided once on the driver. Goes to every process of the read."""

    uri: str
    version: int
    manifest: str
    schema: TableSchema
    options: Mapping[str, str]

    def chosen(self, given: Given) -> pa.Schema:
        """The Arrow schema of the columns that the user wants. Raises `InvalidError`."""
        return self.schema.chosen(given.value("columns")).arrow


def line_of(given: Given) -> Source:
    """The table, or the branch of it, that is read."""
    return open_line(given.path, given.value("branch"), given.storage)


def pin(given: Given) -> Pinned:
    """Decides the version: the one that is asked for, else the newest.

    For changes it is the last one that is asked for; its schema is the one that rows are given in. Raises as
    `open_table`.
    """
    source, version = _named(given)
    numbers = numbers_of(source)
    chosen = numbers[-1] if version is None else version
    if chosen not in numbers:
        raise missing(source, chosen)
    state = read_state(source, chosen)
    path = source.versions.path(chosen)
    return Pinned(source.uri, chosen, path, schema_of(state.head), dict(source.options))


def rows_of(pinned: Pinned, target: pa.Schema, where: str | None) -> VersionRows:
    """How every task reads the version in these columns. Raises `InvalidError` for one that it can't give."""
    return VersionRows(
        uri=pinned.uri,
        version=pinned.version,
        manifest=pinned.manifest,
        schema=pinned.schema.chosen(readable(pinned.schema.arrow, target)),
        where=where,
        options=pinned.options,
    )


def pieces(pinned: Pinned, cut: Cut) -> list[Piece]:
    """The fragments of each task. Raises `VersionExpiredError` where the version was cleaned up meanwhile."""
    state = read_state(open_source(pinned.uri, pinned.options), pinned.version)
    groups = grouped(list(state.fragments), size_of, cut)
    return [tuple(one.SerializeToString() for one in group) for group in groups]


def cut_of(given: Given) -> Cut:
    """How partitions are to be cut."""
    return Cut(given.value("maxPartitionBytes") or MAX_PARTITION_BYTES, given.value("minPartitions") or 1)


Piece = tuple[bytes, ...]
"""The fragments of one task, encoded."""


def _named(given: Given) -> tuple[Source, int | None]:
    if given.value("tag") is not None:
        return tagged(open_source(given.path, given.storage), given.value("tag"))
    source = line_of(given)
    version = given.value("versionAsOf") or given.value("endingVersion")
    moment = given.value("timestampAsOf") or given.value("endingTimestamp")
    return source, version if moment is None else version_as_of(source, moment)
