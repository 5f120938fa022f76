"""A proposal to change a Delta table: the actions of a commit, and what was read to make them."""

from __future__ import annotations

import hashlib
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from lakefold_table.bitmaps import Bitmap, decode_treemap
from lakefold_table.delta.actions.fields import no_members
from lakefold_table.delta.actions.file_actions import AddFile, ChangeFile, RemoveFile
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.actions.paths import file_path
from lakefold_table.delta.actions.table_actions import (
    RESTORE_TABLE,
    Action,
    AppTransaction,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Sidecar,
    TableMetadata,
    TableProtocol,
    UnknownAction,
)
from lakefold_table.delta.deletion_vectors.storage import RELATIVE, vector_path
from lakefold_table.delta.record_counts import StatisticsSummary, statistics_of
from lakefold_table.delta.rows.row_moves import RowMove, moved_rows
from lakefold_table.delta.table_features.property_values import number_of
from lakefold_table.delta.table_features.row_tracking import says_preserved
from lakefold_table.entry import Invalid
from lakefold_table.errors import RESTORE, DamagedError
from lakefold_table.values import uuid_form, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope

Single = TypeVar("Single", TableMetadata, TableProtocol)

NAME: Final = "delta"
"""The name of the format and of its field of the envelope."""
WRITE: Final = "WRITE"
_SENT: Final = "send the actions of a commit, as JSON with one action in each line"
CREATE: Final = "CREATE TABLE"
OPERATIONS: Final = (
    WRITE,
    "STREAMING UPDATE",
    CREATE,
    "DELETE",
    "UPDATE",
    "MERGE",
    "OPTIMIZE",
    RESTORE_TABLE,
    "ADD COLUMNS",
    "CHANGE COLUMN",
    "SET TBLPROPERTIES",
)
"""The names that Lakefold and Delta's clients give to operations most often, though any is allowed."""


