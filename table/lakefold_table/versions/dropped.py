"""The note that a dropped table leaves beside the place where it lay: how far its log was folded into it.

A table that isn't there may have been dropped on purpose, or its store may be away; the place looks the
same. Who meets it missing, and knows that a proposal was folded into it, looks here. A note speaks of
positions: what was folded up to there lay in what was dropped. So it says nothing of a table that is made at
the same place later, nor of one that is put back and folded on, whatever its id and whatever any clock says.

The note of `/lake/flights` is `/lake/.lakefold-dropped/flights`; where the table is a whole bucket it lies
inside, as `_lakefold/dropped`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.branch_names import TREE
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.marks.marks import position_from, position_json
from lakefold_table.roots import parents
from lakefold_table.storage import open_canonical
from lakefold_table.uri import place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakefold_table.position import LogId, Position

FOLDER: Final = ".lakefold-dropped"
INSIDE: Final = "_lakefold/dropped"
_DOT: Final = "%2E"
MOST_LOGS: Final = 256
"""So many positions a line keeps at most, those that were noted last: a place where tables come and go."""


@dataclass(frozen=True, slots=True)
class DroppedBranch:
    """Of a main line (`branch` is empty) or a branch: the last position folded from each log.

    `table_id` and `version` are for people.
    """

    branch: str
    table_id: str
    version: int
    positions: tuple[Position, ...]

    def offset_of(self, log: LogId) -> int | None:
        """The last offset of this log, None where it isn't told."""
        return max((one.offset for one in self.positions if one.log == log), default=None)


@dataclass(frozen=True, slots=True)
class Dropped:
    """What is noted of one place. `time_us`: when (for people). `removing`: files of it may be left.

    On a local disk those lie in the folder `aside`, next to the place. `condemned`: what was moved there is
    known to be the table that was dropped. `inside`: the lines of tables that lay in its folder and were
    dropped before, by their paths below its root: their own notes went with the folder.
    """

    time_us: int
    lines: tuple[DroppedBranch, ...] = ()
    removing: bool = field(default=False, kw_only=True)
    aside: str = field(default="", kw_only=True)
    condemned: bool = field(default=False, kw_only=True)
    inside: Mapping[str, tuple[DroppedBranch, ...]] = field(default_factory=dict, kw_only=True)

    @property
    def version(self) -> int:
        """The last version of the main line, for people; 0 where none is told."""
        return next((one.version for one in self.lines if not one.branch), 0)

    def covers(self, branch: str, position: Position) -> bool:
        """Whether what was folded at this position into this line lay in what was dropped.

        Of a branch that was gone before the table was, the other lines tell: all of them lay there.
        """
        own = [one for one in self.lines if one.branch == branch]
        for lines in (own, self.lines):
            offsets = [one.offset_of(position.log) for one in lines]
            found = [offset for offset in offsets if offset is not None]
            if found:
                return max(found) >= position.offset
        return False

    def after(self, older: Dropped | None) -> Dropped:
        """With what was noted of the same place before, as far as this says nothing newer."""
        if older is None:
            return self
        inside = {name: _all_joined(older.inside.get(name, ()), lines) for name, lines in self.inside.items()}
        lines = _all_joined(older.lines, self.lines)
        return replace(self, lines=lines, inside={**older.inside, **inside})

    def encode(self) -> bytes:
        """The note's bytes."""
        content: dict[str, Any] = {"time_us": self.time_us, "removing": self.removing}
        content["lines"] = _lines_json(self.lines)
        if self.inside:
            content["inside"] = {name: _lines_json(lines) for name, lines in self.inside.items()}
        if self.aside:
            content.update(aside=self.aside, condemned=self.condemned)
        return json.dumps(content, indent=1).encode()


def decode_dropped(data: bytes, where: str) -> Dropped:
    """The note whose `encode` this is. Raises `DamagedError` otherwise."""
    try:
        told = json.loads(data)
        lines = tuple(_line_of(one) for one in told["lines"])
        return Dropped(
            int(told["time_us"]),
            lines,
            removing=bool(told["removing"]),
            aside=_folder_name(told.get("aside", "")),
            condemned=bool(told.get("condemned", False)),
            inside={name: tuple(map(_line_of, each)) for name, each in told.get("inside", {}).items()},
        )
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        hint = "remove it, and drop the table again"
        message = f"the note of a dropped table can't be read: {error!r}"
        raise DamagedError(message, where=where, hint=hint) from error


def read_dropped(uri: str, storage_options: Mapping[str, str] | None = None) -> Dropped | None:
    """The note of the table at `uri`, None where there is none. Raises what the store raises."""
    root, path = note_place(uri)
    try:
        data = open_canonical(root, storage_options).get(path)
    except FileNotFoundError:
        return None
    return decode_dropped(data, f"{root}/{path}")


def write_dropped(uri: str, dropped: Dropped, storage_options: Mapping[str, str] | None = None) -> None:
    """Note it, in the place of what was noted before. Raises what the store raises."""
    root, path = note_place(uri)
    open_canonical(root, storage_options).put(path, [dropped.encode()])


