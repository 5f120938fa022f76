"""What the console's page gets of a table, in both formats: the same figures as the verbs print."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance as pylance
import numpy as np
import pyarrow as pa
import pytest

from lakefold import cli
from lakefold.proposals.explanation import Explanation
from lakefold.web import tables
from lakefold.web.activity import Activity
from lakefold.web.documents import (
    fragments_document,
    kept_document,
    schemas_document,
    table_document,
    versions_document,
)
from lakefold.web.evidence import CELLS, FragmentChange, changed_by_others, evidence_document
from lakefold.web.tables import TableCatalog
from lakefold_ingest.formats import FORMATS, read_view, seen_source
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.view import BatchColumns
from lakefold_log.read.outcome_feed import ReportedOutcome
from lakefold_maintenance.planning.policy import MaintenancePolicy
from lakefold_reader.as_json import plain_kept
from lakefold_reader.consumers.expire_versions import plan
from lakefold_reader.consumers.kept_versions import KeptFor, kept_versions
from lakefold_reader.format.snapshots import FragmentRows
from lakefold_reader.formats import in_its_format, on_branch, open_source
from lakefold_reader.snapshot.history import history_page
from lakefold_reader.versions.proposals import ProposalName
from lakefold_table.entry import Committed, Conflict, Entry, Outcome, Rejected
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.format import LanceFormat
from lakefold_table.position import Position
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical
from lakefold_table.versions.versions import Versions
from tests.delta_logs.actions import PROTOCOL, data_file, metadata, text
from tests.delta_merging import FEATURES, VECTORS, DeltaFolding
from tests.merging import Folding, people
from tests.proposals import creation
from tests.tables import LOG, TOPIC, Folded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPTIONS: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _lists_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a list comes before its tables are read, and has no figures then."""
    monkeypatch.setattr(tables, "PATIENCE_S", 120.0)


