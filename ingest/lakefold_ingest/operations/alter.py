"""Changes the columns and properties of a table by one proposal, which is built again if others were first.

It is a batch like others: under a key that was folded it changes nothing, and its outcome is awaited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_ingest.formats import FORMATS, seen_source
from lakefold_ingest.merge.turns import ChangesAnyRow
from lakefold_ingest.writing.evolution import ATTEMPTS

if TYPE_CHECKING:
    from lakefold_ingest.alteration import Alteration
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import Evolution, View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope


@dataclass(slots=True)
class AlterTable(ChangesAnyRow):
    """An `Operation` that alters a table that exists."""

    alteration: Alteration
    attempts: int = ATTEMPTS
    schema: None = None
    batch_columns: None = None
    _evolution: Evolution | None = None

    def said(self, view: View, rows: int | None = None) -> str:
        """See `SaysContent.said`: what is changed."""
        del view, rows
        return f"alter {self.alteration}"

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """See `Operation.build`. Columns of Lance that were written again are kept for the next attempt.

        Raises as `Evolution.alter`.
        """
        if self._evolution is None:
            self._evolution = FORMATS[view.format].evolution(settings)
        source = seen_source(view.uri, settings.storage_options)
        return self._evolution.alter(view, key, self.alteration, source)
