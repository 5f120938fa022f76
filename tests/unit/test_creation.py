"""A table's first version: what its choices become, and what may not become a table."""

from collections.abc import Callable

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Conflict, Invalid, Rejected
from lakefold_table.lance.manifests.features import Flag
from lakefold_table.lance.manifests.naming import Scheme
from tests.folding import SCHEMA, MemoryTable, add_fragment, append, changed, column, created, creation

Change = Callable[[Envelope], object]


def with_rows(envelope: Envelope, *names: str) -> Envelope:
    def change(copy: Envelope) -> None:
        for name in names:
            add_fragment(copy.lance.overwrite.fragments.add(), name)

    return changed(envelope, change)


def test_an_empty_table() -> None:
    table = MemoryTable()
    assert table.result(creation()) == Committed(1)
    head = table.state.head
    assert (head.version, list(head.fields)) == (1, list(SCHEMA))
    assert (head.data_format.file_format, head.data_format.version) == ("lance", "2.2")
    assert (head.reader_feature_flags, head.writer_feature_flags, head.next_row_id) == (0, 0, 0)
    assert not head.HasField("max_fragment_id")
    assert table.state.scheme is Scheme.V2
    assert table.state.fragments.count == 0


def test_a_table_with_its_first_rows() -> None:
    table = MemoryTable()
    assert table.result(with_rows(creation(), "one", "two")) == Committed(1, rows_added=6, num_fragment_ids=2)
    assert [fragment.id for fragment in table.state.fragments] == [0, 1]
    assert table.state.head.max_fragment_id == 1
    assert table.result(append(read=1)) == Committed(2, rows_added=3, first_fragment_id=2, num_fragment_ids=1)


def test_an_overwrite_gives_all_fragments_new_ids() -> None:
    """Whatever ids they have, as pylance does (Lance fact 6.5)."""
    envelope = with_rows(creation(), "one", "two", "three")
    for number, fragment in zip((5, 0, 7), envelope.lance.overwrite.fragments, strict=True):
        fragment.id = number
    table = MemoryTable()
    assert table.result(envelope) == Committed(1, rows_added=9, num_fragment_ids=3)
    assert [fragment.id for fragment in table.state.fragments] == [0, 1, 2]
    assert table.state.head.max_fragment_id == 2


def test_rows_keep_their_ids_if_the_table_says_so() -> None:
    table = MemoryTable()
    table.fold(with_rows(creation(stable_row_ids=True), "one", "two"))
    assert table.state.head.reader_feature_flags == table.state.head.writer_feature_flags == 2
    assert table.state.head.next_row_id == 6
    assert all(fragment.inline_row_ids for fragment in table.state.fragments)


def test_the_older_naming() -> None:
    table = created(v1_manifest_paths=True)
    assert list(table.files) == ["_versions/1.manifest"]
    table.fold(append())
    assert list(table.files)[1] == "_versions/2.manifest"
    assert table.reopened().state.scheme is Scheme.V1


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_the_version_of_data_files(version: str) -> None:
    table = created(data_storage_version=version)
    assert table.state.head.data_format.version == version
    major, minor = map(int, version.split("."))
    envelope = append()
    envelope.lance.append.fragments[0].files[0].file_major_version = major
    envelope.lance.append.fragments[0].files[0].file_minor_version = minor
    table.fold(envelope)
    assert table.state.head.reader_feature_flags == 0


def test_config_metadata_and_bases_are_kept_and_flagged() -> None:
    envelope = creation()
    overwrite = envelope.lance.overwrite
    overwrite.config_upsert_values["k"] = "v"
    overwrite.schema_metadata["m"] = b"n"
    overwrite.initial_bases.add(id=1, path="/elsewhere")
    table = MemoryTable()
    table.fold(envelope)
    head = table.state.head
    assert (dict(head.config), dict(head.schema_metadata)) == ({"k": "v"}, {"m": b"n"})
    assert head.reader_feature_flags == Flag.BASE_PATHS
    assert head.writer_feature_flags == Flag.BASE_PATHS | Flag.TABLE_CONFIG
    assert [base.id for base in head.base_paths] == [1]


def test_first_rows_may_be_under_an_initial_base() -> None:
    envelope = with_rows(creation(), "one")
    envelope.lance.overwrite.initial_bases.add(id=4, path="/elsewhere")
    envelope.lance.overwrite.fragments[0].files[0].base_id = 4
    assert isinstance(MemoryTable().result(envelope), Committed)
    envelope.lance.overwrite.fragments[0].files[0].base_id = 5
    assert isinstance(MemoryTable().result(envelope), Invalid)


def schema(*fields: object) -> Change:
    def change(envelope: Envelope) -> None:
        del envelope.lance.overwrite.schema[:]
        envelope.lance.overwrite.schema.extend(fields)  # type: ignore[arg-type]

    return change


def to_a_version(envelope: Envelope) -> None:
    envelope.ClearField("create")
    envelope.lance.read_version = 1


def to_a_branch(envelope: Envelope) -> None:
    envelope.ClearField("create")
    envelope.branch = "b"


