"""`lakefold.upsert` and `lakefold.delete` through a real log: several writers at once, and the verbs."""

from __future__ import annotations

import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import lance
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefold
from lakefold.cli import run
from lakefold_ingest.operations.upsert import UpsertRows
from tests.integration.own_log import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_ingest.merge.clauses import Clause
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope

WRITERS, BATCHES, KEYS = 4, 8, 40


def rows(ids: list[int], name: str) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [name] * len(ids)})


def content(table: Path) -> dict[int, str]:
    """The name of each id; each id must be in one row."""
    read = lance.dataset(table).to_table().to_pylist()
    names = {row["id"]: row["name"] for row in read}
    assert len(names) == len(read)
    return names


def test_rows_are_merged_and_deleted_by_their_keys(options: lakefold.WriteOptions, tmp_path: Path) -> None:
    table = tmp_path / "t"
    created = lakefold.upsert(table, rows([1, 2, 3], "first"), keys=["id"], **options)
    assert (created.kind, created.rows_added) == ("committed", 3)
    changes = pl.DataFrame({"id": [3, 4, 3], "name": ["older", "new", "newer"], "at": [1, 1, 2]})
    merged = lakefold.upsert(table, changes, keys="id", order_by="at", app_id="a", batch_id=0, **options)
    assert (merged.kind, merged.rows_added, merged.rows_deleted) == ("committed", 2, 1)
    again = lakefold.upsert(table, changes, keys="id", order_by="at", app_id="a", batch_id=0, **options)
    assert (again.kind, again.version) == ("duplicate", merged.version)
    assert content(table) == {1: "first", 2: "first", 3: "newer", 4: "new"}
    clauses: list[Clause] = [lakefold.MatchedDelete("source.name = 'gone'"), lakefold.MatchedUpdate()]
    batch = pa.concat_tables([rows([1], "gone"), rows([2, 9], "kept")])
    lakefold.upsert(table, batch, keys=["id"], clauses=clauses, **options)
    assert content(table) == {2: "kept", 3: "newer", 4: "new"}
    assert lakefold.delete(table, keys=["id"], rows=rows([4, 4, 8], ""), **options).rows_deleted == 1
    assert lakefold.delete(table, where="name = 'newer'", **options).rows_deleted == 1
    assert lakefold.delete(table, where="name = 'newer'", **options).kind == "empty"
    assert content(table) == {2: "kept"}


