"""Every place that makes an envelope, and every place that sends one: each names the table it was built on.

A proposal that doesn't name it is folded into another table of its name (decision 0110). What is sent here is
read from a real log in `tests/integration/test_table_ids.py`. A new place is added here, and to that test.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from lakefold_protos.lakefold.log_pb2 import Envelope
from tests.repository import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCT: Final = ("committer/", "ingest/", "lakefold/", "log/", "maintenance/", "reader/", "table/")
NAMED_ITSELF: Final = {
    "lakefold/namespace/commits.py _envelope",
    "lakefold/branching/ref_proposals.py tagging",
    "lakefold/branching/ref_proposals.py untagging",
    "lakefold/branching/ref_proposals.py deleting",
    "lakefold/branching/ref_proposals.py restoring",
    "lakefold/proposals/forget.py _proposed",
    "maintenance/lakefold_maintenance/lance/proposals.py _begin",
    "maintenance/lakefold_maintenance/delta/proposals.py optimize",
}
"""These give the table's id to the envelope when they make it."""
NAMED_BY_THE_SENDER: Final = {
    "ingest/lakefold_ingest/lance/proposals.py begin_envelope",
    "ingest/lakefold_ingest/delta/proposals.py begin_proposal",
}
"""Envelopes of batches, of any operation: `SENDERS` names the table."""
BEFORE_THE_TABLE: Final = {
    "ingest/lakefold_ingest/lance/proposals.py creation",
    "ingest/lakefold_ingest/delta/proposals.py creation_proposal",
    # A branch has an id of its own, from its first version on. The version it begins at is named by its mark.
    "lakefold/branching/ref_proposals.py branching",
}
GIVEN: Final = {
    # Whoever built the transaction knows on which table: `propose --table-id`.
    "lakefold/proposals/envelopes.py envelope_of",
    "lakefold/proposals/envelopes.py delta_envelope",
}
NOT_SENT: Final = {
    # It asks what became of a batch.
    "ingest/lakefold_ingest/writing/sent_batches.py take_over",
    # The envelope that it stands for is stored whole.
    "log/lakefold_log/codec/claims.py _small_envelope",
}
SENDERS: Final = {
    "ingest/lakefold_ingest/writing/batch.py _propose": "ingest/lakefold_ingest/writing/batch.py _send_built",
    "ingest/lakefold_ingest/writing/evolution.py with_columns_of": (
        "ingest/lakefold_ingest/writing/evolution.py with_columns_of"
    ),
}
"""The functions that send envelopes of batches, and the functions that name their table before."""
CREATING: Final = "ingest/lakefold_ingest/writing/batch.py open_or_create"
CLIENT: Final = "ingest/lakefold_ingest/writing/log_client.py "
SENDING: Final = {"ask", "propose", "send", "send_wait", "send_without_waiting"}


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of the product, each with its module and name."""
    for source in tree.modules():
        if source.path.startswith(PRODUCT):
            for node in ast.walk(ast.parse(source.text)):
                if isinstance(node, ast.FunctionDef):
                    yield f"{source.path} {node.name}", node


def calls(function: ast.FunctionDef) -> Iterator[ast.Call]:
    return (node for node in ast.walk(function) if isinstance(node, ast.Call))


def makes(call: ast.Call) -> bool:
    """Whether a call makes the envelope of a table."""
    is_envelope = isinstance(call.func, ast.Name) and call.func.id == "Envelope"
    return is_envelope and any(each.arg == "table" for each in call.keywords)


def test_each_place_that_makes_an_envelope_says_who_names_its_table() -> None:
    each_made = {where: [call for call in calls(each) if makes(call)] for where, each in functions()}
    made = {where: envelopes for where, envelopes in each_made.items() if envelopes}
    assert made.keys() == NAMED_ITSELF | NAMED_BY_THE_SENDER | BEFORE_THE_TABLE | GIVEN | NOT_SENT
    names = {
        where
        for where, envelopes in made.items()
        if all(any(each.arg == "table_id" for each in call.keywords) for call in envelopes)
    }
    assert names == NAMED_ITSELF


def sends(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in SENDING


def names_a_table(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "table_id" and isinstance(node.ctx, ast.Store)


def test_each_place_that_sends_a_batch_names_its_table() -> None:
    """Spark's sinks and sources, verbs, functions and `Writer` all send their batches there."""
    named = {where: each for where, each in functions() if where.startswith("ingest/")}
    sending = {where for where, each in named.items() if any(map(sends, calls(each)))}
    assert {where for where in sending if not where.startswith(CLIENT)} == {*SENDERS, CREATING}
    for naming in SENDERS.values():
        assert any(map(names_a_table, ast.walk(named[naming]))), naming


def test_each_kind_of_proposal_is_known_here() -> None:
    """A new one gets a door here, and in `tests/integration/test_table_ids.py`."""
    kinds = {each.name for each in Envelope.DESCRIPTOR.oneofs_by_name["proposal"].fields}
    assert kinds == {"lance", "delta", "tag", "delete_branch", "claim", "forget_app"}
