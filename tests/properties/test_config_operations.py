"""UpdateConfig, UpdateBases, Clone: maps as plain dicts would have them, an answer to whatever is sent."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.lance.operations.key_values import ConfigUpdates, updates_of
from lakefold_table.lance.validity import MOST_BASES
from tests.folding import URI, MemoryTable, created

TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
KEY = st.sampled_from(["a", "b", "c", "", "é"])
ENTRIES = st.lists(st.tuples(KEY, st.none() | TEXT), max_size=5)
MAP = st.dictionaries(KEY, TEXT)
KEYS_OF_SCHEMAS = [
    f"lance-schema:unenforced-{which}-key{part}"
    for which in ("primary", "clustering")
    for part in ("", ":position")
]
ODD_KEY = st.sampled_from([*KEYS_OF_SCHEMAS, "ARROW:extension:name", "lance.blob.managed", "lakefold.x", "k"])
ODD_VALUE = st.sampled_from(["true", "false", "1", "0", "+2", "9" * 5000, "0" * 5000 + "1", "x", ""])
NUMBER = st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 3)


@given(MAP, ENTRIES, st.booleans())
def test_an_update_does_to_a_map_what_it_says(
    before: dict[str, str],
    entries: list[tuple[str, str | None]],
    replace: bool,  # noqa: FBT001 - drawn
) -> None:
    message = Transaction.UpdateConfig()
    message.config_updates.replace = replace
    for key, value in entries:
        message.config_updates.update_entries.add(key=key, value=value)
    expected = {} if replace else dict(before)
    for key, value in entries:
        if value is None:
            expected.pop(key, None)
        else:
            expected[key] = value
    updates = updates_of(message)
    assert isinstance(updates, ConfigUpdates)
    assert updates.config is not None
    values, encoded = dict(before), {key: value.encode() for key, value in before.items()}
    updates.config.apply(values)
    updates.config.apply_encoded(encoded)
    assert values == expected
    assert encoded == {key: value.encode() for key, value in expected.items()}


@given(MAP, MAP, st.lists(KEY, max_size=3))
def test_the_deprecated_form_sets_and_then_deletes(
    before: dict[str, str], sets: dict[str, str], deletes: list[str]
) -> None:
    message = Transaction.UpdateConfig(upsert_values=sets, delete_keys=deletes)
    updates = updates_of(message)
    assert isinstance(updates, ConfigUpdates)
    values = dict(before)
    if updates.config is not None:
        updates.config.apply(values)
    assert values == {key: value for key, value in {**before, **sets}.items() if key not in deletes}


@st.composite
def config_updates(draw: st.DrawFn) -> Transaction:
    transaction = Transaction(read_version=1)
    message = transaction.update_config
    for update in (message.config_updates, message.table_metadata_updates, message.schema_metadata_updates):
        if draw(st.booleans()):
            fill(draw, update)
    for number in draw(st.lists(NUMBER, max_size=3)):
        fill(draw, message.field_metadata_updates[number])
    return transaction


def fill(draw: st.DrawFn, update: Transaction.UpdateMap) -> None:
    update.replace = draw(st.booleans())
    for key in draw(st.lists(ODD_KEY, max_size=3)):
        update.update_entries.add(key=key, value=draw(st.none() | ODD_VALUE))


@st.composite
def base_updates(draw: st.DrawFn) -> Transaction:
    transaction = Transaction(read_version=1)
    transaction.update_bases.SetInParent()
    for _ in range(draw(st.integers(0, 4))):
        transaction.update_bases.new_bases.add(
            id=draw(st.sampled_from([0, 1, 2, 2**32 - 1])),
            path=draw(st.sampled_from(["", "/a", "/b", "s3://c"])),
            name=draw(st.none() | st.sampled_from(["", "a", "b"])),
        )
    return transaction


@st.composite
def clones(draw: st.DrawFn) -> Transaction:
    transaction = Transaction(read_version=draw(st.sampled_from([0, 1, 2**64 - 1])))
    clone = transaction.clone
    clone.is_shallow = draw(st.booleans())
    clone.ref_version = draw(st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]))
    clone.ref_path = draw(TEXT | st.sampled_from(["/a", "memory://x", "s3://b", "/\0", "file:///"]))
    if draw(st.booleans()):
        clone.branch_name = draw(TEXT | st.sampled_from(["t", "../x", "main"]))
    return transaction


@settings(deadline=None)
@given(config_updates() | base_updates() | clones(), st.booleans())
def test_whatever_is_proposed_has_an_answer(transaction: Transaction, exists: bool) -> None:  # noqa: FBT001 - drawn
    table = created() if exists else MemoryTable()
    before = table.table
    envelope = Envelope(table=URI, lance=transaction)
    result = table.result(envelope)
    assert isinstance(result, Committed | Invalid | Rejected)
    if not isinstance(result, Committed):
        assert table.table.state is before.state
        return
    head = table.reopened().state.head
    ids = [base.id for base in head.base_paths]
    assert ids == sorted(set(ids))
    assert len({base.path for base in head.base_paths}) == len(ids)


def test_as_many_bases_as_may_come_at_a_time_take_no_time() -> None:
    transaction = Transaction(read_version=1)
    for number in range(MOST_BASES):
        transaction.update_bases.new_bases.add(path=f"/{number}", name=f"{number}")
    table = created()
    assert isinstance(table.result(Envelope(table=URI, lance=transaction)), Committed)
    assert [base.id for base in table.state.head.base_paths] == list(range(1, MOST_BASES + 1))
