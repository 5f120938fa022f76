"""Lance as a table format: what the fold calls (see `lakefold_table.format`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError
from lakefold_table.format import Needs
from lakefold_table.lance.codec import decode_file
from lakefold_table.lance.draft import OLDEST_READ_VERSION, LanceDraft
from lakefold_table.lance.features import check_writable
from lakefold_table.lance.naming import VERSIONS, Scheme, data_path, detect
from lakefold_table.lance.operations import FOLDED, kind_of
from lakefold_table.lance.state import LanceState, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.entry import Entry
    from lakefold_table.format import Observed
    from lakefold_table.lance.operations import Kind


class LanceFormat:
    """The format's rules; it holds nothing."""

    folder = VERSIONS

    def detect(self, names: Iterable[str]) -> Scheme | None:
        """The naming that the file names in `folder` follow, None where no version is among them."""
        return detect(names)

    def decode(self, path: str, data: bytes, uri: str = "") -> LanceState:
        """The state that the manifest file at `path` holds.

        Raises `DamagedError` where the bytes are not what the format says or name another version than the
        path, `InvalidError` where the table uses features that a reader must know and we don't.
        """
        name, where = path.rpartition("/")[2], f"{uri}/{path}"
        scheme = detect([name])
        file = decode_file(data, where)
        if scheme is None or scheme.parse(name) != file.head.version:
            raise DamagedError(f"the manifest says that it is version {file.head.version}", where=where)
        return state_of(file, scheme, where)

    def check_writable(self, state: LanceState, where: str = "") -> None:
        """Raises `InvalidError` where the table uses features that a writer must know and we don't."""
        check_writable(state.head, where)

    def needs(self, state: LanceState | None, entries: Sequence[Entry]) -> Needs:
        """The files of new fragments, and what it takes to judge read versions older than the history."""
        sizes: set[str] = set()
        reads: set[int] = set()
        for entry in entries:
            transaction = entry.envelope.lance
            reads.add(transaction.read_version)
            sizes.update(_own_files(_new_fragments(transaction)))
        if state is None:
            return Needs(frozenset(sizes))
        told = {read for read in reads if state.version - OLDEST_READ_VERSION <= read <= state.version}
        since = min(told, default=state.version)
        versions = frozenset(read for read in told if 0 < read < state.history.schema_since)
        return Needs(frozenset(sizes), versions, since if since < state.history.since else None)

    def informed(self, state: LanceState, older: Sequence[LanceState]) -> LanceState:
        """The state with what older versions did: those right before its history began, newest first."""
        operations: dict[Kind, int] = {}
        for one in older:
            operations.setdefault(kind_of(one.transaction), one.version)
        return replace(state, history=state.history.reaching(state.history.since - len(older), operations))

    def following(self, state: LanceState, foreign: LanceState) -> LanceState:
        """The foreign version that came right after `state`, with the history of operations carried on."""
        kind = kind_of(foreign.transaction)
        return replace(foreign, history=state.history.extended(foreign.version, kind))

    def shares_version(self, entry: Entry) -> bool:
        """Appends share a version, unless they bring a tag, properties or fragment ids of their own.

        What this release refuses may ride along, since it changes nothing.
        """
        transaction = entry.envelope.lance
        if transaction.HasField("append"):
            own = transaction.tag or transaction.transaction_properties
            return not own and not any(fragment.id for fragment in transaction.append.fragments)
        return kind_of(transaction) not in FOLDED

    def draft(self, state: LanceState | None, observed: Observed) -> LanceDraft:
        """Begins the version after `state`."""
        return LanceDraft(state, observed)


def _new_fragments(transaction: Transaction) -> Iterable[DataFragment]:
    operation = transaction.WhichOneof("operation")
    if operation == "append":
        return transaction.append.fragments
    return transaction.overwrite.fragments if operation == "overwrite" else ()


def _own_files(fragments: Iterable[DataFragment]) -> Iterable[str]:
    """Paths of files that lie in the table itself (those under another base are not looked at)."""
    return (data_path(file.path) for one in fragments for file in one.files if not file.HasField("base_id"))
