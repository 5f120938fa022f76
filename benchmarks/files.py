"""Data files in bulk: a file that pylance wrote, copied under as many names as a measurement needs.

Each copy is a file of its own, as a writer would have left it, and any client can read the table afterwards;
to let pylance write 100,000 of them would take longer than everything that is measured.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.uri import local_path

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX_BITS, UNIQUE_DIGITS = 24, 26


@dataclass(frozen=True)
class Mould:
    """A data file of the table `uri`, its content, and the fragment that names it (serialized)."""

    uri: str
    content: bytes
    fragment: bytes

    @classmethod
    def of(cls, envelope: Envelope) -> Mould:
        """From an Append of a single fragment of a file."""
        (fragment,) = envelope.lance.append.fragments
        path = Path(local_path(envelope.table)) / "data" / fragment.files[0].path
        return cls(envelope.table, path.read_bytes(), fragment.SerializeToString())

    def cast(self, count: int) -> list[DataFragment]:
        """New fragments, each with a file of its own."""
        folder = Path(local_path(self.uri)) / "data"
        fragments = []
        for _ in range(count):
            fragment = DataFragment.FromString(self.fragment)
            name = fragment.files[0].path = _file_name()
            (folder / name).write_bytes(self.content)
            fragments.append(fragment)
        return fragments


def appends(mould: Mould, read_version: int, app_id: str, count: int, first_batch: int = 0) -> list[Envelope]:
    """Appends of a single new fragment each, under the batch ids from `first_batch` on."""
    return [
        _keyed(append_of(mould.uri, [fragment], read_version), app_id, batch)
        for batch, fragment in enumerate(mould.cast(count), start=first_batch)
    ]


def append_of(uri: str, fragments: Iterable[DataFragment], read_version: int) -> Envelope:
    """Returns an Append of all these fragments, identified by its uuid."""
    envelope = Envelope(table=uri)
    envelope.lance.uuid = str(uuid.uuid4())
    envelope.lance.read_version = read_version
    envelope.lance.append.fragments.extend(fragments)
    return envelope


def _keyed(envelope: Envelope, app_id: str, batch: int) -> Envelope:
    envelope.app_id, envelope.batch_id = app_id, batch
    return envelope


def _file_name() -> str:
    """A name as pylance gives them: random bits to spread the files, then a unique part."""
    number = uuid.uuid4()
    return f"{number.int >> (128 - PREFIX_BITS):0{PREFIX_BITS}b}{number.hex[-UNIQUE_DIGITS:]}.lance"