@value()
class DeltaTableProposal:
    """The proposal of one envelope. It is never changed.

    `based_on`: the version that it was built on, None if it depends on none. `fault`: why its actions can't
    be read; then it has none. `digest`: of the message as it was sent. `statistics`: what those of each of
    `adds` say. `files`: the files that must exist in the table, with their sizes; None for a size that is not
    known. `affected_rows`: by path the rows that it deletes from a file. `moves`: where it puts the rows of
    files that it removes, if it is a compaction that says so. `read_rows`: by path the rows that it has read
    and keeps. `names_reads`: it names all rows that it has read. `is_merged`: its metadata have what was
    changed since the version that it was built on; if they can't, `unmerged` names what both changed.
    `kept_ids`: whether it says that all rows which it moves keep their row ids, None if it says nothing.
    `user_metadata`: a text that its commit records, None without one. `rows_copied`: how many
    rows of files that it removes are in files that it adds, as it says. `size`: of its actions in bytes.
    """

    based_on: int | None
    adds: tuple[AddFile, ...] = ()
    removes: tuple[RemoveFile, ...] = ()
    changes: tuple[ChangeFile, ...] = ()
    metadata: TableMetadata | None = None
    protocol: TableProtocol | None = None
    apps: tuple[AppTransaction, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    others: tuple[str, ...] = ()
    read_predicates: tuple[str, ...] = ()
    reads_all: bool = False
    read_files: frozenset[str] = frozenset()
    read_apps: frozenset[str] = frozenset()
    isolation: str = ""
    named_operation: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    digest: str = ""
    fault: Invalid | None = None
    statistics: tuple[StatisticsSummary, ...] = ()
    files: Mapping[str, int | None] = field(default_factory=no_members)
    affected_rows: Mapping[str, Bitmap] = field(default_factory=no_members)
    moves: tuple[RowMove, ...] = ()
    read_rows: Mapping[str, Bitmap] = field(default_factory=no_members)
    names_reads: bool = False
    is_merged: bool = False
    unmerged: frozenset[str] = frozenset()
    kept_ids: bool | None = None
    user_metadata: str | None = None
    rows_copied: int = 0
    size: int = 0

    @property
    def format(self) -> str:
        """The name of the format."""
        return NAME

    @property
    def uuid(self) -> str:
        """A hash of the message: it has no field for an id, and new files have new names."""
        return uuid_form(self.digest)

    @property
    def read_version(self) -> int:
        """The version that it was built on, 0 if it names none, or names the first version."""
        return max(self.based_on or 0, 0)

    @property
    def operation(self) -> str:
        """The name of the operation."""
        return self.named_operation or (CREATE if self.begins_table else WRITE)

    @property
    def begins_table(self) -> bool:
        """Whether the proposal creates the table: it sets protocol and metaData, and has no read version."""
        return self.based_on is None and self.protocol is not None and self.metadata is not None

    @property
    def begun_branch(self) -> str:
        """Empty: Delta tables have no branches."""
        return ""

    @property
    def is_blind(self) -> bool:
        """Whether the proposal only adds rows, and doesn't depend on what the table contains."""
        reads = self.reads_all or self.read_files or self.read_predicates or self.read_rows
        changes_more = self.removes or self.metadata or self.protocol or self.domains
        return not reads and not changes_more and all(file.data_change for file in self.adds)

    @property
    def names_rows(self) -> bool:
        """Whether it names rows that it has changed, read or moved, which are found wherever they are now."""
        return bool(self.affected_rows or self.moves or self.read_rows)

    @property
    def changes_data(self) -> bool:
        """Whether rows are added or removed, rather than stored in another way."""
        added = any(file.data_change for file in self.adds)
        return added or any(file.data_change for file in self.removes)

    @property
    def restores(self) -> bool:
        """Whether it makes the table what it was at an earlier version, as it says, and has read all of it.

        Its writer has seen that the files which stay were in that version, so they fit to its metadata.
        """
        return self.named_operation == RESTORE_TABLE and self.reads_all

    @property
    def restored(self) -> int | None:
        """The version that it restores, None if it restores none or does not name it."""
        version = number_of(dict(self.parameters).get("version")) if self.restores else None
        return None if version is None or version < 0 else version

    @property
    def rewrites_rows(self) -> bool:
        """Whether new files have rows of files that it removes, as far as the actions show it."""
        removed = {file.path for file in self.removes}
        return bool(removed) and any(file.path not in removed for file in self.adds)

    @property
    def preserves_row_ids(self) -> bool:
        """Whether all rows that are in files as before keep their row ids."""
        return not self.rewrites_rows if self.kept_ids is None else self.kept_ids

    @property
    def rows_added(self) -> int:
        """The number of rows in the files that it adds, as far as their statistics say it."""
        pairs = zip(self.adds, self.statistics, strict=True)
        return sum(statistics.rows or 0 for file, statistics in pairs if file.data_change)

    def rows_by_fragment(self) -> Mapping[str, Bitmap]:
        """Returns the rows that it deletes from files, by the files' paths."""
        return self.affected_rows

    def content(self) -> str:
        """Returns what stays the same whenever the same rows are sent again."""
        # Which files a merge changes, and so how many rows it adds, depends on the version that it read.
        depends = self.affected_rows or self.read_files or self.read_rows
        return "" if depends or self.fault is not None else f"{self.operation} {self.rows_added}"


def proposal_in(envelope: Envelope) -> DeltaTableProposal | None:
    """Returns the proposal in an envelope's field `delta`, or None. One that can't be read has a fault."""
    if not envelope.HasField("delta"):
        return None
    message = envelope.delta
    based_on = message.read_version if message.HasField("read_version") else None
    digest = hashlib.sha256(message.SerializeToString(deterministic=True)).hexdigest()
    try:
        actions = list(parse_actions(message.actions))
        metadata, protocol = _only(actions, TableMetadata), _only(actions, TableProtocol)
        adds = tuple(action for action in actions if isinstance(action, AddFile))
        changes = tuple(action for action in actions if isinstance(action, ChangeFile))
        files = _files(adds, changes)
        removes = tuple(action for action in actions if isinstance(action, RemoveFile))
        affected = _rows("affected", message.affected_rows)
        read = _rows("read", message.read_rows)
        moves = _moves(adds, removes)
    except DamagedError as error:
        hint = _SENT if error.hint == RESTORE else error.hint
        return DeltaTableProposal(based_on, digest=digest, fault=Invalid(error.reason, hint))
    return DeltaTableProposal(
        based_on,
        adds,
        removes,
        changes,
        metadata,
        protocol,
        tuple(action for action in actions if isinstance(action, AppTransaction)),
        tuple(action for action in actions if isinstance(action, DomainMetadata)),
        tuple(_names(actions)),
        tuple(message.read_predicates),
        message.read_whole_table,
        frozenset(message.read_files),
        frozenset(message.read_app_ids),
        message.isolation,
        message.operation,
        tuple(sorted(message.operation_parameters.items())),
        digest,
        statistics=tuple(map(statistics_of, adds)),
        files=files,
        affected_rows=affected,
        moves=moves,
        read_rows=read,
        names_reads=message.names_read_rows,
        kept_ids=_kept_ids(actions),
        user_metadata=_user_metadata(actions),
        rows_copied=sum(action.rows_copied for action in actions if isinstance(action, CommitInfo)),
        size=len(message.actions),
    )


def _user_metadata(actions: Iterable[Action]) -> str | None:
    texts = (action.user_metadata for action in actions if isinstance(action, CommitInfo))
    return next((text for text in texts if text is not None), None)


def _kept_ids(actions: Iterable[Action]) -> bool | None:
    statements = {says_preserved(action) for action in actions if isinstance(action, CommitInfo)} - {None}
    return all(statements) if statements else None


def _rows(which: str, message: Mapping[str, bytes]) -> dict[str, Bitmap]:
    """Returns the rows in a message by the path of their file. Raises `DamagedError` if malformed."""
    by_path: dict[str, Bitmap] = {}
    for path, data in message.items():
        where = f"the {which} rows of {path!r}"
        rows = decode_treemap(data, where)
        if rows.keys() - {0}:
            raise DamagedError("rows from 2^32 on can't be deleted", where=where)
        by_path[path] = rows.get(0, Bitmap())
    return by_path


def _moves(adds: Iterable[AddFile], removes: Sequence[RemoveFile]) -> tuple[RowMove, ...]:
    """Returns where a compaction puts rows. Raises `DamagedError` if a tag that says it does not fit."""
    tagged = [file for file in adds if file.tags and not file.data_change]
    if not tagged or any(file.data_change for file in removes):
        return ()
    by_path = {file.path: file for file in removes}
    return tuple(move for file in tagged for move in moved_rows(file, by_path))


def with_files(
    proposal: DeltaTableProposal, adds: tuple[AddFile, ...], removes: tuple[RemoveFile, ...]
) -> DeltaTableProposal:
    """Returns a proposal with other files, as they are committed."""
    return replace(proposal, adds=adds, removes=removes, statistics=tuple(map(statistics_of, adds)))


def _files(adds: Iterable[AddFile], changes: Iterable[ChangeFile]) -> dict[str, int | None]:
    """Returns the files that must exist. Raises `DamagedError` if an action names no file of the table."""
    sizes: dict[str, int | None] = {}
    named = [(file.path, file.size) for file in adds]
    named += [(file.path, file.size) for file in changes]
    for encoded, size in named:
        path = file_path(encoded)
        if not path.absolute:
            sizes[path.text] = size
    for added in adds:
        vector = added.deletion_vector
        if vector is not None and vector.storage_type == RELATIVE:
            sizes[str(vector_path(vector))] = None
    return sizes


def _only(actions: Iterable[Action], kind: type[Single]) -> Single | None:
    """Returns a commit's action of a kind, None if it has none. Raises `DamagedError` if it has several."""
    same = [action for action in actions if isinstance(action, kind)]
    if any(action != same[0] for action in same):
        raise DamagedError(f"there are several {kind.NAME} actions", hint="send one")
    return same[0] if same else None


def _names(actions: Iterable[Action]) -> Iterable[str]:
    """Yields the names of actions that can't be proposed."""
    for action in actions:
        if isinstance(action, UnknownAction):
            yield action.name
        elif isinstance(action, CheckpointMetadata | Sidecar):
            yield action.NAME
