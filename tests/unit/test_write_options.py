"""The options of a write are read and checked against one table, which `sink` shares."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakefold
from lakefold.cli import run
from lakefold.spark import sink
from lakefold.writing import verbs
from lakefold.writing.options import SinkOptions, batch_key, write_settings
from lakefold_ingest.cdc.change_format import ChangeEnvelope, ChangeFormat, EventEffect
from lakefold_ingest.merge.clauses import (
    MatchedDelete,
    MatchedUpdate,
    Merge,
    NotMatchedBySourceDelete,
    NotMatchedBySourceUpdate,
    NotMatchedInsert,
)
from lakefold_ingest.options.write_options import (
    OF_OTHERS,
    WRITE_OPTIONS,
    WRITES,
    WriteMode,
    WriteUse,
)
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.sink import sink_merge
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_reader.spark.option_kinds import assignments, pairs
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import click

    from lakefold_reader.spark.option_table import Option

PATH = {"path": "/lake/t"}
ROWS = pa.table({"id": [1]})


def test_values_are_read_by_their_option_in_any_case() -> None:
    given = read_write_options(
        PATH
        | {
            "KAFKA.bootstrap.servers": "broker:9092",
            "KAFKA.Security.Protocol": "SSL",
            "storage.aws_region": "eu",
            "MAXRECORDSPERFILE": "30",
            "maxBytesPerFile": "64m",
            "wait": "Log",
            "timeout": "1.5",
            "txnAppId": "app",
            "txnVersion": "7",
            "commitProperties": "team=search, run=4=2",
        }
    )
    assert given.path == "/lake/t"
    assert (given.value("txnVersion"), given.value("onRolledBack")) == (7, "raise")
    given.check(WriteUse.BATCH, given.mode(overwrite=False))
    assert given.settings() == {
        "bootstrap_servers": "broker:9092",
        "max_rows_per_file": 30,
        "max_bytes_per_file": 64 * 1024 * 1024,
        "wait": "log",
        "timeout": 1.5,
        "commit_properties": {"team": "search", "run": "4=2"},
        "kafka": {"security.protocol": "SSL"},
        "storage_options": {"aws_region": "eu"},
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b, c = d=e ,f=", {"a": "b", "c": "d=e", "f": ""}),
        ("note='a, b', team=\"x=1,y\"", {"note": "a, b", "team": "x=1,y"}),
        ('run={"a": 1}', {"run": '{"a": 1}'}),
        ('run=\'{"a": 1, "b": "it\'\'s"}\'', {"run": '{"a": 1, "b": "it\'s"}'}),
        ("why=it's ok,b=2", {"why": "it's ok", "b": "2"}),
        *((text, None) for text in ("a", "a=1,", "=1", "a='b", "a='b,c=d", "a='b'c", 'r={"a":1,"b":2}')),
    ],
)
def test_pairs_have_commas_in_quotes(text: str, expected: dict[str, str] | None) -> None:
    if expected is not None:
        assert pairs(text) == expected
        return
    with pytest.raises(ValueError, match="values with commas in quotes"):
        pairs(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("note='a;b=c'", {"note": "'a;b=c'"}),
        ("note='it''s; x'; n=target.n + 1;", {"note": "'it''s; x'", "n": "target.n + 1"}),
        ('n=`odd;name` = 1; m="a;b"', {"n": "`odd;name` = 1", "m": '"a;b"'}),
        *((text, None) for text in ("", ";", "a", "a=", "note='a;b=c", "a=1; b=it's", "a=1; a=2")),
    ],
)
def test_assignments_have_semicolons_in_quotes(text: str, expected: dict[str, str] | None) -> None:
    if expected is not None:
        assert assignments(text) == expected
        return
    with pytest.raises(ValueError, match="column=expression"):
        assignments(text)


def test_the_text_of_a_user_is_a_commit_property() -> None:
    given = read_write_options(PATH | {"userMetadata": '{"a": 1, "b": 2}', "commitProperties": "team=x"})
    assert given.settings()["commit_properties"] == {"team": "x", "userMetadata": '{"a": 1, "b": 2}'}


def test_properties_of_delta_are_options() -> None:
    given = read_write_options(
        PATH | {"DELTA.ENABLEDELETIONVECTORS": "true", "tableProperties": "owner=me,delta.appendOnly=false"}
    )
    assert given.settings()["table_properties"] == {
        "owner": "me",
        "delta.appendOnly": "false",
        "delta.enableDeletionVectors": "true",
    }
    with pytest.raises(InvalidError, match=r"delta\.appendonli: Delta tables have no such") as raised:
        read_write_options(PATH | {"delta.appendonli": "true"})
    assert raised.value.hint == "do you mean delta.appendOnly?"


@pytest.mark.parametrize("option", WRITE_OPTIONS, ids=lambda option: option.name)
def test_each_option_refuses_an_empty_text_by_its_name(option: Option) -> None:
    with pytest.raises(InvalidError) as raised:
        read_write_options({option.name.upper(): " "})
    assert raised.value.where == option.name
    assert raised.value.hint


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("mergeShema", "mergeSchema"),
        ("max_records_per_file", "maxRecordsPerFile"),
        ("txn_version", "txnVersion"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_one(name: str, near: str) -> None:
    with pytest.raises(InvalidError, match=f"{name}: a write has no such option") as raised:
        read_write_options(PATH | {name: "1"})
    assert raised.value.hint.startswith(f"do you mean {near}?")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        *OF_OTHERS.items(),
        ("PARTITIONOVERWRITEMODE", "replaceWhere"),
        ("storageRegion", "storage.region"),
        ("aws_region", "storage.aws_region"),
        ("fs.s3a.access.key", "begin with storage."),
        ("bootstrapServers", "kafka.bootstrap.servers"),
        ("sasl.mechanism", "kafka.sasl.mechanism"),
    ],
)
def test_options_of_other_products_are_refused_with_ours(name: str, hint: str) -> None:
    with pytest.raises(InvalidError, match="a write has no such option") as raised:
        read_write_options(PATH | {name: "1"})
    assert hint in raised.value.hint
    assert "do you mean" not in raised.value.hint


@pytest.mark.parametrize("verb", [verbs.append, verbs.upsert, verbs.delete, verbs.apply_changes])
def test_the_flags_of_verbs_are_those_of_the_table(verb: click.Command) -> None:
    """By their names in Python, with help that names flags and neither Spark nor its options."""
    options = {option.parameter: option for option in WRITE_OPTIONS}
    own = {
        "files",
        "batch_id",
        "app_id",
        "where",
        "wait",
        "dry_run",
        "as_json",
        "config",
        "dead_letters_topic",
    }
    flags = {flag.name: flag for flag in verb.params if flag.name not in own}
    assert set(flags) <= {*options, "kafka", "storage_options"}
    for name in ("keys", "merge_schema", "on_reused_key", "format", "when_matched_set", "debezium_types"):
        if name in flags:
            shown = str(getattr(flags[name], "help"))  # noqa: B009 - an argument has no help
            assert shown[0].isupper()
            assert [word for word in ("`", "Spark", "in Python") if word in shown] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--operations", "I"], "give name=value pairs"),
        (["--keys", ""], "keys: no key column is named"),
        (["--envelope", "maxwell"], "'maxwell' is not one of"),
    ],
)
def test_a_wrong_value_of_a_flag_is_refused_as_that_of_an_option(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}")
    assert run(["apply-changes", str(tmp_path / "t"), str(rows), "--keys", "id", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_hints_for_options_of_others_name_options_that_exist() -> None:
    known = {option.name for option in WRITE_OPTIONS}
    assert known.isdisjoint(OF_OTHERS)
    for hint in OF_OTHERS.values():
        named = re.findall(r"\b[a-z]+[A-Z]\w*", re.sub(r"delta\.\S+|readStream", "", hint))
        assert set(named) <= known, hint


def test_an_option_that_resembles_none_is_refused_with_all_of_them() -> None:
    with pytest.raises(InvalidError) as raised:
        read_write_options(PATH | {"zzz": "1"})
    assert raised.value.hint.startswith("the options are ")
    assert "kafka.*" in raised.value.hint


@pytest.mark.parametrize(
    ("options", "use", "overwrite", "message"),
    [
        ({"txnVersion": "1"}, WriteUse.STREAM, False, "txnVersion: it has no meaning for a streaming query"),
        ({"onOlderBatch": "skip"}, WriteUse.BATCH, False, "onOlderBatch: it has no meaning for `write`"),
        ({"replaceWhere": "a = 1"}, WriteUse.BATCH, False, "replaceWhere: .* in the mode append"),
        (
            {"replaceWhere": "a", "overwriteSchema": "true"},
            WriteUse.BATCH,
            True,
            "only one of these options may be given",
        ),
        ({"overwriteSchema": "true"}, WriteUse.STREAM, False, "overwriteSchema: .* in the mode append"),
        ({"txnAppId": "app"}, WriteUse.BATCH, False, "txnVersion: it is missing"),
        ({"txnVersion": "1"}, WriteUse.BATCH, True, "txnAppId: it is missing"),
        ({"writeMode": "append"}, WriteUse.BATCH, True, "writeMode: append is given, but"),
        ({"keys": "id"}, WriteUse.BATCH, False, "keys: .* in the mode append"),
        (
            {"writeMode": "upsert", "operationColumn": "op"},
            WriteUse.STREAM,
            False,
            "operationColumn: .* in the mode upsert",
        ),
        ({"envelope": "delta"}, WriteUse.BATCH, False, "envelope: .* in the mode append"),
        (
            {"writeMode": "delete", "whenMatchedUpdate": "true"},
            WriteUse.STREAM,
            False,
            "whenMatchedUpdate: .* in the mode delete",
        ),
    ],
)
def test_options_without_a_meaning_are_refused(
    options: dict[str, str], use: WriteUse, *, overwrite: bool, message: str
) -> None:
    given = read_write_options(PATH | options)
    with pytest.raises(InvalidError, match=message):
        given.check(use, given.mode(overwrite=overwrite))


def merge(**options: str) -> Merge | None:
    given = read_write_options(PATH | options)
    return given.merge(given.mode(overwrite=False))


def test_the_modes_of_keys_are_merges_with_the_clauses_that_are_given() -> None:
    assert merge() is None
    assert merge(writeMode="upsert", keys="a, b", orderBy="at") == Merge(("a", "b"), ("at",))
    assert merge(writeMode="delete", keys="a") == Merge(("a",), (), (MatchedDelete(),))
    condition = "source.at > target.at"
    assert merge(writeMode="delete", keys="a", orderBy="at", whenMatchedDelete=condition) == Merge(
        ("a",), ("at",), (MatchedDelete(condition),)
    )
    assert merge(writeMode="upsert", keys="a", whenMatchedSet="b=source.b + 1") == Merge(
        ("a",), (), (MatchedUpdate(None, None, {"b": "source.b + 1"}), NotMatchedInsert())
    )
    assert merge(writeMode="upsert", keys="a", updateColumns="b") == Merge(
        ("a",), (), (MatchedUpdate(("b",)), NotMatchedInsert())
    )
    assert merge(
        writeMode="upsert",
        keys="a",
        whenMatchedUpdate=condition,
        whenMatchedSet="c=1",
        whenMatchedDelete="source.gone",
        whenNotMatchedInsert="TRUE",
        whenNotMatchedBySourceDelete="target.old",
        whenNotMatchedBySourceUpdate="true",
        whenNotMatchedBySourceSet="n=target.n + 1; s=upper(target.s)",
    ) == Merge(
        ("a",),
        (),
        (
            MatchedDelete("source.gone"),
            MatchedUpdate(None, condition, {"c": "1"}),
            NotMatchedInsert(),
            NotMatchedBySourceDelete("target.old"),
            NotMatchedBySourceUpdate({"n": "target.n + 1", "s": "upper(target.s)"}),
        ),
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"writeMode": "upsert"}, "no key column is named"),
        ({"writeMode": "delete", "keys": "a", "orderBy": "b"}, "need no order"),
        (
            {"writeMode": "upsert", "keys": "a", "whenMatchedDelete": "b", "updateColumns": "c"},
            "update_columns",
        ),
        (
            {"writeMode": "upsert", "keys": "a", "whenMatchedDelete": "b", "whenMatchedSet": "c=1"},
            "when_matched_set and when_matched_update: one of them",
        ),
        ({"writeMode": "upsert", "keys": "a", "whenNotMatchedBySourceUpdate": "b"}, "without the other"),
        ({"writeMode": "upsert", "keys": "a", "whenNotMatchedBySourceSet": "b=1"}, "without the other"),
        (
            {"writeMode": "upsert", "keys": "a", "whenMatchedDelete": "true", "whenMatchedUpdate": "true"},
            "never be reached",
        ),
    ],
)
def test_merges_that_make_no_sense_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        merge(**options)


def changes(**options: str) -> ChangeFormat | None:
    given = read_write_options(PATH | {"writeMode": "cdc"} | options)
    given.check(WriteUse.STREAM, WriteMode.CDC)
    assert not {"envelope", "operation_column", "operations"}.intersection(given.settings())
    return given.changes(given.mode(overwrite=False))


def test_the_mode_cdc_is_a_format_of_events() -> None:
    assert read_write_options(PATH).changes(WriteMode.APPEND) is None
    assert changes(keys="a,b", orderBy="source.lsn", envelope="Debezium") == ChangeFormat(
        ("a", "b"), ("source.lsn",), ChangeEnvelope.DEBEZIUM
    )
    given = changes(keys="a", operationColumn="op", operations="New=Insert, Gone=delete")
    assert given is not None
    assert given.operation_column == "op"
    assert given.operations == {"new": EventEffect.UPSERT, "gone": EventEffect.DELETE}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operationColumn": "op"}, "keys: no key column"),
        ({"keys": "a"}, "either the column with their operations or an envelope"),
        ({"keys": "a", "operationColumn": "op", "envelope": "delta"}, "either the column"),
        ({"keys": "a", "envelope": "delta", "operations": "x=delete"}, "operations: .* none is named"),
        (
            {"keys": "a", "operationColumn": "op", "operations": "x=truncate"},
            "no operation .* is called truncate",
        ),
        ({"keys": "a", "operationColumn": "a"}, "can't be a key"),
        ({"keys": "a,a", "envelope": "delta"}, "a is named twice"),
        ({"keys": "a", "orderBy": "ts,source.ts", "envelope": "debezium"}, "ts is named twice"),
    ],
)
def test_formats_that_make_no_sense_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        changes(**options)


def test_a_sink_refuses_what_its_mode_has_no_use_for() -> None:
    nothing = {"envelope": None, "operation_column": None, "operations": None}
    with pytest.raises(InvalidError, match="operation_column: it has no meaning in the mode upsert"):
        sink_merge("upsert", "a", None, None, nothing | {"operation_column": "op"})
    with pytest.raises(InvalidError, match="clauses"):
        sink_merge("cdc", "a", None, [MatchedDelete()], nothing | {"envelope": "delta"})
    with pytest.raises(InvalidError, match="there is no envelope 'maxwell'"):
        sink_merge("cdc", "a", None, None, nothing | {"envelope": "maxwell"})


@pytest.mark.parametrize(
    ("call", "name", "near"),
    [
        (partial(sink, write_mode="upsert"), "keyz", "keys"),
        (partial(sink, write_mode="cdc", keys="id"), "operation_colum", "operation_column"),
        (sink, "target_rows_per_fil", "target_rows_per_file"),
        (sink, "merge_shema", "merge_schema"),
        (partial(lakefold.upsert, rows=ROWS, keys="id"), "orderby", "order_by"),
        (partial(lakefold.apply_changes, rows=ROWS, keys="id"), "envelop", "envelope"),
        (lakefold.delete, "wher", "where"),
        (partial(lakefold.append, rows=ROWS), "app", "app_id"),
        (lakefold.Writer, "max_row", "max_rows"),
        (lakefold.Writer, "target_file_size", "max_bytes_per_file"),
        (partial(lakefold.append, rows=ROWS), "schema_mode", "merge_schema"),
        (partial(lakefold.append, rows=ROWS), "configuration", "table_properties"),
        (lakefold.delete, "predicate", "where"),
        (partial(lakefold.append, rows=ROWS), "txnAppId", "app_id"),
        (sink, "maxRecordsPerFile", "max_rows_per_file"),
        (partial(lakefold.append, rows=ROWS), "txn-version", "batch_id"),
        (partial(lakefold.append, rows=ROWS), "userMetadata", "commit_properties"),
    ],
)
def test_a_misspelt_parameter_is_refused_with_the_nearest_name(
    call: Callable[..., object], name: str, near: str
) -> None:
    """Before it is noticed that another one is missing."""
    with pytest.raises(InvalidError, match=f"there is no option '{name}'") as raised:
        call("/lake/t", **{name: "id"})
    assert raised.value.hint == f"did you mean {near}?"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("merge_schema", "false"),
        ("stable_row_ids", 1),
        ("timeout", "5"),
        ("max_lag", True),
        ("max_rows_per_file", "5"),
        ("max_bytes_per_file", "1g"),
        ("max_unanswered", 2.5),
        ("bootstrap_servers", ["broker:9092"]),
        ("kafka", "security.protocol=SSL"),
        ("commit_properties", {"batch": 1}),
        ("partition_by", 3),
        ("data_storage_version", "stable"),
        ("timeout", 0),
    ],
)
def test_a_value_of_another_kind_is_refused_by_the_name_of_its_parameter(name: str, value: object) -> None:
    given: Any = {"bootstrap_servers": "broker:9092", name: value}
    with pytest.raises(InvalidError) as raised:
        write_settings("/lake/t", given)
    assert raised.value.where == name


@pytest.mark.parametrize("batch_id", ["7", True, -1, 2**64, 1.0])
def test_a_batch_id_is_a_whole_number(batch_id: object) -> None:
    with pytest.raises(InvalidError, match="can't be a batch id"):
        batch_key("app", batch_id)  # type: ignore[arg-type] # what a user may pass


def test_a_table_has_one_name() -> None:
    assert read_write_options({"table": "/t"}).path == "/t"
    assert read_write_options({"table": "/t", "path": "/t"}).path == "/t"
    with pytest.raises(InvalidError, match="different tables"):
        _ = read_write_options({"table": "/t", "path": "/u"}).path
    with pytest.raises(InvalidError, match="no table is named"):
        _ = read_write_options({}).path


def test_secrets_are_not_shown() -> None:
    given = read_write_options(
        PATH | {"kafka.sasl.password": "hunter2", "storage.aws_secret_access_key": "hunter2"}
    )
    assert "hunter2" not in repr(given)


def test_the_parameters_of_sink_are_those_of_the_table() -> None:
    """With the same defaults, unless the option's default is looked up when the sink is made."""
    parameters = inspect.signature(sink).parameters
    options = {option.parameter: option for option in WRITES.of(WriteUse.SINK)}
    named = {*parameters, *SinkOptions.__annotations__} - {"options"}
    only_there = {"kafka", "storage_options", "on_report", "clauses", "target_rows_per_file"}
    only_there |= {"driver_rows", "target_file_size"}
    only_there |= {"metrics_host", "metrics_port", "dry_run"}
    assert named == {*options, *only_there}
    defaults = {name: parameter.default for name, parameter in parameters.items() if name in options}
    settings = {field.name: field.default for field in fields(WriteSettings) if field.default is not MISSING}
    # Settings that are not given say so with an empty value.
    settings |= {
        name: settings[name] or None
        for name in ("bad_records", "bad_records_columns", "commit_message", "format", "partition_by")
    }
    defaults |= {name: settings[name] for name in options.keys() & settings.keys() - defaults.keys()}
    expected = {name: options[name].default for name in defaults} | {"table": inspect.Parameter.empty}
    assert defaults == expected
    assert options["timeout"].default == settings["timeout_s"]
