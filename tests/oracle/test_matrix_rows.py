"""Pairs that pylance's own calls make, where more is known than its transactions contain: rows and keys."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import lance
import pytest

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import Bitmap
from lakefold_table.lance.conflicts import Rebase, footprint_of
from lakefold_table.lance.conflicts.key_conditions import same_inserted_keys
from tests.oracle.pair_operations import (
    KEYED,
    by_hand,
    keyed,
    operations,
    overlay,
    update_column,
)
from tests.oracle.pairs import (
    ROWS,
    Base,
    Operation,
    at_version_2,
    committed,
    last_transaction,
    transaction_of,
)

Rows = dict[int, Bitmap]


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable row ids"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Base]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
        yield Base(tmp_path_factory.mktemp("rows") / "t", stable=request.param)


def condition(numbers: Sequence[int]) -> str:
    return f"a in ({', '.join(map(str, numbers))})"


def delete(*numbers: int) -> Callable[[str], object]:
    return at_version_2(lambda table: table.delete(condition(numbers), conflict_retries=0))


def update(*numbers: int) -> Callable[[str], object]:
    return at_version_2(lambda table: table.update({"s": "'x'"}, condition(numbers), conflict_retries=0))


def rows_of(numbers: Sequence[int]) -> Rows:
    """The rows with these values of a, as an envelope names them."""
    values: Rows = {}
    for number in numbers:
        values.setdefault(number // ROWS, Bitmap()).add(number % ROWS)
    return values


WHOLE = tuple(range(10))
OURS = [
    (delete, (3,)),
    (delete, (3, 13)),
    (delete, WHOLE),
    (delete, (*WHOLE, 13)),
    (update, (3, 4)),
    (update, WHOLE),
]


@pytest.mark.parametrize(("act", "numbers"), OURS, ids=[f"{act.__name__} {n}" for act, n in OURS])
def test_rows_of_one_fragment_are_merged_if_they_differ(
    act: Callable[..., Callable[[str], object]], numbers: tuple[int, ...], base: Base, tmp_path: Path
) -> None:
    """A row that both delete is found only when the deleted rows are joined, so a rebase may end in one."""
    transaction = last_transaction(committed(base, tmp_path / "ours", act(*numbers)).path)
    rows = rows_of(numbers)
    matrix = operations(base)
    theirs: dict[str, tuple[Operation, set[int]]] = {
        "delete of another row": (delete(5), {5}),
        "delete of the same row": (delete(3), {3}),
        "delete in two fragments": (delete(6, 16), {6, 16}),
        "delete of all rows": (delete(*WHOLE), set(WHOLE)),
        "delete elsewhere": (delete(35), {35}),
        "update of another row": (update(5), {5}),
        "update of the same row": (update(3), {3}),
        "update of a column": (update_column(base, 0), set()),
        "update of another column": (update_column(base, 2), set()),
        "rewrite": (matrix["rewrite f0 f1"], set()),
        "replacement": (matrix["replacement f0"], set()),
        "overlay of the same row": (overlay(base, 0, [3]), set()),
        "overlay of another row": (overlay(base, 0, [7]), set()),
        "index": (matrix["index a f0 f1"], set()),
    }
    for name, (operation, deleted) in theirs.items():
        table = committed(base, tmp_path / name, operation)
        verdict = table.verdict_of_pylance(act(*numbers))
        judged = table.history.verdict(footprint_of(transaction, affected_rows=rows), 2)
        if isinstance(judged, Rebase):
            assert judged.merges == rows.keys() & rows_of(sorted(deleted)).keys()
            expected = "retryable" if deleted & set(numbers) else "compatible"
        else:
            expected = table.our_verdict(transaction, rows)
        assert (name, expected) == (name, verdict)


def test_rows_moved_under_an_overlay(base: Base, tmp_path: Path) -> None:
    """Whether they are the overlaid rows is seen in the deleted rows, which a rebase compares."""
    for offset, moved, verdict in [(3, 5, "compatible"), (3, 3, "retryable")]:
        table = committed(base, tmp_path / f"{moved}", update(moved))
        ours = overlay(base, 0, [offset])
        assert table.verdict_of_pylance(ours) == verdict
        judged = table.history.verdict(footprint_of(transaction_of(base, ours)), 2)
        assert judged == Rebase(compares=frozenset({0}))


def upsert(*numbers: int) -> Callable[[str], object]:
    return at_version_2(
        lambda table: (
            table.merge_insert("a")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .conflict_retries(0)
            .execute(keyed(numbers))
        )
    )


@pytest.fixture(scope="module")
def keyed_base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return Base(tmp_path_factory.mktemp("keyed") / "t", stable=False, schema=KEYED)


UPSERTS = [(100,), (100, 101), (102,), (5,), (25,), (), tuple(range(1000, 1010)), tuple(range(2000, 2010))]
UPSERTS += [tuple(range(1000, 1200)), tuple(range(5000, 5200)), tuple(range(1190, 1300))]


@pytest.fixture(scope="module")
def upserted(
    keyed_base: Base, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[int, ...], Transaction]:
    """The transaction of each upsert."""
    path = tmp_path_factory.mktemp("upserted")
    return {
        numbers: last_transaction(committed(keyed_base, path / f"{index}", upsert(*numbers)).path)
        for index, numbers in enumerate(UPSERTS)
    }


@pytest.mark.parametrize("theirs", UPSERTS, ids=[f"{n[:1]}x{len(n)}" for n in UPSERTS])
def test_keys_that_two_upserts_insert(
    theirs: tuple[int, ...],
    keyed_base: Base,
    upserted: dict[tuple[int, ...], Transaction],
    tmp_path: Path,
) -> None:
    """If pylance finds none in common, we find none. If there is a conflict, we find it."""
    table = committed(keyed_base, tmp_path / "theirs", upsert(*theirs))
    other = last_transaction(table.path)
    for numbers, ours in upserted.items():
        assert ours.update.inserted_rows.bloom.bitmap
        met = same_inserted_keys(footprint_of(ours), footprint_of(other), 3)
        new = {number for number in numbers if number >= 40}
        if new & set(theirs):
            assert met is not None
        verdict = table.verdict_of_pylance(upsert(*numbers))
        judged = table.our_verdict(ours, rows_of([number for number in numbers if number < 40]))
        assert (verdict, judged) in {
            ("compatible", "compatible"),
            ("retryable", "retryable"),
            # Sharper: no block of the filters has a common bit in every word.
            ("retryable", "compatible"),
        }


def test_a_key_sets_a_bit_in_each_word_of_one_block(keyed_base: Base, tmp_path: Path) -> None:
    for number in range(100, 130):
        path = committed(keyed_base, tmp_path / str(number), upsert(number)).path
        inserted = footprint_of(last_transaction(path)).inserted
        assert inserted is not None
        assert inserted.bloom is not None
        assert len({bit // 256 for bit in inserted.bloom}) == 1
        assert sorted(bit // 32 % 8 for bit in inserted.bloom) == list(range(8))


def appended(path: str) -> None:
    lance.write_dataset(keyed([7]), path, mode="append")


def test_inserts_of_keys_against_operations_without_keys(keyed_base: Base, tmp_path: Path) -> None:
    ours = last_transaction(committed(keyed_base, tmp_path / "ours", upsert(100)).path)
    for name, theirs in {"append": appended, "update": by_hand("update"), "delete": delete(35)}.items():
        table = committed(keyed_base, tmp_path / name, theirs)
        assert (name, table.our_verdict(ours, {})) == (name, table.verdict_of_pylance(upsert(100)))
    table = committed(keyed_base, tmp_path / "upsert", upsert(100))
    late = last_transaction(committed(keyed_base, tmp_path / "late", delete(35)).path)
    assert table.our_verdict(late) == table.verdict_of_pylance(delete(35)) == "compatible"
