"""Many tables, and one with many versions, in little time: files of one table under the names of others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical
from tests.tables import Folded

LINKS: Final = 10_000
"""How many names one file gets: file systems take some ten thousands."""
VERSIONS: Final = 3
ROWS: Final = 5


def many_tables(root: Path, count: int) -> None:
    """Makes tables `t00000`, `t00001`, … in `root`, each of `VERSIONS` versions and `ROWS` rows.

    Our committer writes the first one. The others have its files, which are copied where they have too many
    names. Whoever folds into such a table gives it files of its own.
    """
    first = root / "t00000"
    table = Folded(open_storage(canonical(first)))
    table.append_ids([1, 2, 3])
    table.append_ids([4, 5])
    files = [path.relative_to(first) for path in first.rglob("*") if path.is_file()]
    folders = sorted({file.parent for file in files} - {Path()})
    source = first
    for number in range(1, count):
        target = root / f"t{number:05}"
        for folder in folders:
            (target / folder).mkdir(parents=True, exist_ok=True)
        for file in files:
            if number % LINKS:
                os.link(source / file, target / file)
            else:
                (target / file).write_bytes((first / file).read_bytes())
        source = source if number % LINKS else target


def long_history(folder: Path, versions: int) -> str:
    """A Delta table of so many versions, of which the first alone has rows. A checkpoint is near its end."""
    write_deltalake(folder, pa.table({"id": [1, 2]}))
    log = folder / "_delta_log"
    DeltaTable(folder).create_checkpoint()
    checkpointed = versions - 100
    (log / f"{0:020}.checkpoint.parquet").rename(log / f"{checkpointed:020}.checkpoint.parquet")
    pointer = (log / "_last_checkpoint").read_text().replace('"version":0', f'"version":{checkpointed}')
    (log / "_last_checkpoint").write_text(pointer)
    source = log / f"{1:020}.json"
    for version in range(1, versions + 1):
        commit = log / f"{version:020}.json"
        if version % LINKS == 1:
            source = commit
            commit.write_text('{"commitInfo":{"timestamp":1,"operation":"WRITE"}}\n')
        else:
            os.link(source, commit)
    return canonical(folder)
