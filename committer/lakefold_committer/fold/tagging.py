"""What becomes of the tags that entries propose: the answers, and the changes to the table's tags.

A tag makes no version. Each names its version by number, so folding it again gives the same tag, and no key
of it is kept. An entry that creates a tag is also accepted if the tag names that version already, because a
committer may have died after it set the tag and before it reported that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.fold.branch_end import after_end
from lakefold_table.entry import Invalid, Result, Tagged
from lakefold_table.errors import InvalidError
from lakefold_table.ref_files import CONSUMER_TAG
from lakefold_table.tag_proposal import TagChange, TagTarget
from lakefold_table.version_mark import mark_of, version_fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_protos.lakefold.log_pb2 import Tag
    from lakefold_table.entry import Entry
    from lakefold_table.format import State
    from lakefold_table.ref_files import RefFiles
    from lakefold_table.tag_proposal import KnownTags

MAX_NAME = 200
"""The longest name of a tag: file systems have names of 255 bytes at most."""


class TagAnswers:
    """The tags of a table while a group is folded.

    `state`: the table before the group, None if it doesn't exist. `refs`: the files of tags, None if the
    format has none. `replayed`: the answers that were given when the group was folded first, by offset, None
    if it is folded for the first time.
    """

    def __init__(
        self,
        format_name: str,
        refs: RefFiles | None,
        state: State | None,
        known: KnownTags,
        replayed: Mapping[int, Result] | None = None,
    ) -> None:
        self._format_name = format_name
        self._refs = refs
        self._state = state
        self._known = known
        self._replayed = replayed or {}
        self._changes: dict[str, TagChange] = {}

    @property
    def changes(self) -> tuple[TagChange, ...]:
        """The last change of each tag so far."""
        return tuple(self._changes.values())

    def answer(self, entry: Entry, tag: Tag, time_us: int, making: int | None) -> Result | None:
        """Returns the answer to an entry that proposes this tag, and notes the change.

        `time_us`: the time that counts for the entry. `making`: the version that entries before it are part
        of, None if there are none. Returns None if the tag names that version, which doesn't exist yet.
        """
        replayed = self._replayed.get(entry.position.offset)
        if replayed is not None:
            return replayed
        target = None if tag.delete else target_of(tag)
        if making is not None and target == TagTarget("", making):
            return None
        fault = self._fault(entry, tag) or self._conflict(tag, target) or self._other_version(entry, target)
        if fault is not None:
            return fault
        is_new = self._known.tags.get(tag.name) is None
        self._changes[tag.name] = TagChange(tag.name, target, is_new, time_us)
        return Tagged(0 if target is None else target.version, tag.name)

    def _target(self, name: str) -> TagTarget | None:
        """Returns what a tag names at this point of the log, None if it does not exist."""
        change = self._changes.get(name)
        return self._known.tags.get(name) if change is None else change.target

    def _fault(self, entry: Entry, tag: Tag) -> Invalid | None:
        """Returns why no table, or not this one, can have what is proposed; None if it can."""
        envelope = entry.envelope
        if self._state is None:
            hint = "create the table first"
            if envelope.branch:
                return Invalid(f"the table at {envelope.table} has no branch {envelope.branch}", hint)
            return Invalid(f"there is no table at {envelope.table}", hint)
        if self._refs is None:
            hint = "read a version of such a table by its number or a time"
            return Invalid(f"{self._format_name.capitalize()} tables have no tags", hint)
        if self._state.branch:
            hint = "name the main branch in the envelope, and this one in the tag's field `branch`"
            return Invalid(f"{self._state.branch!r} is a branch, and the main branch keeps all tags", hint)
        if envelope.app_id or envelope.HasField("batch_id"):
            hint = "leave app_id and batch_id out: the version in it makes a repetition harmless"
            return Invalid("a tag is kept under no batch id", hint)
        return name_fault(self._refs, tag) or _shape_fault(tag)

    def _conflict(self, tag: Tag, target: TagTarget | None) -> Invalid | None:
        """Returns why the tags and versions that exist don't allow the change; None if they do."""
        if tag.name not in self._known.tags:
            hint = "choose a shorter name, or remove links among the folders of tags"
            return Invalid(f"the store has no file for the tag {tag.name}", hint)
        now = self._target(tag.name)
        if target is None:
            hint = "list the table's tags: lakefold refs TABLE"
            return Invalid(f"the tag {tag.name} does not exist", hint) if now is None else None
        if target not in self._known.versions:
            on_branch = f" on branch {target.branch}" if target.branch else ""
            hint = "name a version that `lakefold log TABLE` lists, and that no clean-up is removing"
            return Invalid(f"there is no version {target.version}{on_branch}", hint)
        if target.branch in self._known.deleted:
            return after_end(self._known.deleted[target.branch])
        if now is not None and now != target and not tag.move:
            hint = "move it, or choose another name"
            return Invalid(f"the tag {tag.name} exists already", hint)
        return None

    def _other_version(self, entry: Entry, target: TagTarget | None) -> Invalid | None:
        """Returns why the target is not the version that the proposal means; None if it is."""
        if target is None:
            return None
        state = self._state
        is_newest = state is not None and target == TagTarget("", state.version)
        mark = mark_of(state) if state is not None and is_newest else self._known.versions.get(target, "")
        return version_fault(entry.envelope, target.version, mark)


def target_of(tag: Tag) -> TagTarget:
    """Returns the version that a proposed tag is to name."""
    return TagTarget.of(tag.branch, tag.version)


def name_fault(refs: RefFiles, tag: Tag) -> Invalid | None:
    """Returns why no tag can have this name, or no proposal may change it; None if the name is sound."""
    name = tag.name
    if len(name) > MAX_NAME:
        return Invalid(f"the tag's name has {len(name)} characters", f"use at most {MAX_NAME}")
    if name.startswith(CONSUMER_TAG):
        hint = "use `lakefold consumers TABLE --set` or `--drop`"
        return Invalid(f"the tag {name} belongs to a named consumer", hint)
    try:
        # A tag that makes trouble in pylance can be removed.
        (refs.check_tag_name if tag.delete else refs.check_new_tag_name)(name)
    except InvalidError as error:
        return Invalid(error.message, error.hint)
    return None


def _shape_fault(tag: Tag) -> Invalid | None:
    if tag.delete:
        if tag.HasField("version") or tag.branch or tag.move:
            return Invalid(
                "a tag is removed whichever version it names", "leave version, branch and move out"
            )
        return None
    if not tag.HasField("version"):
        return Invalid("the tag names no version", "set `version`, or `delete` to remove the tag")
    return None
