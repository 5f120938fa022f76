"""What is true of every version of a table, each invariant with its name and its reason.

Other clients don't check most of them: pylance opens a table whose next append will fail, or from which it
reads wrong rows (Lance fact 11.1). So a version is checked before it is published, and is not published if it
breaks an invariant, whatever the cause. Tests check more, which needs all rows and fragments of a version.

`rules` has the invariants as data. They look at the change of a version, so what a check costs depends on
that. An invariant is a function of a `Step`: a version, its predecessor, and the fragments to check.
"""

from lakefold_table.lance.invariants.rules import INVARIANTS, Invariant, broken, check, faults
from lakefold_table.lance.invariants.step import Step

__all__ = ["INVARIANTS", "Invariant", "Step", "broken", "check", "faults"]
