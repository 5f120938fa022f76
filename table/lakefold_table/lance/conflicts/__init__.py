"""The conflict rules: which operations a proposal can't be committed after, as data (Lance facts 5.1 to 5.7).

A transaction that was built on version R and is folded on version V is compared with each version in (R, V].
A `footprint` is what a transaction touches. The `rules` are a row for each operation; their conditions
(`fragment_conditions`, `index_conditions`, `key_conditions`) compare two footprints. `judgement` returns the
verdict on two footprints, `history` the verdict on all versions since R. Nothing here changes a proposal: a
`Rebase` says what its operation has to do.
"""

from lakefold_table.lance.conflicts.footprint import Footprint
from lakefold_table.lance.conflicts.history import OLDEST_READ_VERSION, History
from lakefold_table.lance.conflicts.judgement import judge
from lakefold_table.lance.conflicts.rules import RULES
from lakefold_table.lance.conflicts.transaction_footprint import footprint_of
from lakefold_table.lance.verdicts import COMPATIBLE, Compatible, Rebase, Verdict

__all__ = [
    "COMPATIBLE",
    "OLDEST_READ_VERSION",
    "RULES",
    "Compatible",
    "Footprint",
    "History",
    "Rebase",
    "Verdict",
    "footprint_of",
    "judge",
]
