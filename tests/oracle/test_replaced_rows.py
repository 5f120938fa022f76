"""`replaceWhere`: rows for which a condition holds are replaced by rows that satisfy it, in one version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_ingest.merge.lance.format import ReplaceWhere
from lakefold_ingest.options.write_options import WriteUse
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.task_files import collect_files
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.write_plan import WritePlan, plan_write
from lakefold_table.errors import InvalidError, RetryError
from tests.merging import Folding, people

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from lakefold_ingest.rows.task_files import TaskFiles


@pytest.fixture(params=[False, True], ids=["addresses", "stable"])
def folding(tmp_path: Path, request: pytest.FixtureRequest) -> Folding:
    """Rows 0 to 39 in fragments of 10, of which 2 and 17 are deleted; an index on `id`."""
    dataset = lance.write_dataset(
        people(list(range(40))),
        str(tmp_path / "t"),
        max_rows_per_file=10,
        enable_stable_row_ids=request.param,
    )
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id in (2, 17)")
    return Folding(tmp_path / "t")


def plan_of(folding: Folding, rows: pa.Table, where: str) -> WritePlan:
    given = read_write_options({"path": str(folding.path), "replaceWhere": where})
    return plan_write(
        given, folding.settings(), rows.schema, Key("app", 0), use=WriteUse.BATCH, overwrite=True
    )


def written(plan: WritePlan, *tasks: pa.Table) -> list[TaskFiles]:
    return plan.with_few([plan.run(rows.to_batches()) for rows in tasks])


def replacement(folding: Folding, rows: pa.Table, where: str) -> ReplaceWhere:
    plan = plan_of(folding, rows, where)
    fragments = collect_files(plan.target, written(plan, rows))
    operation = plan.operation.with_files(fragments, rows.slice(0, 0))
    assert isinstance(operation, ReplaceWhere)
    return operation


def ids(folding: Folding) -> list[object]:
    return sorted(row["id"] for row in folding.rows("id"))  # type: ignore[type-var]  # they are numbers


@pytest.mark.parametrize(
    ("where", "new", "left"),
    [
        ("id >= 15", [15, 60], [*range(2), *range(3, 15), 15, 60]),
        ("id < 10", [1], [1, *range(10, 17), *range(18, 40)]),
        ("id = 100", [100], [*range(2), *range(3, 17), *range(18, 40), 100]),
        ("name like 'first 3%'", [], [*range(2), *range(4, 17), *range(18, 30)]),
        ("true", [7], [7]),
    ],
)
def test_the_rows_of_the_condition_are_replaced(
    folding: Folding, where: str, new: list[int], left: list[int]
) -> None:
    before = lance.dataset(folding.path).version
    result = folding.put(replacement(folding, people(new), where))
    assert result is not None
    assert result.version == before + 1
    assert ids(folding) == left
    assert result.rows_added == len(new)
    # By the index, which covers no new row.
    remaining = lance.dataset(folding.path).to_table(filter="id in (1, 7, 15, 60, 100)")["id"].to_pylist()
    assert sorted(remaining) == [number for number in left if number in {1, 7, 15, 60, 100}]


def test_nothing_to_replace_is_no_proposal(folding: Folding) -> None:
    assert folding.put(replacement(folding, people([]), "id = 100")) is None


def test_rows_that_do_not_satisfy_the_condition_are_counted_and_shown(folding: Folding) -> None:
    files = set((folding.path / "data").iterdir())
    plan = plan_of(folding, people([]), "id < 10 and name is not null")
    tasks = written(plan, people([1, 2]), people([3, 11, 12]), people([13]))
    with pytest.raises(
        InvalidError, match=r"3 rows of the batch don't satisfy 'id < 10 and .*\"id\": 11"
    ) as raised:
        collect_files(plan.target, tasks)
    assert raised.value.where == "replaceWhere"
    assert set((folding.path / "data").iterdir()) == files


def test_a_column_that_the_batch_lacks_is_null_in_the_condition(folding: Folding) -> None:
    plan = plan_of(folding, people([1]).drop_columns(["n"]), "n is null")
    (task,) = written(plan, people([1]).drop_columns(["n"]))
    assert task.fault is None


@pytest.mark.parametrize(
    ("where", "message"),
    [("id <", "can't be evaluated"), ("nothing = 1", "can't be evaluated"), ("id + 1", "not a boolean")],
)
def test_a_condition_that_is_none_is_refused_before_anything_is_written(
    folding: Folding, where: str, message: str
) -> None:
    with pytest.raises(InvalidError, match=f"replaceWhere: .*{message}"):
        plan_of(folding, people([1]), where)


def test_rows_that_others_change_meanwhile_are_found_again(folding: Folding) -> None:
    """A refusal is built again on the new version; rows that others append meanwhile stay."""
    operation = replacement(folding, people([3]), "id < 5")
    stale = folding.build(operation)
    assert stale is not None
    folding.put(replacement(folding, people([1, 4]), "id < 5"))
    folding.refused(stale)
    folding.put(operation)
    assert ids(folding)[:2] == [3, 5]


def test_columns_that_change_meanwhile_fail_the_batch(folding: Folding) -> None:
    operation = replacement(folding, people([3]), "id < 5")
    lance.dataset(folding.path).add_columns({"more": "id + 1"})
    with pytest.raises(RetryError, match="columns or rules were changed"):
        folding.build(operation)
    assert not operation.built
