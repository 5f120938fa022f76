"""Values that don't fit the last version's type: a feed names them, or continues and reports how many.

Promise: misfits-are-reported (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import lance
import pyarrow as pa
import pytest
import structlog

import lakefold
from lakefold import cli
from tests.queries import Query

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LARGE = 2**40
DELETE, INSERT = "delete", "insert"


def narrowed(uri: str) -> None:
    """Version 4 makes a column of 64 bits a column of 32, after the large number in it was deleted."""
    lance.write_dataset(pa.table({"id": [1, 2, 3], "v": [10, LARGE, 30]}), uri)
    lance.write_dataset(pa.table({"id": [4], "v": [40]}), uri, mode="append")
    lance.dataset(uri).delete(f"v = {LARGE}")
    lance.dataset(uri).alter_columns(cast("Any", {"path": "v", "data_type": pa.int32()}))


def retyped(uri: str) -> None:
    """Version 4 has other content, with numbers in a column of text."""
    lance.write_dataset(pa.table({"id": [1, 2, 3], "v": ["10", "x", "30"]}), uri)
    lance.write_dataset(pa.table({"id": [4], "v": ["40"]}), uri, mode="append")
    lance.dataset(uri).delete("v = 'x'")
    lance.write_dataset(pa.table({"id": [1, 3, 4], "v": [10.0, 30.0, 40.0]}), uri, mode="overwrite")


def unlike(uri: str) -> None:
    """Version 4 has a list in a column of numbers: no value fits."""
    lance.write_dataset(pa.table({"id": [1, 2, 3], "v": [10, 20, 30]}), uri)
    lance.write_dataset(pa.table({"id": [4], "v": [40]}), uri, mode="append")
    lance.dataset(uri).delete("id = 2")
    lance.write_dataset(pa.table({"id": [1], "v": [[1]]}), uri, mode="overwrite")


@pytest.mark.parametrize("change", [narrowed, retyped, unlike])
def test_the_error_names_version_column_and_the_way_on(tmp_path: Path, change: Callable[[str], None]) -> None:
    uri = str(tmp_path / "t")
    change(uri)
    with pytest.raises(lakefold.MisfitError) as caught:
        lakefold.changes(uri, 0).read_all()
    assert (caught.value.version, caught.value.column) == (1, "v")
    assert "misfits='null'" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "values", "skipped"),
    [
        (narrowed, [10, None, 30, 40, None], 1),
        (retyped, [10, None, 30, 40, None], 1),
        (unlike, [None] * 5, 3),
    ],
)
def test_a_feed_goes_on_with_nulls_and_says_how_many(
    tmp_path: Path, change: Callable[[str], None], values: list[float | None], skipped: int
) -> None:
    uri = str(tmp_path / "t")
    change(uri)
    with structlog.testing.capture_logs() as lines:
        rows = lakefold.changes(uri, 0, misfits="null").read_all().to_pylist()
    shown = [(row["_change_type"], row["id"], row["v"]) for row in rows][:5]
    assert shown == list(zip([*[INSERT] * 4, DELETE], [1, 2, 3, 4, 2], values, strict=True))
    assert rows[-1]["v"] is not None or change is narrowed
    reported = [(line["version"], line["change"], line["column"], line["values"]) for line in lines]
    assert reported[0] == (1, INSERT, "v", skipped)
    assert (3, DELETE, "v", 1) in reported
    assert sum(line["values"] for line in lines) == sum(row["v"] is None for row in rows)


def test_many_values_of_which_few_do_not_fit(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    large = {17, 5000, 9999}
    values = [LARGE if number in large else None if number == 3 else number for number in range(10_000)]
    lance.write_dataset(pa.table({"id": range(10_000), "v": values}), uri)
    lance.dataset(uri).delete(f"v = {LARGE}")
    lance.dataset(uri).alter_columns(cast("Any", {"path": "v", "data_type": pa.int32()}))
    rows = lakefold.changes(uri, 0, 3, misfits="null").read_all().slice(0, 10_000)["v"].to_pylist()
    assert rows == [None if number in {*large, 3} else number for number in range(10_000)]


def test_a_query_gets_over_a_version_whose_values_do_not_fit(tmp_path: Path) -> None:
    """A query that is started again would read the same values each time."""
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [0], "v": [0]}), uri)
    options: dict[str, str | int] = {"readChangeFeed": "true", "maxVersionsPerTrigger": 1}
    query = Query(uri, **options)
    assert query.batch()
    lance.write_dataset(pa.table({"id": [1, 2], "v": [10, LARGE]}), uri, mode="append")
    lance.dataset(uri).delete("id = 2")
    lance.dataset(uri).alter_columns(cast("Any", {"path": "v", "data_type": pa.int32()}))
    query.start()
    with pytest.raises(lakefold.MisfitError, match="column v is int64 in version 2"):
        query.batch()
    query.options["misfits"] = "null"
    query.start()
    shown = [[(row["_change_type"], row["id"], row["v"]) for row in query.last()]]
    shown += [[(row["_change_type"], row["id"], row["v"]) for row in rows] for rows in query.batches()]
    assert shown[:2] == [[(INSERT, 1, 10), (INSERT, 2, None)], [(DELETE, 2, None)]]
    assert len(query.offsets) == 5


def test_the_verb_says_on_stderr_what_it_shows_as_null(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = str(tmp_path / "t")
    narrowed(uri)
    assert cli.run(["changes", uri, "--from", "0"]) == 2
    assert "--misfits null" in capsys.readouterr().err
    assert cli.run(["changes", uri, "--from", "0", "--misfits", "null"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) >= 5
    assert "id=2  v=-" in printed.out
    assert "don't fit" in printed.err


def test_a_choice_that_there_is_not(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    narrowed(uri)
    with pytest.raises(lakefold.InvalidError, match="choose one of fail, null"):
        lakefold.changes(uri, 0, misfits="skip")
