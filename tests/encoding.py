"""Encodes what the product builds in another form: for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.lance.manifests.chunks import cut, encode_records
from lakefold_table.lance.manifests.codec import assemble_file, encode_transaction
from lakefold_table.lance.manifests.fragments import FragmentListReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.manifests.fragments import Fragments
    from lakefold_table.storage.base import Buffer


def encode_file(
    head: Manifest, fragments: Fragments, index_section: bytes, transaction: Transaction
) -> list[Buffer]:
    """Returns the buffers of a manifest file, as `assemble_file` does."""
    return assemble_file(head, fragments, index_section, encode_transaction(transaction))


def fragments_of(encoded: Sequence[bytes]) -> Fragments:
    """Returns the list of these encoded fragments. Raises as `FragmentListReader.add`."""
    gathering = FragmentListReader()
    for part in cut(encoded):
        gathering.add(encode_records(part))
    return gathering.finish()
