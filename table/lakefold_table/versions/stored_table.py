"""A table as it is stored: what reads its versions needs its format, and where they are.

A branch is a table of its own here. What several parts of a committer need to know of a table goes together:
the format says what a version's file means, the versions say which files exist, and the options say how the
store is reached, also that of other tables which the table names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakefold_table.errors import RetryError
from lakefold_table.marks.record import is_own
from lakefold_table.storage.base import read_into
from lakefold_table.versions.heads import read_head
from lakefold_table.versions.table_address import TableAddress
from lakefold_table.versions.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_table.format import AnyFormat, State, VersionHead, VersionSummary
    from lakefold_table.storage.base import Storage


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A branch of a table, which may have no version yet: its format and its versions.

    `options` are the storage options as pylance takes them, with which other tables are reached. They may
    hold secrets, so they are not printed.
    """

    format: AnyFormat
    versions: Versions
    options: Mapping[str, str] | None = field(default=None, repr=False)

    @classmethod
    def on(
        cls,
        storage: Storage,
        table_format: AnyFormat,
        options: Mapping[str, str] | None = None,
        *,
        is_branch: bool = False,
    ) -> StoredTable:
        """Returns the table of this format at the root of a store. Nothing is read."""
        return cls(table_format, Versions.of(storage, table_format, is_branch=is_branch), options)

    def at(self, uri: str) -> StoredTable:
        """Returns what may be another table of this format, by its canonical URI. Nothing is read.

        Raises as `TableAddress.open` does.
        """
        return self.on(self.address.at(uri).open(), self.format, self.options)

    def in_format(self, table_format: AnyFormat) -> StoredTable:
        """Returns the table of another format at the same root."""
        return replace(self, format=table_format, versions=self.versions.in_format(table_format))

    @property
    def storage(self) -> Storage:
        """The store whose root is that of the branch."""
        return self.versions.storage

    @property
    def uri(self) -> str:
        """The canonical URI of the branch's root."""
        return self.storage.uri

    @property
    def address(self) -> TableAddress:
        """Where the branch is, and how its store is reached."""
        return TableAddress(self.uri, self.options)

    def read_state(self, version: int, like: State | None = None) -> State:
        """Returns the whole state of a version. `like`: as of `Format.decode`."""
        path, data = self.versions.path(version), self.versions.read(version)
        files: dict[str, bytes | None] = {}
        while True:
            state: State = self.format.decode(path, data, self.uri, files, like)
            if not self._read_missing(files, state.missing_files):
                return state

    def read_summary(self, version: int) -> VersionSummary:
        """Returns the summary of what a version did."""
        path, data = self.versions.path(version), self.versions.read(version)
        files: dict[str, bytes | None] = {}
        while True:
            summary = self.format.summarize(path, data, self.uri, files)
            if not self._read_missing(files, summary.missing_files):
                return summary

    def _read_missing(self, files: dict[str, bytes | None], missing: Iterable[str]) -> bool:
        """Reads the missing files that a version needs into `files`. Returns whether it read any."""
        unread = [path for path in missing if path not in files]
        read_into(files, self.storage, unread)
        return bool(unread)

    def read_newest(self, version: int, like: State | None = None) -> State:
        """Returns the newest version after it was made durable. `like`: as of `Format.decode`.

        Versions are built on it and outcomes report it, so it must survive a power cut. Raises `RetryError`
        if it is removed while it is read: then it isn't the newest version any more.
        """
        state = self.read_state(version, like)
        try:
            self.storage.make_durable([self.versions.path(version)])
        except FileNotFoundError as error:
            message = f"version {version} was removed while it was read"
            raise RetryError(message, where=self.uri, hint="read the newest again") from error
        return state

    def own_properties(self, version: int) -> Mapping[str, str] | None:
        """Returns the properties of a version a committer made, None if another client made it."""
        head = self.own_head(version)
        return None if head is None else head.properties

    def own_head(self, version: int) -> VersionHead | None:
        """Returns the head of a version a committer made, None if another client made it.

        Raises `VersionExpiredError` if it is gone.
        """
        try:
            start, _ = read_head(self.storage, self.versions.path(version), self.format.head_length)
        except FileNotFoundError as error:
            raise self.versions.missing(version) from error
        head = self.format.head(start)
        return head if head is not None and is_own(head.properties, version) else None
