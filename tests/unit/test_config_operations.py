"""UpdateConfig and UpdateBases beside the log: its keys stay, and a refusal changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.marks.marks import MARK
from lakefold_table.marks.outcome_messages import outcome_message, outcome_value
from tests.folding import URI, append, changed, created, creation

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_protos.lance.transaction_pb2 import Transaction


def config(fill: Callable[[Transaction.UpdateConfig], object], read: int = 1) -> Envelope:
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = f"c{read}", read
    envelope.lance.update_config.SetInParent()
    fill(envelope.lance.update_config)
    return envelope


def replace_metadata(update: Transaction.UpdateConfig) -> None:
    update.table_metadata_updates.replace = True
    update.table_metadata_updates.update_entries.add(key="mine", value="1")


def test_a_replacement_of_the_metadata_keeps_what_belongs_to_the_log() -> None:
    table = created()
    before = dict(table.state.metadata)
    assert isinstance(table.result(config(replace_metadata)), Committed)
    after = dict(table.state.metadata)
    assert after["mine"] == "1"
    assert MARK in after
    assert after.keys() - {"mine"} == before.keys()
    assert isinstance(table.result(append(read=2)), Committed)


RESERVED: dict[str, Callable[[Transaction.UpdateConfig], object]] = {
    "config": lambda update: update.config_updates.update_entries.add(key="lakefold.x", value="1"),
    "config, deleted": lambda update: update.config_updates.update_entries.add(key="lakefold.x"),
    "table metadata": lambda update: update.table_metadata_updates.update_entries.add(key=MARK, value="1"),
    "table metadata, deleted": lambda update: update.table_metadata_updates.update_entries.add(key=MARK),
    "schema": lambda update: update.schema_metadata_updates.update_entries.add(key="lakefold.x", value="1"),
    "field": lambda update: update.field_metadata_updates[0].update_entries.add(key="lakefold.x", value="1"),
    "older config": lambda update: update.upsert_values.update({"lakefold.x": "1"}),
    "older deletion": lambda update: update.delete_keys.append(MARK),
    "older schema": lambda update: update.schema_metadata.update({"lakefold.x": "1"}),
    "older field": lambda update: update.field_metadata[0].metadata.update({"lakefold.x": "1"}),
}


@pytest.mark.parametrize("name", RESERVED)
def test_keys_of_the_log_may_not_be_touched(name: str) -> None:
    table = created()
    before = table.state
    result = table.result(config(RESERVED[name]))
    assert isinstance(result, Invalid)
    assert "is reserved for the log" in result.message
    assert table.state is before


def test_both_forms_at_once_are_refused() -> None:
    def both(update: Transaction.UpdateConfig) -> None:
        update.upsert_values["a"] = "1"
        update.table_metadata_updates.SetInParent()

    result = created().result(config(both))
    assert isinstance(result, Invalid)
    assert "mixes" in result.message


def test_managed_blobs_are_refused_since_no_version_after_it_could_be_written() -> None:
    def manage(update: Transaction.UpdateConfig) -> None:
        update.schema_metadata_updates.update_entries.add(key="lance.blob.managed", value="true")

    result = created().result(config(manage))
    assert isinstance(result, Invalid)
    assert "managed blobs" in result.message


def test_the_flag_of_the_config_comes_and_goes_with_it() -> None:
    table = created()
    table.fold(config(lambda update: update.config_updates.update_entries.add(key="k", value="v")))
    assert (table.state.head.reader_feature_flags, table.state.head.writer_feature_flags) == (0, 8)
    table.fold(config(lambda update: update.config_updates.update_entries.add(key="k"), 2))
    assert table.state.head.writer_feature_flags == 0


@pytest.mark.parametrize("number", [4, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_field_that_no_schema_can_have_is_no_evidence_but_the_answer_holds(number: int) -> None:
    table = created()
    overwrite = changed(creation(uuid="overwrite"), lambda envelope: envelope.ClearField("create"))
    overwrite.lance.read_version = 1
    table.fold(overwrite)
    outcome = table.fold(
        config(lambda update: update.field_metadata[number].metadata.update(a="1"))
    ).outcomes[0]
    assert isinstance(outcome.result, Rejected)
    assert outcome.result.conflict.field_ids == ((number,) if number < 2**31 else ())
    assert outcome_value(outcome_message(outcome)) == outcome


def test_an_append_may_name_a_base_once_it_exists() -> None:
    table = created()
    elsewhere = append(read=1)
    elsewhere.lance.append.fragments[0].files[0].base_id = 1
    assert isinstance(table.result(elsewhere), Invalid)
    bases = Envelope(table=URI)
    bases.lance.uuid, bases.lance.read_version = "b", 1
    bases.lance.update_bases.new_bases.add(path="/elsewhere")
    assert isinstance(table.result(bases), Committed)
    assert (table.state.head.reader_feature_flags, table.state.head.writer_feature_flags) == (16, 16)
    elsewhere.lance.uuid = "again"
    assert isinstance(table.result(elsewhere), Committed)


def test_a_refused_update_of_fields_leaves_the_others_as_they_were() -> None:
    def change(update: Transaction.UpdateConfig) -> None:
        update.config_updates.update_entries.add(key="k", value="v")
        update.field_metadata_updates[7].SetInParent()

    table = created()
    before = table.state.head.SerializeToString(deterministic=True)
    assert isinstance(table.result(config(change)), Invalid)
    assert table.state.head.SerializeToString(deterministic=True) == before
