"""Rules that pylance's Python can't be asked about: operations that it can't propose (Lance fact 5.3)."""

import pytest

from lakefold_protos.lance.table_pb2 import MemWalIndexDetails
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.entry import Conflict
from lakefold_table.lance.combine_transactions import combined
from lakefold_table.lance.conflicts import COMPATIBLE, RULES, Rebase, Verdict, footprint_of, judge
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, MEM_WAL
from lakefold_table.lance.kinds import Kind


def operation(name: str, **content: object) -> Transaction:
    made = Transaction()
    getattr(made, name).SetInParent()
    getattr(made, name).MergeFrom(type(getattr(made, name))(**content))
    return made


def shard(generation: int, name: bytes = b"s") -> dict[str, object]:
    return {"shard_id": {"uuid": name * 16}, "generation": generation}


def log_index(*generations: int) -> Transaction:
    details = MemWalIndexDetails()
    for generation in generations:
        details.compacted_sstables.add(shard_id={"uuid": b"s" * 16}, generation=generation)
    made = operation("create_index", new_indices=[{"name": MEM_WAL}])
    made.create_index.new_indices[0].index_details.value = details.SerializeToString()
    return made


def rewrite(*groups: tuple[int, ...]) -> Transaction:
    return operation(
        "rewrite", groups=[{"old_fragments": [{"id": entry} for entry in group]} for group in groups]
    )


def reuse(*, removed: bool = True) -> Transaction:
    old = [{"name": FRAGMENT_REUSE, "uuid": {"uuid": b"o" * 16}}] if removed else []
    new = {"name": FRAGMENT_REUSE, "fragment_bitmap": encode_bitmap(Bitmap([9]))}
    return operation("create_index", new_indices=[new], removed_indices=old)


MERGED = operation("update_mem_wal_state", compacted_sstables=[shard(5)])
OK, RETRY, NEVER = "compatible", "retryable", "incompatible"
BESIDE_LOG = [
    operation("append"),
    operation("delete"),
    operation("overwrite"),
    operation("merge"),
    operation("merge", preserves_nullability=True),
    operation("restore"),
    operation("project"),
    operation("project", preserves_nullability=True),
    operation("data_replacement"),
    operation("data_overlay"),
    operation("clone"),
]
WITH_LOG = [
    operation("rewrite"),
    operation("update_config"),
    operation("reserve_fragments"),
    operation("update_bases"),
    operation("update"),
    operation("create_index", new_indices=[{"name": "x"}]),
]
KEY, OTHER_KEY = (operation("overwrite", config_upsert_values={key: "v"}) for key in "km")
CASES = [
    *((MERGED, theirs, NEVER) for theirs in BESIDE_LOG),
    *((MERGED, theirs, OK) for theirs in WITH_LOG),
    *(
        (MERGED, made, verdict)
        for generation, verdict in [(4, RETRY), (5, NEVER), (6, NEVER)]
        for made in (
            operation("update_mem_wal_state", compacted_sstables=[shard(generation)]),
            operation("update", compacted_sstables=[shard(generation)]),
            log_index(generation),
        )
    ),
    (MERGED, operation("update_mem_wal_state", compacted_sstables=[shard(9, b"t")]), OK),
    (operation("update", compacted_sstables=[shard(5, b"t")]), MERGED, OK),
    (KEY, KEY, NEVER),
    (KEY, OTHER_KEY, RETRY),
    (KEY, operation("update_config", delete_keys=["k"]), NEVER),
    (KEY, operation("update_config", delete_keys=["m"]), OK),
    (log_index(), operation("merge", preserves_nullability=True), RETRY),
    (operation("merge", preserves_nullability=True), log_index(), RETRY),
    (operation("reserve_fragments"), operation("overwrite"), NEVER),
    (operation("reserve_fragments"), operation("restore"), NEVER),
    *((operation(kind), operation("restore"), RETRY) for kind in ("append", "delete", "update")),
    (operation("reserve_fragments"), operation("merge"), OK),
    *((operation("clone"), theirs, OK) for theirs in BESIDE_LOG),
    (operation("update_bases"), operation("overwrite"), OK),
]


