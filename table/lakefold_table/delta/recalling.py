"""The Delta format as it judges the entries of a version again, whose answers are known.

A version does not record which sizes of files it saw. An entry that is in the table passed, so its files are
not checked again: they may have been cleaned up since. For one that was refused the store is asked as it is
now. If that does not give the same refusal, and the refusal names one of the files, the cause may be gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_table.delta.draft import DeltaDraft, proposed
from lakefold_table.entry import Committed, Duplicate, Entry, Invalid, Rejected
from lakefold_table.format import Accepted, Fetched, RecordedVersion
from lakefold_table.nesting import needs_around

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_table.delta.state import DeltaState


class RecalledDraft(DeltaDraft):
    """The version in the making, with the answers that were given when it was made first."""

    def __init__(
        self,
        state: DeltaState | None,
        recalling: RecalledAnswers,
        contents: Mapping[str, bytes | None],
    ) -> None:
        super().__init__(state, Fetched(contents=contents))
        self._recalling = recalling
        self._contents = contents

    def add(self, entry: Entry) -> Accepted | Rejected | Invalid | None:
        """Judges the entry on what the fold saw then, as far as that is known."""
        offset = entry.position.offset
        answer = self._recalling.recorded.answers.get(offset)
        if answer is None or isinstance(answer, Committed | Duplicate):
            self._observed = Fetched(contents=self._contents)
            return super().add(entry)
        if offset in self._recalling.recorded.given:
            return answer
        paths = frozenset(proposed(entry).files)
        verdict: Accepted | Rejected | Invalid | None = None
        around = sorted(needs_around(entry.envelope.table).neighbours) if self._state is None else ()
        for observed in (
            *(Fetched(neighbours={neighbour}) for neighbour in around),
            Fetched(sizes=dict.fromkeys(paths)),
            Fetched(sizes=self._recalling.recorded.sizes(paths)),
            Fetched(),
        ):
            self._observed = replace(observed, contents=self._contents)
            verdict = super().add(entry)
            if (verdict.shortened() if isinstance(verdict, Invalid) else verdict) == answer:
                return verdict
            if isinstance(verdict, Accepted):
                self._recalling.accepted.add(offset)
                break
        names_a_file = isinstance(answer, Invalid) and any(path in answer.message for path in paths)
        (self._recalling.undecided if names_a_file else self._recalling.unlike).add(offset)
        return verdict


class RecalledAnswers:
    """What is known of a version that is judged again; see `RecallingFormat`."""

    def __init__(self, recorded: RecordedVersion) -> None:
        self.recorded = recorded
        self.undecided: set[int] = set()
        self.unlike: set[int] = set()
        self.accepted: set[int] = set()
