"""Compactions, both ways: pylance commits a reservation and a rewrite, and we fold the same two.

Lance's message of a Rewrite has no field for the fragment-reuse index that a deferred one makes; a writer
puts it into the envelope, and so is done here, from the manifest that pylance wrote.
"""

from __future__ import annotations

import shutil
from itertools import pairwise
from typing import TYPE_CHECKING

import lance
import pyarrow as pa

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE
from lakefold_table.uri import canonical
from tests.oracle.committing import fold, owned
from tests.oracle.manifests import manifest_files
from tests.oracle.operations import Both, copy_files, differences, version_in, version_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_protos.lance.table_pb2 import IndexMetadata
    from tests.oracle.operations import Act, Version


def rows(first: int, count: int = 10) -> pa.Table:
    """Numbers twice, for a column with an index and another without, and a text of three."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "a": pa.array(numbers, pa.int64()),
            "s": [f"s{number % 3}" for number in numbers],
            "b": pa.array(numbers, pa.int64()),
        }
    )


def append(dataset: lance.LanceDataset, first: int = 1000) -> None:
    """Ten more rows."""
    lance.write_dataset(rows(first), dataset.uri, mode="append")


def replayed(
    table: Path,
    act: Act,
    *,
    between: Act | None = None,
    change: Callable[[Envelope], object] | None = None,
) -> Both:
    """Has pylance do `act` to a copy of `table`, and us fold all transactions that it made into another.

    `between`: done by pylance to our copy only, before the last transaction is folded: that is then built on
    an older version, and the manifests are not compared. `change` edits the last envelope before that.
    """
    theirs, ours = table.with_name(table.name + "-theirs"), table.with_name(table.name + "-ours")
    shutil.copytree(table, theirs)
    shutil.copytree(table, ours)
    first = len(manifest_files(table))
    act(lance.dataset(str(theirs)))
    copy_files(theirs, ours)
    envelopes = envelopes_of(theirs, ours, first)
    if change is not None:
        change(envelopes[-1])
    committer = owned(ours)
    for at, envelope in enumerate(envelopes[:-1]):
        fold(committer, [envelope], at)
    if between is not None:
        between(lance.dataset(str(ours)))
    results = fold(committer, envelopes[-1:], len(envelopes))
    differ = {} if between is not None else differences(version_of(theirs), version_of(ours))
    return Both(theirs, ours, results[-1], envelopes[-1].lance, differ)


def envelopes_of(source: Path, target: Path, first: int) -> list[Envelope]:
    """The transactions of all versions of `source` but the first, as envelopes for `target`."""
    versions = [version_in(path) for path in manifest_files(source)[max(first - 1, 0) :]]
    return [_envelope(target, *pair) for pair in pairwise(versions)]


def _envelope(target: Path, before: Version, after: Version) -> Envelope:
    assert after.transaction is not None
    envelope = Envelope(table=canonical(str(target)))
    envelope.lance.CopyFrom(after.transaction)
    reuse = reuse_of(after)
    if envelope.lance.HasField("rewrite") and reuse is not None and reuse != reuse_of(before):
        envelope.fragment_reuse_index.CopyFrom(reuse)
    return envelope


def reuse_of(version: Version) -> IndexMetadata | None:
    """The fragment-reuse index of a version."""
    return next((index for index in version.indices.indices if index.name == FRAGMENT_REUSE), None)
