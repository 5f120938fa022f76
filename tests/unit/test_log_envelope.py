"""What each kind of message in the log is taken for, and what its JSON looks like."""

from __future__ import annotations

import base64
import json

import pytest
from google.protobuf.json_format import ParseDict

from lakefold_log.codec.envelope import (
    MAX_TABLE,
    UnknownKind,
    decode,
    encode,
    json_form,
    outcome_message,
    outcome_value,
)
from lakefold_protos.lakefold import log_pb2
from lakefold_table.entry import (
    Committed,
    Conflict,
    Duplicate,
    Entry,
    Invalid,
    Outcome,
    Rejected,
    Undecodable,
)
from lakefold_table.errors import DamagedError
from lakefold_table.formats import BUILT_IN
from lakefold_table.marks.outcome_messages import MAX_EVIDENCE
from lakefold_table.position import LogId, Position

TABLE = "s3://lake/flights"
KEY = TABLE.encode()
HERE = Position(LogId("cluster", "topic-id", 3), 17, "lakefold.transactions")


def proposal(table: str = TABLE) -> log_pb2.Envelope:
    envelope = log_pb2.Envelope(table=table, app_id="app", batch_id=0)
    envelope.lance.uuid = "7a3b0a5e-6f5c-4f0c-9a57-0f8a6a1f6a11"
    envelope.lance.append.fragments.add(physical_rows=3)
    return envelope


def refused(data: bytes, key: bytes | None = KEY) -> Undecodable:
    decoded = decode(data, key, HERE, 5)
    assert isinstance(decoded, Undecodable)
    assert (decoded.position, decoded.time_us, decoded.size) == (HERE, 5, len(data))
    assert decoded.hint
    return decoded


def test_a_proposal_is_an_entry() -> None:
    data = encode(proposal())
    decoded = decode(data, KEY, HERE, 5)
    assert decoded == Entry(HERE, 5, proposal(), len(data), BUILT_IN.proposal(proposal()))
    assert isinstance(decoded, Entry)
    assert (decoded.app_id, decoded.batch_id, decoded.uuid) == (
        "app",
        0,
        "7a3b0a5e-6f5c-4f0c-9a57-0f8a6a1f6a11",
    )


def test_no_protobuf_is_answered_under_its_key() -> None:
    entry = refused(b"\xff\xff\xff")
    assert entry.table == TABLE
    assert "not an Envelope" in entry.message
    assert refused(b"\xff\xff\xff", b"\xff").table == "\ufffd"


def test_a_name_that_is_no_text_is_no_envelope() -> None:
    assert "not an Envelope" in refused(b"\x0a\x02\xff\xfe").message


def test_the_table_is_named() -> None:
    assert "names no table" in refused(encode(proposal("")), b"").message


def test_the_key_is_the_table() -> None:
    data = encode(proposal())
    assert "no key" in refused(data, None).message
    assert "is not the envelope's table" in refused(data, b"s3://lake/other").message


@pytest.mark.parametrize(
    "table", ["s3a://lake/flights", "s3://LAKE/flights", "s3://lake/flights/", "s3://l//a"]
)
def test_another_spelling_of_the_table_is_refused_with_the_right_one(table: str) -> None:
    entry = refused(encode(proposal(table)), table.encode())
    assert entry.table == table
    assert "send s3://l" in entry.hint


def test_a_table_that_can_have_no_name_is_refused() -> None:
    assert "not a canonical URI" in refused(encode(proposal("s3://lake/../x")), b"s3://lake/../x").message


@pytest.mark.parametrize("length", [MAX_TABLE + 1, 900_000])
def test_a_name_of_any_length_is_answered_with_a_short_one(length: int) -> None:
    name = "s3://lake/".ljust(length, "n")
    named = refused(encode(proposal(name)), name.encode())
    assert f"has {length} characters" in named.message
    keyed = refused(b"\xff\xff", name.encode())
    unlike = refused(encode(proposal()), name.encode())
    for entry in (named, keyed, unlike):
        assert len(entry.table) <= MAX_TABLE
        assert len(entry.message) < 2 * MAX_TABLE


def test_a_claim_that_names_its_place_is_an_entry_and_another_is_refused() -> None:
    envelope = log_pb2.Envelope(table=TABLE, claim=log_pb2.Claim(sha256=bytes(32), size=1))
    assert "differs from the path" in refused(encode(envelope)).message
    envelope.claim.uri = f"{TABLE}/_lakefold/claims/{'00' * 32}"
    assert isinstance(decode(encode(envelope), KEY, HERE, 5), Entry)


def test_no_proposal_is_refused() -> None:
    empty = refused(encode(log_pb2.Envelope(table=TABLE)))
    assert "no proposal" in empty.message
    assert empty.hint == "set `lance` or `delta`, after the format of the table"


def test_a_kind_of_proposal_from_the_future_stops_its_table() -> None:
    # Field 14, length-delimited: what a newer release would send.
    data = encode(log_pb2.Envelope(table=TABLE, app_id="app")) + b"\x72\x02\x08\x01"
    decoded = decode(data, KEY, HERE, 5)
    assert isinstance(decoded, UnknownKind)
    assert (decoded.position, decoded.table, decoded.size) == (HERE, TABLE, len(data))
    assert "(field 14)" in decoded.message


