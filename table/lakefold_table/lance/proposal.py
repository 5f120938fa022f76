"""A Lance transaction as the committer holds it: a single value, however its fragments are kept.

A usual Append is taken apart once (`plain_append`). The fragments of a large Append stay encoded
(`packed_append`). Everything else is the message. Only the modules of this package ask which of them it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.allocation import check_allocated
from lakefold_table.bitmaps import decode_bitmap
from lakefold_table.expansion import Content, check_expansion, content_of
from lakefold_table.lance.manifests.memory_cost import PACKED_COPIES, memory_of_packed, memory_to_fold
from lakefold_table.lance.manifests.packed_append import Packed, beside_fragments, packed_transaction, without
from lakefold_table.lance.manifests.plain_append import Plain, plain_of
from lakefold_table.proposal import LargeProposal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakefold_table.bitmaps import Bitmap
    from lakefold_table.entry import Entry

NAME: Final = "lance"
"""The name of the format and of its field of the envelope."""
OPERATIONS: Final = tuple(each.name for each in Transaction.DESCRIPTOR.oneofs_by_name["operation"].fields)
"""The names of the operations that a transaction can have, as its message spells them."""
APPEND: Final = "append"
OVERWRITE: Final = "overwrite"
CLONE: Final = "clone"
NOTHING: Final = "update_config"
"""The operation of a batch that has nothing to change."""


class LanceProposal:
    """The proposal that an envelope holds in its field `lance`. Not to be changed.

    `packed`: the fragments of an Append, if they are kept encoded; then the envelope has none. `plain`: the
    content of a usual Append, if it was taken apart; the envelope has the same. `as_sent`: the transaction as
    it was sent, if the version keeps it so (`Envelope.as_version`).
    """

    __slots__ = ("as_sent", "envelope", "packed", "plain", "uuid")

    format: Final = NAME

    def __init__(
        self,
        envelope: Envelope,
        packed: Packed | None = None,
        plain: Plain | None = None,
        as_sent: Transaction | None = None,
    ) -> None:
        self.as_sent = as_sent
        self.envelope = envelope
        self.packed = packed
        self.plain = plain
        self.uuid: str = envelope.lance.uuid
        """The transaction's own uuid, as its writer gave it."""

    @classmethod
    def of(cls, envelope: Envelope) -> LanceProposal:
        """Returns the proposal in an envelope that has all its fragments.

        A client that commits as a version has read the one before, whatever its transaction says: an Append
        that it sends again keeps its read version.
        """
        if not envelope.HasField("as_version"):
            return cls(envelope, None, plain_of(envelope))
        built = Envelope()
        built.CopyFrom(envelope)
        built.lance.read_version = max(envelope.as_version, 1) - 1
        return cls(built, as_sent=envelope.lance)

    @property
    def transaction(self) -> Transaction:
        """The transaction, without its fragments if they are packed; not to be changed."""
        return self.envelope.lance

    @property
    def read_version(self) -> int:
        """The version that it was built on, 0 if it names none."""
        return self.envelope.lance.read_version if self.plain is None else self.plain.read_version

    @property
    def operation(self) -> str:
        """Lance's name of the operation, empty if there is none."""
        if self.plain is not None:
            return APPEND
        return self.envelope.lance.WhichOneof("operation") or ""

    @property
    def begins_table(self) -> bool:
        """Whether the proposal begins a table without `create` in the envelope: a clone or a branch."""
        return self.operation == CLONE

    @property
    def begun_branch(self) -> str:
        """The name of the branch that a Clone begins, empty if it begins a table, or is none."""
        return self.envelope.lance.clone.branch_name if self.begins_table else ""

    def rows_by_fragment(self) -> dict[str, Bitmap]:
        """Returns the rows that it deletes or moves, by the ids of their fragments. Raises `DamagedError`."""
        return {
            str(number): decode_bitmap(data, f"affected_rows[{number}]")
            for number, data in self.envelope.affected_rows.items()
        }

    def content(self) -> str:
        """Returns what stays the same whenever the same rows are sent again, "" without an operation.

        For an Append: its rows, and the ids of the fields in its data files. For an Overwrite: its rows; its
        field ids are its own and may change from run to run. Any other operation depends on the table that it
        was built on, so only its kind counts. One that changes nothing says nothing of its rows.
        """
        operation = self.operation
        if not operation or changes_nothing(self.envelope.lance):
            return ""
        return content_text(operation, *self._rows_and_fields())

    def whole(self) -> LanceProposal:
        """Returns the same with all its fragments in the envelope, as messages."""
        if self.packed is None:
            return self
        envelope = Envelope()
        envelope.CopyFrom(self.envelope)
        envelope.lance.CopyFrom(self.packed.whole(self.envelope.lance))
        return LanceProposal(envelope)

    def _rows_and_fields(self) -> tuple[int, set[int]]:
        if self.plain is not None:
            return self.plain.rows, {number for _, _, fields, _ in self.plain.shape for number in fields}
        if self.packed is not None:
            files = (file for kind in self.packed.kinds for file in kind.files)
            return sum(self.packed.rows), {number for file in files for number in file.fields}
        lance = self.envelope.lance
        if lance.HasField(OVERWRITE):
            return sum(fragment.physical_rows for fragment in lance.overwrite.fragments), set()
        fragments = lance.append.fragments
        numbers = {number for fragment in fragments for file in fragment.files for number in file.fields}
        return sum(fragment.physical_rows for fragment in fragments), numbers


