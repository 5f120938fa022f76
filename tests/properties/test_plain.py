"""A usual Append is judged and folded, to the byte, as its message is; and nothing unusual passes for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_committer.fold.fold import Folded, fold
from lakefold_log.codec.envelope import decode, encode
from lakefold_table.entry import Committed, Entry
from lakefold_table.format import Fetched
from lakefold_table.lance.manifests.plain_append import plain_of
from lakefold_table.lance.proposal import proposal_of
from tests.folding import (
    FORMAT,
    INPUTS,
    MemoryTable,
    append,
    by_message,
    changed,
    created,
    entries,
    entry,
    reserve,
)
from tests.properties.mutations import mutated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment

    Change = Callable[[Envelope], object]


def fragment(change: Callable[[DataFragment], object]) -> Change:
    return lambda envelope: change(envelope.lance.append.fragments[0])


UNUSUAL: dict[str, Change] = {
    "another operation": lambda envelope: envelope.lance.delete.SetInParent(),
    "two fragments": lambda envelope: envelope.lance.append.fragments.add(),
    "no fragments": lambda envelope: envelope.lance.append.ClearField("fragments"),
    "two files": fragment(lambda fragment: fragment.files.add()),
    "an id": fragment(lambda fragment: setattr(fragment, "id", 7)),
    "no rows": fragment(lambda fragment: setattr(fragment, "physical_rows", 0)),
    "too many rows": fragment(lambda fragment: setattr(fragment, "physical_rows", 2**32)),
    "row ids": fragment(lambda fragment: setattr(fragment, "inline_row_ids", b"")),
    "a deletion file": fragment(lambda fragment: fragment.deletion_file.SetInParent()),
    "an overlay": fragment(lambda fragment: fragment.overlays.add()),
    "an unknown field": fragment(lambda fragment: fragment.MergeFromString(b"\xf8\x3f\x01")),
    "an unknown field of the file": fragment(
        lambda fragment: fragment.files[0].MergeFromString(b"\xf8\x3f\x01")
    ),
    "an unknown field of the Append": lambda envelope: envelope.lance.append.MergeFromString(b"\xf8\x3f\x01"),
    "an unknown field of the transaction": lambda envelope: envelope.lance.MergeFromString(b"\xf8\x3f\x01"),
    "a base": fragment(lambda fragment: setattr(fragment.files[0], "base_id", 0)),
    "a folder": fragment(lambda fragment: setattr(fragment.files[0], "path", "a/b.lance")),
    "a name with a blank": fragment(lambda fragment: setattr(fragment.files[0], "path", "a b.lance")),
    "a long uuid": lambda envelope: setattr(envelope.lance, "uuid", "u" * 65),
    "a uuid of other letters": lambda envelope: setattr(envelope.lance, "uuid", "ü"),
    "a tag": lambda envelope: setattr(envelope.lance, "tag", "t"),
    "properties": lambda envelope: envelope.lance.transaction_properties.update({"k": "v"}),
    "a creation": lambda envelope: envelope.create.SetInParent(),
    "a fragment-reuse index": lambda envelope: envelope.fragment_reuse_index.SetInParent(),
    "affected rows": lambda envelope: envelope.affected_rows.update({0: b"x"}),
}
USUAL: dict[str, Change] = {
    "as it is": lambda _: None,
    "no read version": lambda envelope: setattr(envelope.lance, "read_version", 0),
    "no uuid": lambda envelope: setattr(envelope.lance, "uuid", ""),
    "large numbers": fragment(lambda fragment: setattr(fragment, "physical_rows", 2**32 - 1)),
    "no size": fragment(lambda fragment: setattr(fragment.files[0], "file_size_bytes", 0)),
    "a long name": fragment(lambda fragment: setattr(fragment.files[0], "path", "f" * 255)),
    "strange columns": fragment(lambda fragment: fragment.files[0].fields.extend([-2, 2**31 - 1] * 200)),
    "a branch": lambda envelope: setattr(envelope, "branch", "b"),
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_an_unusual_append_is_not_treated_as_a_usual_one(what: str) -> None:
    assert plain_of(changed(append("f", app="a", batch=1), UNUSUAL[what])) is None


@pytest.mark.parametrize("what", USUAL)
def test_a_usual_append_says_the_same_as_its_message(what: str) -> None:
    envelope = changed(append("f", app="a", batch=1), USUAL[what])
    plain = plain_of(envelope)
    assert plain is not None
    (fragment,) = envelope.lance.append.fragments
    (file,) = fragment.files
    assert plain.path == f"data/{file.path}"
    assert (plain.rows, plain.size) == (fragment.physical_rows, file.file_size_bytes)
    assert plain.read_version == envelope.lance.read_version
    assert plain.record == fragment.SerializeToString(deterministic=True)
    assert plain.shape[0][2:] == (tuple(file.fields), tuple(file.column_indices))


def test_a_message_of_the_log_is_taken_apart_when_it_is_decoded() -> None:
    envelope = append("f")
    position = entry(envelope, 1).position
    decoded = decode(encode(envelope), envelope.table.encode(), position, 5)
    assert isinstance(decoded, Entry)
    assert proposal_of(decoded).plain == plain_of(envelope) is not None


def from_messages(group: Sequence[Entry]) -> list[Entry]:
    return [by_message(each) for each in group]


def alike(table: MemoryTable, group: Sequence[Entry], fetched: Fetched | None = None) -> Folded:
    """Folds the group by what was taken out of its messages, and by these; both must give the same."""
    fetched = fetched or Fetched()
    assert FORMAT.requirements(table.state, group) == FORMAT.requirements(table.state, from_messages(group))
    folded = fold(FORMAT, table.table, group, fetched, INPUTS)
    other = fold(FORMAT, table.table, from_messages(group), fetched, INPUTS)
    assert folded.outcomes == other.outcomes
    assert file_of(folded) == file_of(other)
    return folded


def file_of(folded: Folded) -> bytes:
    return b"" if folded.publication is None else b"".join(folded.publication.buffers)


@pytest.mark.parametrize("size", [None, 0, 999, 1000])
@pytest.mark.parametrize("stated_size", [0, 1000])
def test_files_are_compared_with_what_exists(size: int | None, stated_size: int) -> None:
    table = created()
    envelope = changed(append("f"), fragment(lambda it: setattr(it.files[0], "file_size_bytes", stated_size)))
    folded = alike(table, [entry(envelope, 1)], Fetched({"data/f-0.lance": size}))
    sound = size is not None and stated_size in {0, size}
    assert isinstance(folded.outcomes[0].result, Committed) == sound


def test_the_rest_of_a_version_is_the_same_beside_what_is_unusual() -> None:
    table = created(stable_row_ids=True)
    table.fold(append("before", fragments=2))
    group = [
        append("a", read=1),
        append("b", read=2, fragments=2),
        append("c", read=2),
        append("d", read=99),
        append("e", read=0),
        reserve(4, read=2),
        append("f", read=2),
    ]
    folded = alike(table, entries(group, table.offset))
    assert len(folded.outcomes) == 5


@settings(max_examples=200)
@given(st.data())
def test_whatever_is_changed_a_group_is_folded_alike(data: st.DataObject) -> None:
    table = created(stable_row_ids=data.draw(st.booleans()))
    for name in "xy"[: data.draw(st.integers(0, 2))]:
        table.fold(append(name, read=1))
    group = []
    for number in range(data.draw(st.integers(1, 5))):
        envelope = append(f"f{number}", read=data.draw(st.integers(0, 4)), app="a", batch=number)
        for _ in range(data.draw(st.integers(0, 1))):
            data.draw(mutated(envelope))
        group.append(envelope)
    sizes = {
        f"data/f{number}-0.lance": data.draw(st.sampled_from([None, 1000, 999]))
        for number in range(data.draw(st.integers(0, 5)))
    }
    alike(table, entries(group, table.offset), Fetched(sizes))
