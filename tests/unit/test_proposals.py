"""The same batch is the same proposal, in whatever process it is run again."""

from __future__ import annotations

import subprocess
import sys
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from lakefold_ingest.lance.proposals import CREATION, append, creation
from lakefold_ingest.proposals.key import Key, new_key
from lakefold_log.write.producer import transaction_uuid
from lakefold_protos.lakefold.log_pb2 import CreateOptions
from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_table.errors import InvalidError
from lakefold_table.lance.schemas.arrow import schema_from_arrow

TABLE = "file:///lake/t"


def fragment(name: str, rows: int) -> DataFragment:
    return DataFragment(files=[DataFile(path=name, fields=[0], column_indices=[0])], physical_rows=rows)


def test_an_append_has_its_key_and_keeps_the_order_of_its_fragments() -> None:
    envelope = append(TABLE, Key("app", 7), 3, [fragment("b", 2), fragment("a", 1)])
    assert (envelope.table, envelope.app_id, envelope.batch_id) == (TABLE, "app", 7)
    assert envelope.lance.read_version == 3
    assert envelope.lance.uuid == transaction_uuid("app", 7, TABLE)
    assert [fragment.files[0].path for fragment in envelope.lance.append.fragments] == ["b", "a"]
    assert not envelope.HasField("create")


def test_batch_0_is_a_batch() -> None:
    assert append(TABLE, Key("app", 0), 1, []).HasField("batch_id")
    assert append(TABLE, Key("app", 0), 1, []).lance.HasField("append")


def test_the_same_batch_is_the_same_bytes_in_another_process() -> None:
    program = (
        "import sys; from lakefold_ingest.lance.proposals import append\n"
        "from lakefold_ingest.proposals.key import Key\n"
        f"envelope = append({TABLE!r}, Key('app', 7), 3, [])\n"
        "sys.stdout.buffer.write(envelope.SerializeToString(deterministic=True))"
    )
    command = [sys.executable, "-c", program]
    environment = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "1"}
    stdout = subprocess.run(command, check=True, capture_output=True, env=environment).stdout
    assert stdout == append(TABLE, Key("app", 7), 3, []).SerializeToString(deterministic=True)


def test_a_creation_has_a_key_of_its_own() -> None:
    schema = schema_from_arrow(pa.schema([pa.field("a", pa.int64(), nullable=False)], metadata={"k": "v"}))
    envelope = creation(TABLE, "app", schema, CreateOptions(stable_row_ids=True, data_storage_version="2.2"))
    assert envelope.create.stable_row_ids
    assert not envelope.app_id
    assert not envelope.HasField("batch_id")
    assert envelope.lance.uuid == transaction_uuid("app", CREATION, TABLE)
    assert envelope.lance.uuid not in {transaction_uuid("app", number, TABLE) for number in range(100)}
    assert envelope.lance.read_version == 0
    assert list(envelope.lance.overwrite.schema) == list(schema.fields)
    assert dict(envelope.lance.overwrite.schema_metadata) == {"k": b"v"}
    assert not envelope.lance.overwrite.fragments


@pytest.mark.parametrize("app_id", ["", " a", "a\n", "a\x00b", "x" * 201])
def test_an_app_id_that_can_not_name_a_writer_is_refused(app_id: str) -> None:
    with pytest.raises(InvalidError, match="can't be an app id"):
        Key(app_id, 0)


@pytest.mark.parametrize("batch_id", [-1, 2**64])
def test_a_batch_id_that_can_not_count_is_refused(batch_id: int) -> None:
    with pytest.raises(InvalidError, match="can't be a batch id"):
        Key("app", batch_id)


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_a_batch_id_of_numpy_is_a_number_of_python(kind: type[np.int64 | np.uint8]) -> None:
    key = Key("app", cast("int", kind(3)))
    assert key == Key("app", 3)
    assert type(key.batch_id) is int
    assert key.uuid("file:///t") == Key("app", 3).uuid("file:///t")


def test_a_batch_without_a_key_of_its_own_is_known_by_a_new_uuid() -> None:
    key = new_key()
    first, other = append(TABLE, key, 1, []), append(TABLE, new_key(), 1, [])
    assert not first.app_id
    assert not first.HasField("batch_id")
    assert first == append(TABLE, key, 1, [])
    assert first.lance.uuid
    assert first.lance.uuid != other.lance.uuid
