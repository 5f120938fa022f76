"""Every operation of Lance's Transaction message: what it demands of the table it meets, what it makes of it.

The way of one proposal through these rooms: `rules` names two functions for its operation. The first says
which files the shell must fetch (`Requirements`). The second holds the proposal against the table on its
way to the next version (`VersionBuilder`) and returns a `Change`, or the refusal as a value. Nothing is
changed by asking. The draft lets the version builder take the change up, and only then is the proposal part
of the version.

One operation, one module; `kinds` tells operations apart, `change` is what passes between.
"""

from lakefold_table.lance.operations.kinds import FOLDED, SCHEMA_CHANGING, Kind, kind_of

__all__ = ["FOLDED", "SCHEMA_CHANGING", "Kind", "kind_of"]
