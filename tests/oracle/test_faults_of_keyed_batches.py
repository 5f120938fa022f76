"""Each fault of a batch that is merged by keys has the same error at each door, and nothing is written.

The doors are those of Python, of the command line, and what `format("lakefold")` runs on Spark's driver and
in its tasks. No broker answers: a fault must be found before anything is sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import lakefold
from lakefold.cli import run
from lakefold_ingest.options.write_options import WriteMode
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.keyed_plan import plan_merge
from tests.merging import Folding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NO_BROKER: Final[lakefold.WriteOptions] = {"bootstrap_servers": "127.0.0.1:1", "timeout": 1}
TABLE = pa.table({"id": [1, 2], "name": ["a", "b"], "at": [1, 1]})


@dataclass(frozen=True)
class Batch:
    """A batch of rows and what is done with them: merged, or deleted by their keys."""

    rows: pa.Table
    keys: tuple[str, ...] = ("id",)
    order_by: str | None = None
    update_if: str | None = None
    update_columns: str | None = None
    deletes: bool = False


def by_python(table: Path, batch: Batch, capsys: pytest.CaptureFixture[str]) -> str:
    del capsys
    if batch.deletes:
        with pytest.raises(lakefold.InvalidError) as caught:
            lakefold.delete(table, keys=batch.keys, rows=batch.rows, **NO_BROKER)
        return str(caught.value)
    columns = None if batch.update_columns is None else [batch.update_columns]
    clauses = (lakefold.MatchedUpdate(columns, batch.update_if), lakefold.NotMatchedInsert())
    with pytest.raises(lakefold.InvalidError) as caught:
        lakefold.upsert(
            table, batch.rows, keys=batch.keys, order_by=batch.order_by, clauses=clauses, **NO_BROKER
        )
    return str(caught.value)


def by_a_verb(table: Path, batch: Batch, capsys: pytest.CaptureFixture[str]) -> str:
    path = table.parent / "rows.parquet"
    pq.write_table(batch.rows, path)
    words = ["delete" if batch.deletes else "upsert", str(table), str(path), "--keys", ",".join(batch.keys)]
    given = {"order-by": batch.order_by, "update-columns": batch.update_columns}
    if not batch.deletes:
        given |= {"when-matched-update": batch.update_if or "true", "when-not-matched-insert": "true"}
    for name, value in given.items():
        words += [f"--{name}", value] if value else []
    assert run([*words, "--bootstrap-servers", "127.0.0.1:1", "--wait", "1", "--json"]) == 2
    return str(json.loads(capsys.readouterr().out))


def by_format(table: Path, batch: Batch, capsys: pytest.CaptureFixture[str]) -> str:
    """What the data source does with the rows, in two tasks."""
    del capsys
    mode = WriteMode.DELETE if batch.deletes else WriteMode.UPSERT
    texts = {"keys": ",".join(batch.keys), "orderBy": batch.order_by, "updateColumns": batch.update_columns}
    if not batch.deletes:
        texts |= {"whenMatchedUpdate": batch.update_if or "true", "whenNotMatchedInsert": "true"}
    settings = Folding(table).settings()

    def write() -> None:
        merge = read_write_options({name: text for name, text in texts.items() if text}).merge(mode)
        assert merge is not None
        plan = plan_merge(settings, merge, batch.rows.schema, Key("app", 0))
        half = batch.rows.num_rows // 2
        parts = [batch.rows.slice(0, half), batch.rows.slice(half)]
        plan.commit(Key("app", 0), [plan.run(part.to_batches()) for part in parts])

    with pytest.raises(lakefold.InvalidError) as caught:
        write()
    return str(caught.value)


UNKNOWN_COLUMN = pa.table({"id": [1], "name": ["x"], "more": [1]})
ONE = pa.table({"id": [1], "name": ["x"], "at": [2]})
NO_KEY = pa.table({"id": pa.array([1, None]), "name": ["x", "y"]})
FAULTS: Final[dict[str, tuple[Batch, str]]] = {
    "a key in several rows": (
        Batch(pa.table({"id": [7, 7], "name": ["x", "y"], "at": [1, 2]})),
        "keys that are in several rows of the batch: 1, such as id=7",
    ),
    "an order without a value": (
        Batch(pa.table({"id": [7, 7], "name": ["x", "y"], "at": [1, None]}), order_by="at"),
        "order_by column at has no value",
    ),
    "an order that the batch lacks": (
        Batch(ONE.drop_columns(["at"]), order_by="at"),
        "the order names at, which is not in the batch",
    ),
    "a key without a value": (Batch(NO_KEY), "key column id has no value"),
    "a key that the table lacks": (Batch(UNKNOWN_COLUMN, keys=("more",)), "key more is not in the table"),
    "a key that the batch lacks": (
        Batch(ONE.drop_columns(["at"]), keys=("at",)),
        "key at is not in the batch",
    ),
    "no key": (Batch(ONE, keys=()), "no key column is named"),
    "a key that is named twice": (Batch(ONE, keys=("id", "id")), "id is named twice"),
    "a column that the table lacks": (Batch(UNKNOWN_COLUMN), "more (int64) is not in the table"),
    "a condition that is not SQL": (Batch(ONE, update_if="target.id >"), "'target.id >' can't be evaluated"),
    "a condition on an unknown column": (
        Batch(ONE, update_if="source.nope > 1"),
        "'source.nope > 1' can't be evaluated",
    ),
    "a condition that is a number": (Batch(ONE, update_if="source.at + 1"), "is int64, not a boolean"),
    "an update of an unknown column": (
        Batch(ONE, update_columns="nope"),
        "the update names nope, which is not in the batch",
    ),
    "a deletion by a key without a value": (Batch(NO_KEY, deletes=True), "key column id has no value"),
    "a deletion by a key that the table lacks": (
        Batch(UNKNOWN_COLUMN, keys=("more",), deletes=True),
        "key more is not in the table",
    ),
    "a deletion by a key that the batch lacks": (
        Batch(ONE.drop_columns(["at"]), keys=("at",), deletes=True),
        "key at is not in the batch",
    ),
}


@pytest.fixture(scope="module", params=["lance", "delta"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("faults") / "t"
    if request.param == "lance":
        lance.write_dataset(TABLE, str(path))
    else:
        write_deltalake(path, TABLE)
    before = sorted(path.rglob("*"))
    yield path
    assert sorted(path.rglob("*")) == before


@pytest.mark.parametrize("door", [by_python, by_a_verb, by_format])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_keyed_batch_is_named(
    table: Path,
    capsys: pytest.CaptureFixture[str],
    fault: str,
    door: Callable[[Path, Batch, pytest.CaptureFixture[str]], str],
) -> None:
    batch, words = FAULTS[fault]
    shown = door(table, batch, capsys)
    assert (words.replace("order_by", "--order-by") if door is by_a_verb else words) in shown
