"""What is true of every version of a table, each with its name and its reason.

Most of it other clients never look at: pylance opens a table whose next append will fail, or that takes rows
from the wrong place (Lance fact 11.1). So a version is held against these before it is published; one
that breaks any of them stays unpublished, whoever is to blame. Tests hold every version against all of them.

`rules` has them as data. Those that look at one version's change run for each version that we make, at the
cost of that change; those that look at all rows and all fragments are for tests and audits. Each is a
function of a `Step`: a version, the one before it, and the fragments to look at.
"""

from lakefold_table.lance.invariants.rules import INVARIANTS, Invariant, broken, check, faults
from lakefold_table.lance.invariants.step import Step

__all__ = ["INVARIANTS", "Invariant", "Step", "broken", "check", "faults"]
