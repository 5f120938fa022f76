"""An upsert reads the keys of those fragments alone that may have one of its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.merge.clauses import MatchedDelete, Merge
from lakefold_ingest.merge.lance import key_ranges
from lakefold_ingest.operations.upsert import UpsertRows
from tests.merging import Folding, people, record_scans

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS: dict[str, Callable[[int], pa.Array]] = {
    "integers": lambda n: pa.array([n], pa.int64()),
    "texts": lambda n: pa.array([f"{n:03} é"], pa.string()),
    "dates": lambda n: pa.array([n], pa.date32()),
    "instants": lambda n: pa.array([n * 10**9], pa.timestamp("ns", "UTC")),
    "decimals": lambda n: pa.array([n], pa.decimal128(9, 2)),
    "doubles": lambda n: pa.array([float(n)], pa.float64()),
    "bytes": lambda n: pa.array([bytes([n])], pa.binary()),
}


@pytest.fixture(autouse=True)
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The ids of the fragments that each scan of keys reads."""
    key_ranges._known.clear()
    return record_scans(
        monkeypatch,
        lambda table, fragments: sorted(table.state.fragments.ids() if fragments is None else fragments),
    )


def folding_of(path: Path, rows: pa.Table) -> Folding:
    """A table with fragments of ten rows."""
    lance.write_dataset(rows, str(path), max_rows_per_file=10)
    return Folding(path)


@pytest.mark.parametrize("kind", KINDS)
def test_fragments_without_any_of_the_keys_are_read_once(
    tmp_path: Path, scanned: list[list[int]], kind: str
) -> None:
    keys = pa.concat_arrays([KINDS[kind](n) for n in range(40)])
    folding = folding_of(tmp_path / "t", pa.table({"k": keys, "n": range(40)}))

    def upsert(*numbers: int) -> None:
        rows = pa.table(
            {"k": pa.concat_arrays([KINDS[kind](n) for n in numbers]), "n": [-n for n in numbers]}
        )
        folding.put(UpsertRows(rows, Merge(("k",))))

    upsert(11, 12)
    upsert(13)
    upsert(3, 38, 41)
    upsert(50)
    # Fragment 4 has the rows of the first upsert, and 5 and 6 those of the ones after it.
    assert scanned == [[0, 1, 2, 3], [1, 4], [0, 3, 5], [6]]
    stored = lance.dataset(str(folding.path)).to_table()["n"].to_pylist()
    assert sorted(stored) == sorted([-n if n in {3, 11, 12, 13, 38} else n for n in range(40)] + [-41, -50])


def test_rows_that_a_restore_brings_back_are_found(tmp_path: Path, scanned: list[list[int]]) -> None:
    """Their fragment's range was learned while they were deleted."""
    folding = folding_of(tmp_path / "t", people(list(range(30))))
    dataset = lance.dataset(str(folding.path))
    dataset.delete("id in (18, 19)")
    folding.put(UpsertRows(people([3]), Merge(("id",))))
    folding.put(UpsertRows(people([0]), Merge(("id",))))
    assert scanned[0] == [0, 1, 2]
    assert 1 not in scanned[1]
    lance.dataset(str(folding.path), version=1).restore()
    folding.put(UpsertRows(people([19]), Merge(("id",), clauses=(MatchedDelete(),))))
    assert scanned[2] == [1]
    assert [row["id"] for row in sorted(folding.rows("id"), key=lambda row: int(str(row["id"])))] == [
        n for n in range(30) if n != 19
    ]