def word(verdict: Verdict) -> str:
    if isinstance(verdict, Conflict):
        return RETRY if verdict.retryable else NEVER
    return OK if verdict == COMPATIBLE else "rebase"


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    CASES,
    ids=[
        f"{ours.WhichOneof('operation')} after {theirs.WhichOneof('operation')}" for ours, theirs, _ in CASES
    ],
)
def test_pairs(ours: Transaction, theirs: Transaction, expected: str) -> None:
    assert word(judge(footprint_of(ours), footprint_of(theirs), 3)) == expected


def test_the_log_index_takes_in_what_was_merged() -> None:
    assert judge(footprint_of(log_index()), footprint_of(MERGED), 3) == Rebase(mem_wal=frozenset({3}))
    plain = operation("create_index", new_indices=[{"name": "x"}])
    assert word(judge(footprint_of(plain), footprint_of(MERGED), 3)) == NEVER


def test_rewrites_that_both_add_to_the_reuse_index() -> None:
    transaction, other = rewrite((0, 1)), rewrite((2, 3))
    both = Rebase(reuse=frozenset({3}))
    for ours, theirs, expected in [(True, True, both), (True, False, COMPATIBLE), (False, True, COMPATIBLE)]:
        pair = footprint_of(transaction, carries_reuse=ours), footprint_of(other, carries_reuse=theirs)
        assert judge(*pair, 3) == expected


def test_a_reuse_index_that_both_change() -> None:
    carrying, plain = footprint_of(rewrite((0, 1)), carries_reuse=True), footprint_of(rewrite((0, 1)))
    trim, mixed = footprint_of(reuse()), footprint_of(reuse(removed=False))
    taken_in = Rebase(reuse=frozenset({3}))
    assert judge(trim, carrying, 3) == taken_in == judge(carrying, trim, 3)
    assert judge(trim, plain, 3) == COMPATIBLE == judge(plain, trim, 3)
    assert word(judge(mixed, carrying, 3)) == NEVER == word(judge(carrying, mixed, 3))
    dropped = operation("create_index", removed_indices=[{"name": FRAGMENT_REUSE}])
    verdict = judge(carrying, footprint_of(dropped), 3)
    assert isinstance(verdict, Conflict)
    assert (verdict.retryable, verdict.keys) == (True, (FRAGMENT_REUSE,))
    assert judge(plain, footprint_of(dropped), 3) == COMPATIBLE


@pytest.mark.parametrize("kind", Kind)
def test_nothing_follows_a_version_that_is_not_known(kind: Kind) -> None:
    assert word(judge(footprint_of(operation("clone")), footprint_of(None), 3)) == RETRY
    (rule,) = RULES[kind][Kind.UNKNOWN]
    assert rule.always
    assert "no readable transaction" in rule.when


def test_the_evidence_names_what_they_meet_in() -> None:
    cases: list[tuple[Transaction, Transaction, str, object]] = [
        (KEY, KEY, "keys ['k']", ("k",)),
        (
            operation("update_bases", new_bases=[{"path": "/a"}]),
            operation("update_bases", new_bases=[{"path": "/a"}, {"path": "/b"}]),
            "keys ['/a']",
            ("/a",),
        ),
        (rewrite((4, 5), (6,)), rewrite((6, 7)), "fragments [6]", (6,)),
        (
            operation("data_replacement", replacements=[{"fragment_id": 1, "new_file": {"fields": [3, -2]}}]),
            operation("create_index", new_indices=[{"name": "x", "fields": [3, 4]}]),
            "fields [3]",
            (3,),
        ),
    ]
    for ours, theirs, text, evidence in cases:
        verdict = judge(footprint_of(ours), footprint_of(theirs), 3)
        assert isinstance(verdict, Conflict)
        assert text in verdict.message
        assert evidence in {verdict.keys, verdict.fragment_ids, verdict.field_ids}


