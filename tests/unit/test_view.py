"""The driver's view of a table is its newest version, and trusts only marks that a committer made for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakefold_ingest.formats import newest, note_published, read_view
from lakefold_ingest.lance.view import LanceView
from lakefold_ingest.proposals.key import Key
from lakefold_table.errors import NotATableError
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.manifests.naming import Scheme
from lakefold_table.marks.batches import AppMark
from lakefold_table.marks.marks import Marks
from lakefold_table.position import LogId, Position
from lakefold_table.storage import open_storage
from lakefold_table.storage.local import LocalStorage
from lakefold_table.uri import canonical
from lakefold_table.versions.versions import Versions

POSITION = Position(LogId("cluster", "topic-id", 3), 41, "transactions")


def write(path: Path, number: int, mode: str = "append") -> None:
    lance.write_dataset(pa.table({"n": [number]}), path, mode=mode)


def versions_of(path: Path) -> Versions:
    lance_format = LanceFormat()
    return Versions(open_storage(canonical(path)), lance_format.folder, lance_format.detect)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.integers(1, 70), st.data(), st.sampled_from(Scheme))
def test_the_newest_version_is_found_from_any_older_one(
    tmp_path: Path, count: int, data: st.DataObject, scheme: Scheme
) -> None:
    shutil.rmtree(tmp_path / "_versions", ignore_errors=True)
    (tmp_path / "_versions").mkdir()
    for version in range(1, count + 1):
        (tmp_path / scheme.path(version)).touch()
    known = data.draw(st.integers(1, count))
    assert newest(versions_of(tmp_path), known) == count


def test_a_view_goes_on_with_the_table(tmp_path: Path) -> None:
    uri = canonical(tmp_path / "t")
    assert read_view(uri, {}) is None
    write(tmp_path / "t", 1, "create")
    for version in range(1, 6):
        view = read_view(uri, {})
        assert view is not None
        assert view.version == version
        write(tmp_path / "t", version)
    shutil.rmtree(tmp_path / "t")
    assert read_view(uri, {}) is None
    write(tmp_path / "t", 1, "create")
    again = read_view(uri, {})
    assert again is not None
    assert (again.version, again.marks, again.partition) == (1, Marks(), None)


def test_versions_removed_in_the_middle_are_passed_by_who_looks_afresh(tmp_path: Path) -> None:
    uri = canonical(tmp_path / "t")
    write(tmp_path / "t", 1, "create")
    read_view(uri, {})
    for number in range(5):
        write(tmp_path / "t", number)
    Path(tmp_path / "t" / Scheme.V2.path(2)).unlink()
    stale, fresh = read_view(uri, {}), read_view(uri, {}, afresh=True)
    assert stale is not None
    assert fresh is not None
    assert (stale.version, fresh.version) == (1, 6)


@pytest.mark.parametrize("others", [0, 7])
def test_a_batch_asks_for_few_files_after_an_outcome_however_many_versions_others_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """Eight queries of one process write to the table, and each notes its own version."""
    uri = canonical(tmp_path / "t")
    write(tmp_path / "t", 0, "create")
    read_view(uri, {})
    for number in range(2, others + 3):
        write(tmp_path / "t", number)
        note_published(uri, {}, number)
    # The newest outcome may be known before an older one.
    note_published(uri, {}, 1)
    asked: list[str] = []
    for method in ("size", "sizes", "get", "get_range", "get_tail", "get_together", "list", "names"):
        _record(monkeypatch, method, asked)
    view = read_view(uri, {})
    assert view is not None
    assert view.version == others + 2
    assert asked == ["size", "size", "get"]


def _record(monkeypatch: pytest.MonkeyPatch, method: str, asked: list[str]) -> None:
    """Adds the name of this method to `asked` for each of its calls."""
    original = getattr(LocalStorage, method)

    def recorded(storage: LocalStorage, *arguments: object, **named: object) -> object:
        asked.append(method)
        return original(storage, *arguments, **named)

    monkeypatch.setattr(LocalStorage, method, recorded)


def test_a_version_that_an_outcome_named_may_be_gone(tmp_path: Path) -> None:
    uri = canonical(tmp_path / "t")
    for number in range(3):
        write(tmp_path / "t", number, "append" if number else "create")
    read_view(uri, {})
    note_published(uri, {}, 9)
    for _ in range(2):
        view = read_view(uri, {})
        assert view is not None
        assert view.version == 3


def test_marks_under_a_foreign_version_bind_but_prove_nothing(tmp_path: Path) -> None:
    write(tmp_path / "t", 1, "create")
    apps = {"app": AppMark(((0, 7),), recent=((7, 1),))}
    marks = Marks(table_id="another", version=1, position=POSITION, apps=apps)
    lance.dataset(tmp_path / "t").update_metadata(dict(marks.encode()))
    view = read_view(canonical(tmp_path / "t"), {})
    assert view is not None
    assert view.folded(Key("app", 7)) is None
    assert view.bound == POSITION
    assert view.partition == 3


def test_field_ids_are_those_of_the_chosen_columns_and_all_below_them(tmp_path: Path) -> None:
    location = pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))])
    schema = pa.schema([("a", pa.int8()), ("place", location), ("x", pa.int8())])
    lance.write_dataset(pa.table({name: [] for name in schema.names}, schema=schema), tmp_path / "t")
    view = read_view(canonical(tmp_path / "t"), {})
    assert isinstance(view, LanceView)
    assert view.schema == schema
    assert view.field_ids(["a", "x"]) == (0, 5)
    assert view.field_ids(["place"]) == (1, 2, 3, 4)


def test_a_path_without_a_table_is_reported(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(NotATableError):
        read_view(canonical(tmp_path), {})
