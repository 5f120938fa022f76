"""A type may be in a schema exactly if pylance opens the table: it panics on any other."""

from pathlib import Path

import lance
import pytest

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_table.entry import Committed, Invalid, Result
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, changed, column, creation, fold_at
from tests.foreign import file_as_others_write
from tests.oracle.types import OPENED, REFUSED


def created(folder: Path, kind: str) -> Result:
    """What becomes of a table with a single column of this type."""
    uri = canonical(folder)
    table = TableWriter(StoredTable(FORMAT, Versions(open_storage(uri), FORMAT.folder, FORMAT.detect)))
    envelope = changed(creation([column("c", 0, kind)]), lambda envelope: setattr(envelope, "table", uri))
    return fold_at(table, [envelope], 0)[0].result


def opens(folder: Path) -> bool:
    """Whether pylance shows the table's schema; its panics are not an `Exception`."""
    try:
        return lance.dataset(str(folder)).schema is not None
    except BaseException as error:
        if type(error).__name__ not in {"PanicException", "ArrowInvalid", "OSError", "ValueError"}:
            raise
        return False


@pytest.mark.parametrize("kind", OPENED)
def test_pylance_opens_what_is_folded(kind: str, tmp_path: Path) -> None:
    assert created(tmp_path / "t", kind) == Committed(1)
    assert opens(tmp_path / "t")


@pytest.mark.parametrize("kind", REFUSED)
def test_what_pylance_cannot_open_is_refused(kind: str, tmp_path: Path) -> None:
    assert isinstance(created(tmp_path / "t", kind), Invalid)
    assert created(tmp_path / "t", "int64") == Committed(1)
    (path,) = (tmp_path / "t" / "_versions").glob("*.manifest")
    state = FORMAT.decode(f"_versions/{path.name}", path.read_bytes())
    state.head.fields[0].logical_type = kind
    path.write_bytes(file_as_others_write(state.head, state.transaction))
    assert not opens(tmp_path / "t")
