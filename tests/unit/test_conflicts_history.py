"""What is known of past versions, and the verdict on a proposal built on an old version."""

from dataclasses import replace

import pytest

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import Bitmap
from lakefold_table.entry import Conflict
from lakefold_table.lance.conflicts import COMPATIBLE, Footprint, History, Rebase, footprint_of
from lakefold_table.lance.conflicts.history import BLOCK, OLDEST_READ_VERSION
from lakefold_table.lance.conflicts.rules import DETAILED, RULES
from lakefold_table.lance.kinds import Kind

APPEND = Footprint(Kind.APPEND)


def delete(*fragments: int, rows: dict[int, Bitmap] | None = None) -> Footprint:
    transaction = Transaction()
    for number in fragments:
        transaction.delete.updated_fragments.add(id=number).files.add(path=f"{number}.lance", fields=[0])
    return footprint_of(transaction, affected_rows=rows)


def config(**values: str) -> Footprint:
    transaction = Transaction()
    for key, value in values.items():
        transaction.update_config.config_updates.update_entries.add(key=key, value=value)
    return footprint_of(transaction)


def after(*steps: Footprint, since: int = 0) -> History:
    history = History(since, {})
    for version, step in enumerate(steps, since + 1):
        history = history.extended(version, step)
    return history


def conflict(history: History, ours: Footprint, read_version: int) -> Conflict:
    verdict = history.verdict(ours, read_version)
    assert isinstance(verdict, Conflict)
    return verdict


def test_only_what_came_after_the_read_version_counts() -> None:
    history = after(delete(1), delete(2), delete(3))
    assert history.verdict(delete(1), 1) == COMPATIBLE
    assert conflict(history, delete(1), 0).other_version == 1
    assert conflict(history, delete(3), 2).other_version == 3
    assert history.verdict(delete(3), 3) == COMPATIBLE


def test_the_newest_of_equal_conflicts_is_named_with_its_evidence() -> None:
    history = after(delete(1), delete(2, 1), delete(1, 7), delete(9))
    actual = conflict(history, delete(1, 2, 7), 0)
    assert (actual.other_version, actual.fragment_ids) == (3, (1, 7))
    assert "fragments [1, 7]" in actual.message
    assert "version 3" in actual.message


def test_incompatible_goes_before_a_newer_retryable_one() -> None:
    history = after(Footprint(Kind.OVERWRITE), delete(1), Footprint(Kind.MERGE))
    actual = conflict(history, delete(1), 0)
    assert (actual.retryable, actual.other_version) == (False, 1)


def test_rebases_over_several_versions_are_joined() -> None:
    ours = delete(1, 2, 3, rows={1: Bitmap([0]), 2: Bitmap([0]), 3: Bitmap([0])})
    history = after(delete(1), APPEND, delete(3, 4))
    assert history.verdict(ours, 0) == Rebase(merges=frozenset({1, 3}))
    assert history.verdict(ours, 1) == Rebase(merges=frozenset({3}))


def test_the_newest_version_that_took_rows_of_a_fragment_is_named() -> None:
    ours = delete(1, 2, rows={1: Bitmap([0]), 2: Bitmap([0])})
    history = after(delete(2), delete(1), APPEND, delete(7), delete(2), delete(9))
    taken = Conflict(retryable=True, message="rows", fragment_ids=(1,))
    named = history.named(taken, ours, 0)
    assert (named.other_version, named.other_operation, named.fragment_ids) == (2, "delete", (1,))
    assert named.message == "rows (the delete of version 2 changed them last)"
    assert history.named(replace(taken, fragment_ids=(2,)), ours, 0).other_version == 5
    assert history.named(taken, ours, 2) == taken
    conflict = replace(taken, other_version=4, other_operation="merge")
    assert history.named(conflict, ours, 0) == conflict


def test_a_kind_that_no_rule_asks_more_of_leaves_no_footprint() -> None:
    history = after(*[APPEND] * 500)
    assert not history.chains
    assert history.latest == {Kind.APPEND: 500}
    assert Kind.APPEND not in DETAILED


def test_extending_one_history_twice_gives_two() -> None:
    base = after(*[delete(1)] * (BLOCK - 1))
    history, other = base.extended(BLOCK, delete(5)), base.extended(BLOCK, delete(6))
    assert history.verdict(delete(6), 0) == COMPATIBLE == other.verdict(delete(5), 0)
    assert (
        conflict(history, delete(5), 0).other_version == BLOCK == conflict(other, delete(6), 0).other_version
    )
    assert base.verdict(delete(5, 6), 0) == COMPATIBLE


def test_at_most_as_many_versions_are_kept_as_a_proposal_may_be_behind() -> None:
    history = after(*[delete(1)] * (OLDEST_READ_VERSION + 3 * BLOCK))
    newest = history.latest[Kind.DELETE]
    assert history.detailed_since == newest - OLDEST_READ_VERSION - 1
    assert sum(map(len, history.chains[Kind.DELETE].blocks)) <= OLDEST_READ_VERSION + 2 * BLOCK
    assert history.needs_details(Kind.DELETE, newest - OLDEST_READ_VERSION) is None


def test_an_append_walks_no_versions() -> None:
    """Its verdict costs the same over ten thousand versions as over a single version."""
    for kind in (Kind.APPEND, Kind.RESERVE_FRAGMENTS, Kind.CLONE):
        assert not any(rule.reads_theirs for rules in RULES[kind].values() for rule in rules)


