"""Pairs of one kind that differ in what they touch: the verdict of pylance, and ours (Lance fact 5.3)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefold_protos.lance.transaction_pb2 import Transaction
from tests.oracle.pair_operations import (
    BY_HAND,
    DEPRECATED,
    by_hand,
    on_columns,
    on_indices,
    on_keys,
    on_segments,
    operations,
)
from tests.oracle.pairs import Base, Operation, committed, transaction_of
from tests.oracle.test_matrix import AGAIN


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Base]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
        yield Base(tmp_path_factory.mktemp("details") / "t", stable=False)


def all_pairs(
    base: Base, path: Path, ours: dict[str, Operation], theirs: dict[str, Operation]
) -> dict[tuple[str, str], tuple[str, str]]:
    """The verdicts of pylance and ours if they differ; what pylance refuses for another reason aside."""
    transactions = {name: transaction_of(base, operation) for name, operation in ours.items()}
    actual = {}
    for between, other in theirs.items():
        table = committed(base, path / between, other)
        for name, operation in ours.items():
            verdict, judged = table.verdict_of_pylance(operation), table.our_verdict(transactions[name])
            if between == "restore" and transactions[name].WhichOneof("operation") in AGAIN:
                assert verdict == "incompatible"
                verdict = "retryable"
            if verdict != judged and not verdict.startswith("invalid"):
                actual[name, between] = verdict, judged
    return actual


def test_columns_rows_and_fragments(base: Base, tmp_path: Path) -> None:
    ours = on_columns(base)
    assert all_pairs(base, tmp_path, ours, ours) == {}


def test_indices(base: Base, tmp_path: Path) -> None:
    matrix = operations(base)
    ours = {**on_indices(), "rewrite f0 f1": matrix["rewrite f0 f1"], "merge": matrix["merge"]}
    theirs = {**ours, **on_columns(base), "wal": BY_HAND["mem wal"]}
    assert all_pairs(base, tmp_path, ours, theirs) == {}


def test_indices_of_one_name(base: Base, tmp_path: Path) -> None:
    ours = on_segments()
    assert all_pairs(base, tmp_path, ours, ours) == {}


def test_keys(base: Base, tmp_path: Path) -> None:
    matrix = operations(base)
    also = {name: matrix[name] for name in ("overwrite", "restore", "merge keeping", "project", "append")}
    ours = {**on_keys(), **also}
    assert all_pairs(base, tmp_path, ours, {**ours, **DEPRECATED}) == {}


def test_an_empty_operation_conflicts_with_nothing(base: Base, tmp_path: Path) -> None:
    """Except those that don't depend on what it touched."""
    empty = {name: by_hand(name) for name in ("delete", "update", "rewrite", "update_mem_wal_state", "merge")}
    assert all_pairs(base, tmp_path, operations(base), empty) == {}


def test_old_forms_are_read(base: Base, tmp_path: Path) -> None:
    old = by_hand("rewrite", old_fragments=[{"id": 0}, {"id": 1}], new_fragments=[{"id": 9}])
    assert old.rewrite.old_fragments
    assert all_pairs(base, tmp_path, operations(base), {"old": old}) == {}
    assert isinstance(old, Transaction)
