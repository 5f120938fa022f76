"""The conflict rules: what a proposal can't stand beside, as data with evidence (Lance facts 5.1 to 5.7).

A transaction built on version R and folded on version V is held against everything in (R, V]. What a
transaction touches is its `footprint`; the rules are the `matrix`, a row for each operation, their conditions
`conditions` on two footprints. `judging` gives the verdict on two, `history` the one on all versions since R.
Nothing here changes a proposal: a `Rebase` says what its operation has to do.
"""

from lakefold_table.lance.conflicts.footprint import Footprint
from lakefold_table.lance.conflicts.history import OLDEST_READ_VERSION, History
from lakefold_table.lance.conflicts.judging import judge
from lakefold_table.lance.conflicts.matrix import RULES
from lakefold_table.lance.conflicts.reading import footprint_of
from lakefold_table.lance.conflicts.verdicts import COMPATIBLE, Compatible, Rebase, Verdict

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
