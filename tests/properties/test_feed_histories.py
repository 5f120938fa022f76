"""Random histories: the changes of a feed, applied in their order, lead from any version to any later one.

The table of `world` is changed by pylance and by our fold; the expected rows of every version are known. The
same is checked for a copy whose versions have lost their transactions: the fragments alone must give the same
result.

Promise: feeds-add-up (docs/operations/promises.md).
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import lance
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_reader.feed import changes
from tests.feeds import COMES, Row, applied, rows_by_key, values_of
from tests.oracle.manifests import manifest_files
from tests.properties.model import WITHOUT_ROWS
from tests.properties.test_histories import LONG, HistoryMachine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tests.properties.world import World


class FeedMachine(HistoryMachine):
    """What may happen to a table, and what the feed says of it at the end."""

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.world.fold(len(self.world.waiting))
                check(self.world, self.folder / "without-transactions")
        finally:
            shutil.rmtree(self.folder)


def check(world: World, copy: Path) -> None:
    """The feeds of all versions, and of those without a transaction."""
    newest = world.version
    values = feed(world.table, 0, newest)
    for after in range(newest):
        assert feed(world.table, after, newest) == [row for row in values if row["_commit_version"] > after]
    strip(world.table, copy)
    documents = feed(copy, 0, newest)
    assert applied(documents, "k") == rows_by_key(str(world.table), newest, "k")
    assert net(documents) == net(values)
    for version in range(1, newest + 1):
        assert applied(feed(world.table, 0, version), "k") == rows_by_key(str(world.table), version, "k")
        check_step(world, version, [row for row in values if row["_commit_version"] == version])


def check_step(world: World, version: int, actual: Sequence[Row]) -> None:
    """The change of a version, compared with pylance's rows."""
    effects = world.effects.get(version, [])
    if version > 1 and all(effect.kind in WITHOUT_ROWS for effect in effects):
        assert actual == []
    kinds = {effect.kind for effect in effects}
    if not world.stable or version == 1 or kinds & {"overwrite", "restore"}:
        return
    delta = lance.dataset(str(world.table), version=version).delta(
        begin_version=version - 1, end_version=version
    )
    keys: dict[str, set[int]] = defaultdict(set)
    for row in actual:
        keys[row["_change_type"]].add(row["k"])
    assert keys["insert"] == keys_of(delta.get_inserted_rows())
    updated = keys_of(delta.get_updated_rows())
    assert keys["update_preimage"] == keys["update_postimage"]
    assert updated <= keys["update_postimage"] or "columns" in kinds
    if all(effect.bumps for effect in effects) and "columns" not in kinds:
        assert updated == keys["update_postimage"]
    deleted = {
        world.key_of_row_id[number]
        for batch in delta.get_deleted_row_ids()
        for number in batch[0].to_pylist()
    }
    assert keys["delete"] == deleted


def keys_of(batches: Iterable[Any]) -> set[int]:
    return {key for batch in batches for key in batch.column("k").to_pylist()}


def feed(table: Path, after: int, to: int) -> list[Row]:
    """The feed's rows."""
    rows: list[Row] = changes(str(table), after, to).read_all().to_pylist()
    return rows


def net(actual: Iterable[Row]) -> dict[tuple[int, int], list[Row | None]]:
    """What became of each row in each version: as it was and as it is, where these differ."""
    images: dict[tuple[int, int], list[Row | None]] = defaultdict(lambda: [None, None])
    for row in actual:
        images[row["_commit_version"], row["k"]][row["_change_type"] in COMES] = values_of(row)
    return {location: pair for location, pair in images.items() if pair[0] != pair[1]}


def strip(table: Path, copy: Path) -> None:
    """A copy of the table whose versions don't say what made them."""
    shutil.copytree(
        table, copy, copy_function=os.link, ignore=shutil.ignore_patterns("_versions", "_transactions")
    )
    (copy / "_versions").mkdir()
    for path in manifest_files(table):
        (copy / "_versions" / path.name).write_bytes(without_transaction(path.read_bytes()))


def without_transaction(data: bytes) -> bytes:
    """The manifest file of a version that names no transaction."""
    start = int.from_bytes(data[-16:-8], "little")
    manifest = Manifest.FromString(data[start + 4 : -16])
    for name in ("transaction_section", "transaction_section_before_14", "transaction_file", "index_section"):
        manifest.ClearField(name)
    message = manifest.SerializeToString()
    return len(message).to_bytes(4, "little") + message + (0).to_bytes(8, "little") + data[-8:]


@pytest.mark.timeout(7200 if LONG else 600)
def test_feeds_of_random_histories() -> None:
    run_state_machine_as_test(
        FeedMachine,
        settings=settings(
            max_examples=2000 if LONG else 15,
            stateful_step_count=30 if LONG else 12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
