"""The conflict rules over random transactions and histories: what holds for all operations."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.entry import Conflict
from lakefold_table.lance.conflicts import COMPATIBLE, History, Rebase, Verdict, footprint_of, judge
from lakefold_table.lance.conflicts.footprint import Footprint
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, MEM_WAL
from lakefold_table.lance.kinds import Kind

MANY = settings(max_examples=150, deadline=None)
IDS = st.integers(0, 3)
KEYS = st.sampled_from("km")
FRAGMENT = st.builds(
    lambda number, name: {"id": number, "files": [{"path": name, "fields": [0, 1]}]},
    IDS,
    st.sampled_from(["f", "g"]),
)
FRAGMENTS = st.lists(FRAGMENT, max_size=2, unique_by=lambda document: document["id"])
SHARDS = st.lists(
    st.builds(
        lambda shard, number: {"shard_id": {"uuid": shard * 16}, "generation": number},
        st.sampled_from([b"a", b"b"]),
        IDS,
    ),
    max_size=2,
)
ENTRIES = st.lists(st.fixed_dictionaries({"key": KEYS}, optional={"value": st.just("v")}), max_size=2)
CHANGES = st.fixed_dictionaries({"update_entries": ENTRIES, "replace": st.booleans()})
INDEX = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["x", "y", FRAGMENT_REUSE, MEM_WAL]),
        "uuid": IDS.map(lambda number: {"uuid": bytes([number]) * 16}),
        "fields": st.lists(IDS, max_size=2),
    },
    optional={"fragment_bitmap": st.frozensets(IDS).map(lambda ids: encode_bitmap(Bitmap(ids)))},
)
INDICES = st.lists(INDEX, max_size=2)
SCHEMA = st.lists(IDS.map(lambda number: {"id": number}), max_size=3)
CONTENT: dict[str, dict[str, st.SearchStrategy[object]]] = {
    "append": {"fragments": FRAGMENTS},
    "delete": {"updated_fragments": FRAGMENTS, "deleted_fragment_ids": st.lists(IDS, max_size=1)},
    "overwrite": {"config_upsert_values": st.dictionaries(KEYS, st.just("v"))},
    "create_index": {"new_indices": INDICES, "removed_indices": INDICES},
    "rewrite": {"groups": st.lists(st.fixed_dictionaries({"old_fragments": FRAGMENTS}), max_size=2)},
    "merge": {"preserves_nullability": st.booleans()},
    "restore": {},
    "reserve_fragments": {},
    "update": {
        "updated_fragments": FRAGMENTS,
        "removed_fragment_ids": st.lists(IDS, max_size=1),
        "new_fragments": FRAGMENTS,
        "fields_modified": st.lists(IDS, max_size=1),
        "update_mode": st.integers(0, 1),
        "compacted_sstables": SHARDS,
    },
    "project": {"schema": SCHEMA, "preserves_nullability": st.booleans()},
    "update_config": {
        "config_updates": CHANGES,
        "table_metadata_updates": CHANGES,
        "schema_metadata_updates": CHANGES,
    },
    "data_replacement": {
        "replacements": st.lists(
            st.builds(
                lambda number, field: {"fragment_id": number, "new_file": {"fields": [field]}}, IDS, IDS
            ),
            max_size=2,
        )
    },
    "update_mem_wal_state": {"compacted_sstables": SHARDS},
    "clone": {},
    "update_bases": {
        "new_bases": st.lists(
            st.fixed_dictionaries({"id": IDS, "path": KEYS}, optional={"name": KEYS}), max_size=2
        )
    },
    "data_overlay": {
        "groups": st.lists(
            st.builds(
                lambda number, rows: {
                    "fragment_id": number,
                    "overlays": [{"data_file": {"fields": [0]}, "dense": encode_bitmap(Bitmap(rows))}],
                },
                IDS,
                st.frozensets(IDS, min_size=1),
            ),
            max_size=2,
        )
    },
}


def transaction(name: str, content: dict[str, object]) -> Transaction:
    made = Transaction()
    getattr(made, name).SetInParent()
    getattr(made, name).MergeFrom(type(getattr(made, name))(**content))
    return made


ROWS = st.none() | st.dictionaries(IDS, st.frozensets(IDS).map(Bitmap))
FOOTPRINTS: st.SearchStrategy[Footprint] = st.sampled_from(sorted(CONTENT)).flatmap(
    lambda name: st.builds(
        lambda content, rows, reuse: footprint_of(
            transaction(name, content), affected_rows=rows, carries_reuse=reuse
        ),
        st.fixed_dictionaries({}, optional=CONTENT[name]),
        ROWS,
        st.booleans(),
    )
)
ANY = FOOTPRINTS | st.just(footprint_of(None))


def rank(verdict: Verdict) -> int:
    if isinstance(verdict, Conflict):
        return 2 if verdict.retryable else 3
    return int(isinstance(verdict, Rebase))


@MANY
@given(FOOTPRINTS, ANY)
def test_a_verdict_names_what_it_conflicts_with(ours: Footprint, theirs: Footprint) -> None:
    verdict = judge(ours, theirs, 7)
    if isinstance(verdict, Conflict):
        assert (verdict.other_version, verdict.other_operation) == (7, theirs.kind.value)
        did = "" if theirs.kind is Kind.UNKNOWN else f"the {theirs.kind} of "
        assert f"{ours.kind} conflicts with {did}version 7" in verdict.message
        assert list(verdict.fragment_ids) == sorted(set(verdict.fragment_ids))
        assert set(verdict.fragment_ids) <= ours.touched | theirs.touched
    elif isinstance(verdict, Rebase):
        assert verdict != Rebase()
        assert verdict.merges <= ours.touched & theirs.touched
        assert not verdict.merges & theirs.removed


@MANY
@given(FOOTPRINTS, ANY)
def test_knowing_rows_never_makes_it_worse(ours: Footprint, theirs: Footprint) -> None:
    """And where a Delete or an Update says nothing of its rows, no fragment is shared."""
    blind = Footprint(**{**{name: getattr(ours, name) for name in ours.__slots__}, "rows": None})
    assert rank(judge(blind, theirs, 7)) >= rank(judge(ours, theirs, 7))
    if {ours.kind, theirs.kind} <= {Kind.DELETE, Kind.UPDATE} and blind.touched & theirs.touched:
        assert rank(judge(blind, theirs, 7)) >= 2


@MANY
@given(FOOTPRINTS, st.lists(ANY, max_size=12), st.integers(0, 12))
def test_a_history_gives_the_worst_of_its_versions(
    ours: Footprint, between: list[Footprint], read_version: int
) -> None:
    """Against a plain reading of all versions."""
    history = History(0, {})
    for version, theirs in enumerate(between, 1):
        history = history.extended(version, theirs)
    verdicts = [
        judge(ours, theirs, version) for version, theirs in enumerate(between, 1) if version > read_version
    ]
    actual = history.verdict(ours, read_version)
    assert rank(actual) == max(map(rank, verdicts), default=0)
    if isinstance(actual, Conflict):
        assert actual.other_version == max(
            verdict.other_version
            for verdict in verdicts
            if isinstance(verdict, Conflict) and verdict.retryable == actual.retryable
        )
    if isinstance(actual, Rebase):
        merges = [verdict.merges for verdict in verdicts if isinstance(verdict, Rebase)]
        assert actual.merges == frozenset().union(*merges)


@MANY
@given(FOOTPRINTS, st.lists(ANY, min_size=1, max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_footprints_that_are_fetched_late_give_the_same_verdict(
    ours: Footprint, between: list[Footprint], read_version: int, marked: int
) -> None:
    """A committer that begins from the marks asks for what it lacks, and then knows no less."""
    steps = list(enumerate(between, 1))
    whole = History(0, {})
    for version, theirs in steps:
        whole = whole.extended(version, theirs)
    begun = History(0, {theirs.kind: version for version, theirs in steps[:marked]})
    for version, theirs in steps[marked:]:
        begun = begun.extended(version, theirs)
    wanted = begun.needs_details(ours.kind, read_version)
    if wanted is None:
        assert begun.verdict(ours, read_version) == whole.verdict(ours, read_version)
        return
    assert rank(begun.verdict(ours, read_version)) >= 2
    history = begun.detailed([step for step in reversed(steps[:marked]) if step[0] > wanted])
    assert history.needs_details(ours.kind, read_version) is None
    assert history.verdict(ours, read_version) == whole.verdict(ours, read_version)
    assert history == whole


@MANY
@given(FOOTPRINTS)
def test_what_was_not_there_conflicts_with_nothing(ours: Footprint) -> None:
    assert History(0, {}).verdict(ours, 0) == COMPATIBLE
