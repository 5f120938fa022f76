"""What a version remembers of the log, so that the table itself shows what has been folded into it.

Marks are stored in the table's metadata under keys that begin with `lakefold.`. Any client can read them, and
every version carries them on, whichever client makes it (Lance fact 2.5). They are bounded: 1,000 apps with
at most 256 KiB each, 1 MiB of those with more than 32 intervals of batch ids, 128 KiB of apps of which only
the last interval is kept, 256 uuids, 64 file logs, 16 moves from one log to another. For keys that a Restore
left out of the table the marks remember which Restore that was. For the newest 16 batches of an app, and for
the uuids, they remember a digest of the content.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakefold_table.errors import DamagedError
from lakefold_table.marks.batches import AppMark, short_marks
from lakefold_table.marks.compact_json import compact, text_of, whole
from lakefold_table.marks.content_digest import split
from lakefold_table.marks.owner import Owner
from lakefold_table.marks.reverts import Reverts
from lakefold_table.position import Fingerprint, LogId, Position
from lakefold_table.values import uuid_form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_table.format import State

PREFIX = "lakefold."
TABLE_ID = "lakefold.table-id"
MARK = "lakefold.mark"
FILE_LOGS = "lakefold.file-logs"
UUIDS = "lakefold.uuids"
UUID_CONTENTS = "lakefold.uuid-contents"
UUIDS_ROLLED_BACK = "lakefold.uuids-rolled-back"
REVERTS = "lakefold.reverts"
PROMOTED = "lakefold.promoted"
MOVES = "lakefold.logs"
APP = "lakefold.app."
OLDER_APPS = "lakefold.older-apps"
"""The apps with short marks, as a JSON array, those first that have been silent for longer."""

RULES = 1
"""The version of the rules by which this release folds, which each version records.

A release whose fold answers or writes something else has the next number. A committer steps down if it finds
a number above its own.
"""
KEPT_APPS = 1000
OLDER_APPS_BYTES = 2**17
"""How long the text of short marks may be: some 2,500 apps with ids of 36 characters."""
APP_BYTES = 2**18
"""How long the text of one app's mark may be: some 50,000 batch ids that are 1,000 to 10,000 apart."""
LONG_APPS_BYTES = 2**20
"""How long the text of all marks with more than the intervals that are always kept may be."""
MAX_APP_ID = 256
MAX_UUIDS = 256
MAX_FILE_LOGS = 64
MAX_MOVES = 16
MAX_PROMOTED = 64


class RebindReason(StrEnum):
    """Why a table follows its log from a position other than that after the last folded one.

    The first two happen while folding, if `--accept-new-log` allows it; the others are done by verbs.
    """

    NEW_LOG = "new log accepted"
    LOST = "loss accepted"
    ADOPTED = "adopted"
    REBOUND = "rebound"
    DETACHED = "detached"
    RESTORED = "restored"
    DROPPED = "dropped"

    @property
    def by_verb(self) -> bool:
        """Whether an operator's verb made the version that records the move, rather than an entry."""
        return self not in {RebindReason.NEW_LOG, RebindReason.LOST}


@dataclass(frozen=True, slots=True)
class Rebinding:
    """A table's move from one position to another, of the same log or of another.

    No entry made it, except for the entry that deletes a branch.

    `before`: the last position that was folded (None: none was). `after`: the position that counts as the
    last folded position from then on, offset -1 for a log from its start; None: the table follows no log.
    `time_us`: the log time of the first entry that was folded then, or the time of the verb. `fingerprint`:
    that of the entry at `after`, if it was read from the log.
    """

    why: RebindReason
    before: Position | None
    after: Position | None
    time_us: int = 0
    fingerprint: Fingerprint | None = None

    def __str__(self) -> str:
        return f"from {describe_position(self.before)} to {describe_position(self.after)}"

    def encode(self) -> str:
        """Returns the move as text, for a version's properties."""
        return compact(_move_json(self))

    @classmethod
    def decode(cls, text: str) -> Rebinding:
        """Returns the move that `encode` was called on. Raises `ValueError`, `KeyError` or `TypeError`."""
        return _move_of(json.loads(text))


@dataclass(frozen=True, slots=True)
class AppCounts:
    """How many apps marks keep whole, and how many shortened, and the length of both as text, in bytes.

    `forgetful`: of how many the marks have forgotten lower batch ids, which can't be checked any more.
    """

    whole: int = 0
    shortened: int = 0
    bytes: int = 0
    forgetful: int = 0

    def changed(self, before: AppCounts, now: AppCounts) -> AppCounts:
        """Returns the counts of several tables after those of one of them have changed."""
        whole = self.whole - before.whole + now.whole
        shortened = self.shortened - before.shortened + now.shortened
        length, forgetful = self.bytes - before.bytes, self.forgetful - before.forgetful
        return AppCounts(whole, shortened, length + now.bytes, forgetful + now.forgetful)


