"""What pylance would commit on an older version: done to a copy, and taken as a proposal."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import lance
from pyroaring import BitMap

from lakefold_protos.lance.transaction_pb2 import Transaction
from tests.oracle.manifests import manifest_files, read_sections

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from tests.properties.acts import Run

ROOT_ONLY = {"_versions", "_transactions"}
"""The folders whose files belong to versions; all others hold what writers leave before they propose."""


def proposed(table: Path, read: int, run: Run, copy: Path) -> list[Transaction]:
    """The transactions that `run` commits on version `read`, oldest first, done in the folder `copy`.

    The files that they need lie in the table then. There are none where pylance found nothing to do.
    """
    known = len(copied(table, read, copy))
    run(lance.dataset(str(copy)))
    link_files(copy, table)
    made = [_transaction(path) for path in manifest_files(copy)[known:]]
    shutil.rmtree(copy)
    return made


def copied(table: Path, read: int, copy: Path) -> list[Path]:
    """A copy of the table as it was at version `read`; its manifests."""
    shutil.copytree(table, copy, copy_function=os.link)
    for path in manifest_files(copy)[read:]:
        path.unlink()
    (copy / "_versions" / "latest_version_hint.json").unlink(missing_ok=True)
    return manifest_files(copy)


def link_files(source: Path, target: Path, without: Collection[str] = ()) -> None:
    """Gives the target all files of the source that belong to no version, but these."""
    for path in source.rglob("*"):
        inside = path.relative_to(source)
        if path.is_dir() or inside.parts[0] in ROOT_ONLY or inside.as_posix() in without:
            continue
        link = target / inside
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, link)


def rows_at(table: Path, read: int, keys: Collection[int]) -> Mapping[int, bytes]:
    """Returns the offsets of the rows with these keys, as in `affected_rows` of an envelope."""
    rows = lance.dataset(str(table), version=read).to_table(columns=["k"], with_row_address=True)
    values: dict[int, BitMap] = {}
    for key, address in zip(rows["k"].to_pylist(), rows["_rowaddr"].to_pylist(), strict=True):
        if key in keys:
            values.setdefault(address >> 32, BitMap()).add(address & 0xFFFFFFFF)
    return {number: offsets.serialize() for number, offsets in values.items()}


def _transaction(path: Path) -> Transaction:
    sections = read_sections(path)
    assert sections.transaction is not None
    return Transaction.FromString(sections.transaction)