def test_footprints_before_the_marks_are_read_only_if_a_rule_needs_them() -> None:
    history = History(0, {Kind.APPEND: 9, Kind.UPDATE_CONFIG: 4, Kind.DELETE: 7}).extended(10, delete(1))
    assert history.detailed_since == 9
    assert history.needs_details(Kind.APPEND, 2) is None
    assert history.needs_details(Kind.DELETE, 6) == 6
    assert history.needs_details(Kind.DELETE, 7) is None
    assert history.needs_details(Kind.UPDATE_CONFIG, 2) == 2
    assert history.needs_details(Kind.UPDATE_CONFIG, 4) is None
    assert History(0, {Kind.DELETE: 5}).needs_details(Kind.DELETE, 4) == 4
    assert History(0, {Kind.DELETE: 5}).needs_details(Kind.DELETE, 5) is None


def test_a_footprint_that_is_fetched_later_hides_no_older_one_if_there_is_none() -> None:
    """What was judged without asking for older footprints is judged the same among other proposals."""
    marked = History(0, {Kind.APPEND: 9, Kind.DELETE: 4})
    assert marked.needs_details(Kind.DELETE, 4) is None
    later = marked.extended(10, delete(2)).extended(11, delete(3))
    assert later.detailed_since == 9
    assert later.needs_details(Kind.DELETE, 4) is None
    assert later.verdict(delete(1), 4) == COMPATIBLE
    assert conflict(later, delete(2), 4).other_version == 10
    assert later.needs_details(Kind.DELETE, 3) == 3
    history = later.detailed([(9, APPEND), (8, APPEND)])
    assert history.verdict(delete(1), 4) == COMPATIBLE
    assert history.detailed([(7, delete(1))]).needs_details(Kind.DELETE, 6) is None
    assert history.detailed([(7, delete(1))]).needs_details(Kind.DELETE, 5) == 5


def test_what_is_not_known_is_retryable() -> None:
    actual = conflict(History(0, {Kind.DELETE: 5}), delete(1), 2)
    assert (actual.retryable, actual.other_version, actual.other_operation) == (True, 5, "delete")
    assert "what they changed is not known" in actual.message
    assert History(0, {Kind.DELETE: 5}).verdict(APPEND, 2) == COMPATIBLE


def test_footprints_are_brought_later() -> None:
    marked = History(0, {Kind.APPEND: 2, Kind.DELETE: 4, Kind.UPDATE_CONFIG: 3})
    history = marked.detailed([(4, delete(7)), (3, config(k="v")), (2, APPEND)])
    assert (history.detailed_since, history.since, history.latest) == (1, 0, marked.latest)
    assert history.needs_details(Kind.DELETE, 1) is None
    assert conflict(history, delete(7), 1).other_version == 4
    assert history.verdict(delete(8), 1) == COMPATIBLE
    assert history.needs_details(Kind.DELETE, 0) == 0
    later = marked.extended(5, delete(8)).detailed([(4, delete(7)), (3, config(k="v")), (2, APPEND)])
    assert later.detailed_since == 1
    assert conflict(later, delete(7, 8), 1).other_version == 5
    assert conflict(later, delete(7), 1).other_version == 4
    assert later.detailed([]) is later
    assert later.detailed([(1, delete(9))]).detailed_since == 0


def test_footprints_may_reach_further_back_than_the_marks() -> None:
    history = History(3, {Kind.DELETE: 5}).detailed(
        [(5, delete(1)), (4, APPEND), (3, APPEND), (2, delete(1))]
    )
    assert (history.since, history.latest) == (1, {Kind.DELETE: 5, Kind.APPEND: 4})


@pytest.mark.parametrize("kind", Kind)
def test_a_version_of_which_only_the_kind_is_known_hides_what_came_before(kind: Kind) -> None:
    history = after(delete(1)).extended(2, kind)
    assert history.detailed_since is None
    assert history.needs_details(Kind.DELETE, 0) == 0
    assert isinstance(history.verdict(delete(1), 0), Conflict)


def test_histories_that_say_the_same_of_the_kinds_are_equal() -> None:
    assert after(delete(1), APPEND) == History(0, {Kind.DELETE: 1, Kind.APPEND: 2})
    assert after(delete(1)) != History(0, {Kind.DELETE: 2})


def test_each_rule_that_reads_nothing_of_theirs_gives_the_same_without() -> None:
    """They are compared with the kind alone."""
    for row in RULES.values():
        for kind, rules in row.items():
            for rule in rules:
                if rule.always:
                    assert not rule.reads_theirs, (kind, rule)


def test_one_history_judges_the_same_proposal_again_for_each_read_version_and_kind() -> None:
    overwrite = footprint_of(Transaction(overwrite=Transaction.Overwrite()))
    append = footprint_of(Transaction(append=Transaction.Append()))
    merge = footprint_of(Transaction(merge=Transaction.Merge()))
    history = after(append, overwrite, append)
    for _ in range(2):
        assert history.verdict(append, 2) == COMPATIBLE
        assert conflict(history, append, 1).other_version == 2
        assert conflict(history, merge, 2).other_version == 3
    assert history.extended(4, overwrite).verdict(append, 3) != COMPATIBLE
