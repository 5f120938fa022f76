"""Every operation of Lance's Transaction message: what it demands of the table it meets, what it makes of it.

The way of one proposal through these rooms: `rules` names for its operation two functions. The first says
which files the shell must bring (`Needs`); the second holds the proposal against the table on its way to the
next version (`Working`) and gives a `Change`, or the refusal as a value. Nothing is changed by asking. The
draft has the working table take the change up, and only then is the proposal part of the version.

One operation, one module; `kinds` tells operations apart, `change` is what passes between.
"""

from lakefold_table.lance.operations.kinds import FOLDED, SCHEMA_CHANGING, Kind, kind_of

__all__ = ["FOLDED", "SCHEMA_CHANGING", "Kind", "kind_of"]
