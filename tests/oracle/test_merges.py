"""A Merge folded by us makes the manifest that pylance makes of it, whichever verb it comes from."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter
from lance.fragment import FragmentMetadata, write_fragments
from lance.schema import LanceSchema

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Invalid, Rejected
from lakefold_table.uri import canonical
from tests.oracle.committing import fold, owned
from tests.oracle.operations import Both, both_ways, check_agreement, version_of

Act = Callable[[lance.LanceDataset], object]


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    texts = [f"row {n}" for n in numbers]
    points = [{"x": n, "y": str(n)} for n in numbers]
    return pa.table({"a": pa.array(numbers, pa.int64()), "s": texts, "p": points})


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "table"
    dataset = lance.write_dataset(
        rows(0, 40), str(path), max_rows_per_file=10, enable_stable_row_ids=bool(request.param)
    )
    dataset.update_schema_metadata({"unit": "m"})
    return path


def indexed(dataset: lance.LanceDataset) -> None:
    dataset.create_scalar_index("a", "BTREE")
    dataset.create_scalar_index("s", "BITMAP")


def deleted(dataset: lance.LanceDataset) -> None:
    dataset.delete("a < 3 or (a >= 20 and a < 30)")


def appended(dataset: lance.LanceDataset) -> None:
    indexed(dataset)
    lance.write_dataset(rows(100, 5), dataset, mode="append")


def came_and_went(dataset: lance.LanceDataset) -> None:
    dataset.add_columns({"twice": "a * 2"})
    dataset.drop_columns(["twice"])


def unchanged(_: lance.LanceDataset) -> None:
    pass


def joined(dataset: lance.LanceDataset) -> None:
    right = pa.table({"k": pa.array(range(50), pa.int64()), "z": [f"z{n}" for n in range(50)]})
    dataset.merge(right, left_on="a", right_on="k")


ACTS: dict[str, Act] = {
    "a column of values": lambda dataset: dataset.add_columns({"b": "a * 2", "c": "concat(s, '!')"}),
    "a column of nulls": lambda dataset: dataset.add_columns(pa.field("n", pa.int64())),
    "a nested column": lambda dataset: dataset.add_columns(
        pa.field("q", pa.struct([pa.field("u", pa.int32()), pa.field("v", pa.list_(pa.int8()))]))
    ),
    "a join": joined,
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("prepare", [unchanged, indexed, deleted, appended, came_and_went])
def test_the_same_merge(prepare: Act, act: Act, table: Path) -> None:
    prepare(lance.dataset(str(table)))
    check_agreement(both_ways(table, act))


def test_a_cast_column(table: Path) -> None:
    """It gets another field id, and the old id is in no file any more that lists only it."""
    lance.dataset(str(table)).create_scalar_index("s", "BITMAP")

    def cast(dataset: lance.LanceDataset) -> None:
        column = {"path": "a", "data_type": pa.int32()}
        dataset.alter_columns(column)  # type: ignore[arg-type]  # its hint is of a list

    check_agreement(both_ways(table, cast))


def test_it_follows_an_index_and_settings(table: Path) -> None:
    def between(dataset: lance.LanceDataset) -> None:
        indexed(dataset)
        dataset.update_config({"k": "v"})

    check_agreement(both_ways(table, ACTS["a column of values"], between=between))


def form(fragment: FragmentMetadata) -> dict:  # type: ignore[type-arg]  # JSON of pylance's own
    return dict(json.loads(json.dumps(fragment.to_json())))


def by_hand(
    change: Callable[[Path, list[dict]], list[dict]],  # type: ignore[type-arg]
    schema: pa.Schema | None = None,
) -> Act:
    """A Merge of the fragments as `change` makes them of the table's."""

    def act(dataset: lance.LanceDataset) -> None:
        fragments = change(
            Path(dataset.uri), [form(fragment.metadata) for fragment in dataset.get_fragments()]
        )
        made = [FragmentMetadata.from_json(json.dumps(fragment)) for fragment in fragments]
        given = dataset.lance_schema if schema is None else LanceSchema.from_pyarrow(schema)
        operation = lance.LanceOperation.Merge(made, given)
        lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)

    return act


def file_of_a(table: Path, like: dict) -> dict:  # type: ignore[type-arg]
    """A new file of ten values for column a."""
    path = table / "data" / "new.lance"
    with LanceFileWriter(str(path), pa.schema([pa.field("a", pa.int64())]), version="2.2") as writer:
        writer.write_batch(pa.table({"a": pa.array(range(50, 60), pa.int64())}))
    size = path.stat().st_size
    return {**like, "path": "new.lance", "fields": [0], "column_indices": [0], "file_size_bytes": size}


