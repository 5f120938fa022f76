"""The note that a dropped table leaves beside its path: the positions of the log that were folded into it.

A missing table may have been dropped on purpose, or its store may not be mounted; both look the same. If a
proposal is known to have been folded into a missing table, the note is read. It lists positions: what was
folded up to them was in the dropped table. So it says nothing about a table that is created at the same path
later, nor about a table that is restored there and folded on, whatever their ids and whatever any clock says.

The note of `/lake/flights` is `/lake/.lakefold-dropped/flights`. If the table is a whole bucket, its note is
inside, as `_lakefold/dropped`.

A branch that is deleted leaves such a note inside the table, in `_lakefold/deleted-branches/`. Nothing reads
it while the table exists. If the table is dropped, its content becomes part of the table's note: the versions
of the branch, which had the positions, are gone by then.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from lakefold_table.branch_names import TREE
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.marks.marks import position_from, position_json
from lakefold_table.roots import parents
from lakefold_table.uri import parse_location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakefold_table.position import LogId, Position
    from lakefold_table.storage.base import Storage
    from lakefold_table.versions.table_address import TableAddress

FOLDER: Final = ".lakefold-dropped"
INSIDE: Final = "_lakefold/dropped"
DELETED: Final = "_lakefold/deleted-branches"
_DOT: Final = "%2E"
MOST_LOGS: Final = 256
"""How many positions are kept for a branch at most, those noted last, in case tables come and go at one
path."""


@dataclass(frozen=True, slots=True)
class DroppedBranch:
    """A branch of a dropped table ("" is the main one), and the last position folded from each log.

    `table_id` and `version` are for people.
    """

    branch: str
    table_id: str
    version: int
    positions: tuple[Position, ...]

    def offset_of(self, log: LogId) -> int | None:
        """Returns the last offset of this log, or None if the note names none."""
        return max((position.offset for position in self.positions if position.log == log), default=None)


@dataclass(frozen=True, slots=True)
class Dropped:
    """The note for a path.

    `time_us`: when the table was dropped (for people). `removing`: files of it may remain. On a local disk
    those files are in the folder `aside`, next to the path. `condemned`: what was moved there is known to be
    the dropped table. `run`: which run of the command removes the files. `branches`: those of the table.
    `inside`: the branches of tables that were in its folder and had been dropped before, by their paths below
    its root, as their own notes were removed with the folder.
    """

    time_us: int
    branches: tuple[DroppedBranch, ...] = ()
    removing: bool = field(default=False, kw_only=True)
    aside: str = field(default="", kw_only=True)
    condemned: bool = field(default=False, kw_only=True)
    run: str = field(default="", kw_only=True)
    inside: Mapping[str, tuple[DroppedBranch, ...]] = field(default_factory=dict, kw_only=True)

    def covers(self, branch: str, position: Position) -> bool:
        """Returns whether what was folded at this position into this branch was in the dropped table.

        If the branch was removed before the table was dropped, the other branches decide: all were in the
        same table.
        """
        own = [noted for noted in self.branches if noted.branch == branch]
        for noted in (own, self.branches):
            offsets = [branch_note.offset_of(position.log) for branch_note in noted]
            noted_offsets = [offset for offset in offsets if offset is not None]
            if noted_offsets:
                return max(noted_offsets) >= position.offset
        return False

    def after(self, older: Dropped | None) -> Dropped:
        """Returns this note joined with an older note of the same path."""
        if older is None:
            return self
        inside = {name: _all_joined(older.inside.get(name, ()), noted) for name, noted in self.inside.items()}
        branches = _all_joined(older.branches, self.branches)
        return replace(self, branches=branches, inside={**older.inside, **inside})

    def encode(self) -> bytes:
        """Returns the note's bytes."""
        content: dict[str, Any] = {"time_us": self.time_us, "removing": self.removing}
        content["lines"] = _branches_json(self.branches)
        if self.inside:
            content["inside"] = {name: _branches_json(noted) for name, noted in self.inside.items()}
        if self.aside:
            content.update(aside=self.aside, condemned=self.condemned)
        if self.run:
            content["run"] = self.run
        return json.dumps(content, indent=1).encode()


def decode_dropped(data: bytes, where: str) -> Dropped:
    """Returns the note that `encode` made these bytes of. Raises `DamagedError`."""
    try:
        note = json.loads(data)
        branches = tuple(_branch_from(noted) for noted in note["lines"])
        return Dropped(
            int(note["time_us"]),
            branches,
            removing=bool(note["removing"]),
            aside=_folder_name(note.get("aside", "")),
            condemned=bool(note.get("condemned", False)),
            run=str(note.get("run", "")),
            inside={name: tuple(map(_branch_from, noted)) for name, noted in note.get("inside", {}).items()},
        )
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        hint = "remove it, and drop the table again"
        message = f"the note of a dropped table can't be read: {error!r}"
        raise DamagedError(message, where=where, hint=hint) from error


def read_dropped(address: TableAddress) -> Dropped | None:
    """Returns the note of the table at an address, or None. Raises what the store raises."""
    root, path = note_location(address.uri)
    try:
        data = address.at(root).open().get(path)
    except FileNotFoundError:
        return None
    return decode_dropped(data, f"{root}/{path}")


def write_dropped(address: TableAddress, dropped: Dropped) -> None:
    """Writes the note, replacing any older note. Raises what the store raises."""
    root, path = note_location(address.uri)
    address.at(root).open().put(path, [dropped.encode()])


def note_deleted(storage: Storage, time_us: int, branch: DroppedBranch) -> None:
    """Writes the note of a branch that is deleted. `storage`: the store of its main branch."""
    name = quote(branch.branch, safe="")
    storage.put(f"{DELETED}/{name}", [Dropped(time_us, (branch,)).encode()])


