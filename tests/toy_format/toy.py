"""A table format of its own, as small as possible: what the seam asks of a format, and nothing else.

A table is a folder `_toy_log` with one file of JSON lines for each version: the head, then what was added and
removed. So a version is the sum of all files up to its own, as in other formats that keep a log. A row is a
key with a value. There are three operations: create, append rows under new keys, delete rows by their keys.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.unknown_fields import UnknownFieldSet

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Conflict, Invalid, Rejected
from lakefold_table.errors import DamagedError
from lakefold_table.format import (
    ALONE,
    NO_FILES,
    Accepted,
    CommitMetadata,
    Difference,
    Fetched,
    Files,
    FilesAfter,
    GroupingRule,
    Publication,
    RecordedVersion,
    Requirements,
    VersionHead,
    VersionSummary,
)
from lakefold_table.marks.marks import PREFIX, digest_of_marks
from lakefold_table.wire import varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakefold_table.bitmaps import Bitmap
    from lakefold_table.entry import Entry
    from lakefold_table.expansion import Content
    from lakefold_table.proposal import LargeProposal

NAME: Final = "toy"
FOLDER: Final = "_toy_log"
FIELD: Final = 1000
"""The envelope's field that holds a proposal, as JSON; the generated code knows no such field."""
CREATE, APPEND, DELETE = "create", "append", "delete"
HEAD_LINE: Final = 9
"""A file begins with how many bytes its head takes: eight digits and the end of the line."""
_FILE: Final = re.compile(r"(\d{20})\.jsonl")


@dataclass(frozen=True)
class ToyProposal:
    """What one envelope proposes. `rows`: those to append; `keys`: those of the rows to delete."""

    uuid: str
    operation: str
    read_version: int = 0
    rows: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    format = NAME

    @property
    def begins_table(self) -> bool:
        """Whether it proposes to create the table."""
        return self.operation == CREATE

    @property
    def begun_branch(self) -> str:
        """It has no branches."""
        return ""

    def rows_by_fragment(self) -> dict[str, Bitmap]:
        """It has no fragments."""
        return {}

    def content(self) -> str:
        """What stays the same whenever the same rows are sent."""
        return f"{self.operation} {len(self.rows)} {sorted(self.keys)}"


def envelope_of(uri: str, proposal: ToyProposal, app: str = "", batch: int | None = None) -> Envelope:
    """An envelope with this proposal, in the field that only this format knows."""
    envelope = Envelope(table=uri, app_id=app, batch_id=batch)
    parts = {"uuid": proposal.uuid, "operation": proposal.operation, "read_version": proposal.read_version}
    value = _encoded({**parts, "rows": dict(proposal.rows), "keys": list(proposal.keys)})
    envelope.MergeFromString(varint(FIELD << 3 | 2) + varint(len(value)) + value)
    return envelope


@dataclass(frozen=True)
class ToyNaming:
    """Versions are numbered from 1, in twenty digits."""

    def path(self, version: int) -> str:
        """The path of a version's file."""
        return f"{FOLDER}/{version:020}.jsonl"

    def parse(self, name: str) -> int | None:
        """The version of a file name."""
        match = _FILE.fullmatch(name)
        return int(match[1]) if match else None


NAMING: Final = ToyNaming()


@dataclass(frozen=True)
class ToyState:
    """A table at one version. `deleted`: by key, the version that deleted its row last."""

    head: Mapping[str, Any]
    rows: Mapping[str, str] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)
    operations: Mapping[str, int] = field(default_factory=dict)
    missing_files: tuple[str, ...] = ()

    format = NAME
    schema: object = None
    restored: int | None = None
    is_clone = False
    branch = ""
    history_start = 0

    @property
    def version(self) -> int:
        """The version's number."""
        number: int = self.head["version"]
        return number

    @property
    def time_us(self) -> int:
        """The version's time in microseconds since 1970."""
        at: int = self.head["time_us"]
        return at

    @property
    def metadata(self) -> Mapping[str, str]:
        """The table's metadata, marks included."""
        mapping: Mapping[str, str] = self.head["metadata"]
        return mapping

    @property
    def properties(self) -> Mapping[str, str]:
        """Those of the version itself."""
        mapping: Mapping[str, str] = self.head["properties"]
        return mapping

    @property
    def uuid(self) -> str:
        """That of the version."""
        return str(self.head["uuid"])

    @property
    def proves_marks(self) -> bool:
        return False

    def lost_marks(self, *, has_all: bool) -> str:
        del has_all
        return ""

    @property
    def keeps_metadata(self) -> bool:
        """Whether another client made it, since none of those changes the metadata."""
        return not self.properties

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        return 100 * len(self.rows)