NO_APPS = AppCounts()


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of a version. `version`: the version for which they were made.

    `position`: the last position that was folded from the Kafka log that the table is bound to (None: not
    bound). `moves`: how the table was bound to that log, oldest first. `fingerprint`: distinguishes the entry
    at that position from any other (None: an older release folded it, or the table was moved there without
    one). `operations`: for each kind of operation the newest version of that kind, complete after
    `operations_since`. `uuid_contents`: the digests of the contents of the proposals of `uuids`, in the same
    order (empty if none is known). `uuids_rolled_back`: those of `uuids` whose rows a Restore left out, or a
    later entry undid, each with the version that did it. `promoted`: the last promotes of other branches,
    oldest first: the fork, the version up to which its rows are here, the version that has them, and that
    which undid this (0: none did).
    `restored_us`: when `rebind --restored` last gave up what was folded after the copy that the table was
    restored to, in microseconds since 1970; 0: never. `reverts`: the versions that undid entries.
    """

    table_id: str = ""
    branch: str = ""
    version: int = 0
    epoch: int = 0
    rules: int = RULES
    position: Position | None = None
    moves: tuple[Rebinding, ...] = ()
    operations_since: int = 0
    operations: Mapping[str, int] = field(default_factory=dict)
    file_logs: tuple[tuple[str, int], ...] = ()
    uuids: tuple[tuple[str, int], ...] = ()
    apps: Mapping[str, AppMark] = field(default_factory=dict)
    owner: Owner | None = None
    fingerprint: Fingerprint | None = None
    uuid_contents: tuple[str, ...] = ()
    uuids_rolled_back: Mapping[str, int] = field(default_factory=dict)
    restored_us: int = 0
    reverts: Reverts = field(default_factory=Reverts)
    promoted: tuple[tuple[str, int, int, int], ...] = ()

    @property
    def full_id(self) -> str:
        """Distinguishes the table from any other at its location, also from the one before it was restored.

        Proposals name it (`Envelope.table_id`). Empty if nothing was folded into the table.
        """
        return f"{self.table_id}@{self.restored_us}" if self.restored_us else self.table_id

    @property
    def app_counts(self) -> AppCounts:
        """How many apps these marks know, in time that grows with the apps."""
        short = sum(mark.is_short for mark in self.apps.values())
        length = sum(
            len(mark.short_form(app_id)) + 1 if mark.is_short else len(APP + app_id) + len(mark.encoded)
            for app_id, mark in self.apps.items()
        )
        forgetful = sum(mark.forgotten_below > 0 for mark in self.apps.values())
        return AppCounts(len(self.apps) - short, short, length, forgetful)

    def rolled_back_by(self, app_id: str, batch_id: int | None, uuid: str) -> int:
        """Returns the version that left the rows of a key out of the table or undid them, 0 if unknown."""
        if not app_id or batch_id is None:
            return self.uuids_rolled_back.get(uuid, 0)
        return self.apps[app_id].rolled_back_by(batch_id) if app_id in self.apps else 0

    def last_promote(self, fork: str) -> tuple[int, int]:
        """Returns up to which version another branch was promoted, and the version that has it; 0 if none."""
        each = (promote[1:3] for promote in reversed(self.promoted) if (promote[0], promote[3]) == (fork, 0))
        return next(each, (0, 0))

    def offset_of(self, log: LogId) -> int:
        """Returns the last offset that was folded from this log, -1 if none was."""
        if log.is_file:
            return dict(self.file_logs).get(log.topic_id, -1)
        past = (move.before for move in reversed(self.moves))
        positions = (self.position, *past)
        offsets = (position.offset for position in positions if position is not None and position.log == log)
        return next(offsets, -1)

    @property
    def detached(self) -> bool:
        """Whether the table was bound to a log, and no longer follows any."""
        return self.position is None and bool(self.moves)

    @property
    def dropped(self) -> bool:
        """Whether the table is being deleted by `lakefold drop`, or the branch was deleted by an entry.

        It must not be bound or written to.
        """
        return self.detached and self.moves[-1].why is RebindReason.DROPPED

    @property
    def deleted_by(self) -> Position | None:
        """The position of the entry that deleted the branch, None if none did. It counts as dropped."""
        return self.moves[-1].before if self.dropped else None

    def moved(self, move: Rebinding) -> Marks:
        """Returns the marks after a move."""
        moves = (*self.moves, move)[-MAX_MOVES:]
        gives_up = move.why is RebindReason.RESTORED and move.after != move.before
        restored_us = move.time_us if gives_up else self.restored_us
        return replace(
            self, position=move.after, moves=moves, fingerprint=move.fingerprint, restored_us=restored_us
        )

    def at(self, position: Position, fingerprint: Fingerprint | None = None) -> Marks:
        """Returns the marks with this position as the last that was folded from its log.

        `fingerprint`: that of the entry at this position. A file log needs none, as it is named by its
        content.
        """
        if not position.log.is_file:
            return replace(self, position=position, fingerprint=fingerprint)
        name = position.log.topic_id
        others = tuple(other for other in self.file_logs if other[0] != name)
        return replace(self, file_logs=(*others, (name, position.offset))[-MAX_FILE_LOGS:])

    def dated(self, time_us: int) -> Marks:
        """Returns the marks with this as the time of the last move."""
        return replace(self, moves=(*self.moves[:-1], replace(self.moves[-1], time_us=time_us)))

    def encode(self) -> dict[str, str]:
        """Returns the marks as keys and values of the table's metadata."""
        position = self.position
        mark = {
            "version": self.version,
            "branch": self.branch,
            "epoch": self.epoch,
            "rules": self.rules,
            "log": position_json(position),
            "operations_since": self.operations_since,
            "operations": dict(sorted(self.operations.items())),
        }
        if self.owner is not None:
            mark["owner"] = [self.owner.chain, self.owner.generation]
        if self.fingerprint is not None:
            mark["entry"] = _fingerprint_json(self.fingerprint)
        if self.restored_us:
            mark["restored_us"] = self.restored_us
        encoded = {TABLE_ID: self.table_id, MARK: compact(mark)}
        texts = {
            FILE_LOGS: compact(self.file_logs) if self.file_logs else "",
            MOVES: compact([_move_json(move) for move in self.moves]) if self.moves else "",
            UUIDS: compact(self.uuids) if self.uuids else "",
            UUID_CONTENTS: "".join(self.uuid_contents),
            UUIDS_ROLLED_BACK: compact([*self.uuids_rolled_back.items()]) if self.uuids_rolled_back else "",
            REVERTS: self.reverts.encode(),
            PROMOTED: compact(self.promoted) if self.promoted else "",
        }
        encoded |= {name: text for name, text in texts.items() if text}
        older = [mark.short_form(app_id) for app_id, mark in self.apps.items() if mark.is_short]
        if older:
            encoded[OLDER_APPS] = f"[{','.join(older)}]"
        marks = ((app_id, mark) for app_id, mark in self.apps.items() if not mark.is_short)
        encoded.update((APP + app_id, mark.encoded) for app_id, mark in marks)
        return encoded


