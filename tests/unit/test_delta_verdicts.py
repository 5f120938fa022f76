"""Our verdicts on pairs of transactions and of whole operations, beside those that delta-spark gave.

`tests/integration/test_delta_spark.py` has delta-spark give them again.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

import pytest

from lakefold.local.pins import pinned_jars
from lakefold_table.entry import Committed, Rejected
from tests.delta_logs.pairs import LOOSER, PAIRS, STRICTER, VERDICTS, PairTable
from tests.delta_logs.proposed_races import ProposedRaces
from tests.delta_logs.races import DIFFERENCES, LEVELS, RECORDED, TABLES, pairs, recorded, verdict_of
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_rows import log_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def test_all_was_judged_by_the_delta_spark_that_judges_now() -> None:
    (version,) = (jar.revision for jar in pinned_jars("delta") if jar.artifact.startswith("delta-spark"))
    assert json.loads(VERDICTS.read_text())["delta-spark"] == version
    assert json.loads(RECORDED.read_text())["delta-spark"] == version
    assert _of_pairs().keys() == PAIRS.keys()
    assert not any(any(_of_pairs()[name]) for name in STRICTER)
    assert all(any(_of_pairs()[name]) for name in LOOSER)
    for table in TABLES:
        verdicts = recorded(table).verdicts
        assert [(first, then) for first in verdicts for then in verdicts[first]] == pairs(table)


@cache
def _of_pairs() -> dict[str, Sequence[str]]:
    verdicts: dict[str, Sequence[str]] = json.loads(VERDICTS.read_text())["pairs"]
    return verdicts


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", PAIRS)
def test_the_verdict_of_delta_spark_is_ours_but_for_listed_differences(
    tmp_path: Path, name: str, level: str
) -> None:
    pair, made, table = PAIRS[name], PairTable(tmp_path / "t", level), Table(tmp_path / "t")
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
    theirs = bool(_of_pairs()[name][LEVELS.index(level)])
    expected = Rejected if (theirs or name in STRICTER) and name not in LOOSER else Committed
    assert isinstance(result, expected), result


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("table", TABLES)
def test_operations_that_delta_spark_turns_back_are_ours_too_but_for_listed_differences(
    table: str, level: str
) -> None:
    races = ProposedRaces(table, level)
    listed = set[tuple[str, str]]().union(*(each.pairs for each in DIFFERENCES[table]))
    wrong = []
    for first, then in pairs(table):
        theirs = bool(verdict_of(table, first, then, level))
        expected = Rejected if theirs != ((first, then) in listed) else Committed
        for together in (False, True):
            results = races.results(first, then, together=together)
            if [type(each) for each in results] != [Committed, expected]:
                wrong.append((first, then, together, results))
    assert not wrong
