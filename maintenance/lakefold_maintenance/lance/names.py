"""Finds the files that a proposal names, and those that a version may name. Pure functions.

Only data files and deletion files with names that are unique by chance are considered, as Lance clients give
them. A version names a data file by its name and a deletion file by its number (Lance facts 1.3 and 8.1), and
both are stored as they are in its manifest. So the bytes of a manifest are searched for them: it needn't be
decoded, and what a client adds to the format can't hide a name.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from google.protobuf.message import Message

from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_table.errors import DamagedError
from lakefold_table.lance.manifests.naming import DATA, data_path
from lakefold_table.lance.rows.deletions import FOLDER, deletion_path
from lakefold_table.wire import varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakefold_protos.lakefold.log_pb2 import Envelope

_DATA_NAME: Final = re.compile(rf"{DATA}/([0-9A-Za-z_-]{{16,200}}\.lance)")
_NAMES_IN_MANIFEST: Final = re.compile(rb"[0-9A-Za-z_-]{16,250}\.lance")
"""A name may follow characters that don't belong to it: the byte with its length may be a letter."""
_DELETION_NAME: Final = re.compile(rf"{FOLDER}/\d+-\d+-(\d+)\.(?:arrow|bin)")
_LEAST_NUMBER: Final = 2**32
"""Smaller numbers of deletion files may occur anywhere in a manifest."""


def is_unique(path: str) -> bool:
    """Returns whether a path in the table is that of a file that is named by chance."""
    deletion = _DELETION_NAME.fullmatch(path)
    if deletion is not None:
        return _LEAST_NUMBER <= int(deletion[1]) < 2**64
    return _DATA_NAME.fullmatch(path) is not None


def files_of(message: Message) -> Iterator[str]:
    """Yields the paths of all data files and deletion files that a message names in the table's own folders.

    Files in other bases of the table are left out, and deletion files of kinds that don't exist.
    """
    if isinstance(message, DataFragment):
        yield from _files_of_fragment(message)
        return
    if isinstance(message, DataFile):
        if not message.HasField("base_id"):
            yield data_path(message.path)
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for inner in [value] if isinstance(value, Message) else value:
            yield from files_of(inner)


def files_of_proposal(envelope: Envelope) -> Iterable[str]:
    """Returns what `files_of` yields for an envelope. It is faster for an Append, of which many may wait."""
    fragments = envelope.lance.append.fragments
    if not fragments or envelope.HasField("fragment_reuse_index") or envelope.HasField("create"):
        return files_of(envelope)
    return [path for fragment in fragments for path in _files_of_fragment(fragment)]


def _files_of_fragment(fragment: DataFragment) -> list[str]:
    paths = [data_path(file.path) for file in fragment.files if not file.HasField("base_id")]
    for overlay in fragment.overlays:
        paths += files_of(overlay)
    if fragment.HasField("deletion_file") and not fragment.deletion_file.HasField("base_id"):
        with suppress(DamagedError):
            paths.append(deletion_path(fragment.id, fragment.deletion_file))
    return paths


class UnnamedFiles:
    """The files that no manifest names, of those that were seen. `paths`: those that are left."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._data: dict[bytes, str] = {}
        self._deletions: dict[bytes, str] = {}
        for path in filter(is_unique, paths):
            data, deletion = _DATA_NAME.fullmatch(path), _DELETION_NAME.fullmatch(path)
            if data is not None:
                self._data[data[1].encode()] = path
            elif deletion is not None:
                self._deletions[varint(int(deletion[1]))] = path
        self._lengths = {len(name) for name in self._data}

    @property
    def paths(self) -> set[str]:
        """The paths of the files that are left."""
        return {*self._data.values(), *self._deletions.values()}

    def seen(self, manifest: bytes) -> None:
        """Leaves out the files that a manifest may name, by its bytes."""
        if self._data:
            for match in _NAMES_IN_MANIFEST.finditer(manifest):
                for length in self._lengths:
                    self._data.pop(match[0][-length:], None)
        for number in [number for number in self._deletions if number in manifest]:
            del self._deletions[number]
