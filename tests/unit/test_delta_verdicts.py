"""Our verdicts on pairs of transactions and of whole operations, beside those that delta-spark gave.

`tests/integration/test_delta_spark.py` has delta-spark give them again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lakefold.local.pins import pinned_jars
from lakefold_table.entry import Committed, Rejected
from tests.delta_logs.pairs import LOOSER, PAIRS, STRICTER, VERDICTS, PairTable, judged_pairs
from tests.delta_logs.proposed_races import ProposedRaces
from tests.delta_logs.races import (
    DIFFERENCES,
    LEVELS,
    RECORDED,
    TABLES,
    in_json,
    pairs,
    recorded,
    verdict_of,
)
from tests.delta_logs.recording_races import shortened
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_rows import log_id

if TYPE_CHECKING:
    from pathlib import Path


def test_all_was_judged_by_the_delta_spark_that_judges_now() -> None:
    (version,) = (jar.revision for jar in pinned_jars("delta") if jar.artifact.startswith("delta-spark"))
    assert json.loads(VERDICTS.read_text())["delta-spark"] == version
    assert json.loads(RECORDED.read_text())["delta-spark"] == version
    assert {name: judged.pair for name, judged in judged_pairs().items()} == PAIRS
    assert not any(any(judged_pairs()[name].verdicts) for name in STRICTER)
    assert all(any(judged_pairs()[name].verdicts) for name in LOOSER)


@pytest.mark.parametrize("name", TABLES)
def test_each_operation_was_judged_behind_each_as_it_is_now(name: str) -> None:
    table, judged = TABLES[name], recorded(name)
    assert judged.base[0] == table.begun
    assert judged.made == list(map(in_json, table.made))
    asked = {operation: each.asked for operation, each in judged.operations.items()}
    assert asked == {operation: in_json(each) for operation, each in table.operations.items()}
    assert [(first, then) for first in judged.verdicts for then in judged.verdicts[first]] == pairs(name)
    assert shortened(judged.verdicts) == judged.verdicts


@pytest.mark.parametrize("name", TABLES)
def test_delta_spark_gives_another_verdict_on_each_listed_pair(name: str) -> None:
    for difference in DIFFERENCES[name]:
        for first, then in difference.pairs:
            theirs = {not verdict_of(name, first, then, level) for level in LEVELS}
            assert theirs != {difference.both}, (first, then)


def test_the_verdicts_of_both_levels_are_recorded_if_some_differ() -> None:
    same, different = {"x": ["A", "A"], "y": ["", ""]}, {"x": ["A", "A"], "y": ["A", ""]}
    assert shortened({"x": same, "y": different}) == {"x": {"x": ["A"], "y": [""]}, "y": different}


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
    theirs = bool(judged_pairs()[name].verdicts[LEVELS.index(level)])
    expected = Rejected if (theirs or name in STRICTER) and name not in LOOSER else Committed
    assert isinstance(result, expected), result


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("table", TABLES)
def test_operations_that_delta_spark_turns_back_are_ours_too_but_for_listed_differences(
    table: str, level: str
) -> None:
    races = ProposedRaces(table, level)
    listed = {pair: each.both for each in DIFFERENCES[table] for pair in each.pairs}
    wrong = []
    for first, then in pairs(table):
        both = listed.get((first, then), not verdict_of(table, first, then, level))
        expected = Committed if both else Rejected
        for together in (False, True):
            results = races.results(first, then, together=together)
            if [type(each) for each in results] != [Committed, expected]:
                wrong.append((first, then, together, results))
    assert not wrong
