"""A Lance table with a branch that is promoted without a broker."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import lance

from lakefold.branching.promote import promoted_branch
from lakefold_ingest.promote.branch_promote import PromoteBranch
from lakefold_ingest.proposals.key import new_key
from lakefold_reader.formats import open_source
from tests.reverting import LanceBatches, Tables

if TYPE_CHECKING:
    from lakefold_table.entry import Result


@dataclass
class Branched:
    """A table, and its branch `audit`."""

    main: Tables
    branch: Tables

    @classmethod
    def begun(cls, main: Tables) -> Branched:
        """Begins the branch at the newest version, by pylance."""
        path = main.batches.path
        lance.dataset(str(path)).create_branch("audit")
        batches = LanceBatches(path / "tree" / "audit", batches=count(1000))
        return cls(main, Tables(batches, main.kind, batches.log))

    def operation(self) -> PromoteBranch:
        """The operation that promotes the branch as it is now."""
        return PromoteBranch(promoted_branch(open_source(str(self.main.batches.path)), "audit"))

    def promote(self) -> Result | None:
        """Promotes the branch; None if there was nothing new."""
        envelope = self.main.batches.build(self.operation(), new_key())
        if envelope is None:
            return None
        (result,) = self.main.batches.fold(envelope)
        return result
