"""Tables with an index of each kind that pylance 14 can build, and searches compared with all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import lance
import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

ScalarKind = Literal["BTREE", "BITMAP", "LABEL_LIST", "INVERTED", "NGRAM", "ZONEMAP", "BLOOMFILTER"]
SCALARS: Final[Mapping[str, ScalarKind]] = {
    "btree": "BTREE",
    "bitmap": "BITMAP",
    "labels": "LABEL_LIST",
    "words": "INVERTED",
    "grams": "NGRAM",
    "zones": "ZONEMAP",
    "blooms": "BLOOMFILTER",
}
"""The type of the index on each column that has no vectors."""
VECTORS: Final = {
    "exact": "IVF_FLAT",
    "pq": "IVF_PQ",
    "sq": "IVF_SQ",
    "rq": "IVF_RQ",
    "hnsw_flat": "IVF_HNSW_FLAT",
    "hnsw_pq": "IVF_HNSW_PQ",
    "hnsw_sq": "IVF_HNSW_SQ",
}
"""The type of the index on each column of vectors."""
FRUITS: Final = ("apple", "berry", "cherry", "damson")
WIDTH, NEAREST, PART = 8, 20, 50
Wrong = dict[str, str]
"""What a search of each kind found that it should not, or not: the first of it, by column."""


def vector(number: int) -> NDArray[np.float32]:
    """The vector of a row, which no other row has."""
    return np.random.default_rng(number).random(WIDTH).astype(np.float32)


def rows_of(first: int, count: int) -> pa.Table:
    """So many rows, numbered from `first` on."""
    numbers = range(first, first + count)
    columns: dict[str, object] = {
        "n": pa.array(numbers, pa.int64()),
        "btree": pa.array(numbers, pa.int64()),
        "bitmap": [f"b{number % 5}" for number in numbers],
        "labels": [[f"l{number % 3}", f"m{number % 4}"] for number in numbers],
        "words": [f"{FRUITS[number % 4]} w{number % 7}" for number in numbers],
        "grams": [f"name{number:05}" for number in numbers],
        "zones": pa.array(numbers, pa.int64()),
        "blooms": [f"f{number}" for number in numbers],
    }
    flat = np.concatenate([vector(number) for number in numbers])
    columns |= dict.fromkeys(VECTORS, pa.FixedSizeListArray.from_arrays(pa.array(flat), WIDTH))
    return pa.table(columns)


def indexed_table(path: Path, fragments: int = 4, rows: int = 100, *, stable: bool = False) -> Path:
    """A table of some fragments of `rows` rows, with an index of each kind."""
    for number in range(fragments):
        lance.write_dataset(
            rows_of(number * rows, rows),
            path,
            mode="append" if number else "create",
            enable_stable_row_ids=stable,
        )
    for column, kind in SCALARS.items():
        lance.dataset(path).create_scalar_index(column, kind, name=column)
    for column, vectors in VECTORS.items():
        pieces = 4 if vectors.endswith("PQ") else None
        lance.dataset(path).create_index(
            column, vectors, name=column, num_partitions=2, num_sub_vectors=pieces
        )
    return path


def wrong(path: Path, kinds: Sequence[str] = (*SCALARS, *VECTORS)) -> Wrong:
    """What searches by indices of these kinds get wrong, compared with a scan of all rows."""
    dataset = lance.dataset(path)
    live = set(dataset.to_table(columns=["n"])["n"].to_pylist())
    faults: Wrong = {}
    for column in kinds:
        searches = _near(dataset, column, live) if column in VECTORS else _matching(dataset, column, live)
        try:
            fault = next(filter(None, searches), None)
        except BaseException as error:  # noqa: BLE001 - pylance panics with an exception of its own
            fault = str(error)[:200]
        if fault is not None:
            faults[column] = fault
    return faults


def filters_of(column: str, live: set[int]) -> Mapping[str, set[int]]:
    """Filters on a column, and which rows each of them must find."""
    highest = max(live, default=0)
    sparse, steps = range(0, highest, 37), range(0, highest, PART)
    by_column: dict[str, Mapping[str, set[int]]] = {
        "bitmap": {f"bitmap = 'b{rest}'": {each for each in live if each % 5 == rest} for rest in range(5)},
        "labels": {
            f"array_has_any(labels, ['l{rest}'])": {each for each in live if each % 3 == rest}
            for rest in range(3)
        },
        "grams": {f"contains(grams, '{each:05}')": {each} & live for each in sparse},
        "blooms": {f"blooms = 'f{each}'": {each} & live for each in sparse},
    }
    return by_column.get(column) or {
        f"{column} >= {low} and {column} < {low + PART}": {each for each in live if low <= each < low + PART}
        for low in steps
    }


def _matching(dataset: lance.LanceDataset, column: str, live: set[int]) -> Iterator[str | None]:
    if column == "words":
        for rest, fruit in enumerate(FRUITS):
            query = {"columns": [column], "query": fruit}
            rows = dataset.to_table(columns=["n"], full_text_query=query)["n"].to_pylist()
            yield _compared(fruit, rows, {each for each in live if each % 4 == rest})
        return
    for where, expected in filters_of(column, live).items():
        yield _compared(where, dataset.to_table(columns=["n"], filter=where)["n"].to_pylist(), expected)


def _near(dataset: lance.LanceDataset, column: str, live: set[int]) -> Iterator[str | None]:
    """Each row must be the nearest to itself, and as many rows be found as were asked for."""
    for number in range(0, max(live, default=0), 53):
        query = {"column": column, "q": vector(number), "k": NEAREST, "nprobes": 100, "refine_factor": 10}
        rows = dataset.to_table(columns=["n"], nearest=query)["n"].to_pylist()
        if len(set(rows)) != min(NEAREST, len(live)) or not live.issuperset(rows):
            yield f"{len(set(rows))} rows near {number}, {len(set(rows) - live)} of them are deleted"
        if number in live and rows[0] != number:
            yield f"{rows[0]} is nearer to {number} than itself"


def too_few(path: Path) -> Wrong:
    """Which searches for the best few rows find fewer than they ask for; each orders no more than that."""
    dataset = lance.dataset(path)
    faults: Wrong = {}
    for column in VECTORS:
        query = {"column": column, "q": vector(0), "k": NEAREST, "nprobes": 100}
        count = dataset.to_table(columns=["n"], nearest=query).num_rows
        if count != NEAREST:
            faults[column] = f"{count} rows near 0"
    words = {"columns": ["words"], "query": FRUITS[0]}
    count = dataset.to_table(columns=["n"], full_text_query=words, limit=NEAREST).num_rows
    if count != NEAREST:
        faults["words"] = f"{count} rows with {FRUITS[0]}"
    return faults


def _compared(search: str, rows: Sequence[int], expected: set[int]) -> str | None:
    if len(rows) == len(expected) and expected == set(rows):
        return None
    return f"{search}: {len(rows)} rows, {len(expected.difference(rows))} of {len(expected)} are missing"
