"""A table on its way to its next version, as far as the modules below `version_builder` read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment, IndexMetadata, Manifest
    from lakefold_table.format import Fetched
    from lakefold_table.lance.manifests.fragments import Fragments


class StoredVersion(Protocol):
    """A version of a table: its manifest without fragments, and these."""

    @property
    def head(self) -> Manifest:
        """The manifest without fragments."""

    @property
    def fragments(self) -> Fragments:
        """All fragments."""


class TableView(Protocol):
    """What is read of a `VersionBuilder`."""

    fetched: Fetched
    head: Manifest
    version: int

    @property
    def base_ids(self) -> frozenset[int]:
        """As of `VersionBuilder.base_ids`."""

    @property
    def stable_row_ids(self) -> bool:
        """As of `VersionBuilder.stable_row_ids`."""

    @property
    def highest_id(self) -> int | None:
        """As of `VersionBuilder.highest_id`."""

    @property
    def indices(self) -> Sequence[IndexMetadata]:
        """As of `VersionBuilder.indices`."""

    def content(self, path: str) -> bytes | None:
        """As of `VersionBuilder.content`."""

    def get(self, ids: Collection[int]) -> dict[int, DataFragment]:
        """As of `VersionBuilder.get`."""

    def each(self, ids: Iterable[int]) -> Iterator[DataFragment]:
        """As of `VersionBuilder.each`."""

    def present(self, ids: Collection[int]) -> set[int]:
        """As of `VersionBuilder.present`."""
