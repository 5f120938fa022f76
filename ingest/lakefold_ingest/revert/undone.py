"""The undone entries of a version, and what becomes of their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakefold_ingest.revert.row_history import LOST

if TYPE_CHECKING:
    from lakefold_ingest.revert.effects import EntryEffect
    from lakefold_ingest.revert.entries import NamedVersion
    from lakefold_ingest.revert.following import FollowedRows, VersionLineage
    from lakefold_ingest.revert.row_history import Addresses, Mask


class Undone:
    """The undone entries of a version, and where the rows are that they added.

    `kept`: removed rows that don't come back, as later entries changed what took their place. `cancelled`:
    removed rows that other undone entries had added.
    """

    def __init__(
        self, named: NamedVersion, effect: EntryEffect, lineage: VersionLineage, followed: FollowedRows
    ) -> None:
        self.named = named
        self.version = named.version
        self.effect = effect
        self.lineage = lineage
        self.followed = followed
        self.kept = np.zeros(effect.removed.size, np.bool_)
        self.cancelled = np.zeros(effect.removed.size, np.bool_)
        self.has_clash = False

    @property
    def live(self) -> Mask:
        """Which of the added rows are in the newest version."""
        live: Mask = self.followed.now != LOST
        return live

    @property
    def is_uncertain(self) -> bool:
        """Whether later entries changed rows of it, and which removed rows that is about isn't known."""
        return self.has_clash and self.effect.successors is None

    @property
    def returned(self) -> Addresses:
        """The rows that come back."""
        return self.effect.removed[~self.kept & ~self.cancelled]

    def keep(self, added: Mask) -> None:
        """Has the rows stay away whose successors are among these of the added rows."""
        successors = self.effect.successors
        if successors is not None and added.size:
            self.kept |= (successors >= 0) & added[successors]

    @property
    def updated(self) -> Mask:
        """Which of the added rows took the place of removed ones, or may have done so."""
        effect = self.effect
        if effect.successors is None:
            return np.ones(effect.added.size, np.bool_)
        updated = np.zeros(effect.added.size, np.bool_)
        updated[effect.successors[effect.successors >= 0]] = True
        return updated
