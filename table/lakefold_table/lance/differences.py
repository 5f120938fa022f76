"""Where the file of a version differs from the file that the fold makes again: named by field, not by byte.

"The bytes differ" helps nobody. Whoever looks for the cause wants to know which field, which fragment, which
index, which property or which entry's answer is different.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from lakefold_protos.lance.table_pb2 import IndexSection
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.errors import DamagedError
from lakefold_table.format import Difference
from lakefold_table.lance.manifests.codec import ManifestFile, decode_file
from lakefold_table.marks.record import RECORD, Record, decode_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_TEXT = 200
ABSENT = "absent"
LOCATIONS = frozenset({"fragments", "index_section", "transaction_section", "transaction_section_before_14"})
"""Fields of the manifest that are compared otherwise, or only say where a section lies in the file."""


def differences(stored: bytes, folded: bytes, where: str = "") -> list[Difference]:
    """Returns how the stored file differs from the folded one, which is sound. Empty if they are equal.

    A stored file that can't be decoded is a single difference.
    """
    if stored == folded:
        return []
    try:
        ours = decode_file(stored, where)
        listed = list(_of_files(ours, decode_file(folded, where), where))
    except DamagedError as error:
        return [Difference("file", f"can't be read: {error.message}", f"{len(folded)} sound bytes")]
    return listed or [_layout(stored, folded)]


def _of_files(stored: ManifestFile, folded: ManifestFile, where: str) -> Iterator[Difference]:
    yield from _of_messages("manifest", stored.head, folded.head, LOCATIONS)
    if b"".join(stored.fragments.buffers()) != b"".join(folded.fragments.buffers()):
        ours = {f"fragment {fragment.id}": fragment for fragment in stored.fragments}
        theirs = {f"fragment {fragment.id}": fragment for fragment in folded.fragments}
        yield from _of_named(ours, theirs)
    if stored.index_section != folded.index_section:
        yield from _of_named(_indices(stored.index_section), _indices(folded.index_section))
    ours_made = stored.transaction or Transaction()
    theirs_made = folded.transaction or Transaction()
    yield from _of_messages("transaction", ours_made, theirs_made, frozenset({"transaction_properties"}))
    before, after = dict(ours_made.transaction_properties), dict(theirs_made.transaction_properties)
    if before.get(RECORD) != after.get(RECORD):
        yield from _of_records(before, after, where)
    before.pop(RECORD, None)
    after.pop(RECORD, None)
    yield from _of_maps("transaction.transaction_properties", before, after)


def _of_messages(
    name: str, stored: Message, folded: Message, without: frozenset[str] = frozenset()
) -> Iterator[Difference]:
    """Yields the differences between two messages, one for each field, and for each key of a map."""
    for field in stored.DESCRIPTOR.fields:
        if field.name in without:
            continue
        before, after = _value(stored, field), _value(folded, field)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _of_maps(f"{name}.{field.name}", before, after)
        else:
            yield Difference(f"{name}.{field.name}", _text(before), _text(after))


def _value(message: Message, field: Any) -> Any:  # noqa: ANN401 - a field holds anything
    """Returns the value of the field that a descriptor names, maps as dicts; None if it is absent."""
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(value)
    if field.is_repeated:
        return list(value)
    return value if not field.has_presence or message.HasField(field.name) else None


def _of_maps(name: str, stored: Mapping[Any, Any], folded: Mapping[Any, Any]) -> Iterator[Difference]:
    for key in sorted({*stored, *folded}, key=str):
        before, after = stored.get(key), folded.get(key)
        if before != after:
            yield Difference(f"{name}[{key}]", _text(before), _text(after))


def _of_named(stored: Mapping[str, Message], folded: Mapping[str, Message]) -> Iterator[Difference]:
    """Messages that have a name each; then the order, where that is all that differs."""
    for name in dict.fromkeys((*stored, *folded)):
        before, after = stored.get(name), folded.get(name)
        if before is None or after is None:
            yield Difference(
                name, ABSENT if before is None else "there", ABSENT if after is None else "there"
            )
        elif before != after:
            yield from _of_messages(name, before, after)
    if list(stored) != list(folded) and stored.keys() == folded.keys():
        yield Difference("order", _text(list(stored)), _text(list(folded)))


def _indices(section: bytes) -> dict[str, Message]:
    return {
        f"index {index.name!r} {index.uuid.uuid.hex()}": index
        for index in IndexSection.FromString(section).indices
    }


def _of_records(stored: Mapping[str, str], folded: Mapping[str, str], where: str) -> Iterator[Difference]:
    """Yields the differences between two records of the log: by field, and by offset for the answers."""
    try:
        before = decode_record(stored, where)
    except DamagedError as error:
        yield Difference("record", f"can't be read: {error.message}", "sound")
        return
    after = decode_record(folded, where)
    if before is None or after is None:
        yield Difference(
            "record", ABSENT if before is None else "there", ABSENT if after is None else "there"
        )
        return
    for field in fields(before):
        ours, theirs = getattr(before, field.name), getattr(after, field.name)
        if ours != theirs and field.name not in {"committed", "refused"}:
            yield Difference(f"record.{field.name}", _text(ours), _text(theirs))
    yield from _of_maps("answer", _answers(before), _answers(after))


def _answers(record: Record) -> dict[int, object]:
    refused = {offset: outcome.result for offset, outcome in record.refused.items()}
    return dict(sorted({**record.committed, **refused}.items()))


def _layout(stored: bytes, folded: bytes) -> Difference:
    """Returns the difference if all fields are equal: their order, or bytes that no field contains."""
    pairs = zip(stored, folded, strict=False)
    index = next((at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    at = min(len(stored), len(folded)) if index is None else index
    return Difference(f"bytes from {at} on (every field is equal)", f"{len(stored)} bytes", f"{len(folded)}")


def _text(value: object) -> str:
    if value is None:
        return ABSENT
    text = " ".join(str(value).split()) if isinstance(value, Message) else repr(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
