"""Sizes of data files that a writer leaves out: the version says them, as pylance's does.

Without them a Lance client asks the store for each before it reads a file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata, write_fragments

from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid
from lakefold_table.formats import BUILT_IN
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import canonical
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, entries
from tests.oracle.committing import commit, owned, packed
from tests.oracle.operations import both_ways, check_agreement, version_of
from tests.replaying import Listed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_table.entry import Entry
    from tests.oracle.operations import Act

Operation = lance.LanceOperation
ROWS = pa.table({"a": pa.array(range(20), pa.int64()), "s": [str(number) for number in range(20)]})


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "table"
    stable: bool = request.param
    lance.write_dataset(ROWS, str(path), max_rows_per_file=10, enable_stable_row_ids=stable)
    return path


def unsized(fragment: FragmentMetadata, files: slice = slice(None)) -> FragmentMetadata:
    """The fragment without the sizes of its files."""
    form = json.loads(json.dumps(fragment.to_json()))
    for file in form["files"][files]:
        file["file_size_bytes"] = None
    return FragmentMetadata.from_json(json.dumps(form))


def new(dataset: lance.LanceDataset, count: int = 1) -> list[FragmentMetadata]:
    every = [write_fragments(ROWS.slice(0, 3), dataset, mode="append") for _ in range(count)]
    return [fragment for fragments in every for fragment in fragments]


def append(dataset: lance.LanceDataset) -> None:
    """The second of three fragments says its size."""
    first, second, third = new(dataset, 3)
    commit(dataset, Operation.Append([unsized(first), second, unsized(third)]))


def overwrite(dataset: lance.LanceDataset) -> None:
    commit(dataset, Operation.Overwrite(ROWS.schema, [unsized(fragment) for fragment in new(dataset)]))


def update_of_rows(dataset: lance.LanceDataset) -> None:
    fragment = dataset.get_fragments()[1].metadata
    update = Operation.Update([0], [unsized(fragment)], [unsized(fragment) for fragment in new(dataset)])
    commit(dataset, update)


def merge(dataset: lance.LanceDataset) -> None:
    """Neither the new files say their sizes, nor those that the table has; one fragment stays as it is."""
    first, second = dataset.get_fragments()
    merged, schema = first.merge_columns(lambda rows: pa.record_batch({"z": rows["a"]}), columns=["a"])
    commit(dataset, Operation.Merge([unsized(merged), unsized(second.metadata)], schema))


def replacement(dataset: lance.LanceDataset) -> None:
    (fragment,) = write_fragments(ROWS.slice(5, 10), dataset, mode="append")
    (file,) = unsized(fragment).files
    commit(dataset, Operation.DataReplacement([Operation.DataReplacementGroup(0, file)]))


def rewrite(dataset: lance.LanceDataset) -> None:
    (fragment,) = write_fragments(ROWS, dataset, mode="append")
    old = [fragment.metadata for fragment in dataset.get_fragments()]
    group = Operation.RewriteGroup(old, [unsized(fragment)])
    commit(dataset, Operation.Rewrite([group], []))


ACTS = [append, overwrite, update_of_rows, merge, replacement]


@pytest.mark.parametrize("act", ACTS)
def test_the_version_says_them(act: Act, table: Path) -> None:
    both = both_ways(table, act)
    check_agreement(both)
    check_sized(both.ours)


def test_a_compaction_leaves_them_out(tmp_path: Path) -> None:
    table = tmp_path / "table"
    lance.write_dataset(ROWS, str(table), max_rows_per_file=10)
    both = both_ways(table, rewrite)
    check_agreement(both)
    check_sized(both.ours)


def test_a_large_append(table: Path) -> None:
    """Its fragments are kept encoded."""
    both = both_ways(table, append, packed=True)
    check_agreement(both)
    check_sized(both.ours)


def test_the_files_of_each_large_append_that_share_a_version_are_checked(table: Path) -> None:
    """Only the first of them is kept encoded."""
    envelopes = [proposal(table, 2) for _ in range(3)]
    for number, envelope in enumerate(envelopes):
        envelope.lance.uuid = str(number)
    (table / "data" / envelopes[1].lance.append.fragments[1].files[0].path).unlink()
    group = [packed(entry) for entry in entries(envelopes, 0)]
    first, second, third = (outcome.result for outcome in owned(table).fold(group).outcomes)
    assert isinstance(second, Invalid)
    assert "is missing" in second.message
    assert isinstance(first, Committed)
    assert isinstance(third, Committed)
    assert first.version == third.version
    check_sized(table)
    storage = LocalStorage(table)
    versions = Versions(storage, FORMAT.folder, FORMAT.detect)
    replays = list(replay(StoredTable(BUILT_IN.first, versions), Listed(group), first.version))
    assert [each.verdict for each in replays] == [Verdict.SAME]


def check_sized(table: Path) -> None:
    for fragment in version_of(table).manifest.fragments:
        for file in fragment.files:
            assert file.file_size_bytes == (table / "data" / file.path).stat().st_size


def proposal(table: Path, count: int = 1) -> Envelope:
    """An Append of fragments whose sizes it leaves out."""
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.uuid, envelope.lance.read_version = "append", 1
    for fragment in new(lance.dataset(str(table)), count):
        added = envelope.lance.append.fragments.add(physical_rows=fragment.physical_rows)
        (file,) = fragment.files
        added.files.add(
            path=file.path,
            fields=file.fields,
            column_indices=file.column_indices,
            file_major_version=file.file_major_version,
            file_minor_version=file.file_minor_version,
        )
    return envelope


def far(table: Path) -> TableWriter:
    """A committer's table in a store where checking files isn't cheap: only what is necessary is checked."""
    storage = LocalStorage(table)
    versions = Versions(storage, FORMAT.folder, FORMAT.detect)
    return TableWriter(StoredTable(FORMAT, versions), check_sizes=False)


def test_a_store_where_no_other_file_is_checked(table: Path) -> None:
    (outcome,) = far(table).fold(entries([proposal(table, 3)], 0)).outcomes
    assert isinstance(outcome.result, Committed)
    check_sized(table)


def test_a_missing_file_there_is_invalid(table: Path) -> None:
    """With pylance it is an error of its commit."""
    envelope = proposal(table)
    (table / "data" / envelope.lance.append.fragments[0].files[0].path).unlink()
    (outcome,) = far(table).fold(entries([envelope], 0)).outcomes
    assert isinstance(outcome.result, Invalid)
    assert "is missing" in outcome.result.message


def test_no_file_of_a_large_append_is_checked_there(table: Path) -> None:
    """A request for each of a million files would hold up all other tables."""
    envelope = proposal(table)
    (table / "data" / envelope.lance.append.fragments[0].files[0].path).unlink()
    (outcome,) = far(table).fold([packed(entry) for entry in entries([envelope], 0)]).outcomes
    assert isinstance(outcome.result, Committed)


KEPT: dict[str, Callable[[Entry], Entry]] = {"decoded": lambda entry: entry, "encoded": packed}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_folded_again_it_is_the_same_when_the_files_are_gone(
    kept: Callable[[Entry], Entry], table: Path
) -> None:
    (entry,) = map(kept, entries([proposal(table, 3)], 0))
    owned(table).fold([entry])
    for path in (table / "data").iterdir():
        path.unlink()
    storage = LocalStorage(table)
    versions = Versions(storage, FORMAT.folder, FORMAT.detect)
    replays = list(replay(StoredTable(BUILT_IN.first, versions), Listed([entry]), 2))
    assert [each.verdict for each in replays] == [Verdict.SAME]
    assert not replays[0].notes
