"""The states of a table in the committer, as data: of its queue, and of the writer of its versions.

The queue prepares the next version while the version before it is published, so it has a machine for each
(`PREPARATION`, `PUBLICATION`). `PARKING` says whether it is worked on, `BACKLOG` whether its entries are
being read again. `TableQueue` has a machine for each of these four, `TableWriter` has one for `WRITER`.
docs/states.md is drawn from this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lakefold_committer.states.machine import Chart, Named

if TYPE_CHECKING:
    from collections.abc import Sequence


class PreparationState(Named):
    """Says how far the next version of a table is prepared."""

    CLOSED = ("closed", "The table is not open.")
    OPENING = ("opening", "A task opens the table.")
    OPEN = ("open", "The table is open, and no group is being folded.")
    HELD = (
        "held",
        "The table is open. Its next version waits for the budget of manifest bytes, and gathers entries.",
    )
    FOLDING = ("folding", "A task folds the next group; the version before it may be on its way.")
    FOLDING_TO_PUBLISH = (
        "folding to publish",
        "A task folds the only group that waits, and publishes its version as well.",
    )
    FOLDED = ("folded", "The group is folded. Its version waits until the one before it is published.")


class PreparationEvent(Named):
    """What happens to the next version of a table."""

    OPENING_BEGUN = ("opening begun", "A task was started that opens the table.")
    OPENED = ("opened", "The table is open.")
    OPENING_FAILED = ("opening failed", "The table could not be opened.")
    HOLD_BEGUN = ("hold begun", "The budget of manifest bytes has no room for the next version.")
    HOLD_ENDED = (
        "hold ended",
        "The budget has room, the version has waited long enough, or many entries wait.",
    )
    FOLD_BEGUN = ("fold begun", "A task was started that folds a group.")
    FOLD_TO_PUBLISH_BEGUN = (
        "fold to publish begun",
        "A task was started that folds a group and publishes its version.",
    )
    FOLD_ENDED = ("fold ended", "The group, or the first entries of it, are folded.")
    FOLD_FAILED = (
        "fold failed",
        "The group could not be folded. It goes back into the queue, or is refused.",
    )
    FOLD_DISCARDED = (
        "fold discarded",
        "The task ended, and the version that it folded on was not published: the group is folded again.",
    )
    HANDED_OVER = ("handed over", "The version is handed to the publication.")
    FALLEN_BACK = (
        "fallen back",
        "The version before it was not published: the group goes back into the queue.",
    )
    LET_GO = (
        "let go",
        "The table is closed, after an error that does not pass by itself or after a long time without use.",
    )


class PublicationState(Named):
    """Says how far the publication of a version is that was handed over."""

    NONE = ("none", "No version is being published.")
    IN_FLIGHT = ("in flight", "A task puts the version.")
    UNKNOWN = ("unknown", "It is not known whether the version was put: the same one is put again.")
    LOST = (
        "lost",
        "The version was not published, and what was folded on it is discarded as soon as its task ends.",
    )


class PublicationEvent(Named):
    """What happens to a version that was handed over."""

    PUT_BEGUN = ("put begun", "A task was started that puts the version.")
    PUT_CONFIRMED = ("put confirmed", "The version is published, and its outcomes hold.")
    PUT_UNKNOWN = ("put unknown", "The store could not be reached, or did not answer.")
    PUT_LOST = (
        "put lost",
        "Another version was published under its number, or an error that does not pass prevented it.",
    )
    FALLEN_BACK = ("fallen back", "All that was prepared went back into the queue.")


class ParkingState(Named):
    """Says whether steps of a table are started."""

    ACTIVE = ("active", "Each step is started as soon as it can be.")
    PARKED = ("parked", "A step failed. Nothing is started until a time, and what waits is kept as offsets.")


class ParkingEvent(Named):
    """What parks a table, and what ends that."""

    STEP_FAILED = ("step failed", "A step failed. The table is parked, for longer each time.")
    STEP_SUCCEEDED = ("step succeeded", "The step that failed has succeeded.")


class BacklogState(Named):
    """Says whether entries that wait as offsets are being read again."""

    WAITING = ("waiting", "No task reads the backlog, which may be empty.")
    READING = ("reading", "A task reads the first messages of the backlog.")


class BacklogEvent(Named):
    """What happens to a backlog."""

    READ_BEGUN = ("read begun", "A task was started that reads messages again.")
    READ_ENDED = ("read ended", "The messages were read, or could not be.")


class WriterState(Named):
    """What the writer of a table may do next."""

    UNANNOUNCED = (
        "unannounced",
        "No version has its epoch. The next one is published even if every entry is refused.",
    )
    ANNOUNCING = ("announcing", "A version of its epoch is prepared, and none is known to be published.")
    OWNER = ("owner", "A version of its epoch is published.")
    BEHIND = (
        "behind",
        "No version has its epoch, and others may have published: that is read before the next fold.",
    )
    BEHIND_AS_OWNER = (
        "behind as owner",
        "A version of its epoch is published; those of others after it are read before the next fold.",
    )
    FENCED = ("fenced", "Another committer owns the table. This one folds nothing more.")
    PREVIEWING = ("previewing", "Groups are folded in memory only, and nothing is ever published.")


class WriterEvent(Named):
    """What happens to the writer of a table."""

    RESUMED = ("resumed", "The newest version of a table that was opened again has this committer's epoch.")
    FOLD_BEGUN = ("fold begun", "A group is going to be folded.")
    VERSION_PREPARED = ("version prepared", "A group was folded, and its version is to be published.")
    VERSION_PUBLISHED = ("version published", "A version that was prepared is published.")
    FALLEN_BACK = ("fallen back", "What was prepared and is not published is forgotten.")
    VERSION_LOST = (
        "version lost",
        "A version was not published, or a newer one exists: what was prepared is forgotten.",
    )
    ABSENCE_DOUBTED = (
        "absence doubted",
        "No table was found, and it could not be decided whether one exists.",
    )
    EPOCH_RAISED = (
        "epoch raised",
        "A version of its epoch or a later one was read, or the table was opened again: a new epoch begins.",
    )
    CAUGHT_UP = ("caught up", "All versions of others are read.")
    FENCED = ("fenced", "A version was read by which another committer owns the table.")
    PREVIEWED = ("previewed", "A group is going to be folded in memory only.")


PREPARATION: Final = Chart(
    "preparation",
    "The next version of a table, from the entries in its queue.",
    PreparationState.CLOSED,
    {
        PreparationState.CLOSED: {
            PreparationEvent.OPENING_BEGUN: PreparationState.OPENING,
        },
        PreparationState.OPENING: {
            PreparationEvent.OPENED: PreparationState.OPEN,
            PreparationEvent.OPENING_FAILED: PreparationState.CLOSED,
        },
        PreparationState.OPEN: {
            PreparationEvent.HOLD_BEGUN: PreparationState.HELD,
            PreparationEvent.FOLD_BEGUN: PreparationState.FOLDING,
            PreparationEvent.FOLD_TO_PUBLISH_BEGUN: PreparationState.FOLDING_TO_PUBLISH,
            PreparationEvent.LET_GO: PreparationState.CLOSED,
        },
        PreparationState.HELD: {
            PreparationEvent.HOLD_ENDED: PreparationState.OPEN,
        },
        PreparationState.FOLDING: {
            PreparationEvent.FOLD_ENDED: PreparationState.FOLDED,
            PreparationEvent.FOLD_FAILED: PreparationState.OPEN,
            PreparationEvent.FOLD_DISCARDED: PreparationState.OPEN,
        },
        PreparationState.FOLDING_TO_PUBLISH: {
            PreparationEvent.FOLD_ENDED: PreparationState.FOLDED,
            PreparationEvent.FOLD_FAILED: PreparationState.OPEN,
        },
        PreparationState.FOLDED: {
            PreparationEvent.HANDED_OVER: PreparationState.OPEN,
            PreparationEvent.FALLEN_BACK: PreparationState.OPEN,
        },
    },
)

PUBLICATION: Final = Chart(
    "publication",
    "A version that was handed over, until it is published or given up.",
    PublicationState.NONE,
    {
        PublicationState.NONE: {
            PublicationEvent.PUT_BEGUN: PublicationState.IN_FLIGHT,
        },
        PublicationState.IN_FLIGHT: {
            PublicationEvent.PUT_CONFIRMED: PublicationState.NONE,
            PublicationEvent.PUT_UNKNOWN: PublicationState.UNKNOWN,
            PublicationEvent.PUT_LOST: PublicationState.LOST,
        },
        PublicationState.UNKNOWN: {
            PublicationEvent.PUT_BEGUN: PublicationState.IN_FLIGHT,
        },
        PublicationState.LOST: {
            PublicationEvent.FALLEN_BACK: PublicationState.NONE,
        },
    },
)

PARKING: Final = Chart(
    "parking",
    "Whether a table is worked on, or left alone until a time.",
    ParkingState.ACTIVE,
    {
        ParkingState.ACTIVE: {
            ParkingEvent.STEP_FAILED: ParkingState.PARKED,
        },
        ParkingState.PARKED: {
            ParkingEvent.STEP_FAILED: ParkingState.PARKED,
            ParkingEvent.STEP_SUCCEEDED: ParkingState.ACTIVE,
        },
    },
)

BACKLOG: Final = Chart(
    "backlog",
    "The entries of a table that wait as offsets only, and are read from the log again.",
    BacklogState.WAITING,
    {
        BacklogState.WAITING: {
            BacklogEvent.READ_BEGUN: BacklogState.READING,
        },
        BacklogState.READING: {
            BacklogEvent.READ_ENDED: BacklogState.WAITING,
        },
    },
)

WRITER: Final = Chart(
    "writer",
    "What a committer knows of its being the owner of a table.",
    WriterState.UNANNOUNCED,
    {
        WriterState.UNANNOUNCED: {
            WriterEvent.RESUMED: WriterState.OWNER,
            WriterEvent.FOLD_BEGUN: WriterState.UNANNOUNCED,
            WriterEvent.VERSION_PREPARED: WriterState.ANNOUNCING,
            WriterEvent.FALLEN_BACK: WriterState.UNANNOUNCED,
            WriterEvent.VERSION_LOST: WriterState.BEHIND,
            WriterEvent.ABSENCE_DOUBTED: WriterState.BEHIND,
            WriterEvent.PREVIEWED: WriterState.PREVIEWING,
        },
        WriterState.ANNOUNCING: {
            WriterEvent.FOLD_BEGUN: WriterState.ANNOUNCING,
            WriterEvent.VERSION_PREPARED: WriterState.ANNOUNCING,
            WriterEvent.VERSION_PUBLISHED: WriterState.OWNER,
            WriterEvent.FALLEN_BACK: WriterState.UNANNOUNCED,
            WriterEvent.VERSION_LOST: WriterState.BEHIND,
        },
        WriterState.OWNER: {
            WriterEvent.FOLD_BEGUN: WriterState.OWNER,
            WriterEvent.VERSION_PREPARED: WriterState.OWNER,
            WriterEvent.VERSION_PUBLISHED: WriterState.OWNER,
            WriterEvent.FALLEN_BACK: WriterState.OWNER,
            WriterEvent.VERSION_LOST: WriterState.BEHIND_AS_OWNER,
        },
        WriterState.BEHIND: {
            WriterEvent.EPOCH_RAISED: WriterState.BEHIND,
            WriterEvent.CAUGHT_UP: WriterState.UNANNOUNCED,
            WriterEvent.FENCED: WriterState.FENCED,
            WriterEvent.VERSION_LOST: WriterState.BEHIND,
        },
        WriterState.BEHIND_AS_OWNER: {
            WriterEvent.EPOCH_RAISED: WriterState.BEHIND,
            WriterEvent.CAUGHT_UP: WriterState.OWNER,
            WriterEvent.FENCED: WriterState.FENCED,
        },
        WriterState.FENCED: {
            WriterEvent.VERSION_LOST: WriterState.FENCED,
        },
        WriterState.PREVIEWING: {
            WriterEvent.PREVIEWED: WriterState.PREVIEWING,
            WriterEvent.FOLD_BEGUN: WriterState.PREVIEWING,
            WriterEvent.VERSION_PREPARED: WriterState.PREVIEWING,
        },
    },
)

CHARTS: Final[Sequence[Chart[Any, Any]]] = (PREPARATION, PUBLICATION, PARKING, BACKLOG, WRITER)