def rewritten(table: Path, fragments: list[dict]) -> list[dict]:  # type: ignore[type-arg]
    old = fragments[1]["files"][0]
    new = file_of_a(table, old)
    fragments[1]["files"] = [{**old, "fields": [-2, *old["fields"][1:]]}, new]
    return fragments


def with_more_rows(table: Path, fragments: list[dict]) -> list[dict]:  # type: ignore[type-arg]
    dataset = lance.dataset(str(table))
    made = write_fragments(rows(200, 15), dataset, mode="append", max_rows_per_file=10)
    return fragments[::-1] + [form(fragment) for fragment in made]


HAND_MADE: dict[str, Act] = {
    "the same once more": by_hand(lambda _, fragments: fragments),
    "in another order": by_hand(lambda _, fragments: fragments[::-1]),
    "one column rewritten": by_hand(rewritten),
    "new fragments behind": by_hand(with_more_rows),
}


@pytest.mark.parametrize("act", HAND_MADE.values(), ids=HAND_MADE)
@pytest.mark.parametrize("prepare", [indexed, deleted])
def test_made_by_hand(prepare: Act, act: Act, table: Path) -> None:
    prepare(lance.dataset(str(table)))
    check_agreement(both_ways(table, act))


def test_fewer_columns(table: Path) -> None:
    """The schema's metadata goes with pylance's: its message leaves that empty, so that ours stays."""
    indexed(lance.dataset(str(table)))
    fewer = by_hand(lambda _, fragments: fragments, pa.schema([pa.field("a", pa.int64())]))
    both = both_ways(table, fewer)
    assert both.differences.keys() == {"schema_metadata"}
    assert dict(version_of(both.ours).manifest.schema_metadata) == {"unit": b"m"}


def test_a_file_of_dropped_columns_only(table: Path) -> None:
    """With pylance's Merge it stays listed, and then its `validate()` finds the table damaged."""
    lance.dataset(str(table)).add_columns({"b": "a * 2"})
    fewer = by_hand(lambda _, fragments: fragments, rows(0, 1).schema)
    both = both_ways(table, fewer)
    assert both.differences.keys() == {"schema_metadata", "fragments"}
    with pytest.raises(OSError, match="any fields in common"):
        lance.dataset(str(both.theirs)).validate()
    ours = lance.dataset(str(both.ours))
    ours.validate()
    assert ours.to_table().equals(lance.dataset(str(both.theirs)).to_table())


def test_values_of_a_fragment_are_not_lost(table: Path) -> None:
    """Where pylance takes it: a column would read as null in one fragment."""

    def struck(_: Path, fragments: list[dict]) -> list[dict]:  # type: ignore[type-arg]
        fragments[1]["files"][0]["fields"][1] = -2
        return fragments

    assert_refused(both_ways(table, by_hand(struck)), "fields [1] of fragment 1 are in none of its files")


def test_deleted_rows_do_not_come_back(table: Path) -> None:
    """Where pylance takes it: a fragment is listed without its deletion file."""
    deleted(lance.dataset(str(table)))

    def undeleted(_: Path, fragments: list[dict]) -> list[dict]:  # type: ignore[type-arg]
        fragments[0]["deletion_file"] = None
        return fragments

    assert_refused(both_ways(table, by_hand(undeleted)), "another deletion file")


def test_row_ids_stay(table: Path) -> None:
    """Where pylance takes it: a fragment is listed with the row ids of another."""
    if not lance.dataset(str(table)).has_stable_row_ids:
        return

    def exchanged(_: Path, fragments: list[dict]) -> list[dict]:  # type: ignore[type-arg]
        values, other = fragments[1], fragments[2]
        values["row_id_meta"], other["row_id_meta"] = other["row_id_meta"], values["row_id_meta"]
        return fragments

    assert_refused(both_ways(table, by_hand(exchanged)), "other row ids")


@pytest.mark.parametrize(
    "between", [deleted, lambda dataset: lance.write_dataset(rows(100, 5), dataset, mode="append")]
)
def test_it_is_built_again_if_fragments_changed(between: Act, table: Path) -> None:
    """As with pylance, whose verbs then fail."""
    other = table.with_name("other")
    shutil.copytree(table, other)
    ACTS["a column of values"](lance.dataset(str(other)))
    merge = version_of(other).transaction
    assert merge is not None
    between(lance.dataset(str(table)))
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.CopyFrom(merge)
    (result,) = fold(owned(table), [envelope], 0)
    assert isinstance(result, Rejected)
    assert result.conflict.retryable


def assert_refused(both: Both, message: str) -> None:
    assert isinstance(both.result, Invalid)
    assert message in both.result.message