def decode_marks(metadata: Mapping[str, str], where: str = "") -> Marks | None:
    """Returns the marks in a table's metadata, or None if it has none.

    Raises `DamagedError` if they are broken.
    """
    if MARK not in metadata:
        return None
    try:
        return _decoded(metadata)
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise DamagedError(
            f"the marks in the table's metadata can't be read: {error!r}",
            where=where,
            hint=f"restore the keys that begin with {PREFIX} from an older version",
        ) from error


def own_marks(state: State, uri: str) -> Marks:
    """Returns the marks of a version that a committer made. Raises `DamagedError` if it has none."""
    marks = decode_marks(state.metadata, uri)
    if marks is None or marks.version != state.version:
        raise DamagedError(
            f"version {state.version} was made by a committer, but has no marks of its own",
            where=uri,
            hint="its file was changed: restore it",
        )
    return marks


def with_keys_of(marks: Marks, metadata: Mapping[str, str]) -> Marks:
    """Returns the marks with the keys that a version's metadata has, and nothing else of them.

    So a branch begins with the keys of the version that it begins at, whose rows it has. If they can't be
    read, it has none.
    """
    try:
        then = decode_marks(metadata) or Marks()
    except DamagedError:
        then = Marks()
    return replace(
        marks,
        apps=then.apps,
        uuids=then.uuids,
        uuid_contents=then.uuid_contents,
        uuids_rolled_back=then.uuids_rolled_back,
        reverts=then.reverts,
    )


def app_mark_in(metadata: Mapping[str, str], app_id: str) -> AppMark | None:
    """Returns the mark of one app, None if it has none. The marks must be sound."""
    encoded = metadata.get(APP + app_id)
    if encoded is not None:
        return AppMark.decode(encoded)
    return short_marks(metadata.get(OLDER_APPS, "[]")).get(app_id)


