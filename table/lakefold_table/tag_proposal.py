"""The proposal to tag a version, which is the same for all formats, and what follows from it.

A tag is a file beside the versions. The fold decides what becomes of it and returns that as a value; the
committer then writes the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_table.branch_names import MAIN
from lakefold_table.proposal import AnyFormatProposal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_protos.lakefold.log_pb2 import Envelope, Tag
    from lakefold_table.entry import Entry
    from lakefold_table.position import Position

TAG: Final = "tag"
"""The name of the operation, and of its field of the envelope."""


@dataclass(frozen=True, slots=True)
class TagProposal(AnyFormatProposal):
    """The proposal that an envelope holds in its field `tag`."""

    tag: Tag

    @classmethod
    def of(cls, envelope: Envelope) -> TagProposal | None:
        """Returns the proposal in an envelope, None if it holds another one."""
        return cls(envelope.tag) if envelope.HasField(TAG) else None

    @property
    def uuid(self) -> str:
        """See `TableProposal`."""
        return self.tag.uuid

    @property
    def read_version(self) -> int:
        """The version that is tagged, 0 if the tag is removed."""
        return self.tag.version

    @property
    def operation(self) -> str:
        """See `TableProposal`."""
        return TAG


@dataclass(frozen=True, slots=True)
class TagTarget:
    """The version that a tag names: its branch, empty for the main branch, and its number."""

    branch: str
    version: int

    @classmethod
    def of(cls, branch: str | None, version: int) -> TagTarget:
        """Returns the target by a branch as tags name it: the main one is `main`, empty or absent."""
        return cls("" if branch is None or branch == MAIN else branch, version)


@dataclass(frozen=True, slots=True)
class TagChange:
    """A tag that is set, or removed if `target` is None.

    `is_new`: the tag did not exist before the group. `time_us`: the log's time, in microseconds since 1970.
    """

    name: str
    target: TagTarget | None
    is_new: bool
    time_us: int


@dataclass(frozen=True, slots=True)
class KnownTags:
    """What was read of tags for a fold.

    `tags`: what each tag names, None if it does not exist; one whose file can't be read names version 0, and
    one whose path the store refuses is not among them. `versions`: those that exist, with their marks
    (`mark_of`; "": not known). `deleted`: the branches of these that were deleted, and by which entry.
    """

    tags: Mapping[str, TagTarget | None]
    versions: Mapping[TagTarget, str]
    deleted: Mapping[str, Position]


NO_TAGS: Final = KnownTags({}, {}, {})


def tagged(entry: Entry) -> Tag | None:
    """Returns what an entry proposes if that is a tag, else None."""
    return entry.proposal.tag if isinstance(entry.proposal, TagProposal) else None


def tags_of(entries: Iterable[Entry]) -> list[Tag]:
    """Returns the tags that entries propose."""
    return [tag for entry in entries if (tag := tagged(entry)) is not None]