def deleted_before(storage: Storage) -> tuple[DroppedBranch, ...]:
    """Returns the branches of a table that were deleted. Damaged notes are skipped."""
    branches: list[DroppedBranch] = []
    for listed in storage.list(DELETED):
        with suppress(DamagedError):
            branches += decode_dropped(storage.get(listed.path), listed.path).branches
    return tuple(branches)


def was_dropped(address: TableAddress, position: Position) -> bool:
    """Returns whether an entry was folded into a table that has been dropped.

    The entry is at this position, and was folded into the branch at `address`.

    It may be that of a branch: then the note is beside its main branch. Or another table, in whose folder
    it was, was dropped later: then that table's note is read, if it may be.
    """
    for main, branch in branches_at(address.uri):
        dropped = read_dropped(address.at(main))
        if dropped is not None and dropped.covers(branch, position):
            return True
        if any(outer.covers(branch, position) for outer in _noted_around(address.at(main))):
            return True
    return False


def _noted_around(address: TableAddress) -> Iterator[Dropped]:
    """Yields what the notes of tables around this path say about it."""
    segments = parse_location(address.uri).segments
    for outer in parents(address.uri):
        try:
            dropped = read_dropped(address.at(outer))
        except InvalidError:
            # This process may not be allowed to read there.
            continue
        name = "/".join(segments[len(parse_location(outer).segments) :])
        branches = None if dropped is None else dropped.inside.get(name)
        if branches is not None:
            yield Dropped(0, branches)


def note_location(uri: str) -> tuple[str, str]:
    """Returns where the note of the table at `uri` is: a store's root, and the path below it."""
    location = parse_location(uri)
    if location.external:
        # A note is not a version: it is stored in the bucket, and not in the manifest store.
        uri = uri.partition("?")[0].replace(f"{location.scheme}://", "s3://", 1)
    if not location.segments:
        return uri, INSIDE
    name = location.segments[-1]
    # A name that begins with a dot may be reserved for temporary files.
    name = f"{_DOT}{name[1:]}" if name.startswith(".") else name
    folder = uri.rpartition("/")[0]
    return "file:///" if folder == "file://" else folder, f"{FOLDER}/{name}"


def noted_inside(notes: Iterable[tuple[str, bytes]]) -> dict[str, tuple[DroppedBranch, ...]]:
    """Returns what notes say of tables that were in a table's folder, as `Dropped.inside`.

    `notes`: paths relative to the table's root, each with the file's bytes. Damaged notes are skipped.
    """
    inside: dict[str, tuple[DroppedBranch, ...]] = {}
    for path, data in notes:
        folder, name = path.rpartition("/")[0], path.rpartition("/")[2]
        name = f".{name.removeprefix(_DOT)}" if name.startswith(_DOT) else name
        root = "/".join(filter(None, (folder.removesuffix(FOLDER).rstrip("/"), name)))
        try:
            dropped = decode_dropped(data, path)
        except DamagedError:
            continue
        inside[root] = dropped.branches
        inside.update({f"{root}/{name}": branches for name, branches in dropped.inside.items()})
    return inside


def is_note_inside(path: str) -> bool:
    """Returns whether a path is that of the note of a table in the folder of this one.

    The path is relative to the table's root.
    """
    return path.split("/")[-2:-1] == [FOLDER]


def branches_at(uri: str) -> Iterator[tuple[str, str]]:
    """Yields the possible (root, branch) pairs of `uri`: a main branch, or a branch of a table above it."""
    yield uri, ""
    start, mark, query = uri.partition("?") if parse_location(uri).external else (uri, "", "")
    parts = start.split(f"/{TREE}/")
    for number in range(1, len(parts)):
        main = f"/{TREE}/".join(parts[:number])
        yield f"{main}{mark}{query}", f"/{TREE}/".join(parts[number:])


def _branches_json(branches: Iterable[DroppedBranch]) -> list[dict[str, Any]]:
    return [
        {
            "branch": noted.branch,
            "table_id": noted.table_id,
            "version": noted.version,
            "positions": [position_json(position) for position in noted.positions],
        }
        for noted in branches
    ]


def _all_joined(
    older: tuple[DroppedBranch, ...], newer: tuple[DroppedBranch, ...]
) -> tuple[DroppedBranch, ...]:
    names = dict.fromkeys(noted.branch for noted in (*older, *newer))
    return tuple(_joined(name, [*older, *newer]) for name in names)


def _joined(branch: str, notes: Iterable[DroppedBranch]) -> DroppedBranch:
    """Returns what all notes say of a branch, the older notes first."""
    own = [noted for noted in notes if noted.branch == branch]
    last: dict[LogId, Position] = {}
    for position in (position for noted in own for position in noted.positions):
        noted_before = last.pop(position.log, position)
        last[position.log] = max(noted_before, position, key=lambda at: at.offset)
    return replace(own[-1], positions=tuple(last.values())[-MOST_LOGS:])


def _folder_name(text: str) -> str:
    """Returns the name of a folder next to the table. Raises `ValueError` if it leads anywhere else."""
    if "/" in text or text in {".", ".."} or "\0" in text:
        raise ValueError(f"{text!r} is not a folder's name")
    return text


def _branch_from(note: Mapping[str, Any]) -> DroppedBranch:
    positions = tuple(position_from(value) for value in note["positions"])
    present = tuple(position for position in positions if position is not None)
    return DroppedBranch(str(note["branch"]), str(note["table_id"]), int(note["version"]), present)
