"""Recognises keys that were folded before: apps' batch ids, or entries' uuids (at-most-once-per-key)."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from lakefold_table.entry import Conflict, Duplicate, Entry, Invalid, Rejected
from lakefold_table.marks.batches import AppMark, GrowingMark
from lakefold_table.marks.content_digest import UNKNOWN, differs, digests
from lakefold_table.marks.marks import (
    APP_BYTES,
    KEPT_APPS,
    LONG_APPS_BYTES,
    MAX_APP_ID,
    MAX_PROMOTED,
    MAX_UUIDS,
    OLDER_APPS_BYTES,
    Marks,
)
from lakefold_table.marks.promoted_keys import folded_on_both, lacking, last_of
from lakefold_table.marks.reverts import UndoneEntries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_protos.lakefold.log_pb2 import BatchKey, Promotes, Reverts


PROMOTE: Final = "promote"
"""What a proposal does that puts a branch onto another one, beside its operation in the format."""
MOST_KEYS: Final = 24
"""How many keys a refusal names at most."""


class Keys:
    """The keys of a table while a group is folded."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._apps = dict(marks.apps)
        self._growing: dict[str, GrowingMark] = {}
        self._uuids = dict(marks.uuids)
        self._uuids_rolled_back = dict(marks.uuids_rolled_back)
        self._reverts = marks.reverts
        self._promoted = marks.promoted
        names = [uuid for uuid, _ in marks.uuids] if marks.uuid_contents else []
        self._contents: dict[str, str | Entry] = dict(zip(names, marks.uuid_contents, strict=True))

    def seen(self, entry: Entry) -> Duplicate | Invalid | None:
        """Returns the answer to an entry whose key was folded before or can't be kept, None for a new key.

        A key whose entry was undone is new if its writer asks for that (`Envelope.after_revert`).
        """
        app_id, batch_id = entry.app_id, entry.batch_id
        if len(app_id) > MAX_APP_ID:
            return Invalid(
                f"the app id has {len(app_id)} characters",
                f"use at most {MAX_APP_ID}: every version keeps it",
            )
        if not app_id or batch_id is None:
            version = self._uuids.get(entry.uuid) if entry.uuid else None
            again = entry.envelope.after_revert and entry.uuid in self._uuids_rolled_back
            return None if version is None or again else self._uuid_again(entry, version)
        mark = self._growing.get(app_id) or self._apps.get(app_id)
        if mark is None:
            return None
        if mark.has(batch_id):
            if entry.envelope.after_revert and mark.rolled_back_by(batch_id):
                return None
            different = differs(mark.content_of(batch_id), entry)
            return Duplicate(mark.version_of(batch_id), mark.rolled_back_by(batch_id), different)
        if batch_id < mark.forgotten_below:
            return Invalid(
                f"batch {batch_id} of app {app_id!r} is too old to check whether it was folded",
                f"batches from {mark.forgotten_below} on can be checked. Look whether the table has its "
                "rows: if it has, there is nothing to do; only if it has not, send them under a new app id",
            )
        return None

    def _uuid_again(self, entry: Entry, version: int) -> Duplicate:
        contents = digests([self._contents.get(entry.uuid)]) or (UNKNOWN,)
        rolled_back_by = self._uuids_rolled_back.get(entry.uuid, 0)
        return Duplicate(version, rolled_back_by, differs(contents[0], entry))

    def add(self, entry: Entry, version: int, time_us: int, recorded_batch: int | None = None) -> None:
        """Remembers the key of an entry that became part of `version`. `time_us`: the entry's log time.

        `recorded_batch`: see `Accepted`. Once the table records the entry's batch instead, only the marks say
        that this batch and those before it are to be passed over.
        """
        app_id, batch_id = entry.app_id, entry.batch_id
        if app_id and batch_id is not None:
            growing = self._grown(app_id)
            if recorded_batch is not None:
                growing.pass_over(recorded_batch)
            growing.add(batch_id, version, time_us, entry)
        elif entry.uuid:
            self._uuids.pop(entry.uuid, None)
            self._uuids[entry.uuid] = version
            self._uuids_rolled_back.pop(entry.uuid, None)
            self._contents[entry.uuid] = entry

    def _grown(self, app_id: str) -> GrowingMark:
        """Returns the mark of an app as it is to be changed."""
        growing = self._growing.get(app_id)
        if growing is None:
            growing = self._growing[app_id] = GrowingMark(self._apps.setdefault(app_id, AppMark()))
        return growing

    def undo(self, undone: Reverts, version: int) -> None:
        """Notes that `version` undoes these entries; keys that were not folded are passed over.

        If one of these had undone others, or was a Restore, what it had left out is in the table again. Such
        an entry is alone in its version. Keys of other versions were undone by what is in force again.
        """
        entries = [UndoneEntries(each.version, tuple(each.offsets)) for each in undone.entries]
        self._reverts = self._reverts.with_revert(version, entries)
        for key in undone.keys:
            if key.app_id and key.HasField("batch_id"):
                if key.app_id not in self._apps or not self._grown(key.app_id).has(key.batch_id):
                    continue
                folded_in = self._grown(key.app_id).version_of(key.batch_id)
            elif key.uuid in self._uuids:
                folded_in = self._uuids[key.uuid]
            else:
                continue
            is_named = folded_in in {each.version for each in entries}
            self._leave_out(key, version if is_named else self._reverts.undone_by(folded_in) or version)
            if folded_in:
                self._bring_back(folded_in)
                self._promoted = tuple(
                    (*each[:3], version) if each[2] == folded_in else each for each in self._promoted
                )
        left_out_by = {part[2] for mark in self._marks.apps.values() for part in mark.rolled_back}
        for by in sorted(left_out_by | set(self._marks.uuids_rolled_back.values())):
            # Another client's Restore has no key; a Restore has what was left out of the version restored.
            if self._reverts.undone_by(by):
                self._bring_back(by)

    def promote_fault(self, promotes: Promotes) -> Rejected | Invalid | None:
        """Returns why another branch can't be promoted as proposed; None if it can.

        It was built on the last promote of that branch, and none of its batches was folded here meanwhile.
        """
        named = [*promotes.keys, *promotes.undone, *promotes.left_out]
        if max(len(promotes.fork), *(len(key.app_id) for key in named), 0) > MAX_APP_ID or not promotes.fork:
            hint = f"use at most {MAX_APP_ID} characters: every version keeps them"
            return Invalid("the names of the apps and of the fork are too long, or missing", hint)
        done = self._marks.last_promote(promotes.fork)
        if done != (promotes.since, promotes.since_version):
            message = f"branch {promotes.branch} is promoted up to its version {done[0]} now"
            return Rejected(Conflict(retryable=True, message=message, other_version=done[1]))
        here = list(islice(folded_on_both(self._marks, promotes), MOST_KEYS))
        if not here:
            return None
        message = (
            f"{here[0]} was folded on branch {promotes.branch} and here, so its rows would be here twice: "
            "undo it on one of them by `lakefold revert`"
        )
        return Rejected(Conflict(retryable=False, message=message, keys=tuple(here)))

    def promote(self, promotes: Promotes, version: int, time_us: int) -> None:
        """Remembers the keys that `version` has from another branch, and how far that was promoted."""
        for key in promotes.keys:
            self._grown(key.app_id).add_range(key.batch_id, last_of(key), version, time_us)
        for part in (part for key in promotes.left_out for part in lacking(self._marks, key)):
            self._grown(part.app_id).add_range(part.batch_id, last_of(part), version, time_us)
            self._leave_out(part, version)
        for key in promotes.undone:
            if key.app_id in self._apps:
                self._leave_out(key, version)
        promoted = (*self._promoted, (promotes.fork, promotes.until, version, 0))
        self._promoted = promoted[-MAX_PROMOTED:]

    def _leave_out(self, key: BatchKey, version: int) -> None:
        if key.app_id and key.HasField("batch_id"):
            self._grown(key.app_id).roll_back(key.batch_id, last_of(key), version)
        else:
            self._uuids_rolled_back[key.uuid] = version

    def _bring_back(self, by: int) -> None:
        self._promoted = tuple((*each[:3], 0) if each[3] == by else each for each in self._promoted)
        for app_id, mark in list(self._apps.items()):
            if app_id in self._growing or any(part[2] == by for part in mark.rolled_back):
                self._grown(app_id).bring_back(by)
        self._uuids_rolled_back = {
            uuid: version for uuid, version in self._uuids_rolled_back.items() if version != by
        }

    def forget(self, app_id: str) -> bool:
        """Forgets the batches of an app, before any other entry. Returns whether there were any."""
        return self._apps.pop(app_id, None) is not None

    def marks(self) -> Marks:
        """Returns the marks with these keys, bounded.

        The `KEPT_APPS` whose last batches are in the newest versions are kept whole. Of the others less is
        kept (`AppMark.shortened`), until their text is too long: then those are forgotten whose last batches
        are in the oldest versions. So any number of apps may write, and no clock makes a table forget one. Of
        an app whose batch ids have too many gaps the lowest ids are forgotten (`AppMark.within`).
        """
        apps = self._apps | {name: growing.mark() for name, growing in self._growing.items()}
        if len(apps) > KEPT_APPS:
            apps = _shortened(apps)
        apps.update(_within({name: mark for name, mark in apps.items() if mark.is_long}))
        uuids = tuple(self._uuids.items())[-MAX_UUIDS:]
        newest, rolled_back = dict(uuids), self._uuids_rolled_back
        return replace(
            self._marks,
            apps=apps,
            promoted=self._promoted,
            uuids=uuids,
            uuid_contents=digests(self._contents.get(uuid) for uuid in newest),
            uuids_rolled_back={uuid: by for uuid, by in rolled_back.items() if uuid in newest},
            reverts=self._reverts,
        )


