"""Brings the indices of a table up to date with pylance, which commits the new version itself.

pylance has no form of this that only prepares a transaction. So the version is one of another client (a
foreign version): the committer reads it and folds on top of it. If a writer's version comes first, pylance
commits its own after that one, or gives up, and the indices are as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_maintenance.lance.rewriter import open_dataset
from lakefold_reader.lance.read_errors import explained
from lakefold_reader.pylance.errors import translated_errors
from lakefold_reader.versions.listing import newest_of

if TYPE_CHECKING:
    from lakefold_reader.format.source import Source


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """How many fragments an index covered before and after; None if it doesn't say."""

    name: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What bringing the indices up to date did. `version`: the newest; `fragments`: how many it has."""

    version: int
    fragments: int
    indices: tuple[IndexCoverage, ...]


def optimize_indices(source: Source, *, dry_run: bool = False) -> IndexReport:
    """Adds the fragments that no index covers to the indices of a table; `dry_run` changes nothing.

    Raises as `Rewriter.run`, and `RetryError` if pylance could not commit because others did so first; the
    indices are then as they were.
    """
    version = newest_of(source)
    before = _coverage(source, version)
    if before and not dry_run:
        with explained(source, version), translated_errors(source.uri):
            open_dataset(source, version).optimize.optimize_indices()
    newest = newest_of(source)
    after = _coverage(source, newest)
    names = tuple(IndexCoverage(name, before.get(name), after[name]) for name in sorted(after))
    return IndexReport(newest, source.format.open(source, newest).fragment_count, names)


def _coverage(source: Source, version: int) -> dict[str, int | None]:
    """Returns how many fragments each index covers, without those that Lance keeps for itself."""
    indices = source.format.open(source, version).indices()
    return {index.name: index.covered for index in indices if not index.name.startswith("__")}
