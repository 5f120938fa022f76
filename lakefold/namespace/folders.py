"""What a catalog has below its root: the namespaces and the Lance tables, found by listing folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lance_namespace.errors import (
    NamespaceNotFoundError,
    TableBranchNotFoundError,
    TableNotFoundError,
    TableVersionNotFoundError,
)

from lakefold.namespace.names import SEPARATOR
from lakefold_reader.formats import open_source
from lakefold_reader.versions.listing import newest_of
from lakefold_table.branch_names import root_of
from lakefold_table.errors import NotATableError
from lakefold_table.storage import open_canonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold.namespace.names import Names
    from lakefold_reader.format.source import Source
    from lakefold_table.storage.base import Storage

MARKER: Final = "_lakefold/namespace"
"""The file in a namespace's folder by which it exists without any table."""
_LANCE: Final = "lance"


class CatalogFolders:
    """The namespaces and tables that there are now. For any number of threads."""

    def __init__(self, names: Names, storage_options: Mapping[str, str]) -> None:
        self.names = names
        self._options = storage_options

    def store(self, uri: str) -> Storage:
        """Returns the store of a folder."""
        return open_canonical(uri, self._options)

    def namespace(self, names: Sequence[str]) -> str:
        """Returns the URI of a namespace that exists. Raises `NamespaceNotFoundError`."""
        uri = self.names.namespace(names)
        if names and not self.has_namespace(uri):
            raise NamespaceNotFoundError(f"there is no namespace {uri}")
        return uri

    def has_namespace(self, uri: str) -> bool:
        """Whether there is a namespace: by its marker, or by a folder in it."""
        store = self.store(uri)
        return store.size(MARKER) is not None or bool(store.folders(""))

    def namespaces(self, uri: str) -> Iterator[str]:
        """Yields the names of the namespaces in one: folders that may be named and have no table's suffix."""
        for name in self._folders(uri):
            if name[:1] not in ("_", ".") and self.names.table_name(name) is None:
                yield name

    def named_tables(self, uri: str) -> Iterator[str]:
        """Yields the names of the folders in a namespace that may be tables: nothing is opened."""
        names = (self.names.table_name(folder) for folder in self._folders(uri))
        return (name for name in names if name is not None)

    def all_named_tables(self, namespace: tuple[str, ...] = ()) -> Iterator[str]:
        """Yields the same of all folders below a namespace, as ids: their names joined by `$`."""
        uri = self.names.namespace(namespace)
        yield from (SEPARATOR.join((*namespace, name)) for name in self.named_tables(uri))
        for inner in self.namespaces(uri):
            yield from self.all_named_tables((*namespace, inner))

    def has_table(self, uri: str) -> bool:
        """Whether there is a Lance table in a folder."""
        try:
            return bool(newest_of(self.source(uri)))
        except NotATableError:
            return False

    def source(self, uri: str, branch: str = "") -> Source:
        """Returns the versions of a table or a branch of it, whether they exist or not."""
        return open_source(root_of(uri, branch), self._options, _LANCE)

    def newest(self, uri: str, branch: str = "") -> int:
        """Returns the newest version. Raises `TableNotFoundError` or `TableBranchNotFoundError`."""
        try:
            return newest_of(self.source(uri, branch))
        except NotATableError as error:
            if branch:
                raise TableBranchNotFoundError(f"the table {uri} has no branch {branch}") from error
            raise TableNotFoundError(f"there is no table at {uri}") from error

    def check_version(self, uri: str, branch: str, version: int) -> None:
        """Raises `TableVersionNotFoundError` if there is no such version."""
        if not self.source(uri, branch).versions.exists(version):
            raise TableVersionNotFoundError(f"the table {uri} has no version {version}")

    def _folders(self, uri: str) -> Iterator[str]:
        return (name.rstrip("/") for name in self.store(uri).folders(""))
