"""`_last_checkpoint`: the hint that says from which version on the log has to be listed (Delta fact 2.5).

It only saves work. A file that is missing, cut off or changed decides nothing: the whole log is listed then.
"""

from __future__ import annotations

import json
from hashlib import md5
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.actions.paths import encode_percent
from lakefold_table.delta.json_text import is_long
from lakefold_table.delta.log_segment.names import FOLDER, log_file
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES: Final = 1 << 20
MOST_PARTS: Final = 100_000
CHECKSUM: Final = "checksum"


@value()
class CheckpointHint:
    """What the file says: the version of the last checkpoint, its number of actions and of parts.

    `name`: of the checkpoint's file, empty if it follows from the version.
    """

    version: int
    size: int
    parts: int | None = None
    name: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the checkpoint's files, without its sidecars."""
        if self.name:
            return (f"{FOLDER}/{self.name}",)
        start = f"{FOLDER}/{self.version:020}.checkpoint."
        if self.parts is None:
            return (f"{start}parquet",)
        numbers = range(1, self.parts + 1)
        return tuple(f"{start}{number:010}.{self.parts:010}.parquet" for number in numbers)


def checkpoint_hint(data: bytes) -> CheckpointHint | None:
    """Returns the hint in the file, None if the file can't be relied on."""
    if len(data) > MOST_BYTES:
        return None
    try:
        document = json.loads(data.decode(), object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not _is_unchanged(document):
        return None
    version, size, parts = (document.get(name) for name in ("version", "size", "parts"))
    if not is_long(version) or version < 0 or not is_long(size) or not (parts is None or is_long(parts)):
        return None
    if parts is not None and not 0 < parts <= MOST_PARTS:
        return None
    newer = document.get("v2Checkpoint")
    name = newer.get("path") if isinstance(newer, dict) else None
    file = log_file(name) if isinstance(name, str) else None
    if file is not None and file.version != version:
        return None
    return CheckpointHint(version, size, parts, "" if file is None else file.name)


def checksum_of(document: object) -> str:
    """Returns the checksum of the file's content, in hexadecimal digits."""
    return md5(canonical_form(document).encode(), usedforsecurity=False).hexdigest()


def canonical_form(document: object) -> str:
    """Returns the text from which the checksum is made: all values with their paths, sorted."""
    leaves = sorted(_leaves(document, ()), key=lambda leaf: leaf[0].encode())
    return ",".join(f"{path}={content}" for path, content in leaves)


def _leaves(node: object, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for name, content in node.items():
            if path or name != CHECKSUM:
                yield from _leaves(content, (*path, _quoted(name)))
    elif isinstance(node, list):
        for index, content in enumerate(node):
            yield from _leaves(content, (*path, str(index)))
    else:
        yield "+".join(path), _quoted(node) if isinstance(node, str) else json.dumps(node)


def _quoted(text: str) -> str:
    return f'"{encode_percent(text)}"'


def _is_unchanged(document: dict[str, Any]) -> bool:
    stored = document.get(CHECKSUM)
    return stored is None or stored == checksum_of(document)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a name is repeated")
    return document
