"""The log's files beside a table don't concern other clients: they neither read nor remove it."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pyarrow as pa

from lakefold_log.codec.claims import path_of, put_claim
from lakefold_log.codec.envelope import encode
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from pathlib import Path


def test_a_foreign_clean_up_leaves_claims(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    for number in range(3):
        dataset = lance.write_dataset(pa.table({"a": [number]}), tmp_path / "t", mode="overwrite")
    stray = tmp_path / "t" / "data" / "stray.lance"
    stray.write_bytes(b"x")
    whole = Envelope(table=canonical(tmp_path / "t"))
    whole.lance.append.SetInParent()
    small = put_claim(open_storage(whole.table), whole, encode(whole), 1)
    file = tmp_path / "t" / path_of(small.claim)
    for path in (file, stray):
        os.utime(path, (0, 0))
    removed = dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert removed.old_versions == 3
    assert not stray.exists()
    assert file.read_bytes().startswith(encode(whole))
    assert lance.dataset(tmp_path / "t").count_rows() == 1
