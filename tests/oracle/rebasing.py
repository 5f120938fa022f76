"""An operation built on an older version: pylance rebases its own, we fold what it would have sent.

A rebased transaction no longer says what its writer built, and Lance's message has no field for the rows
that it deletes. So the operation is done once on a table that no other client changed: that is what a writer
sends. Two runs of the same operation differ in random names of files, nothing else.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import lance

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.lance.rows.deletions import decode_deletions, deletion_path
from lakefold_table.uri import canonical
from tests.oracle.committing import fold, owned
from tests.oracle.operations import Act, Both, Version, copy_files, differences, version_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold_protos.lance.table_pb2 import DataFragment


def built(table: Path, act: Act, name: str = "built") -> tuple[Envelope, Path]:
    """What a writer sends who does `act` on a table, and the copy of the table that holds its files."""
    copy = table.with_name(f"{table.name}-{name}")
    shutil.copytree(table, copy)
    before = {fragment.id: fragment for fragment in version_of(copy).manifest.fragments}
    act(lance.dataset(str(copy)))
    transaction = version_of(copy).transaction
    assert transaction is not None
    envelope = Envelope()
    envelope.lance.CopyFrom(transaction)
    operation = transaction.WhichOneof("operation")
    assert operation in {"delete", "update"}
    for updated_fragment in getattr(transaction, operation).updated_fragments:
        rows = deleted(copy, updated_fragment) - deleted(copy, before[updated_fragment.id])
        if rows:
            envelope.affected_rows[updated_fragment.id] = encode_bitmap(rows)
    removed = (
        transaction.delete.deleted_fragment_ids
        if operation == "delete"
        else transaction.update.removed_fragment_ids
    )
    for number in removed:
        rows = Bitmap(range(before[number].physical_rows)) - deleted(copy, before[number])
        envelope.affected_rows[number] = encode_bitmap(rows)
    return envelope, copy


def deleted(table: Path, fragment: DataFragment) -> Bitmap:
    """The rows that a fragment's deletion file marks."""
    if not fragment.HasField("deletion_file"):
        return Bitmap()
    file = fragment.deletion_file
    data = (table / deletion_path(fragment.id, file)).read_bytes()
    return decode_deletions(file, data, fragment.physical_rows)


def send(ours: Path, *sent: tuple[Envelope, Path]) -> list[Envelope]:
    """Puts the new files where a writer would have. Returns the envelopes for `ours`."""
    envelopes = []
    for envelope, source in sent:
        copy_files(source, ours)
        single = Envelope()
        single.CopyFrom(envelope)
        single.table = canonical(str(ours))
        envelopes.append(single)
    return envelopes


def rebased_both_ways(
    table: Path, act: Act, between: Act, change: Callable[[Envelope], object] | None = None
) -> Both:
    """Has pylance rebase `act` over `between`, and us fold it over the same; see the module."""
    sent = built(table, act)
    if change is not None:
        change(sent[0])
    theirs, ours = table.with_name(table.name + "-theirs"), table.with_name(table.name + "-ours")
    shutil.copytree(table, theirs)
    stale = lance.dataset(str(theirs))
    between(lance.dataset(str(theirs)))
    shutil.copytree(theirs, ours)
    act(stale)
    (envelope,) = send(ours, sent)
    (result,) = fold(owned(ours), [envelope], 0)
    transaction = version_of(theirs).transaction
    assert transaction is not None
    left, right = without_names(version_of(theirs)), without_names(version_of(ours))
    return Both(theirs, ours, result, transaction, differences(left, right))


def without_names(version: Version) -> Version:
    """A version without what its writer drew at random: names of data files, ids of deletion files."""
    for fragment in version.manifest.fragments:
        fragment.deletion_file.id = 0
        if not fragment.deletion_file.num_deleted_rows:
            fragment.ClearField("deletion_file")
        for file in fragment.files:
            file.path = ""
    return version
