"""What the console's page gets of a table, in both formats: the same figures as the verbs print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lakefold import cli
from lakefold.web.activity import Activity
from lakefold.web.documents import (
    fragments_document,
    schemas_document,
    table_document,
    versions_document,
)
from lakefold.web.tables import TableCatalog
from lakefold_reader.opening import open_source
from lakefold_reader.snapshot.history import history_page
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical
from tests.delta_logs.actions import PROTOCOL, data_file, metadata, text
from tests.tables import Folded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPTIONS: dict[str, str] = {}


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
    found: list[dict[str, object]] = []
    last: int | None = None
    pages = 0
    while pages == 0 or last is not None:
        page = versions_document(uri, OPTIONS, branch="", last=last, most=2)
        found += page["versions"]
        last = page["older"]
        pages += 1
    assert found == printed(capsys, "log", uri)
    assert pages > 1


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
    found = {row["table"]: row for row in page["tables"]}
    assert found.keys() == {lance, delta}
    assert [found[uri]["format"] for uri in (lance, delta)] == ["lance", "delta"]
    assert (found[lance]["version"], found[lance]["rows"], found[lance]["small_fragments"]) == (6, 25, 5)
    assert (found[delta]["version"], found[delta]["rows"], found[delta]["consumers"]) == (1, 2, [])
    assert [row["name"] for row in catalog.page(0, 50, "DELTA")["tables"]] == ["delta"]
    assert catalog.page(1, 1, order="name")["total"] == 2


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
