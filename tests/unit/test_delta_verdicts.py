"""Our verdicts on pairs of transactions, beside those that delta-spark gave."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lakefold_table.entry import Committed, Rejected
from tests.delta_logs.pairs import LOOSER, PAIRS, STRICTER, VERDICTS, PairTable
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_rows import log_id

if TYPE_CHECKING:
    from pathlib import Path


def test_every_pair_was_judged_and_every_difference_is_one() -> None:
    verdicts = json.loads(VERDICTS.read_text())
    assert verdicts.keys() == PAIRS.keys()
    assert not any(verdicts[name] for name in STRICTER)
    assert all(verdicts[name] for name in LOOSER)


@pytest.mark.parametrize("name", PAIRS)
def test_the_verdict_of_delta_spark_is_ours_but_for_listed_differences(tmp_path: Path, name: str) -> None:
    pair, made, table = PAIRS[name], PairTable(tmp_path / "t"), Table(tmp_path / "t")
    first = table.propose(*made.actions(pair.first), read=0, operation="MERGE")
    (before,) = table.fold(first, log=log_id(1))
    assert isinstance(before, Committed), before
    proposal = table.propose(
        *made.actions(pair.then),
        read=0,
        operation="WRITE",
        read_predicates=[read for read in pair.reads if read != "true"],
        # A proposal that names its rows depends on nothing else that it has read.
        read_whole_table="true" in pair.reads and not pair.rows,
        read_app_ids=list(pair.apps),
    )
    for path, rows in pair.rows.items():
        proposal.delta.affected_rows[path] = rows
    (result,) = table.fold(proposal, log=log_id(2))
    theirs = bool(json.loads(VERDICTS.read_text())[name])
    expected = Rejected if (theirs or name in STRICTER) and name not in LOOSER else Committed
    assert isinstance(result, expected), result
