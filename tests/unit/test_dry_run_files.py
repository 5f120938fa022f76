"""A dry run removes its own files only: an equal proposal that waits in the log keeps those that it names.

Promise: dry-runs-change-nothing (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold.writing.dry_run import planned
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_ingest.proposals.key import new_key
from lakefold_table.entry import Committed
from tests.reverting import KINDS, Tables, words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_ingest.writing.operation import Operation

OPERATIONS: dict[str, tuple[Callable[[], Operation], int]] = {
    "delete": (lambda: DeleteWhere("id = 2"), 4),
    "upsert": (lambda: UpsertRows(words(2, word="new"), Merge(("id",))), 5),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_dry_run_of_what_waits_in_the_log_leaves_its_files(tmp_path: Path, kind: str, name: str) -> None:
    table = Tables.made(kind, tmp_path / "t")
    table.append(words(*range(5)))
    make, count = OPERATIONS[name]
    waiting = table.batches.build(make())
    before = {path for path in table.batches.path.rglob("*") if path.is_file()}
    report = planned(table.batches.settings(), new_key(), make())
    assert report.kind == "planned"
    assert {path for path in table.batches.path.rglob("*") if path.is_file()} == before
    assert waiting is not None
    (result,) = table.batches.fold(waiting)
    assert isinstance(result, Committed), result
    assert len(table.rows()) == count
    assert ((2, "new 2") in table.rows()) == (name == "upsert")
