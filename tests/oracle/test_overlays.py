"""Why data overlays are refused, and what becomes of those that a foreign client committed."""

import os
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter
from lance.fragment import DataFile

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.errors import InvalidError
from lakefold_table.uri import canonical
from tests.foreign import file_as_others_write
from tests.oracle.committing import fold, owned, proposal, state, written
from tests.oracle.manifests import manifest_files
from tests.oracle.operations import version_of

SWITCH = "LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES"
READ = "import lance, sys; print(lance.dataset(sys.argv[1]).to_table(filter='a >= 100')['a'].to_pylist())"


def rows(start: int, count: int) -> pa.Table:
    return pa.table({"a": pa.array(range(start, start + count), pa.int64())})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Version 1: two fragments; 2: values of the second are overlaid."""
    path = tmp_path / "table"
    dataset = lance.write_dataset(rows(0, 20), str(path), max_rows_per_file=10)
    with LanceFileWriter(str(path / "data" / "o.lance"), dataset.schema, version="2.2") as writer:
        writer.write_batch(rows(100, 2))
    file = lance.LanceOperation.DataOverlayFile(DataFile.create(dataset, "o.lance"), [2, 5])
    group = lance.LanceOperation.DataOverlayGroup(1, [file])
    lance.LanceDataset.commit(dataset.uri, lance.LanceOperation.DataOverlay([group]), read_version=1)
    return path


def overlay(table: Path) -> Transaction:
    transaction = version_of(table).transaction
    assert transaction is not None
    return transaction


def test_a_table_with_overlays_opens_only_behind_a_switch(table: Path) -> None:
    with pytest.raises(ValueError, match="Flags: 64"):
        lance.dataset(str(table))
    environment = {**os.environ, SWITCH: "1"}
    command = [sys.executable, "-c", READ, str(table)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.strip() == "[100, 101]"


def test_we_open_none(table: Path) -> None:
    with pytest.raises(InvalidError, match=r"64 \(data overlay files\)"):
        state(table)


def test_a_proposal_of_one_is_refused(table: Path) -> None:
    transaction = overlay(table)
    manifest_files(table)[-1].unlink()
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.CopyFrom(transaction)
    (result,) = fold(owned(table), [envelope], 0)
    assert isinstance(result, Invalid)
    assert "feature flag 64" in result.message
    assert "DataReplacement" in result.hint


def without_overlays(table: Path) -> None:
    """Version 3, by another client: the overlays are gone again."""
    manifest = version_of(table).manifest
    manifest.version = 3
    manifest.reader_feature_flags = manifest.writer_feature_flags = 0
    for fragment in manifest.fragments:
        fragment.ClearField("overlays")
    manifest.ClearField("index_section")
    transaction = Transaction(read_version=2, uuid="reserve")
    transaction.reserve_fragments.num_fragments = 1
    head = Manifest()
    head.CopyFrom(manifest)
    name = f"{2**64 - 1 - 3:020d}.manifest"
    (table / "_versions" / name).write_bytes(file_as_others_write(head, transaction))
    lance.dataset(str(table)).validate()


def test_one_in_the_past_is_judged_by_the_rules(table: Path) -> None:
    without_overlays(table)
    project = Envelope(table=canonical(str(table)))
    project.lance.uuid, project.lance.read_version = "project", 1
    project.lance.project.schema.extend(version_of(table).manifest.fields)
    (result,) = fold(owned(table), [project], 0)
    assert isinstance(result, Rejected)
    assert result.conflict.retryable
    assert (result.conflict.other_version, result.conflict.other_operation) == (2, "data_overlay")
    (result,) = fold(owned(table), [proposal(table, written(table, rows(50, 3)), 1)], 1)
    assert isinstance(result, Committed)
    assert lance.dataset(str(table)).count_rows() == 23