def was_dropped(uri: str, position: Position, storage_options: Mapping[str, str] | None = None) -> bool:
    """Whether what was folded at this position into the line at `uri` is gone because it was dropped.

    The line may be a branch: then the note lies beside its main line. Or the folder of another table in which
    it lay was dropped later: then that one's note tells, as far as it may be read.
    """
    for main, branch in lines_at(uri):
        found = read_dropped(main, storage_options)
        if found is not None and found.covers(branch, position):
            return True
        if any(one.covers(branch, position) for one in _noted_around(main, storage_options)):
            return True
    return False


def _noted_around(uri: str, storage_options: Mapping[str, str] | None) -> Iterator[Dropped]:
    """What the notes of tables around this place tell of it."""
    segments = place(uri).segments
    for outer in parents(uri):
        try:
            found = read_dropped(outer, storage_options)
        except InvalidError:
            # It may lie where nobody may look.
            continue
        lines = None if found is None else found.inside.get("/".join(segments[len(place(outer).segments) :]))
        if lines is not None:
            yield Dropped(0, lines)


def note_place(uri: str) -> tuple[str, str]:
    """Where the note of the table at `uri` lies: a store's root, and the path below it."""
    found = place(uri)
    if found.external:
        # No version: it lies in the bucket, and nothing of it in the manifest store.
        uri = uri.partition("?")[0].replace(f"{found.scheme}://", "s3://", 1)
    if not found.segments:
        return uri, INSIDE
    name = found.segments[-1]
    # A name that begins with a dot may be kept for temporary files.
    name = f"{_DOT}{name[1:]}" if name.startswith(".") else name
    folder = uri.rpartition("/")[0]
    return "file:///" if folder == "file://" else folder, f"{FOLDER}/{name}"


def noted_inside(notes: Iterable[tuple[str, bytes]]) -> dict[str, tuple[DroppedBranch, ...]]:
    """What notes tell of tables that lay in a table's folder, as `Dropped.inside`.

    `notes`: paths relative to the table's root, each with the file's bytes. A damaged one tells nothing.
    """
    inside: dict[str, tuple[DroppedBranch, ...]] = {}
    for path, data in notes:
        folder, name = path.rpartition("/")[0], path.rpartition("/")[2]
        name = f".{name.removeprefix(_DOT)}" if name.startswith(_DOT) else name
        root = "/".join(filter(None, (folder.removesuffix(FOLDER).rstrip("/"), name)))
        try:
            found = decode_dropped(data, path)
        except DamagedError:
            continue
        inside[root] = found.lines
        inside.update({f"{root}/{one}": lines for one, lines in found.inside.items()})
    return inside


def is_note_inside(path: str) -> bool:
    """Whether a path, relative to a table's root, is that of the note of a table that lay in its folder."""
    return path.split("/")[-2:-1] == [FOLDER]


def lines_at(uri: str) -> Iterator[tuple[str, str]]:
    """What the line at `uri` may be, as root and branch: a main line, or a branch of one above it."""
    yield uri, ""
    start, mark, query = uri.partition("?") if place(uri).external else (uri, "", "")
    parts = start.split(f"/{TREE}/")
    for number in range(1, len(parts)):
        main = f"/{TREE}/".join(parts[:number])
        yield f"{main}{mark}{query}", f"/{TREE}/".join(parts[number:])


def _lines_json(lines: Iterable[DroppedBranch]) -> list[dict[str, Any]]:
    return [
        {
            "branch": one.branch,
            "table_id": one.table_id,
            "version": one.version,
            "positions": [position_json(position) for position in one.positions],
        }
        for one in lines
    ]


def _all_joined(
    older: tuple[DroppedBranch, ...], newer: tuple[DroppedBranch, ...]
) -> tuple[DroppedBranch, ...]:
    names = dict.fromkeys(one.branch for one in (*older, *newer))
    return tuple(_joined(name, [*older, *newer]) for name in names)


def _joined(branch: str, lines: Iterable[DroppedBranch]) -> DroppedBranch:
    """What all notes of one line say, the older ones first."""
    own = [one for one in lines if one.branch == branch]
    last: dict[LogId, Position] = {}
    for position in (position for one in own for position in one.positions):
        known = last.pop(position.log, position)
        last[position.log] = max(known, position, key=lambda one: one.offset)
    return replace(own[-1], positions=tuple(last.values())[-MOST_LOGS:])


def _folder_name(text: str) -> str:
    """The name of a folder next to the table. Raises `ValueError` if it leads anywhere else."""
    if "/" in text or text in {".", ".."} or "\0" in text:
        raise ValueError(f"{text!r} is no folder's name")
    return text


def _line_of(told: Mapping[str, Any]) -> DroppedBranch:
    positions = tuple(position_from(one) for one in told["positions"])
    known = tuple(one for one in positions if one is not None)
    return DroppedBranch(str(told["branch"]), str(told["table_id"]), int(told["version"]), known)