def test_a_lance_operation_from_the_future_stops_its_table() -> None:
    envelope = log_pb2.Envelope(table=TABLE)
    # Field 120, length-delimited and empty, where the operations are.
    envelope.lance.MergeFromString(b"\xc2\x07\x00")
    decoded = decode(encode(envelope), KEY, HERE, 5)
    assert isinstance(decoded, UnknownKind)
    assert "Lance operation" in decoded.message


def test_a_kind_from_the_future_for_another_table_is_no_reason_to_stop_one() -> None:
    data = encode(log_pb2.Envelope(table=TABLE)) + b"\x72\x00"
    assert "is not the envelope's table" in refused(data, b"s3://lake/other").message


def test_an_unknown_field_beside_a_proposal_changes_nothing() -> None:
    assert isinstance(decode(encode(proposal()) + b"\x48\x01", KEY, HERE, 5), Entry)


def test_a_transaction_without_operation_is_for_the_fold_to_judge() -> None:
    envelope = log_pb2.Envelope(table=TABLE)
    envelope.lance.read_version = 1
    assert isinstance(decode(encode(envelope), KEY, HERE, 5), Entry)


def test_equal_envelopes_have_equal_bytes() -> None:
    envelope, other = proposal(), proposal()
    for fragment in range(50):
        envelope.affected_rows[fragment] = b"a"
    for fragment in reversed(range(50)):
        other.affected_rows[fragment] = b"a"
    assert encode(envelope) == encode(other)


def test_json_of_an_envelope_is_as_written_down() -> None:
    envelope = log_pb2.Envelope(table=TABLE, app_id="app", batch_id=7, branch="dev")
    envelope.affected_rows[2**63] = b"\x00\xff"
    envelope.create.data_storage_version = "2.2"
    envelope.proposed_at.FromMicroseconds(1_500_000)
    envelope.claim.size = 2**53 + 1
    assert json_form(envelope) == {
        "table": TABLE,
        "app_id": "app",
        "batch_id": "7",
        "affected_rows": {str(2**63): base64.b64encode(b"\x00\xff").decode()},
        "create": {"stable_row_ids": False, "data_storage_version": "2.2", "v1_manifest_paths": False},
        "branch": "dev",
        "proposed_at": "1970-01-01T00:00:01.500Z",
        "claim": {"uri": "", "size": str(2**53 + 1), "sha256": ""},
        "table_id": "",
        "version_mark": "",
        "content": "",
    }


RESULTS = [
    Committed(3, rebased=True, rows_added=5, rows_deleted=1, first_fragment_id=2, num_fragment_ids=1),
    Committed(0),
    Duplicate(0),
    Duplicate(9),
    Duplicate(9, rolled_back_by=2**64 - 1, different_content=True),
    Rejected(Conflict(retryable=True, message="met", other_version=4, other_operation="Delete")),
    Rejected(
        Conflict(retryable=False, message="no", fragment_ids=(1, 2**63), field_ids=(-1, 4), keys=("a",))
    ),
    Rejected(Conflict(retryable=True, message="rows", fragment_ids=(1,), row_addresses=(2**32 + 7,))),
    Invalid("wrong", "mend it"),
    Invalid(""),
]


@pytest.mark.parametrize("result", RESULTS, ids=str)
@pytest.mark.parametrize("batch_id", [None, 0, 2**64 - 1])
def test_an_outcome_comes_back_from_its_message_and_from_its_json(
    result: Committed | Duplicate | Rejected | Invalid, batch_id: int | None
) -> None:
    outcome = Outcome(HERE, TABLE, result, "u", "app", batch_id, "table-id", "dev")
    message = log_pb2.Outcome.FromString(outcome_message(outcome).SerializeToString())
    assert outcome_value(message) == outcome
    assert outcome_value(message).position.topic == HERE.topic
    text = json.dumps(json_form(message))
    assert outcome_value(ParseDict(json.loads(text), log_pb2.Outcome())) == outcome


def test_json_of_an_outcome_is_as_written_down() -> None:
    assert json_form(outcome_message(Outcome(HERE, TABLE, Committed(7), "u", "app", 3))) == {
        "table": TABLE,
        "uuid": "u",
        "app_id": "app",
        "batch_id": "3",
        "position": {
            "cluster_id": "cluster",
            "topic_id": "topic-id",
            "topic": "lakefold.transactions",
            "partition": 3,
            "offset": "17",
        },
        "table_id": "",
        "branch": "",
        "committed": {
            "version": "7",
            "rebased": False,
            "rows_added": "0",
            "rows_deleted": "0",
            "first_fragment_id": "0",
            "num_fragment_ids": "0",
        },
    }


def test_evidence_without_end_is_counted_instead_of_listed() -> None:
    conflict = Conflict(
        retryable=True, message="met", fragment_ids=tuple(range(200_000)), keys=("k" * 10**6,) * 2000
    )
    message = outcome_message(Outcome(HERE, TABLE, Rejected(conflict)))
    assert len(message.rejected.fragment_ids) == MAX_EVIDENCE
    assert message.rejected.message == "met (200000 fragments in all, 2000 keys in all)"
    assert message.ByteSize() < 300_000
    wordy = outcome_message(Outcome(HERE, TABLE, Invalid("x" * 10**6, "y" * 10**6)))
    assert wordy.ByteSize() < 30_000


def test_an_outcome_of_an_unknown_kind_is_damaged() -> None:
    with pytest.raises(DamagedError, match="no known result"):
        outcome_value(log_pb2.Outcome(table=TABLE))