A = column("a", 0)
CHAIN = [column("s", number, "struct", parent=number - 1) for number in range(63)]
REFUSED: dict[str, tuple[Change, str, str]] = {
    "nothing to create": (to_a_version, "there is no table at memory:", "has `create`"),
    "no such branch": (
        to_a_branch,
        "the table at memory://tests/t has no branch b",
        "create it with a Clone",
    ),
    "by an append": (lambda e: e.lance.append.SetInParent(), "created by an overwrite", "empty overwrite"),
    "read version": (lambda e: setattr(e.lance, "read_version", 1), "the table does not exist yet", "with 0"),
    "storage version": (
        lambda e: setattr(e.create, "data_storage_version", "2.9"),
        "data storage version '2.9' is not known",
        "use one of 2.0, 2.1, 2.2, 2.3",
    ),
    "older storage": (lambda e: setattr(e.create, "data_storage_version", "0.1"), "'0.1' is not", "2.0"),
    "no schema": (schema(), "at least one column", "give the schema"),
    "id twice": (schema(A, column("b", 0)), "not sound: b: field id 0 is in the schema twice", ""),
    "negative id": (schema(column("a", -2)), "not sound: a: field id -2 is negative", ""),
    "no parent": (schema(column("a", 0, parent=7)), "has the parent 7, which is not", ""),
    "child first": (schema(column("x", 0, parent=1), column("s", 1, "struct")), "before its parent", ""),
    "form a cycle": (
        schema(column("x", 0, "struct", parent=1), column("y", 1, "struct", parent=0)),
        "not sound: x: field 0 comes before its parent 1, or the two form a cycle",
        "a parent before it",
    ),
    "too deep": (schema(*CHAIN, column("x", 63, parent=62)), "nested deeper than 63 levels", "no Lance"),
    "name twice": (schema(A, column("a", 1)), "several fields have the names ['a']", "rename"),
    "name twice below": (
        schema(column("s", 0, "struct"), column("x", 1, parent=0), column("x", 2, parent=0)),
        "several fields have the names ['x']",
        "rename",
    ),
    "no name": (schema(column("", 0)), "can't have the names ['']", "not be empty"),
    "dotted name": (schema(column("a.b", 0)), "can't have the names ['a.b']", "a dot"),
    "Lance's name": (schema(A, column("_rowid", 1)), "can't have the names ['_rowid']", "_rowaddr"),
    "unknown type": (schema(A, column("b", 1, "int65")), "logical types ['int65'] are not known", "Lance"),
    "a name with a NUL": (
        schema(column("s", 0, "struct"), column("a\0", 1, parent=0)),
        "contain a NUL",
        "rename",
    ),
    "no type": (schema(column("a", 0, "")), "logical types [''] are not known", "Lance stores"),
    "our key in the config": (
        lambda e: e.lance.overwrite.config_upsert_values.update({"lakefold.x": "1"}),
        "keys ['lakefold.x'] may not be set",
        "another prefix",
    ),
    "our key in the metadata": (
        lambda e: e.lance.overwrite.schema_metadata.update({"lakefold.x": b"1"}),
        "keys ['lakefold.x'] may not be set",
        "another prefix",
    ),
    "base twice": (
        lambda e: [e.lance.overwrite.initial_bases.add(id=1, path=name) for name in "xy"],
        "two bases have the same id",
        "of its own",
    ),
    "base without path": (
        lambda e: e.lance.overwrite.initial_bases.add(id=1),
        "a base has no path",
        "the path or URI",
    ),
}


@pytest.mark.parametrize(("change", "message", "hint"), REFUSED.values(), ids=REFUSED)
def test_what_may_not_become_a_table(change: Change, message: str, hint: str) -> None:
    table = MemoryTable()
    folded = table.fold(changed(creation(), change))
    result = folded.outcomes[0].result
    assert isinstance(result, Invalid)
    assert message in result.message
    assert hint in result.hint
    assert "restore" not in f"{result.message} {result.hint}", "nothing is damaged but the proposal"
    assert folded.publication is None
    assert table.table.state is None


def test_names_below_a_column_may_have_dots() -> None:
    fields = [column("s", 0, "struct"), column("a.b", 1, parent=0), column("", 2, parent=0)]
    assert isinstance(MemoryTable().result(changed(creation(), schema(*fields))), Committed)
    deep = [*CHAIN[:-1], column("x", 62, parent=61)]
    assert isinstance(MemoryTable().result(changed(creation(), schema(*deep))), Committed)


def test_a_wrong_first_fragment_refuses_the_table() -> None:
    envelope = with_rows(creation(), "one")
    envelope.lance.overwrite.fragments[0].files[0].fields.append(9)
    table = MemoryTable()
    assert isinstance(table.result(envelope), Invalid)
    assert isinstance(table.result(with_rows(creation(), "one"), sizes={"data/one.lance": None}), Invalid)
    assert isinstance(table.result(with_rows(creation(), "one"), sizes={"data/one.lance": 1000}), Committed)


def test_a_schema_of_many_names_is_judged_in_no_time() -> None:
    """Fields nested a hundred thousand deep must not cost their number squared."""
    fields = [column("name" * 10, number, "struct", parent=number - 1) for number in range(50_000)]
    result = MemoryTable().result(changed(creation(), schema(*fields)))
    assert isinstance(result, Invalid)


def exists(version: int, operation: str) -> Rejected:
    message = f"the table exists already, at version {version}: open it and append"
    return Rejected(
        Conflict(retryable=True, message=message, other_version=version, other_operation=operation)
    )


@pytest.mark.parametrize("envelope", [creation(uuid="again"), with_rows(creation(uuid="again"), "one")])
def test_no_table_is_created_where_one_exists(envelope: Envelope) -> None:
    table = created()
    assert table.result(envelope) == exists(1, "overwrite")
    table.fold(append())
    assert table.result(envelope) == exists(2, "append")


def test_a_creation_sent_again_is_a_duplicate() -> None:
    table = MemoryTable()
    keyed = creation()
    keyed.app_id, keyed.batch_id = "app", 0
    table.fold(keyed)
    assert type(table.result(keyed)).__name__ == "Duplicate"