class ToyFormat:
    """The format's rules."""

    name = NAME
    folder = FOLDER
    first_version = 1
    operations = (CREATE, APPEND, DELETE)
    is_data_name = None
    manifests = None
    refs = None

    def proposal(self, envelope: Envelope) -> ToyProposal | None:
        """The proposal in the field of this format."""
        fields = UnknownFieldSet(envelope)
        each = (fields[index] for index in range(len(fields)))
        values = [each.data for each in each if each.field_number == FIELD]
        if not values:
            return None
        document = json.loads(values[-1])
        return ToyProposal(
            document["uuid"],
            document["operation"],
            document["read_version"],
            document["rows"],
            tuple(document["keys"]),
        )

    def unknown_kind(self, envelope: Envelope) -> str:
        """No release knows other operations."""
        del envelope
        return ""

    def parse_large(
        self, data: bytes, content: Content, allow: Callable[[int], None]
    ) -> LargeProposal | None:
        """Every proposal is decoded whole."""
        del data, content, allow
        return None

    def memory_to_fold(self, content: Content) -> int:
        """Some times the size."""
        return 10 * content.size

    def head_length(self, start: bytes) -> int:
        """As the file's first line says."""
        return HEAD_LINE + int(start[:HEAD_LINE]) if start[: HEAD_LINE - 1].isdigit() else 0

    def head(self, start: bytes) -> VersionHead | None:
        """The head, if all of it is there."""
        length = self.head_length(start)
        if not length or len(start) < length:
            return None
        document = json.loads(start[HEAD_LINE:length])
        return VersionHead(document["uuid"], document["properties"])

    def detect(self, names: Iterable[str]) -> ToyNaming | None:
        """There is only one naming."""
        return NAMING if any(NAMING.parse(name) for name in names) else None

    def decode(
        self,
        path: str,
        data: bytes,
        uri: str = "",
        files: Files = NO_FILES,
        like: ToyState | None = None,
    ) -> ToyState:
        """The table as the files of all versions up to this version make it."""
        del like
        head, _ = _parsed(data, f"{uri}/{path}")
        if NAMING.path(head["version"]) != path:
            raise DamagedError(f"the file says that it is version {head['version']}", where=f"{uri}/{path}")
        older = tuple(NAMING.path(number) for number in range(1, head["version"]))
        if any(name not in files for name in older):
            return ToyState(head, missing_files=older)
        rows, deleted, operations = dict[str, str](), dict[str, int](), dict[str, int]()
        for part in (*(files[name] for name in older), data):
            if part is None:
                raise DamagedError("an older version's file is gone", where=f"{uri}/{path}")
            change, lines = _parsed(part, uri)
            operations[change["operation"]] = change["version"]
            for line in lines:
                rows.update(line.get("add", {}))
                for key in line.get("remove", ()):
                    rows.pop(key, None)
                    deleted[key] = change["version"]
        return ToyState(head, rows, deleted, operations)

    def summarize(self, path: str, data: bytes, uri: str = "", files: Files = NO_FILES) -> VersionSummary:
        """What the version in the file did."""
        del files
        head, _ = _parsed(data, f"{uri}/{path}")
        state, marks = ToyState(head), digest_of_marks(head["metadata"])
        return VersionSummary(
            state.version,
            head["operation"],
            state.properties,
            begins_clone=False,
            footprint=None,
            keeps_metadata=state.keeps_metadata,
            uuid=state.uuid,
            marks=marks,
        )

    def requirements(self, state: ToyState | None, entries: Sequence[Entry]) -> Requirements:
        """Nothing: proposals hold their rows."""
        del state, entries
        return Requirements()

    def with_history(self, state: ToyState, older: Iterable[VersionSummary]) -> ToyState:
        """Every state knows its whole history."""
        del older
        return state

    def follow_foreign(
        self, state: ToyState, foreign: ToyState, between: Sequence[VersionSummary] = ()
    ) -> ToyState:
        """As `with_history`."""
        del state, between
        return foreign

    def absent_removals(self, state: ToyState, foreign: ToyState) -> Sequence[str]:
        """Nothing: rows are in versions themselves."""
        del state, foreign
        return ()

    def files_after(self, state: ToyState, kept: object = None) -> FilesAfter:
        """A version's file has the whole table."""
        del state, kept
        return FilesAfter()

    def check_writable(self, state: ToyState, where: str = "") -> None:
        """Every table can be written."""

    def grouping_rule(self, state: ToyState | None) -> GroupingRule:
        """Appends and Deletes share a version."""
        del state
        return lambda entry: ALONE if _of(entry).operation == CREATE else "rows"

    def replaying(self, recorded: RecordedVersion) -> ReplayingToy:
        """The same rules: nothing of a store is ever asked."""
        return ReplayingToy(recorded)

    def differences(self, stored: bytes, folded: bytes, where: str = "") -> list[Difference]:
        """Line by line."""
        del where
        pairs = enumerate(zip(stored.splitlines(), folded.splitlines(), strict=False), 1)
        differences = [
            Difference(f"line {at}", str(ours), str(theirs)) for at, (ours, theirs) in pairs if ours != theirs
        ]
        return (
            differences
            if differences or stored == folded
            else [Difference("lines", str(len(stored)), str(len(folded)))]
        )

    def draft(self, state: ToyState | None, fetched: Fetched, entries: Sequence[Entry] = ()) -> ToyDraft:
        """Begins the next version."""
        del fetched, entries
        return ToyDraft(state)