def changes_nothing(transaction: Transaction) -> bool:
    """Returns whether the transaction is an UpdateConfig without keys, which no operation conflicts with."""
    return transaction.WhichOneof("operation") == NOTHING and not transaction.update_config.ByteSize()


def content_text(operation: str, rows: int, fields: Iterable[int]) -> str:
    """Returns the content of a proposal with `rows` rows in data files with these field ids."""
    return f"{operation} {rows} {' '.join(map(str, sorted(fields)))}"


def proposal_of(entry: Entry) -> LanceProposal:
    """Returns an entry's proposal; an empty proposal if the entry has none, as its claim was not fetched."""
    proposal = entry.proposal
    # Entries with proposals of other formats don't reach this package; a check costs as much as a call.
    return LanceProposal(entry.envelope) if proposal is None else proposal  # type: ignore[return-value]


def unknown_operation(envelope: Envelope) -> str:
    """Describes the operation of an envelope's transaction that only a newer release knows; empty if none.

    A transaction without an operation is for the fold to refuse.
    """
    if envelope.lance.WhichOneof("operation") is not None:
        return ""
    fields = UnknownFieldSet(envelope.lance)
    if not fields:
        return ""
    return f"a kind of Lance operation that this release doesn't know (field {fields[0].field_number})"


def parse_large(data: bytes, content: Content, allow: Callable[[int], None]) -> LargeProposal | None:
    """Returns the envelope of a plain Append whose fragments stay encoded; None for any other.

    `content`, `allow`: as of `Format.parse_large`.
    """
    try:
        rest, within = without(data, range(len(data)), Envelope.LANCE_FIELD_NUMBER)
        others = None if within is None else beside_fragments(data, within)
        if within is None or others is None:
            return None
        rests = memory_to_fold(content_of(rest, Envelope)) + memory_to_fold(content_of(others, Transaction))
        allow(min(memory_of_packed(content) + rests, memory_to_fold(content)))
        packed = packed_transaction(data, within)
        check_expansion(rest, Envelope)
        envelope = Envelope.FromString(rest)
    except DecodeError as error:
        check_allocated(error)
        return None
    if packed is None or envelope.WhichOneof("proposal") is not None or envelope.HasField("as_version"):
        return None
    envelope.lance.CopyFrom(packed[0])
    return LargeProposal(envelope, LanceProposal(envelope, packed[1]), PACKED_COPIES * len(data))
