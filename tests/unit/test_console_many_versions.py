"""A table with 100,000 versions: its page costs what the versions on it cost."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lakefold.web.documents import kept_document, schemas_document, table_document, versions_document
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = 100_000
CPU_S = 10.0
"""Reading all versions takes minutes; a page takes a fraction of a second on a quiet machine."""


def long_history(folder: Path) -> str:
    """A Delta table in which only the first version has rows, with a checkpoint near its end."""
    write_deltalake(folder, pa.table({"id": [1, 2]}))
    log = folder / "_delta_log"
    DeltaTable(folder).create_checkpoint()
    checkpointed = VERSIONS - 100
    (log / f"{0:020}.checkpoint.parquet").rename(log / f"{checkpointed:020}.checkpoint.parquet")
    pointer = (log / "_last_checkpoint").read_text().replace('"version":0', f'"version":{checkpointed}')
    (log / "_last_checkpoint").write_text(pointer)
    nothing = folder / "nothing"
    nothing.write_text('{"commitInfo":{"timestamp":1,"operation":"WRITE"}}\n')
    for version in range(1, VERSIONS + 1):
        os.link(nothing, log / f"{version:020}.json")
    return canonical(folder)


def test_the_page_of_a_table_with_100000_versions_stays_usable(tmp_path: Path) -> None:
    uri = long_history(tmp_path / "long")
    began = time.process_time()
    assert table_document(uri, {})["version"] == VERSIONS
    page = versions_document(uri, {}, branch="", last=None, most=25)
    assert [version["version"] for version in page["versions"]] == list(range(VERSIONS, VERSIONS - 25, -1))
    older = versions_document(uri, {}, branch="", last=50_000, most=25)
    assert older["versions"][0]["version"] == 50_000
    assert older["older"] == 50_000 - 25
    assert schemas_document(uri, {}, most=20)["searched_from"] == VERSIONS - 20
    assert "too many" in kept_document(uri, {})["note"]
    assert time.process_time() - began < CPU_S