class ReplayingToy(ToyFormat):
    """See `ReplayingFormat`."""

    def __init__(self, recorded: RecordedVersion) -> None:
        del recorded
        self.undecided: set[int] = set()
        self.unlike: set[int] = set()
        self.accepted: set[int] = set()


class ToyDraft:
    """The next version: rows as the entries left them, and what that takes to say."""

    def __init__(self, state: ToyState | None) -> None:
        self._state = ToyState({"version": 0, "metadata": {}, "properties": {}}) if state is None else state
        self._exists = state is not None
        self._rows = dict(self._state.rows)
        self._deleted = dict(self._state.deleted)
        self._lines: list[dict[str, Any]] = []
        self._done: list[str] = []
        self.version = self._state.version + 1
        self.restored = None
        self.first_ids = (0, 0)

    @property
    def metadata(self) -> Mapping[str, str]:
        """The table's metadata."""
        return self._state.metadata

    @property
    def _operation(self) -> str:
        return self._done[0] if len(set(self._done)) == 1 else "rows" if self._done else "none"

    @property
    def operations(self) -> tuple[int, Mapping[str, int]]:
        """Every version's operation is known."""
        return 0, {**self._state.operations, self._operation: self.version}

    def forget(self, app_id: str) -> bool:
        """The table records no batches besides the marks."""
        del app_id
        return False

    def add(self, entry: Entry) -> Accepted | Rejected | Invalid | None:
        """Checks the entry against the rows that there are by now."""
        proposal = _of(entry)
        if proposal.operation == CREATE:
            if self._exists:
                conflict = Conflict(
                    retryable=True, message="the table exists", other_version=self.version - 1
                )
                return Rejected(conflict)
        elif not self._exists:
            return Invalid(f"there is no table at {entry.envelope.table}", "create it first")
        elif proposal.read_version > self._state.version:
            return Invalid(f"version {proposal.read_version} is not there yet", "read the table again")
        if self._done and CREATE in (proposal.operation, self._done[0]):
            return None
        refused = self._refused(proposal)
        if refused is not None:
            return refused
        for key in proposal.keys:
            del self._rows[key]
            self._deleted[key] = self.version
        self._rows.update(proposal.rows)
        self._lines.append({"add": dict(proposal.rows)} if proposal.rows else {"remove": list(proposal.keys)})
        self._done.append(proposal.operation)
        rebased = 0 < proposal.read_version < self._state.version
        return Accepted(rebased, len(proposal.rows), len(proposal.keys), 0, 0, proposal.operation)

    def _refused(self, proposal: ToyProposal) -> Rejected | Invalid | None:
        taken = sorted(proposal.rows.keys() & self._rows.keys())
        if taken:
            return Rejected(Conflict(retryable=False, message="rows have these keys", keys=tuple(taken)))
        for key in proposal.keys:
            if key not in self._rows:
                other = self._deleted.get(key, 0)
                if other > proposal.read_version:
                    message = f"version {other} deleted the row {key}"
                    return Rejected(
                        Conflict(
                            retryable=True,
                            message=message,
                            other_version=other,
                            other_operation=DELETE,
                            keys=(key,),
                        )
                    )
                return Invalid(f"there is no row {key}", "delete rows that there are")
        return None

    def finish(self, commit: CommitMetadata) -> tuple[ToyState, Publication]:
        """The next version's state and file."""
        own = {key: value for key, value in self._state.metadata.items() if not key.startswith(PREFIX)}
        head = {
            "version": self.version,
            "uuid": commit.uuid,
            "time_us": commit.time_us,
            "operation": self._operation,
            "metadata": {**own, **commit.metadata},
            "properties": dict(commit.properties),
        }
        state = replace(
            self._state, head=head, rows=self._rows, deleted=self._deleted, operations=self.operations[1]
        )
        return state, Publication(self.version, NAMING.path(self.version), file_of(head, self._lines))


def file_of(head: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """The parts of a version's file: its head, and the rest."""
    first = _encoded(head) + b"\n"
    rest = b"".join(_encoded(line) + b"\n" for line in lines)
    return [f"{len(first):0{HEAD_LINE - 1}}\n".encode() + first, rest]


def _of(entry: Entry) -> ToyProposal:
    assert isinstance(entry.proposal, ToyProposal)
    return entry.proposal


def _parsed(data: bytes, where: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The head of a version's file, and its other lines."""
    try:
        head, *lines = (json.loads(line) for line in data[HEAD_LINE:].splitlines())
    except ValueError as error:
        raise DamagedError(f"the file is not a log of a version: {error}", where=where) from error
    return head, lines


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
