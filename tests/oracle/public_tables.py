"""Delta tables that others have published to be judged against, and what we refuse of them.

They lie in `../shared/corpora` beside the project, or in the folder that `LAKEFOLD_CORPORA` names: Delta's
acceptance tests with the rows of each version, and golden tables. They are no part of the project.
"""

from __future__ import annotations

import os
import re
import tarfile
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

import lakefold

if TYPE_CHECKING:
    from collections.abc import Iterable

PROJECT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("LAKEFOLD_CORPORA") or PROJECT / "../shared/corpora")
ARCHIVES = ("delta-acceptance-tests.tar.xz", "golden-tables.tar.xz")
MISSING = f"{FOLDER} lacks the public tables {' and '.join(ARCHIVES)} (LAKEFOLD_CORPORA names the folder)"
LOG = "_delta_log"
_VERSION = re.compile(r"(\d{20})\.(?:json|checkpoint[.\w-]*\.parquet)")


class Refusal(NamedTuple):
    """What a table has that is not read. `error`: how we say it; `reason`: as in the documentation."""

    error: str
    reason: str


NO_SCHEMA = Refusal("has no schema: its metaData has no schemaString", "metadata without a schema")
NO_METADATA = Refusal("has no metaData action", "no metadata")
NO_PROTOCOL = Refusal("has no protocol action", "no protocol")
GAP = Refusal("the log has a gap", "a gap in the log")
CLEANED_UP = Refusal("was cleaned up, and only older versions need it", "data files that were cleaned up")
REFUSED: dict[str, Refusal] = {
    "canonicalized-paths-normal-a": NO_SCHEMA,
    "canonicalized-paths-normal-b": NO_SCHEMA,
    "canonicalized-paths-special-a": NO_SCHEMA,
    "canonicalized-paths-special-b": NO_SCHEMA,
    "checkpoint": NO_SCHEMA,
    "corrupted-last-checkpoint": NO_SCHEMA,
    "data-reader-absolute-paths-escaped-chars": NO_METADATA,
    "delete-re-add-same-file-different-transactions": NO_SCHEMA,
    "deltalog-commit-info": NO_SCHEMA,
    "deltalog-getChanges": NO_SCHEMA,
    "deltalog-invalid-protocol-version": NO_SCHEMA,
    "deltalog-state-reconstruction-from-checkpoint-missing-metadata": NO_METADATA,
    "deltalog-state-reconstruction-from-checkpoint-missing-protocol": NO_PROTOCOL,
    "deltalog-state-reconstruction-without-metadata": NO_METADATA,
    "deltalog-state-reconstruction-without-protocol": NO_PROTOCOL,
    "update-deleted-directory": NO_SCHEMA,
    "versions-not-contiguous": GAP,
}
"""Tables of which the newest version is refused, and so is each version or for another reason of these."""
OLDER_REFUSED: dict[str, Refusal] = {"no_replay/delta": CLEANED_UP, "snapshot-vacuumed": CLEANED_UP}
"""Tables of which some older versions are refused."""
UNWRITABLE: dict[str, Refusal] = {
    "generated_columns/delta": Refusal("is generated as", "generatedColumns"),
    "iceberg_compat_v1/delta": Refusal("icebergCompatV1", "icebergCompatV1"),
}
"""Tables to which nothing is appended here, because of a feature."""


@cache
def members() -> dict[str, tuple[str, ...]]:
    """The files of each table by its name, those with its `expected` rows included."""
    tables: dict[str, list[str]] = {}
    for archive in ARCHIVES:
        with tarfile.open(FOLDER / archive) as opened:
            names = [name for name in opened.getnames() if opened.getmember(name).isfile()]
        roots = {name.split(f"/{LOG}/")[0].removeprefix("./") for name in names if f"/{LOG}/" in name}
        for root in roots:
            case = f"{PurePosixPath(root).parent}/" if root.endswith("/delta") else f"{root}/"
            tables[root] = [name for name in names if name.removeprefix("./").startswith(case)]
    return {root: tuple(tables[root]) for root in sorted(tables)}


def names() -> list[str]:
    """The names of all tables, none if they are not there."""
    return list(members()) if all((FOLDER / archive).is_file() for archive in ARCHIVES) else []


def unpacked(table: str, folder: Path) -> Path:
    """A copy of a table below a folder."""
    for archive in ARCHIVES:
        with tarfile.open(FOLDER / archive) as opened:
            chosen = [each for each in opened.getmembers() if each.name in members()[table]]
            opened.extractall(folder, chosen, filter="data")
    return folder / table


def versions(table: Path) -> list[int]:
    """The versions of which the log has a commit or a checkpoint."""
    matches = (_VERSION.fullmatch(path.name) for path in (table / LOG).iterdir())
    return sorted({int(match[1]) for match in matches if match is not None})


def expected(table: Path) -> dict[int | None, Path]:
    """The files with the rows of versions as they were published; None is the newest version."""
    folder = table.parent / "expected"
    parts = folder.iterdir() if table.name == "delta" and folder.is_dir() else ()
    return {
        None if part.name == "latest" else int(part.name.removeprefix("v")): part / "table_content"
        for part in parts
    }


def ours(table: Path, version: int | None = None) -> pa.Table:
    return lakefold.open(table, version).to_arrow()


def of_delta_rs(table: Path, version: int | None = None) -> pa.Table:
    """The rows by delta-rs's query engine: `to_pyarrow_table` returns nulls for mapped columns."""
    opened = DeltaTable(str(table), version=version)
    return pa.table(QueryBuilder().register("t", opened).execute("select * from t").read_all())


def is_whole(table: Path, version: int) -> bool:
    """Whether delta-rs finds all data files of a version."""
    files = DeltaTable(str(table), version=version).file_uris()
    return all(Path(uri.removeprefix("file://")).exists() for uri in files)


def texts(rows: pa.Table, names: Iterable[str]) -> list[str]:
    """The rows as texts, in an order of their own; the members of maps are in an order as well."""
    return sorted(repr(_plain(row)) for row in rows.select(list(names)).to_pylist())


def _plain(value: Any) -> Any:  # noqa: ANN401 - a value of any type
    match value:
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case [*items] if items and all(isinstance(item, tuple) for item in items):
            return sorted(items, key=repr)
        case list():
            return [_plain(item) for item in value]
    return value
