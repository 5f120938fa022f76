"""An operation, both ways: pylance applies it to one copy of a table, we fold its transaction into another.

pylance's own transaction (from the version that it made) is what we fold, with the files it wrote; then the
two manifests are compared message for message. What may differ is written down here, and nowhere else.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import lance

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import IndexMetadata, IndexSection, Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import decode_bitmap, encode_bitmap
from lakefold_table.entry import Committed
from lakefold_table.lance.indexing.indices import MEM_WAL
from lakefold_table.uri import canonical
from tests.oracle.committing import fold, owned
from tests.oracle.manifests import manifest_files, read_sections

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lakefold_table.entry import Result

Act = Callable[[lance.LanceDataset], object]
MARKS = "lakefold."
LINEAGE = ("_row_created_at_version", "_row_last_updated_at_version")
WRITTEN_DIFFERENTLY: Final = (
    # When, by whom and from which file layout; the offsets of sections follow from the layout.
    "timestamp",
    "writer_version",
    "transaction_file",
    "transaction_section",
    "transaction_section_before_14",
    "index_section",
)
"""Fields of the manifest that may differ. Besides: our marks in table_metadata, a version's own uuid and
properties in its transaction, and what `comparable` leaves out of an index."""


@dataclass(frozen=True)
class Version:
    """A version as its file says: the manifest, its indices, its transaction."""

    manifest: Manifest
    indices: IndexSection
    transaction: Transaction | None


@dataclass(frozen=True)
class Both:
    """The table that pylance changed, the table that we changed, and our answer."""

    theirs: Path
    ours: Path
    result: Result
    transaction: Transaction
    differences: dict[str, tuple[object, object]] = field(default_factory=dict)


def version_of(table: Path) -> Version:
    """The newest version of a table, by its layout alone."""
    return version_in(manifest_files(table)[-1])


def version_in(path: Path) -> Version:
    """The version in a manifest file."""
    sections = read_sections(path)
    return Version(
        Manifest.FromString(sections.manifest),
        IndexSection.FromString(sections.index or b""),
        None if sections.transaction is None else Transaction.FromString(sections.transaction),
    )


def both_ways(
    table: Path,
    act: Act,
    *,
    between: Act | None = None,
    affected_rows: Mapping[int, bytes] | None = None,
    change: Callable[[Envelope], object] | None = None,
    offset: int = 0,
    packed: bool = False,
) -> Both:
    """Has pylance do `act` to a copy of `table`, and us fold the transaction that it made into another.

    `between`: done by pylance to both copies after the operation's dataset was opened, so that the operation
    is built on an older version; pylance's `act` must be one that rebases by itself. `affected_rows` go into
    the envelope; `change` edits the envelope before it is folded, at `offset`, its fragments `packed` or not.
    """
    theirs, ours = table.with_name(table.name + "-theirs"), table.with_name(table.name + "-ours")
    shutil.copytree(table, theirs)
    stale = lance.dataset(str(theirs))
    read = stale.version
    if between is not None:
        between(lance.dataset(str(theirs)))
    shutil.copytree(theirs, ours)
    act(stale)
    transaction = version_of(theirs).transaction
    assert transaction is not None
    copy_files(theirs, ours)
    envelope = Envelope(table=canonical(str(ours)))
    envelope.lance.CopyFrom(transaction)
    envelope.lance.read_version = read if between is not None else transaction.read_version
    for number, rows in (affected_rows or {}).items():
        envelope.affected_rows[number] = rows
    if change is not None:
        change(envelope)
    (result,) = fold(owned(ours), [envelope], offset, encoded=packed)
    return Both(theirs, ours, result, transaction, differences(version_of(theirs), version_of(ours)))


def check_agreement(both: Both) -> None:
    """We committed, the manifests agree, and pylance reads and extends our table as it does its own."""
    assert isinstance(both.result, Committed), both.result
    assert both.differences == {}
    theirs, ours = lance.dataset(str(both.theirs)), lance.dataset(str(both.ours))
    ours.validate()
    assert ours.count_rows() == theirs.count_rows()
    extra = ["_rowid", *(LINEAGE if ours.has_stable_row_ids else ())]
    columns = [*ours.schema.names, *extra]
    assert ours.to_table(columns=columns).equals(theirs.to_table(columns=columns))
    for expression in _searches(ours, version_of(both.ours)):
        actual = ours.to_table(filter=expression, columns=columns)
        assert actual.num_rows
        assert actual.sort_by("_rowid").equals(
            theirs.to_table(filter=expression, columns=columns).sort_by("_rowid")
        )
    for table in (theirs, ours):
        lance.write_dataset(table.head(2), table, mode="append")
    assert differences(version_of(both.theirs), version_of(both.ours)).keys() <= {"fragments"}
    lance.dataset(str(both.ours)).validate()


def _searches(dataset: lance.LanceDataset, version: Version) -> list[str]:
    """For each index on a column a condition that it answers, for a value that is there."""
    names = {field.id: field.name for field in version.manifest.fields if field.parent_id < 0}
    indexed = {names[index.fields[0]] for index in version.indices.indices if index.fields[:1]}
    actual = []
    for name in sorted(indexed):
        values = dataset.to_table(columns=[name], filter=f"{name} is not null", limit=1)[name].to_pylist()
        actual += [f"{name} = {value!r}" for value in values]
    return actual


def differences(theirs: Version, ours: Version) -> dict[str, tuple[object, object]]:
    """Where two versions differ, by the field's name: what theirs says, what ours says. Empty: they agree."""
    single, other = Manifest(), Manifest()
    single.CopyFrom(theirs.manifest)
    other.CopyFrom(ours.manifest)
    for manifest in (single, other):
        for name in WRITTEN_DIFFERENTLY:
            manifest.ClearField(name)
        for key in [key for key in manifest.table_metadata if key.startswith(MARKS)]:
            del manifest.table_metadata[key]
        # A map in pylance, written in any order.
        manifest.base_paths.sort(key=lambda base: base.id)
    names = {descriptor.name for descriptor, _ in (*single.ListFields(), *other.ListFields())}
    values: dict[str, tuple[object, object]] = {}
    for name in sorted(names):
        left, right = getattr(single, name), getattr(other, name)
        if _plain(left) != _plain(right):
            values[name] = (left, right)
    indices = [comparable(index) for index in theirs.indices.indices]
    if indices != [comparable(index) for index in ours.indices.indices]:
        values["indices"] = (theirs.indices, ours.indices)
    return values


def comparable(index: IndexMetadata) -> IndexMetadata:
    """An index without what may differ.

    pylance writes some bitmaps with runs, and it gives the write-ahead log's entry a random uuid and the time
    of day whenever it moves.
    """
    plain = IndexMetadata()
    plain.CopyFrom(index)
    if index.fragment_bitmap:
        plain.fragment_bitmap = encode_bitmap(decode_bitmap(index.fragment_bitmap))
    if index.name == MEM_WAL:
        plain.ClearField("uuid")
        plain.ClearField("created_at")
    return plain


def _plain(value: object) -> object:
    """Maps and lists of messages compare by what they hold."""
    if hasattr(value, "items"):
        return dict(value.items())
    return list(value) if hasattr(value, "__iter__") and not isinstance(value, str | bytes) else value


def copy_files(source: Path, target: Path) -> None:
    """Copies all files of a table but its versions: what a writer leaves before it sends its transaction."""
    for path in source.rglob("*"):
        inside = path.relative_to(source)
        if path.is_dir() or inside.parts[0] in {"_versions", "_transactions"}:
            continue
        copy = target / inside
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
