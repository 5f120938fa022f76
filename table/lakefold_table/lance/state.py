"""A Lance table at a version, in memory: what the next version is built on. Never changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError
from lakefold_table.lance.conflicts import History
from lakefold_table.lance.indexing.indices import MEM_WAL
from lakefold_table.lance.kinds import Kind, kind_of
from lakefold_table.lance.manifests.features import check_readable
from lakefold_table.lance.manifests.live_files import BYTES_OF_FILE, LiveFiles
from lakefold_table.lance.manifests.naming import Scheme, data_path, transaction_path
from lakefold_table.lance.proposal import NAME
from lakefold_table.lance.schemas.columns import Columns, columns_of
from lakefold_table.lance.schemas.data_files import FILE_VERSIONS, FileVersion
from lakefold_table.lance.schemas.schema import depth
from lakefold_table.lance.version_links import keeps_metadata, restored_by, transaction_uuid
from lakefold_table.marks.marks import decode_marks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.manifests.codec import ManifestFile
    from lakefold_table.lance.manifests.fragments import Fragments

MICROS = 1_000_000
FARTHEST_US = 2**62
"""A time further than this from 1970 counts as no time: the next version's would not fit."""
MEMORY_OF_OBJECTS = 64 * 1024
MAX_U32 = 2**32 - 1
DEEPEST = 1000
"""How deep a schema may be nested to be read at all. Schemas that are created through the log are far less
deep."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LanceState:
    """A version of the table.

    `head` is the manifest without fragments (not to be changed); `index_section` its index section.
    `transaction` is that which made this version (an Append without its fragments), None if it isn't known.
    `scheme` is how the table names its versions. `file_version` is that of its data files, None if nothing
    shows it yet. `files` finds the fragment that has a data file.
    """

    head: Manifest
    fragments: Fragments
    index_section: bytes
    transaction: Transaction | None
    history: History
    columns: Columns
    scheme: Scheme
    file_version: FileVersion | None
    files: LiveFiles

    @property
    def format(self) -> str:
        """The name of the format."""
        return NAME

    @property
    def version(self) -> int:
        """The version's number."""
        return self.head.version

    @property
    def time_us(self) -> int:
        """The version's time in microseconds since 1970; 0 if it has none (Lance fact 2.6)."""
        micros: int = self.head.timestamp.seconds * MICROS + self.head.timestamp.nanos // 1000
        return micros if abs(micros) < FARTHEST_US else 0

    @property
    def metadata(self) -> Mapping[str, str]:
        """The table's metadata, marks included."""
        return self.head.table_metadata

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of the version's own transaction; empty if it has none."""
        return {} if self.transaction is None else self.transaction.transaction_properties

    @property
    def uuid(self) -> str:
        """The uuid of the transaction that made the version; "" if it is not known."""
        return transaction_uuid(self.transaction, self.head.transaction_file)

    @property
    def proves_marks(self) -> bool:
        """No: the marks may be those of any version."""
        return False

    def lost_marks(self, *, has_all: bool) -> str:
        """Returns an empty text: nothing in a manifest shows it."""
        del has_all
        return ""

    @property
    def keeps_metadata(self) -> bool:
        """Whether the table's metadata are those of the version before, as far as known."""
        return keeps_metadata(self.transaction)

    @property
    def restored(self) -> int | None:
        """The version that this version restored with its metadata, None if it is not a Restore."""
        return restored_by(self.transaction)

    @property
    def missing_files(self) -> tuple[str, ...]:
        """The file that contains the transaction if the manifest's own doesn't; empty if neither does."""
        if self.transaction is not None or not self.head.transaction_file:
            return ()
        return (transaction_path(self.head.transaction_file),)

    @property
    def history_start(self) -> int:
        """The version after which it is known what each version changed."""
        return self.version if self.history.detailed_since is None else self.history.detailed_since

    @property
    def is_clone(self) -> bool:
        """Whether this version is the first of a clone or a branch, and has another table's marks."""
        return kind_of(self.transaction) is Kind.CLONE

    @property
    def branch(self) -> str:
        """The branch of this version; empty for a table's main branch."""
        return self.head.branch

    @property
    def memory_bytes(self) -> int:
        """About how many bytes of memory the state takes: its manifest, and the objects around that."""
        encoded = self.fragments.size + len(self.index_section) + self.head.ByteSize()
        return 2 * encoded + MEMORY_OF_OBJECTS + BYTES_OF_FILE * self.fragments.count

    @property
    def schema(self) -> Sequence[Field]:
        """The flattened fields, parents before their children."""
        return self.head.fields

    @property
    def rows(self) -> int:
        """The number of rows that are not deleted."""
        return self.fragments.physical_rows - self.fragments.deleted_rows

    def file_sizes(self) -> Mapping[str, int]:
        """Returns the sizes of the table's own data files by path, as far as known. Decodes all fragments."""
        files = (
            file for fragment in self.fragments for file in fragment.files if not file.HasField("base_id")
        )
        return {data_path(file.path): file.file_size_bytes for file in files if file.file_size_bytes}

    @property
    def has_log(self) -> bool:
        """Whether the table may have a write-ahead log: its indices contain the name of that log's index."""
        return MEM_WAL.encode() in self.index_section


def state_of(file: ManifestFile, scheme: Scheme, where: str = "") -> LanceState:
    """Returns the state that a manifest file contains.

    Raises `InvalidError` for unknown features of the reader. The history of operations is taken from the
    marks if they were made for this very version; otherwise it begins here.
    """
    check_readable(file.head, where)
    if depth(file.head.fields) > DEEPEST:
        raise DamagedError(
            f"the schema is nested deeper than {DEEPEST} levels, which no Lance client can open", where=where
        )
    if file.fragments.last_id > MAX_U32:
        # The manifest's own field for the highest id ever used can't hold more.
        raise DamagedError(f"a fragment has the id {file.fragments.last_id}, above {MAX_U32}", where=where)
    file_version = _file_version(file)
    return LanceState(
        file.head,
        file.fragments,
        file.index_section,
        file.transaction,
        history_in(file.head, where),
        columns_of(file.head.fields, file_version),
        scheme,
        file_version,
        LiveFiles.of(file.fragments, file.head.base_paths),
    )


def history_in(head: Manifest, where: str = "") -> History:
    """Returns what the marks record of the versions before; nothing if they can't be read.

    Any client may have written them. Callers that need the marks themselves read them, and report what is
    wrong.
    """
    try:
        marks = decode_marks(head.table_metadata, where)
    except DamagedError:
        marks = None
    if marks is None or marks.version != head.version:
        return History(head.version, {})
    latest = {Kind(kind): version for kind, version in marks.operations.items() if kind in set(Kind)}
    return History(marks.operations_since, latest)


def _file_version(file: ManifestFile) -> FileVersion | None:
    """Returns the version of the table's data files: that of the manifest, or that of its first file."""
    named = FILE_VERSIONS.get(file.head.data_format.version)
    if named or file.head.data_format.version or not file.fragments.chunks:
        return named
    files = file.fragments.chunks[0].decode()[0].files
    return (files[0].file_major_version, files[0].file_minor_version) if files else None