def test_an_upsert_that_fails_leaves_the_columns_as_they_were(
    options: lakefold.WriteOptions, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    created = lakefold.append(table, rows([1], "first"), **options)
    wider = rows([2, 2], "new").append_column("more", [[1, 2]])
    given: lakefold.WriteOptions = {**options, "merge_schema": True}
    with pytest.raises(lakefold.BadKeysError):
        lakefold.upsert(table, wider, keys="id", **given)
    assert lance.dataset(table).version == created.version
    lakefold.upsert(table, wider.slice(1), keys="id", **given)
    assert lance.dataset(table).schema.names == ["id", "name", "more"]


def test_appends_beside_an_upsert_delay_it_once(
    options: lakefold.WriteOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time the upsert has been built, another writer's append is committed before it is sent."""
    table, build, appended = tmp_path / "t", UpsertRows.build, [[7, 8], [9, 10]]
    lakefold.append(table, rows([1, 2], "first"), **options)

    def overtaken(operation: UpsertRows, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        envelope = build(operation, view, key, settings)
        lakefold.append(table, rows(appended.pop(0), "appended"), **options)
        return envelope

    monkeypatch.setattr(UpsertRows, "build", overtaken)
    upserted = lakefold.upsert(table, rows([2, 3, 7, 9], "upserted"), keys=["id"], **options)
    assert (upserted.kind, upserted.attempts, appended) == ("committed", 2, [])
    # The log had 7 before the upsert, and 9 after it.
    read = sorted((row["id"], row["name"]) for row in lance.dataset(table).to_table().to_pylist())
    assert read == [
        (1, "first"),
        (2, "upserted"),
        (3, "upserted"),
        (7, "upserted"),
        (8, "appended"),
        (9, "appended"),
        (9, "upserted"),
        (10, "appended"),
    ]


def test_batches_that_can_not_be_merged_are_refused(options: lakefold.WriteOptions, tmp_path: Path) -> None:
    table = tmp_path / "t"
    with pytest.raises(lakefold.NotATableError):
        lakefold.delete(table, where="id = 1", **options)
    lakefold.append(table, rows([1], "first"), **options)
    with pytest.raises(lakefold.BadKeysError, match="id=7") as caught:
        lakefold.upsert(table, rows([7, 7], "x"), keys=["id"], **options)
    assert caught.value.examples == ({"id": 7},)
    unawaited: lakefold.WriteOptions = {**options, "wait": "log"}
    with pytest.raises(lakefold.InvalidError, match="have to wait for their outcome"):
        lakefold.upsert(table, rows([1], "x"), keys=["id"], **unawaited)
    with pytest.raises(lakefold.InvalidError, match="either a predicate, or the key columns"):
        lakefold.delete(table, where="id = 1", keys=["id"], **options)
    assert content(table) == {1: "first"}


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable"])
def test_writers_that_change_the_same_rows_at_once_lose_no_change(
    options: lakefold.WriteOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stable: bool
) -> None:
    """The batches in the order of their versions leave what the table has, and each row is there once.

    The first batches of all writers change the same rows, and are built before any of them is sent.
    """
    table, build, built = tmp_path / "t", UpsertRows.build, threading.Barrier(WRITERS, timeout=PATIENCE_S)
    first_builds = iter(range(WRITERS))

    def build_together(
        operation: UpsertRows, view: View, key: Key, settings: WriteSettings
    ) -> Envelope | None:
        envelope = build(operation, view, key, settings)
        if next(first_builds, None) is not None:
            built.wait()
        return envelope

    monkeypatch.setattr(UpsertRows, "build", build_together)
    new_table: lakefold.WriteOptions = {**options, "stable_row_ids": stable}
    lakefold.append(table, rows(list(range(0, KEYS, 2)), "first"), **new_table)

    def write(writer: int) -> list[tuple[int, list[int], str, int]]:
        chosen, done = random.Random(writer), []
        for step in range(BATCHES):
            ids, name = chosen.sample(range(KEYS), 4) if step else [0, 1, 2, 3], f"{writer} {step}"
            report = (
                lakefold.delete(table, keys=["id"], rows=rows(ids, ""), **options)
                if step % 4 == 3
                else lakefold.upsert(
                    table, rows(ids, name), keys=["id"], app_id=f"w{writer}", batch_id=step, **options
                )
            )
            assert report.kind in {"committed", "empty"}
            if report.version:
                done.append((report.version, ids, "" if step % 4 == 3 else name, report.attempts))
        return done

    with ThreadPoolExecutor(WRITERS) as pool:
        batches = sorted(batch for part in pool.map(write, range(WRITERS)) for batch in part)
    assert max(attempts for *_, attempts in batches) > 1
    assert content(table) == replayed(table, batches)


def replayed(table: Path, batches: list[tuple[int, list[int], str, int]]) -> dict[int, str]:
    """What the batches leave in the order of their versions.

    A delete takes the rows that its own version had found: a row that was inserted between its read version
    and its own stays, so its version says which rows were there. Batches that share a version change
    different rows.
    """
    model = dict.fromkeys(range(0, KEYS, 2), "first")
    for version, shared in groupby(batches, key=itemgetter(0)):
        deleted: set[int] = set()
        for _, ids, name, _ in shared:
            if name:
                model |= dict.fromkeys(ids, name)
            else:
                deleted |= set(ids)
        left = set(lance.dataset(table, version=version).to_table()["id"].to_pylist())
        assert set(model) - left <= deleted
        model = {number: name for number, name in model.items() if number in left}
    return model


def test_the_verbs_merge_and_delete_rows_of_files(
    options: lakefold.WriteOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = str(tmp_path / "t")
    words = ["--bootstrap-servers", options["bootstrap_servers"] or ""]
    words += ["--transactions-topic", options["transactions_topic"] or "", "--json"]
    words += ["--outcomes-topic", options["outcomes_topic"] or ""]
    pq.write_table(rows([1, 2], "first"), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("id,name,at\n2,older,1\n3,new,1\n2,newer,2\n")
    (tmp_path / "ids.jsonl").write_text('{"id": 3}\n')

    def called(*given: str) -> tuple[int, dict[str, object]]:
        code = run([*given, *words])
        return code, json.loads(capsys.readouterr().out)

    assert called("upsert", table, str(tmp_path / "a.parquet"), "--keys", "id")[0] == 0
    code, document = called("upsert", table, str(tmp_path / "b.csv"), "--keys", "id")
    assert code == 2
    assert "at (int64) is not in the table" in str(document)
    key = ["--app-id", "loader", "--batch-id", "3"]
    code, document = called(
        "upsert", table, str(tmp_path / "b.csv"), "--keys", "id", "--order-by", "at", *key
    )
    assert (code, document["rows_added"], document["rows_deleted"], document["app_id"]) == (0, 2, 1, "loader")
    assert content(tmp_path / "t") == {1: "first", 2: "newer", 3: "new"}
    code, document = called("delete", table, str(tmp_path / "ids.jsonl"), "--keys", "id")
    assert (code, document["kind"], document["rows_deleted"]) == (0, "committed", 1)
    code, document = called("delete", table, "--where", "id = 1")
    assert (code, document["rows_deleted"]) == (0, 1)
    words += ["--keys", "id", "--update-columns", "name", "--when-matched-update", "target.id = 9"]
    code, document = called("upsert", table, str(tmp_path / "a.parquet"))
    assert (code, document["kind"]) == (0, "empty")
    del words[-6:]
    whole = [
        "--when-not-matched-by-source-update",
        "true",
        "--when-not-matched-by-source-set",
        "name=upper('x')",
    ]
    assert called("upsert", table, str(tmp_path / "ids.jsonl"), "--keys", "id", *whole)[0] == 0
    assert content(tmp_path / "t") == {2: "X"}
    assert called("upsert", table, str(tmp_path / "ids.jsonl"), "--keys", "id", *whole[:2])[0] == 2
    assert called("delete", table, "--where", "nope = 1")[0] == 2
    assert called("delete", table)[0] == 2
    assert content(tmp_path / "t") == {2: "X"}
