"""The fragment-reuse index grows with compactions and is trimmed once no index needs what it records."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import FragmentReuseIndexDetails
from lakefold_table.bitmaps import Bitmap
from lakefold_table.entry import Committed, Invalid
from lakefold_table.lance.indexing.indices import coverage
from lakefold_table.uri import canonical
from tests.oracle.compactions import envelopes_of, reuse_of
from tests.oracle.manifests import manifest_files
from tests.oracle.operations import copy_files, version_of
from tests.oracle.reusing import deferred, deferred_in_parts, details, indexed, sent, versions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """See `indexed`."""
    return indexed(tmp_path / "t")


def trim(table: Path, keep: Sequence[int], read: int | None = None) -> Envelope:
    """The transaction that drops all but some compactions from the newest version's index."""
    version = version_of(table)
    before = reuse_of(version)
    assert before is not None
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.uuid, envelope.lance.read_version = str(uuid.uuid4()), read or version.manifest.version
    create = envelope.lance.create_index
    create.removed_indices.add().CopyFrom(before)
    after = create.new_indices.add()
    after.CopyFrom(before)
    after.uuid.uuid = uuid.uuid4().bytes
    left = FragmentReuseIndexDetails()
    left.inline.versions.extend(
        version for version in details(before).inline.versions if version.dataset_version in keep
    )
    after.index_details.value = left.SerializeToString()
    after.fragment_bitmap = b""
    return envelope


def rebuilt(table: Path) -> None:
    """All indices built again, so that none needs the old addresses."""
    lance.dataset(str(table)).create_scalar_index("a", "BTREE", replace=True)
    lance.dataset(str(table)).create_scalar_index("s", "BITMAP", replace=True)
    lance.dataset(str(table)).create_scalar_index("b", "BTREE", replace=True)


def test_a_compaction_that_is_still_needed_is_not_forgotten(table: Path) -> None:
    deferred(lance.dataset(str(table)))
    drop = trim(table, [])
    del drop.lance.create_index.new_indices[:]
    drop.lance.uuid = "drop"
    results = sent(table, trim(table, []), drop)
    messages = [result.message for result in results if isinstance(result, Invalid)]
    assert len(messages) == 2
    assert "a_idx" in messages[0]
    rebuilt(table)
    (result,) = sent(table, trim(table, []))
    assert isinstance(result, Committed), result
    assert versions(table) == []
    lance.dataset(str(table)).validate()
    assert lance.dataset(str(table)).count_rows("a = 7") == 1


def test_an_index_can_only_be_trimmed(table: Path) -> None:
    deferred(lance.dataset(str(table)))
    more = trim(table, versions(table))
    reported = details(more.lance.create_index.new_indices[0])
    reported.inline.versions.add(dataset_version=3)
    more.lance.create_index.new_indices[0].index_details.value = reported.SerializeToString()
    (result,) = sent(table, more)
    assert isinstance(result, Invalid)
    assert "versions that the index it replaces does not have" in result.message
    alone = trim(table, versions(table))
    del alone.lance.create_index.removed_indices[:]
    (result,) = sent(table, alone)
    assert isinstance(result, Invalid)


def two_compactions(table: Path) -> list[Envelope]:
    """A table with a deferred compaction whose indices are rebuilt; the transactions of a second one."""
    deferred_in_parts(lance.dataset(str(table)))
    rebuilt(table)
    theirs = table.with_name("t-theirs")
    shutil.copytree(table, theirs)
    deferred(lance.dataset(str(theirs)))
    copy_files(theirs, table)
    return envelopes_of(theirs, table, len(manifest_files(table)))


def test_a_compaction_keeps_what_was_trimmed_since_away(table: Path) -> None:
    reserve, rewrite = two_compactions(table)
    (first,) = versions(table)
    results = sent(table, reserve, trim(table, []), rewrite)
    assert all(isinstance(result, Committed) for result in results), results
    assert first not in versions(table)
    assert len(versions(table)) == 1
    check_moved(table)


def test_a_trim_keeps_what_a_compaction_added_since(table: Path) -> None:
    reserve, rewrite = two_compactions(table)
    (first,) = versions(table)
    late = trim(table, [])
    results = sent(table, reserve, rewrite, late)
    assert all(isinstance(result, Committed) for result in results), results
    assert isinstance(results[-1], Committed)
    assert results[-1].rebased
    assert first not in versions(table)
    assert len(versions(table)) == 1
    check_moved(table)
    transaction = version_of(table).transaction
    assert transaction is not None
    (new,) = transaction.create_index.new_indices
    assert new == reuse_of(version_of(table))


def check_moved(table: Path) -> None:
    """The index covers the new fragments that it records, and pylance finds all rows through it."""
    index = reuse_of(version_of(table))
    assert index is not None
    version = details(index).inline.versions[0]
    assert coverage(index) == Bitmap(
        [digest.id for group in version.groups for digest in group.new_fragments]
    )
    dataset = lance.dataset(str(table))
    dataset.validate()
    assert dataset.count_rows("a = 7") == 1
    assert dataset.count_rows("a >= 0") == dataset.count_rows() == 77
