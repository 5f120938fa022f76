"""The clauses of a merge: which of them is applied to a row, and which lists of clauses are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from lakefold.cli import run
from lakefold_ingest.merge.clause_constants import check_constants
from lakefold_ingest.merge.clause_texts import ClauseTexts
from lakefold_ingest.merge.clauses import (
    NONE_HOLDS,
    Clause,
    MatchedDelete,
    MatchedUpdate,
    Merge,
    NotMatchedBySourceDelete,
    NotMatchedBySourceUpdate,
    NotMatchedInsert,
    first_that_holds,
    names_of,
)
from lakefold_ingest.merge.conditions import _ROW, evaluated, holds, satisfied
from lakefold_ingest.merge.modes import merge_of
from lakefold_ingest.operations.delete import delete_keys
from lakefold_ingest.spark.sink import sink_merge
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def test_the_first_clause_that_holds_is_chosen() -> None:
    masks = [np.array([False, True, False]), np.array([True, True, False])]
    assert first_that_holds(masks, 3).tolist() == [1, 0, NONE_HOLDS]


def test_a_clause_without_condition_holds_for_all_that_are_left() -> None:
    assert first_that_holds([np.array([False, True]), None], 2).tolist() == [1, 0]


def test_without_clauses_none_holds() -> None:
    assert first_that_holds([], 2).tolist() == [NONE_HOLDS, NONE_HOLDS]


def test_clauses_are_grouped_by_their_kind_in_their_order() -> None:
    first, second = MatchedDelete("source.gone"), MatchedUpdate()
    insert, by_source = NotMatchedInsert(), NotMatchedBySourceDelete()
    merge = Merge(("id",), clauses=(first, by_source, insert, second))
    assert (merge.matched, merge.inserts, merge.by_source) == ((first, second), (insert,), (by_source,))


@pytest.mark.parametrize(
    ("clauses", "words"),
    [
        ((MatchedUpdate(), MatchedDelete("source.gone")), "can never be reached"),
        ((NotMatchedInsert(), NotMatchedInsert("source.n > 1")), "can never be reached"),
        ((NotMatchedBySourceDelete(), NotMatchedBySourceUpdate({"n": "1"})), "can never be reached"),
        ((), "no clause"),
        ((MatchedUpdate(()),), "names no column"),
        ((NotMatchedBySourceUpdate(),), "NotMatchedBySourceUpdate assigns nothing"),
        ((MatchedUpdate(assignments={}),), "MatchedUpdate assigns nothing"),
        ((MatchedUpdate(assignments="n = 1"),), "MatchedUpdate assigns nothing"),  # type: ignore[arg-type] # by callers that check no types
        ((MatchedUpdate(assignments={"n": 5}),), "5, the value of n, is no text"),  # type: ignore[dict-item] # by callers that check no types
        ((MatchedDelete("  "),), "is empty"),
    ],
)
def test_clauses_that_make_no_sense_are_refused(clauses: tuple[Clause, ...], words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        Merge(("id",), clauses=clauses)


_FLOATS = {
    "half": pa.array([0.1, 0.5, 2048.0], pa.float16()),
    "single": pa.array([0.1, 0.5, 2048.0], pa.float32()),
    "double": pa.array([0.1, 0.5, 2048.0], pa.float64()),
    "nested": pa.array([{"p": each} for each in (0.1, 0.5, 2048.0)], pa.struct({"p": pa.float32()})),
}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("source.{} in (0.1, 0.5)", [True, True, False]),
        ("SOURCE.{} NOT IN (1e-1)", [False, True, True]),
        ("source.{} in (0.5, 2048)", [False, True, True]),
        ("source.{} = 0.5 or not (source.{} in (0.1))", [False, True, True]),
    ],
)
@pytest.mark.parametrize("column", ["half", "single", "double", "nested.p"])
def test_a_list_of_constants_is_refused_if_pylance_compares_them_in_another_precision(
    column: str, condition: str, expected: list[bool]
) -> None:
    rows, text = pa.table(_FLOATS), condition.replace("{}", column)
    if column != "double" and "2048" not in condition:
        with pytest.raises(InvalidError, match=rf"{column}, a \w+, in a list with 0\.1, no"):
            check_constants(text, {"source": rows.schema})
        return
    check_constants(text, {"source": rows.schema})
    [met] = holds([text], {"source": rows}, 3)
    assert met is not None
    assert met.tolist() == expected


@pytest.mark.parametrize("condition", ["source.half = 0.5) or (true", "source.half = 0.5 ADN true", "true)"])
def test_a_condition_is_read_whole(condition: str) -> None:
    with pytest.raises(InvalidError, match="can't be evaluated"):
        holds([condition], {"source": pa.table(_FLOATS)}, 3)


@pytest.mark.parametrize("name", [_ROW, f"{_ROW}_"])
def test_a_column_may_have_the_name_of_the_one_that_numbers_rows(name: str) -> None:
    sides = {side: pa.table({name: [1, 2], "b": [3, 4]}) for side in ("source", "target")}
    assert evaluated({"sum": f"source.{name} + target.b"}, sides, 2)["sum"].to_pylist() == [4, 6]
    assert satisfied(f"{name} > 1", sides["source"], "here").tolist() == [False, True]


def test_a_clause_without_condition_of_another_kind_hides_nothing() -> None:
    Merge(("id",), clauses=(MatchedUpdate(), NotMatchedInsert("source.n > 1"), NotMatchedBySourceDelete()))


@pytest.mark.parametrize(
    ("keys", "order_by", "words"),
    [
        ((), (), "no key column"),
        (("id", "id"), (), "id is named twice"),
        (("id",), ("n", "n"), "n is named twice"),
    ],
)
def test_keys_and_order_are_named_once(keys: tuple[str, ...], order_by: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        Merge(keys, order_by)


def test_a_key_in_a_struct_is_refused_with_what_to_do() -> None:
    merge = Merge(("p.a",))
    with pytest.raises(
        InvalidError, match=r"p\.a is a field of the column p: keys are whole columns"
    ) as error:
        merge.check_columns({"p"}, {"p"})
    assert (error.value.where, "a column with the values of p.a" in error.value.hint) == ("keys", True)
    merge.check_columns({"p", "p.a"}, {"p", "p.a"})


def test_all_columns_that_are_missing_are_named() -> None:
    merge = Merge(
        ("id", "k"),
        ("t",),
        (MatchedUpdate(["x", "y"]), NotMatchedBySourceUpdate({"z": "1"})),
    )
    with pytest.raises(InvalidError) as error:
        merge.check_columns({"id", "x", "y"}, {"id", "x", "k"}, "here")
    assert error.value.where == "here"
    assert error.value.message.split("; ") == [
        "key k is not in the batch",
        "the order names t, which is not in the batch",
        "the update names y, which is not in the table",
        "the update of rows not matched by the source names z, which is not in the table",
    ]


@pytest.mark.parametrize(
    ("clause", "hint"),
    [
        (
            MatchedUpdate("source.v > 1"),
            'if it is a condition, give it by name: MatchedUpdate(condition="source.v > 1")',
        ),
        (MatchedUpdate("w"), "names are case-sensitive"),
    ],
)
def test_a_condition_that_is_given_as_a_column_is_recognised(clause: MatchedUpdate, hint: str) -> None:
    with pytest.raises(InvalidError, match="which is not in the table") as error:
        Merge(("id",), clauses=(clause,)).check_columns({"id", "v"}, {"id", "v"})
    assert error.value.hint == hint


@pytest.mark.parametrize(
    ("clauses", "needed"),
    [
        ((MatchedDelete(),), False),
        ((MatchedDelete("target.n > 1"),), True),
        ((MatchedUpdate(["n"]),), True),
        ((NotMatchedInsert(),), True),
        ((NotMatchedBySourceDelete(),), False),
    ],
)
def test_one_row_for_each_key_is_needed_if_its_values_matter(
    clauses: tuple[Clause, ...], *, needed: bool
) -> None:
    assert Merge(("id",), clauses=clauses).needs_one_row is needed


def test_columns_are_given_as_one_name_or_several() -> None:
    assert names_of("id", "keys") == ("id",)
    assert names_of(["a", "b"], "keys") == ("a", "b")
    assert names_of(None, "keys") == ()
    assert MatchedUpdate(["a"]) == MatchedUpdate("a")


@pytest.mark.parametrize("columns", [[""], [7]])
def test_names_that_are_none_are_refused(columns: list[str]) -> None:
    with pytest.raises(InvalidError, match="not names of columns"):
        names_of(columns, "keys")


def test_the_table_need_not_have_columns_that_order_rows_or_are_in_conditions() -> None:
    clauses = (
        MatchedDelete("source.op = 'd'"),
        MatchedUpdate(condition='source."at" > target.at'),
        NotMatchedInsert("source.kind <> 'x'"),
    )
    merge = Merge(("id",), ("lsn",), clauses)
    batch = ["id", "op", "at", "lsn", "kind", "kinds", "other"]
    assert merge.left_out(batch, ["id"]) == ["op", "at", "lsn", "kind"]
    assert merge.left_out(batch, batch) == []


def test_what_is_not_a_clause_is_refused() -> None:
    clauses: Any = ("source.op = 'd'",)
    with pytest.raises(InvalidError, match="is not a clause"):
        Merge(("id",), (), clauses)


def test_a_delete_by_a_key_that_two_columns_have_as_their_name_is_refused() -> None:
    with pytest.raises(InvalidError, match="several columns of the batch are called id"):
        delete_keys(pa.table([pa.array([1]), pa.array([2])], names=["id", "id"]), ["id"])


@pytest.mark.parametrize("mode", ["upsert", "delete"])
@pytest.mark.parametrize("clauses", [[], (), iter(())], ids=["list", "tuple", "iterator"])
def test_no_clause_at_all_is_no_upsert_and_no_delete_of_all(mode: str, clauses: Iterable[Clause]) -> None:
    """Through each door: a list that a program has made may be empty by mistake."""
    with pytest.raises(InvalidError, match="no clause is given"):
        merge_of(mode, "id", None, clauses)
    with pytest.raises(InvalidError, match="no clause is given"):
        sink_merge(mode, "id", None, [], {})  # type: ignore[arg-type] # the modes of this test
    by_sink = sink_merge(mode, "id", None, None, {})  # type: ignore[arg-type] # as above
    assert isinstance(by_sink, Merge)
    assert merge_of(mode, "id").clauses == by_sink.clauses


CONDITIONS = [
    name for name in ClauseTexts.__dataclass_fields__ if name.startswith("when") and "set" not in name
]


@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_condition_is_not_one_that_was_not_given(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell may have replaced a variable by nothing."""
    given: dict[str, Any] = {name: text}
    if name == "when_not_matched_by_source_update":
        given["when_not_matched_by_source_set"] = {"a": "1"}
    with pytest.raises(InvalidError, match="the condition of a clause is empty"):
        ClauseTexts(**given).clauses()
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": 1}')
    more = ["--when-not-matched-by-source-set", "a=1"] if name == "when_not_matched_by_source_update" else []
    flag = f"--{name.replace('_', '-')}"
    assert run(["upsert", str(tmp_path / "t"), str(rows), "--keys", "id", flag, text, *more]) == 2
    assert "the condition of a clause is empty" in capsys.readouterr().err