def test_evidence_is_bounded() -> None:
    many = rewrite(tuple(range(5000)))
    verdict = judge(footprint_of(many), footprint_of(many), 3)
    assert isinstance(verdict, Conflict)
    assert verdict.fragment_ids == tuple(range(1000))
    assert "4990 more" in verdict.message or len(verdict.message) < 300


ROWS = {0: Bitmap([3])}
FRAGMENT = {"id": 0, "files": [{"path": "f.lance", "fields": [0, 1]}]}


def test_deleted_rows_are_joined_only_in_a_fragment_that_both_leave() -> None:
    """A fragment that lost its last rows stays listed among the updated fragments too (Lance fact 5.4)."""
    some = operation("delete", updated_fragments=[FRAGMENT])
    emptied = operation("delete", updated_fragments=[FRAGMENT], deleted_fragment_ids=[0])
    gone = operation("delete", deleted_fragment_ids=[0])
    for ours, theirs, expected in [
        (some, some, "rebase"),
        (some, emptied, RETRY),
        (some, gone, RETRY),
        (emptied, some, RETRY),
        (gone, some, RETRY),
        (gone, gone, RETRY),
    ]:
        pair = footprint_of(ours, affected_rows=ROWS), footprint_of(theirs)
        assert word(judge(*pair, 3)) == expected
    assert word(judge(footprint_of(some, affected_rows={1: Bitmap([3])}), footprint_of(some), 3)) == RETRY


def test_columns_changed_in_place_are_never_joined_with_deleted_rows() -> None:
    columns = operation("update", updated_fragments=[FRAGMENT], update_mode=1)
    some = operation("delete", updated_fragments=[FRAGMENT])
    assert word(judge(footprint_of(columns, affected_rows=ROWS), footprint_of(some), 3)) == RETRY


def test_an_overlay_is_compared_only_with_rows_that_moved() -> None:
    overlay = footprint_of(operation("data_overlay", groups=[{"fragment_id": 0}]))
    stays = operation("update", updated_fragments=[FRAGMENT])
    moves = operation("update", updated_fragments=[FRAGMENT], new_fragments=[{"physical_rows": 1}])
    assert judge(overlay, footprint_of(stays), 3) == COMPATIBLE
    assert judge(overlay, footprint_of(moves), 3) == Rebase(compares=frozenset({0}))


def test_a_field_that_a_file_holds_no_more_meets_none() -> None:
    def replaced(*fields: int) -> Transaction:
        group = {"fragment_id": 0, "new_file": {"fields": list(fields)}}
        return operation("data_replacement", replacements=[group])

    assert word(judge(footprint_of(replaced(1, -2)), footprint_of(replaced(0, -2)), 3)) == OK
    assert word(judge(footprint_of(replaced(1, -2)), footprint_of(replaced(1)), 3)) == RETRY


def test_base_paths_without_an_id_get_one_each() -> None:
    transaction, other = (operation("update_bases", new_bases=[{"path": path}]) for path in ("/a", "/b"))
    assert word(judge(footprint_of(transaction), footprint_of(other), 3)) == OK


def test_a_new_index_leaves_only_what_is_still_there() -> None:
    covered = encode_bitmap(Bitmap([0, 1, 2]))
    index = operation("create_index", new_indices=[{"name": "x", "fields": [1], "fragment_bitmap": covered}])
    changed = operation(
        "update",
        updated_fragments=[FRAGMENT, {"id": 1}],
        removed_fragment_ids=[1],
        fields_modified=[1],
        update_mode=1,
    )
    verdict = judge(footprint_of(index), footprint_of(changed), 3)
    assert isinstance(verdict, Rebase)
    assert list(verdict.uncovers.values()) == [frozenset({0})]


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.UNKNOWN])
def test_no_rule_conflicts_with_a_version_of_refusals(kind: Kind) -> None:
    assert not RULES[kind].get(footprint_of(combined([], [], {})).kind)
