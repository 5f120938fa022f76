"""Lance as a table format: what the fold calls (see `lakefold_table.format`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError
from lakefold_table.format import Deed, Needs
from lakefold_table.lance.codec import decode_file, decode_head
from lakefold_table.lance.conflicts import History, conflict_of
from lakefold_table.lance.draft import OLDEST_READ_VERSION, LanceDraft
from lakefold_table.lance.features import check_writable
from lakefold_table.lance.merging import shares_version
from lakefold_table.lance.naming import VERSIONS, Scheme, detect
from lakefold_table.lance.operations import FOLDED, Kind, kind_of
from lakefold_table.lance.operations.rules import RULES
from lakefold_table.lance.state import LanceState, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_table.entry import Entry
    from lakefold_table.format import Observed


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
        where = f"{uri}/{path}"
        file = decode_file(data, where)
        return state_of(file, _scheme(path, file.head.version, where), where)

    def deed(self, path: str, data: bytes, uri: str = "") -> Deed:
        """What the version in the manifest file at `path` did. Raises `DamagedError` as `decode` does."""
        where = f"{uri}/{path}"
        head, transaction = decode_head(data, where)
        _scheme(path, head.version, where)
        kind = kind_of(transaction)
        properties = {} if transaction is None else dict(transaction.transaction_properties)
        return Deed(head.version, kind.value, properties, kind is Kind.CLONE)

    def check_writable(self, state: LanceState, where: str = "") -> None:
        """Raises `InvalidError` where the table uses features that a writer must know and we don't."""
        check_writable(state.head, where)

    def needs(self, state: LanceState | None, entries: Sequence[Entry]) -> Needs:
        """What the operations of these entries ask for, and what is needed to judge old read versions."""
        asked = Needs.all_of(
            RULES[kind].needs(state, entry.envelope)
            for entry in entries
            if (kind := kind_of(entry.envelope.lance)) in RULES
        )
        if state is None:
            return asked
        reads = {entry.envelope.lance.read_version for entry in entries}
        oldest = max(1, state.version - OLDEST_READ_VERSION)
        told = {read for read in reads if oldest <= read <= state.version}
        since = min(told, default=state.version)
        judged = Needs(
            schemas=frozenset(read for read in told if _asks_for_schema(read, state)),
            operations_since=since if since < state.history.since else None,
        )
        return Needs.all_of((asked, judged))

    def informed(self, state: LanceState, older: Iterable[Deed]) -> LanceState:
        """The state with what older versions did: those right before its history began, newest first."""
        since = state.history.since
        operations: dict[Kind, int] = {}
        for one in older:
            operations.setdefault(Kind(one.operation), one.version)
            since = one.version - 1
        return replace(state, history=state.history.reaching(since, operations))

    def following(self, state: LanceState, foreign: LanceState, between: Sequence[Deed] = ()) -> LanceState:
        """The foreign version that came after `state`, with the history of operations carried on."""
        history, newest = state.history, state.version
        steps = [(one.version, Kind(one.operation)) for one in between]
        for version, kind in (*steps, (foreign.version, kind_of(foreign.transaction))):
            history = history.extended(version, kind) if version == newest + 1 else History(version, {})
            newest = version
        return replace(foreign, history=history)

    def shares_version(self, entry: Entry) -> bool:
        """Whether the entry may share a version; what is refused anyway may, since it changes nothing."""
        transaction = entry.envelope.lance
        return kind_of(transaction) not in FOLDED or shares_version(transaction)

    def draft(self, state: LanceState | None, observed: Observed) -> LanceDraft:
        """Begins the version after `state`."""
        return LanceDraft(state, observed)


def _scheme(path: str, version: int, where: str) -> Scheme:
    """The scheme by which the file's name stands for this version. Raises `DamagedError` where it doesn't."""
    name = path.rpartition("/")[2]
    scheme = Scheme.of(name, version)
    if scheme is None:
        raise DamagedError(f"the manifest says that it is version {version}", where=where)
    return scheme


def _asks_for_schema(read: int, state: LanceState) -> bool:
    """Whether an Append's field ids may have changed their meaning, and nothing refuses it before that."""
    history = state.history
    return read < history.schema_since and conflict_of(Kind.APPEND, read, history) is None
