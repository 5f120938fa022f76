"""The conflict matrix, cell by cell: the verdict of pylance on each pair of operations, and ours."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakefold_protos.lance.transaction_pb2 import Transaction
from tests.oracle.pair_operations import BY_HAND, operations
from tests.oracle.pairs import Base, Operation, committed, transaction_of

GONE = ("field 1 metadata", {"project", "project keeping"})
"""The only pairs that pylance refuses for another reason than a conflict: the field isn't there any more."""
AGAIN = ("append", "delete", "update")
"""What we call retryable after a Restore, and pylance incompatible (decision 0009)."""
NAMES = [
    *("append", "delete f0", "delete f0 same row", "delete f1", "delete all f0", "update f0", "update f1"),
    *("update column f0", "overwrite", "index a f0 f1", "index s f0", "rewrite f0 f1", "rewrite f2 f3"),
    *("merge", "merge keeping", "project", "project keeping", "restore", "config k", "config k2"),
    *("config without k", "table metadata", "schema metadata", "field 0 metadata", "field 1 metadata"),
    *("replacement f0", "replacement f1", "overlay f0", "overlay f1"),
]


@dataclass(frozen=True)
class Prepared:
    """A table, the operations built on it, and their transactions."""

    base: Base
    operations: dict[str, Operation]
    transactions: dict[str, Transaction]


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable row ids"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
        base = Base(tmp_path_factory.mktemp("matrix") / "t", stable=request.param)
        made = operations(base)
        yield Prepared(base, made, {name: transaction_of(base, each) for name, each in made.items()})


def test_every_operation_has_its_row(prepared: Prepared) -> None:
    assert list(prepared.operations) == NAMES


@pytest.mark.parametrize("theirs", [*NAMES, *BY_HAND])
def test_each_operation_gets_the_verdict_of_pylance(theirs: str, prepared: Prepared, tmp_path: Path) -> None:
    between = committed(prepared.base, tmp_path / "t", {**prepared.operations, **BY_HAND}[theirs])
    for ours in NAMES:
        verdict = between.verdict_of_pylance(prepared.operations[ours])
        if ours == GONE[0] and theirs in GONE[1]:
            assert "Field with id 1 does not exist" in verdict
            verdict = "compatible"
        if theirs == "restore" and ours.startswith(AGAIN):
            assert verdict == "incompatible"
            verdict = "retryable"
        assert (ours, between.our_verdict(prepared.transactions[ours])) == (ours, verdict)


def test_a_version_without_a_transaction_is_retryable_for_all(prepared: Prepared, tmp_path: Path) -> None:
    """Where pylance would have to rebase over such a version, it fails."""
    between = committed(prepared.base, tmp_path / "t", Transaction())
    for name, operation in prepared.operations.items():
        assert "invalid" in between.verdict_of_pylance(operation)
        assert (name, between.our_verdict(prepared.transactions[name])) == (name, "retryable")


@pytest.mark.parametrize("seed", range(10))
def test_several_versions_in_between(seed: int, prepared: Prepared, tmp_path: Path) -> None:
    """Whether there is a conflict is the same; pylance reports the oldest conflict, Lakefold the worst."""
    drawn = random.Random(seed).sample(NAMES, 9)
    between = committed(prepared.base, tmp_path / "t", *(prepared.operations[name] for name in drawn[:1]))
    for name in drawn[1:]:
        between = between.followed_by(prepared.operations[name])
    assert len(between.history.latest) > 1
    for ours in NAMES:
        verdict = between.verdict_of_pylance(prepared.operations[ours])
        if verdict.startswith("invalid"):
            continue
        judged = between.our_verdict(prepared.transactions[ours])
        assert (judged == "compatible") == (verdict == "compatible"), ours
        assert ours.startswith(AGAIN) or (judged, verdict) != ("retryable", "incompatible"), ours