def digest_of_marks(metadata: Mapping[str, str]) -> str:
    """Returns a digest of the marks in a table's metadata as they are written, "" if it has none."""
    marks = sorted((key, value) for key, value in metadata.items() if key.startswith(PREFIX))
    return hashlib.sha256(compact(marks).encode()).hexdigest() if marks else ""


def table_id_of(position: Position) -> str:
    """Returns the id of the table whose first folded entry is at this position: a hash in a UUID's form."""
    digest = hashlib.sha256(f"table {position.log}@{position.offset}".encode()).hexdigest()
    return uuid_form(digest)


def describe_position(position: Position | None) -> str:
    """Returns a position for people, with the topic id that distinguishes logs of the same name."""
    if position is None:
        return "no log"
    at = str(position) if position.offset >= 0 else f"the start of {str(position).removesuffix('@-1')}"
    return f"{at} (topic id {position.log.topic_id})"


def _decoded(metadata: Mapping[str, str]) -> Marks:
    mark = json.loads(metadata[MARK])
    log = mark["log"]
    uuids = _pairs(metadata.get(UUIDS, "[]"))
    return Marks(
        table_id=metadata.get(TABLE_ID, ""),
        branch=text_of(mark["branch"]),
        version=whole(mark["version"]),
        epoch=whole(mark["epoch"]),
        rules=whole(mark["rules"]),
        position=position_from(log),
        moves=tuple(_move_of(move) for move in json.loads(metadata.get(MOVES, "[]"))),
        operations_since=whole(mark["operations_since"]),
        operations={kind: whole(version) for kind, version in mark["operations"].items()},
        file_logs=_pairs(metadata.get(FILE_LOGS, "[]")),
        uuids=uuids,
        apps=short_marks(metadata.get(OLDER_APPS, "[]"))
        | {
            key.removeprefix(APP): AppMark.decode(value)
            for key, value in metadata.items()
            if key.startswith(APP)
        },
        owner=_owner_of(mark.get("owner")),
        fingerprint=_fingerprint_of(mark.get("entry")),
        uuid_contents=split(metadata.get(UUID_CONTENTS, ""), len(uuids)),
        uuids_rolled_back=dict(_pairs(metadata.get(UUIDS_ROLLED_BACK, "[]"))),
        restored_us=whole(mark.get("restored_us", 0)),
        reverts=Reverts.decode(metadata.get(REVERTS, "")),
        promoted=tuple(
            (text_of(fork), whole(until), whole(version), whole(undone_by))
            for fork, until, version, undone_by in json.loads(metadata.get(PROMOTED, "[]"))
        ),
    )


def _owner_of(value: Any) -> Owner | None:  # noqa: ANN401 - what JSON holds
    if value is None:
        return None
    chain, generation = value
    return Owner(text_of(chain), whole(generation))


def _fingerprint_json(fingerprint: Fingerprint) -> list[str]:
    return [fingerprint.digest, fingerprint.uuid]


def _fingerprint_of(value: Any) -> Fingerprint | None:  # noqa: ANN401 - what JSON holds
    if value is None:
        return None
    digest, uuid = value
    return Fingerprint(text_of(digest), text_of(uuid))


def _pairs(text: str) -> tuple[tuple[str, int], ...]:
    return tuple((text_of(name), whole(number)) for name, number in json.loads(text))


def _move_json(move: Rebinding) -> dict[str, Any]:
    form = {
        "why": move.why,
        "before": position_json(move.before),
        "after": position_json(move.after),
        "time_us": move.time_us,
    }
    return form if move.fingerprint is None else {**form, "entry": _fingerprint_json(move.fingerprint)}


def _move_of(value: Mapping[str, Any]) -> Rebinding:
    before, after = position_from(value["before"]), position_from(value["after"])
    fingerprint = _fingerprint_of(value.get("entry"))
    return Rebinding(RebindReason(value["why"]), before, after, whole(value["time_us"]), fingerprint)


def position_json(position: Position | None) -> dict[str, Any] | None:
    """Returns a position as a JSON value."""
    if position is None:
        return None
    return {
        "cluster_id": position.log.cluster_id,
        "topic_id": position.log.topic_id,
        "topic": position.topic,
        "partition": position.log.partition,
        "offset": position.offset,
    }


def position_from(value: Mapping[str, Any] | None) -> Position | None:
    """Returns the position that `position_json` was called with. Raises `KeyError` or `TypeError`."""
    if value is None:
        return None
    log = LogId(text_of(value["cluster_id"]), text_of(value["topic_id"]), whole(value["partition"]))
    return Position(log, whole(value["offset"]), text_of(value["topic"]))