@pytest.fixture(scope="module")
def lance(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of six versions."""
    folder = tmp_path_factory.mktemp("lake")
    table = Folded(open_storage(canonical(folder / "lance")))
    for number in range(5):
        table.append_ids(range(number * 10, number * 10 + 5))
    return table.uri


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Delta table of two versions, made by `lakefold fold`."""
    folder = tmp_path_factory.mktemp("lake")
    table = folder / "delta"
    for number, actions in enumerate([(PROTOCOL, metadata()), (data_file(table, "a.parquet", 1, 2),)]):
        file = folder / f"{number}.json"
        file.write_bytes(text(actions))
        into = ["--into", str(folder / "log.bin")]
        assert cli.run(["propose", str(table), "--actions", str(file), *into]) == 0
    assert cli.run(["fold", str(table), str(folder / "log.bin"), "--group-max-entries", "1"]) == 0
    return canonical(table)


@pytest.fixture
def catalog(lance: str, delta: str) -> Iterator[TableCatalog]:
    roots = tuple(uri.rpartition("/")[0] for uri in (lance, delta))
    made = TableCatalog(roots, OPTIONS, Activity())
    yield made
    made.close()


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert cli.run([*words, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("kind", ["lance", "delta"])
def test_a_table_has_what_show_prints(
    kind: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = request.getfixturevalue(kind)
    document = table_document(uri, OPTIONS)
    [shown] = printed(capsys, "show", uri)
    same = {name: shown[name] for name in ("version", "rows", "fragments", "schema", "format")}
    assert {name: document[name] for name in same} == same
    assert document["tags"] == document["branches"] == document["consumers"] == []
    assert json.loads(json.dumps(document))


@pytest.mark.parametrize("kind", ["lance", "delta"])
def test_pages_of_versions_are_what_log_prints(
    kind: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = request.getfixturevalue(kind)
    listed: list[dict[str, object]] = []
    last: int | None = None
    pages = 0
    while pages == 0 or last is not None:
        page = versions_document(uri, OPTIONS, branch="", last=last, most=2)
        listed += page["versions"]
        last = page["older"]
        pages += 1
    assert listed == printed(capsys, "log", uri)
    assert pages > 1


def test_versions_are_found_by_app_and_operation(lance: str) -> None:
    """A page continues below the last version that was looked at, or that is shown."""
    every = versions_document(lance, OPTIONS, branch="", last=None, most=9)["versions"]
    appends = [each["version"] for each in every if each["operation"] == "append"]
    first = versions_document(lance, OPTIONS, branch="", last=None, most=2, operation="append")
    assert [each["version"] for each in first["versions"]] == appends[:2]
    assert first["older"] == appends[1] - 1
    none = versions_document(lance, OPTIONS, branch="", last=None, most=9, app="none")
    assert none == {"versions": [], "older": None}


@pytest.mark.parametrize(("kind", "rows"), [("lance", [5] * 5), ("delta", [2])])
def test_fragments_are_counted_by_their_rows(
    kind: str, rows: list[int], request: pytest.FixtureRequest
) -> None:
    document = fragments_document(request.getfixturevalue(kind), OPTIONS)
    assert document["fragments"] == document["small"] == len(rows)
    # From 1 to 9 rows, and none of them deleted.
    assert document["by_rows"][1] == document["by_deleted_share"][0] == len(rows)
    assert sum(document["by_rows"]) == len(rows)
    assert document["bytes"] > 0


@pytest.mark.parametrize("kind", ["lance", "delta"])
def test_a_schema_that_did_not_change_has_no_changes(kind: str, request: pytest.FixtureRequest) -> None:
    document = schemas_document(request.getfixturevalue(kind), OPTIONS, most=3)
    assert document["changes"] == []
    assert document["searched_from"] < document["searched_to"]


def numbers(*columns: pa.Field[Any]) -> pa.Table:
    """A row of these columns of numbers."""
    return pa.table({field.name: pa.array([1], field.type) for field in columns})


def put(folding: Folding | DeltaFolding, rows: pa.Table, *, is_new: bool = False) -> int:
    """Returns the version with these rows. `is_new`: the version before it gets their columns."""
    if is_new:
        view = read_view(canonical(folding.path), OPTIONS, afresh=True)
        assert view is not None
        evolution = FORMATS[view.format].evolution(folding.settings())
        change = evolution.change(view, BatchColumns(rows.schema), seen_source(view.uri, OPTIONS))
        (result,) = folding.fold(change.envelope)
        assert isinstance(result, Committed), result
    committed = folding.put(append_source(RowSource(rows)))
    assert committed is not None
    return committed.version


@pytest.fixture(params=["lance", "delta"])
def evolving(request: pytest.FixtureRequest, tmp_path: Path) -> Folding | DeltaFolding:
    """A table of a column of 32 bits, to which others are added, and which becomes wider."""
    first = numbers(pa.field("a", pa.int32()))
    if request.param == "lance":
        pylance.write_dataset(first, str(tmp_path / "t"))
        return Folding(tmp_path / "t")
    folding = DeltaFolding(tmp_path / "t")
    wider = {"delta.enableTypeWidening": "true"}
    folding.create(first.schema, wider, features=(*FEATURES, "typeWidening"))
    return folding


def test_schema_changes_are_found_in_all_versions_a_page_at_a_time(evolving: Folding | DeltaFolding) -> None:
    a, b, wide = pa.field("a", pa.int32()), pa.field("b", pa.int64()), pa.field("a", pa.int64())
    for _ in range(2):
        put(evolving, numbers(a))
    added_in = put(evolving, numbers(a, b), is_new=True) - 1
    for _ in range(2):
        put(evolving, numbers(a, b))
    widened_in = put(evolving, numbers(wide, b), is_new=True) - 1
    newest = put(evolving, numbers(wide, b))
    uri = canonical(evolving.path)
    added = {"version": added_in, "added": {"b": "int64"}, "removed": {}, "changed": {}, "reordered": False}
    widened = {"version": widened_in, "added": {}, "removed": {}}
    widened |= {"changed": {"a": ["int32", "int64"]}, "reordered": False}
    for most in (1, 2, 3, 5, 200):
        changes: list[dict[str, Any]] = []
        last: int | None = newest
        while last is not None:
            page = schemas_document(uri, OPTIONS, most=most, last=last)
            assert page["searched_to"] == last
            assert last - most <= page["searched_from"] <= last
            changes += page["changes"]
            assert page["older"] is None or page["older"] < last
            last = page["older"]
        assert changes == [widened, added], most
    assert schemas_document(uri, OPTIONS, most=3)["changes"] == [widened]


def test_schema_changes_end_where_versions_are_gone(tmp_path: Path) -> None:
    pylance.write_dataset(numbers(pa.field("a", pa.int32())), str(tmp_path / "t"))
    folding = Folding(tmp_path / "t")
    a, b = pa.field("a", pa.int32()), pa.field("b", pa.int64())
    for _ in range(2):
        put(folding, numbers(a))
    assert put(folding, numbers(a, b), is_new=True) == 5
    uri = canonical(folding.path)
    (tmp_path / "t" / Versions(open_storage(uri), LanceFormat.folder, LanceFormat().detect).path(2)).unlink()
    document = schemas_document(uri, OPTIONS, most=20)
    # The version before the change keeps the schema of one that is gone, so its whole file says which.
    assert [change["version"] for change in document["changes"]] == [4]
    assert [document[name] for name in ("searched_from", "searched_to", "older")] == [3, 5, None]


def test_old_versions_and_their_files_are_counted_by_whom_they_are_kept_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each version but the last replaces all rows, so a data file is needed by one version alone."""
    path = str(tmp_path / "kept")
    for number in range(12):
        pylance.write_dataset(pa.table({"n": [number]}), path, mode="overwrite" if number else "create")
    table = pylance.dataset(path)
    table.tags.create("release", 7)
    table.create_branch("audit", 8)
    uri = canonical(path)
    for name, version in (("nightly", "3"), ("weekly", "3"), ("hourly", "5")):
        assert cli.run(["consumers", uri, "--set", name, version]) == 0
    assert [tag["name"] for tag in table_document(uri, OPTIONS)["tags"]] == ["release"]
    rows = [row for row in kept_of(uri, timedelta(0), 3) if row.versions]
    assert [(row.reason, row.names, row.versions, row.files) for row in rows] == [
        ("removable", (), 2, 2),
        ("tags", ("release",), 1, 1),
        ("branches", ("audit",), 1, 1),
        # Version 4 is kept for these alone; what a consumer has read last counts as well.
        ("consumers", ("nightly", "weekly"), 2, 2),
        ("consumers", ("hourly",), 3, 3),
        ("policy", (), 2, 2),
    ]
    # All data files but the newest version's, each once.
    assert sum(row.files or 0 for row in rows) == 11
    sizes = {file.stat().st_size for file in (tmp_path / "kept" / "data").iterdir()}
    assert [row.bytes for row in rows if row.reason in {"tags", "branches"}] == [*sizes, *sizes]
    ages = (uri, "--older-than", "0s", "--keep", "3")
    assert kept_by_the_verb(capsys, *ages) == [plain_kept(row) for row in kept_of(uri, timedelta(0), 3)]
    [would] = printed(capsys, "cleanup", *ages, "--dry-run")
    assert [would[f"removed_{name}"] for name in ("versions", "data_files", "bytes")] == [
        rows[0].versions,
        rows[0].files,
        rows[0].bytes,
    ]
    assert printed(capsys, "cleanup", *ages)[0]["removed_versions"] == 2
    assert [row.versions for row in kept_of(uri, timedelta(0), 3)] == [0, 1, 1, 2, 3, 2]


def kept_by_the_verb(capsys: pytest.CaptureFixture[str], *words: str) -> Any:  # noqa: ANN401 - JSON
    [document] = printed(capsys, "cleanup", *words, "--kept")
    return document["kept"]


def kept_of(uri: str, age: timedelta, keep: int) -> list[KeptFor]:
    return in_its_format(open_source(uri), lambda source: kept_versions(source, plan(source, age, keep=keep)))


def test_the_page_counts_by_the_tables_policy_as_the_verb_does_by_the_same_ages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Folded(open_storage(canonical(tmp_path / "kept")))
    for number in range(3):
        table.append_ids([number])
    assert cli.run(["consumers", table.uri, "--set", "nightly", "2"]) == 0
    document = kept_document(table.uri, OPTIONS)
    # The versions of these tests are older than the policy's age; each data file is in the newest version.
    assert [(row["reason"], row["names"], row["versions"], row["files"]) for row in document["kept"]] == [
        ("removable", [], 1, 0),
        ("tags", [], 0, 0),
        ("branches", [], 0, 0),
        ("consumers", ["nightly"], 2, 0),
        ("policy", [], 0, 0),
    ]
    policy = MaintenancePolicy()
    ages = (table.uri, "--older-than", f"{policy.version_age.days}d", "--keep", str(policy.min_versions))
    assert document["kept"] == kept_by_the_verb(capsys, *ages)
    assert cli.run(["cleanup", *ages, "--kept"]) == 0
    assert "nightly" in capsys.readouterr().out


def test_many_consumers_share_the_last_row(tmp_path: Path) -> None:
    path = str(tmp_path / "many")
    for number in range(12):
        pylance.write_dataset(pa.table({"n": [number]}), path, mode="overwrite" if number else "create")
    for number in range(1, 9):
        assert cli.run(["consumers", path, "--set", f"c{number}", str(number)]) == 0
    rows = [row for row in kept_of(canonical(path), timedelta(0), 1) if row.reason == "consumers"]
    assert [row.names for row in rows] == [("c1",), ("c2",), ("c3",), ("c4",), ("c5", "c6", "c7", "c8")]
    assert [row.files for row in rows] == [1, 1, 1, 1, 7]


def test_files_of_old_versions_that_no_clean_up_would_remove_are_not_known(
    delta: str, tmp_path: Path
) -> None:
    """A clean-up keeps all versions of a Delta table after its last checkpoint."""
    document = kept_document(delta, OPTIONS)
    rows = {row["reason"]: (row["versions"], row["files"], row["bytes"]) for row in document["kept"]}
    # The first version is kept for the policy.
    assert rows["policy"] == (1, None, None)
    assert rows["removable"] == (0, 0, 0)
    assert "A dash: not known" in document["note"]
    # A tagged version is left out, and the others are counted.
    table = Folded(open_storage(canonical(tmp_path / "tagged")))
    for number in range(3):
        table.append_ids([number])
    pylance.dataset(table.uri).tags.create("release", 2)
    document = kept_document(table.uri, OPTIONS)
    [removable] = [row for row in document["kept"] if row["reason"] == "removable"]
    assert removable["versions"] == 2
    assert removable["bytes"] > 0
    assert "A dash: not known" not in document["note"]


def conflicting(folding: Folding | DeltaFolding, others: str) -> Explanation:
    """A refused Delete of rows 10 to 14. Before it was built row 9 was deleted, and since then `others`."""
    folding.put(DeleteWhere("id = 9"))
    built = [folding.build(DeleteWhere(where)) for where in (others, "id >= 10 and id < 15")]
    first, second = (envelope for envelope in built if envelope is not None)
    folding.fold(first)
    (result,) = folding.fold(second)
    assert isinstance(result, Rejected), result
    position = Position(LOG, 9, TOPIC)
    explanation = Explanation(canonical(folding.path), ProposalName("9", 9), "")
    explanation.outcomes.append(Outcome(position, explanation.table, result))
    explanation.proposal = Entry(position, 0, second, 0, BUILT_IN.proposal(second))
    return explanation


def shown(explanation: Explanation) -> dict[str, Any] | None:
    return on_branch(explanation.table, None, OPTIONS, lambda source: evidence_document(source, explanation))


@pytest.fixture(params=["lance", "delta"])
def folding(request: pytest.FixtureRequest, tmp_path: Path) -> Folding | DeltaFolding:
    """A table with two fragments of 20 rows."""
    if request.param == "lance":
        pylance.write_dataset(people(list(range(40))), str(tmp_path / "t"), max_rows_per_file=20)
        return Folding(tmp_path / "t")
    folding = DeltaFolding(tmp_path / "t")
    folding.create(people([0]).schema, VECTORS)
    for start in (0, 20):
        folding.append(people(list(range(start, start + 20))))
    return folding


def test_a_conflict_is_shown_by_the_rows_that_either_and_both_changed(
    folding: Folding | DeltaFolding,
) -> None:
    conflict = conflicting(folding, "id in (8, 12, 13)")
    document = shown(conflict)
    assert document is not None
    assert (document["note"], document["left_out"]) == ("", 0)
    [fragment] = document["fragments"]
    assert (fragment["rows"], fragment["cells"], fragment["state"]) == (20, 20, "changed")
    assert fragment["ours"] == {"rows": 5, "cells": [[10, 15]]}
    assert fragment["others"] == {"rows": 3, "cells": [[8, 9], [12, 14]]}
    assert fragment["both"] == {"rows": 2, "cells": [[12, 14]]}
    # Without the proposal, what others changed is known all the same.
    conflict.proposal = None
    document = shown(conflict)
    assert document is not None
    assert document["fragments"] == [] or document["fragments"][0]["ours"] is None
    json.dumps(document)
    conflict.outcomes[:] = [replace(conflict.outcomes[0], result=Committed(3))]
    assert shown(conflict) is None


def test_a_fragment_that_others_removed_is_in_conflict_where_the_proposal_changes_it(
    folding: Folding | DeltaFolding,
) -> None:
    document = shown(conflicting(folding, "id < 20"))
    assert document is not None
    [fragment] = document["fragments"]
    assert (fragment["rows"], fragment["state"]) == (20, "removed")
    assert fragment["others"] == {"rows": 19, "cells": [[0, 9], [10, 20]]}
    assert fragment["both"] == fragment["ours"] == {"rows": 5, "cells": [[10, 15]]}


def test_what_others_changed_is_unknown_if_one_of_the_two_versions_is_gone(tmp_path: Path) -> None:
    pylance.write_dataset(people(list(range(40))), str(tmp_path / "t"), max_rows_per_file=20)
    conflict = conflicting(Folding(tmp_path / "t"), "id in (8, 12, 13)")
    [outcome] = conflict.outcomes
    assert isinstance(outcome.result, Rejected)
    evidence = outcome.result.conflict
    versions = Versions(open_storage(conflict.table), LanceFormat.folder, LanceFormat().detect)
    for gone in (evidence.other_version - 1, evidence.other_version):
        file = tmp_path / "t" / versions.path(gone)
        file.rename(tmp_path / "aside")
        # Without rows in the evidence it isn't known which rows met.
        for rows, both in ((evidence.row_addresses, {"rows": 2, "cells": [[12, 14]]}), ((), None)):
            result = Rejected(replace(evidence, fragment_ids=(0,), row_addresses=rows))
            conflict.outcomes[:] = [replace(outcome, result=result)]
            document = shown(conflict)
            assert document is not None
            [fragment] = document["fragments"]
            assert (fragment["rows"], fragment["state"], fragment["others"]) == (20, "unknown", None)
            assert fragment["ours"] == {"rows": 5, "cells": [[10, 15]]}
            assert fragment["both"] == both
            assert document["note"] == f"Version {gone} can't be read any more."
        (tmp_path / "aside").rename(file)


@pytest.mark.parametrize("rows", [7, 200, 1_001])
def test_a_removed_fragment_is_drawn_without_the_rows_deleted_before(rows: int) -> None:
    deleted = np.array([row for row in range(rows) if row % 3 == 0 or row > rows // 2], np.uint32)
    live = np.setdiff1d(np.arange(rows), deleted)
    cells = sorted({int(row) * min(CELLS, rows) // rows for row in live})
    change = changed_by_others(FragmentChange(FragmentRows(rows, deleted), None), rows)
    assert change is not None
    assert change["rows"] == len(live)
    assert [cell for start, end in change["cells"] for cell in range(start, end)] == cells


def test_a_removed_fragment_of_a_billion_rows_is_drawn_in_no_memory() -> None:
    rows = 10**9
    deleted = np.arange(rows // 2, rows // 2 + 10, dtype=np.uint32)
    tracemalloc.start()
    try:
        change = changed_by_others(FragmentChange(FragmentRows(rows, deleted), None), rows)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert change == {"rows": rows - 10, "cells": [[0, CELLS]]}
    assert most < 100_000


def test_fields_in_conflict_are_named(lance: str, delta: str) -> None:
    for uri, evidence, versions in (
        (lance, Conflict(retryable=True, message="", other_version=3, field_ids=(0,)), [2, 3]),
        (delta, Conflict(retryable=True, message="", other_version=1, keys=("x", "delta.p")), [0, 1]),
    ):
        explanation = Explanation(uri, ProposalName("9", 9), "")
        explanation.outcomes.append(Outcome(Position(LOG, 9, TOPIC), uri, Rejected(evidence)))
        document = shown(explanation)
        assert document is not None
        assert (document["fields"], document["versions"]) == (["id" if uri == lance else "x"], versions)
        explanation.outcomes[:] = [
            replace(each, result=Rejected(replace(evidence, other_version=99)))
            for each in explanation.outcomes
        ]
        document = shown(explanation)
        assert document is not None
        assert document["note"] == "Versions 98 and 99 can't be read any more."


def test_a_creation_that_came_second_was_built_on_no_version(lance: str) -> None:
    explanation = Explanation(lance, ProposalName("9", 9), "")
    position, envelope = Position(LOG, 9, TOPIC), creation(lance)
    explanation.proposal = Entry(position, 0, envelope, 0, BUILT_IN.proposal(envelope))
    result = Rejected(Conflict(retryable=False, message="the table exists already", other_version=2))
    explanation.outcomes.append(Outcome(position, lance, result))
    document = shown(explanation)
    assert document is not None
    assert (document["note"], document["fragments"], document["fields"]) == ("", [], [])


def test_a_page_passes_over_versions_that_are_gone(tmp_path: Path) -> None:
    table = Folded(open_storage(canonical(tmp_path / "t")))
    for number in range(5):
        table.append_ids([number])
    for gone in (3, 4):
        (tmp_path / "t" / table.versions.path(gone)).unlink()
    source = open_source(table.uri)
    assert [row.version for row in history_page(source, None, 10)] == [6, 5, 2, 1]
    assert [row.version for row in history_page(source, 4, 1)] == [2]
    assert [row.version for row in history_page(source, 99, 2)] == [6, 5]


def test_the_list_has_both_formats_and_finds_by_name(catalog: TableCatalog, lance: str, delta: str) -> None:
    catalog.refresh_names()
    page = catalog.page(0, 50, order="name")
    listed = {row["table"]: row for row in page["tables"]}
    assert listed.keys() == {lance, delta}
    assert [listed[uri]["format"] for uri in (lance, delta)] == ["lance", "delta"]
    assert (listed[lance]["version"], listed[lance]["rows"], listed[lance]["small_fragments"]) == (6, 25, 5)
    assert (listed[delta]["version"], listed[delta]["rows"], listed[delta]["consumers"]) == (1, 2, [])
    assert [row["name"] for row in catalog.page(0, 50, "DELTA")["tables"]] == ["delta"]
    assert catalog.page(1, 1, order="name")["total"] == 2


def test_a_branch_that_a_writer_names_by_its_folder_is_no_table_of_the_list(tmp_path: Path) -> None:
    uri, activity = canonical(tmp_path / "t"), Activity()
    Folded(open_storage(uri))
    tree, branch = canonical(tmp_path / "tree" / "t"), f"{uri}/tree/audit"
    catalog = TableCatalog((canonical(tmp_path),), OPTIONS, activity)
    try:
        catalog.refresh_names()
        for number, table in enumerate((branch, tree)):
            outcome = Outcome(Position(LOG, number, TOPIC), table, Committed(2))
            activity.add([ReportedOutcome(outcome, 0)])
        assert [row["table"] for row in catalog.page(0, 10, order="name")["tables"]] == [uri, tree]
        catalog.refresh_names()
        assert catalog.count == 2
    finally:
        catalog.close()


def test_a_table_that_can_not_be_read_is_a_row_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "bad" / "_versions").mkdir(parents=True)
    (tmp_path / "bad" / "_versions" / "1.manifest").write_bytes(b"no manifest")
    catalog = TableCatalog((canonical(tmp_path),), OPTIONS, Activity())
    try:
        catalog.refresh_names()
        [row] = catalog.page(0, 10)["tables"]
    finally:
        catalog.close()
    assert row["name"] == "bad"
    assert row["error"]
    assert not row["loading"]


def test_only_tables_below_the_roots_are_shown(catalog: TableCatalog, lance: str) -> None:
    assert catalog.has(lance)
    assert not catalog.has("file:///etc")
    assert not catalog.has(f"{lance}/../../x")
    assert not catalog.has("<script>")
