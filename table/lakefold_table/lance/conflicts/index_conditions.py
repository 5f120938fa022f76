"""Conditions on indices: one function for each (Lance facts 5.3 and 10.7).

Each returns the evidence if the condition holds for the two operations, else None. "Ours" is the proposal,
"theirs" the operation that was committed before. The `rules` say how severe that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.bitmaps import Bitmap
from lakefold_table.lance.conflicts.rule import Evidence, met_fields, met_fragments, met_keys
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, MEM_WAL
from lakefold_table.lance.verdicts import Rebase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_table.lance.conflicts.footprint import Footprint, IndexFootprint, Indexing

NGRAM = "NGramIndexDetails"
"""The end of the type URL of an n-gram index."""
FRAGMENT_IDS = 2**32
"""All fragment ids are below this number (Lance fact 3.1)."""


def indexed_values(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """One of the two indexes a field whose values the other replaces."""
    indexed = ours.indexing or theirs.indexing
    replaced = theirs.fields if ours.indexing else ours.fields
    return met_fields(replaced & _indexed_fields(indexed)) if indexed else None


def same_index_name(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Both add an index of the same name; or one adds it, and the other removes it or what it replaces."""
    mine, other = ours.indexing, theirs.indexing
    if mine is None or other is None:
        return None
    names = {index.name for index in (*mine.added, *other.added)}
    return met_keys(frozenset(name for name in names if _clashes(mine, other, name)))


def _clashes(mine: Indexing, other: Indexing, name: str) -> bool:
    if mine.named(name) and other.named(name):
        return True
    adding, removing = (mine, other) if mine.named(name) else (other, mine)
    replaced, removed = adding.removed_of(name), removing.removed_of(name)
    return bool(removed) and (not replaced or not replaced.isdisjoint(removed))


def index_of_rewritten(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Ours indexes fragments that theirs rewrote without a fragment-reuse index."""
    return None if theirs.carries_reuse else _covered_of(ours.indexing, theirs)


def ngram_of_rewritten(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Ours is an n-gram index, which can't be remapped, of fragments that theirs rewrote."""
    if not theirs.carries_reuse or ours.indexing is None:
        return None
    ngrams = [index for index in ours.indexing.added if index.type_url.endswith(NGRAM)]
    return met_fragments(frozenset[int]().union(*(_inside(theirs.touched, index) for index in ngrams)))


def reuse_replaced_with_others(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """The fragment-reuse index is replaced together with other indices, and no rule says what that means."""
    indexing, rewrite = (ours.indexing, theirs) if ours.indexing else (theirs.indexing, ours)
    if indexing is None or indexing.named(FRAGMENT_REUSE) is None:
        return None
    if rewrite is theirs and not rewrite.carries_reuse:
        return None
    alone = len(indexing.added) == len(indexing.removed) == 1
    return None if alone else Evidence(keys=frozenset({FRAGMENT_REUSE}))


def reuse_trimmed(ours: Footprint, theirs: Footprint, version: int) -> Evidence | None:
    """One trims the fragment-reuse index, the other adds to it: ours has to include what theirs did."""
    indexing, rewrite = (ours.indexing, theirs) if ours.indexing else (theirs.indexing, ours)
    if indexing is None or indexing.named(FRAGMENT_REUSE) is None or not rewrite.carries_reuse:
        return None
    return Evidence(rebase=Rebase(reuse=frozenset({version})))


def reuse_dropped(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Ours adds to the fragment-reuse index, and theirs dropped it."""
    if not ours.carries_reuse or theirs.indexing is None or theirs.indexing.named(FRAGMENT_REUSE):
        return None
    return met_keys(frozenset({FRAGMENT_REUSE})) if theirs.indexing.removed_of(FRAGMENT_REUSE) else None


def both_carry_reuse(ours: Footprint, theirs: Footprint, version: int) -> Evidence | None:
    """Both add to the fragment-reuse index: ours has to include what theirs added."""
    if not (ours.carries_reuse and theirs.carries_reuse):
        return None
    return Evidence(rebase=Rebase(reuse=frozenset({version})))


def rewrite_of_indexed(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Ours rewrites fragments that theirs indexed, and contains no fragment-reuse index."""
    if ours.carries_reuse or (theirs.indexing and theirs.indexing.named(FRAGMENT_REUSE)):
        return None
    return _covered_of(theirs.indexing, ours)


def group_half_indexed(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Ours contains a fragment-reuse index, but makes indexed fragments and others into one."""
    if not ours.carries_reuse or theirs.indexing is None or theirs.indexing.named(FRAGMENT_REUSE):
        return None
    split: set[int] = set()
    for index in theirs.indexing.added:
        if index.fragments is None:
            return Evidence(ours.touched, keys=frozenset({index.name}))
        for group in ours.groups:
            inside = _inside(group, index)
            split |= group if inside and inside != group else set()
    return met_fragments(frozenset(split))


def index_of_updated(ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs changed indexed values in place: the new index no longer describes those fragments.

    Fragments that the index doesn't cover count too: rows that it covers may have been moved there before.
    """
    if ours.indexing is None or not theirs.fields:
        return None
    touched = theirs.touched - theirs.removed
    uncovers = {
        index.uuid: touched for index in ours.indexing.added if touched and index.fields & theirs.fields
    }
    return Evidence(rebase=Rebase(uncovers=uncovers)) if uncovers else None


def ours_is_log_index(ours: Footprint, _theirs: Footprint, _version: int) -> Evidence | None:
    """Ours adds the index of the table's write-ahead log."""
    return Evidence(keys=frozenset({MEM_WAL})) if _adds_log_index(ours) else None


def theirs_is_log_index(_ours: Footprint, theirs: Footprint, _version: int) -> Evidence | None:
    """Theirs added the index of the table's write-ahead log."""
    return Evidence(keys=frozenset({MEM_WAL})) if _adds_log_index(theirs) else None


def indexes_mem_wal(ours: Footprint, _theirs: Footprint, version: int) -> Evidence | None:
    """Ours writes the index of the table's write-ahead log, which has to include what theirs merged."""
    return Evidence(rebase=Rebase(mem_wal=frozenset({version}))) if _adds_log_index(ours) else None


def indexes_no_mem_wal(ours: Footprint, _theirs: Footprint, _version: int) -> Evidence | None:
    """Ours writes no index of the table's write-ahead log."""
    return None if _adds_log_index(ours) else Evidence()


def _adds_log_index(ours: Footprint) -> bool:
    return ours.indexing is not None and ours.indexing.named(MEM_WAL) is not None


def _indexed_fields(indexing: Indexing) -> frozenset[int]:
    return frozenset(number for index in indexing.added for number in index.fields)


def _inside(ids: Iterable[int], index: IndexFootprint) -> frozenset[int]:
    """Returns those of the fragments that the index is known to cover."""
    if index.fragments is None:
        return frozenset()
    return frozenset(index.fragments & Bitmap([number for number in ids if number < FRAGMENT_IDS]))


def _covered_of(indexing: Indexing | None, rewrite: Footprint) -> Evidence | None:
    """Returns the rewritten fragments that new indices cover: all if an index doesn't name its own."""
    if indexing is None:
        return None
    unknown = frozenset(index.name for index in indexing.added if index.fragments is None)
    if unknown:
        return Evidence(rewrite.touched, keys=unknown)
    covered = (_inside(rewrite.touched, index) for index in indexing.added)
    return met_fragments(frozenset[int]().union(*covered))