def _within(apps: Mapping[str, AppMark]) -> dict[str, AppMark]:
    """Returns long marks within `APP_BYTES`, and all of them within `LONG_APPS_BYTES`.

    For that the apps whose last batches are in the oldest versions forget batch ids first.
    """
    kept: dict[str, AppMark] = {}
    spare = LONG_APPS_BYTES
    for name in sorted(apps, key=lambda name: (apps[name].last_version, name), reverse=True):
        kept[name] = apps[name].within(min(APP_BYTES, max(spare, 0)))
        spare -= len(kept[name].encoded)
    return kept


def _shortened(apps: Mapping[str, AppMark]) -> dict[str, AppMark]:
    """Returns the marks with those shortened that are not the `KEPT_APPS` newest: see `Keys.marks`."""
    whole = {name: mark for name, mark in apps.items() if not mark.is_short}
    older = {name: mark for name, mark in apps.items() if mark.is_short}
    spare = len(whole) - KEPT_APPS
    if spare <= 0:
        return older | whole
    for name in sorted(whole, key=lambda name: (whole[name].last_version, name))[:spare]:
        older[name] = whole.pop(name).shortened()
    length, forgotten = 0, set[str]()
    for name in reversed(older):
        length += len(older[name].short_form(name)) + 1
        if length > OLDER_APPS_BYTES:
            forgotten.add(name)
    return {name: mark for name, mark in older.items() if name not in forgotten} | whole
