"""Each Invalid outcome of a Lance transaction: what is wrong and what to do; and nothing else is refused."""

from collections.abc import Callable

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.entry import Invalid
from tests.folding import add_fragment, append, changed, created, reserve

Change = Callable[[Envelope], object]


def fragment(envelope: Envelope) -> DataFragment:
    fragment: DataFragment = envelope.lance.append.fragments[0]
    return fragment


def becomes(operation: str) -> Change:
    def change(envelope: Envelope) -> None:
        getattr(envelope.lance, operation).SetInParent()

    return change


def path(name: str) -> Change:
    return lambda e: setattr(fragment(e).files[0], "path", name)


def merged(location: Callable[[Envelope], object], data: bytes) -> Change:
    return lambda e: location(e).MergeFromString(data)  # type: ignore[attr-defined]


def twice(envelope: Envelope) -> None:
    add_fragment(envelope.lance.append.fragments.add(), "g")
    for fragment in envelope.lance.append.fragments:
        fragment.id = 9


def long_app(envelope: Envelope, size: int) -> None:
    envelope.app_id, envelope.batch_id = "a" * size, 1


REFUSED: dict[str, tuple[Change, str, str]] = {
    "no operation": (lambda e: e.lance.ClearField("append"), "has no operation", "set one"),
    "data overlay": (becomes("data_overlay"), "data overlays are not folded", "propose whole columns"),
    "reuse index": (lambda e: e.fragment_reuse_index.SetInParent(), "belongs to a Rewrite", "leave it out"),
    "long uuid": (lambda e: setattr(e.lance, "uuid", "u" * 65), "uuid has 65 characters", "use 36"),
    "reserved property": (
        lambda e: e.lance.transaction_properties.update({"lakefold.version": "9", "mine": "1"}),
        "keys ['lakefold.version'] may not be set",
        "another prefix",
    ),
    "a property of other operations": (
        lambda e: e.lance.transaction_properties.update({"lakefold.appends": "later"}),
        "keys ['lakefold.appends'] may not be set",
        "another prefix",
    ),
    "no read version": (lambda e: setattr(e.lance, "read_version", 0), "no read version", "version whose"),
    "read version above": (
        lambda e: setattr(e.lance, "read_version", 2),
        "read version 2 is above the latest version 1",
        "read the table's version again",
    ),
    "highest read version": (
        lambda e: setattr(e.lance, "read_version", 2**64 - 1),
        "is above the latest version 1",
        "restored to an earlier copy",
    ),
    "no rows": (lambda e: setattr(fragment(e), "physical_rows", 0), "has 0 rows", "1 to 2^32 - 1"),
    "too many rows": (lambda e: setattr(fragment(e), "physical_rows", 2**32), "4294967296 rows", "1 to"),
    "deletion file": (lambda e: fragment(e).deletion_file.SetInParent(), "no deletion file", "leave deleted"),
    "overlay": (lambda e: fragment(e).overlays.add(), "no overlays", "leave deleted"),
    "row ids": (lambda e: setattr(fragment(e), "inline_row_ids", b""), "no row ids", "given when"),
    "row ids elsewhere": (lambda e: fragment(e).external_row_ids.SetInParent(), "no row ids", "given when"),
    "row ids in a column": (lambda e: fragment(e).row_ids_as_column.SetInParent(), "no row ids", "given"),
    "created": (lambda e: setattr(fragment(e), "inline_created_at_versions", b"x"), "or versions", "given"),
    "updated": (
        lambda e: setattr(fragment(e), "inline_last_updated_at_versions", b"x"),
        "no row ids or versions",
        "given when it is folded",
    ),
    "columns": (
        lambda e: fragment(e).files[0].fields.append(5),
        "field ids [5] are not in the table's schema",
        "open",
    ),
    "path up": (path("../x.lance"), "the path '../x.lance' leaves its base", "relative to the data folder"),
    "absolute path": (path("/etc/passwd"), "leaves its base", "relative"),
    "no path": (path(""), "leaves its base or is not a plain name", "relative"),
    "long path": (path("x" * 256), "leaves its base or is not a plain name", "255 bytes"),
    "unknown base": (
        lambda e: setattr(fragment(e).files[0], "base_id", 3),
        "base 3 of f-0.lance is not one of the table's",
        "add the base first",
    ),
    "unknown field": (
        merged(lambda e: e.lance, b"\xf2\x7f\x01x"),
        "fields that this release",
        "newer release",
    ),
    "unknown field of the append": (merged(lambda e: e.lance.append, b"\x12\x01x"), "doesn't know", "newer"),
    "unknown field of a fragment": (merged(fragment, b"\x9a\x06\x01x"), "doesn't know", "might mean"),
    "rows as text": (merged(fragment, b"\x22\x01x"), "of another type than it knows", "without them"),
    "id as text": (merged(fragment, b"\x0a\x01x"), "of another type than it knows", "without them"),
    "size as text": (merged(lambda e: fragment(e).files[0], b"\x32\x01x"), "of another type", "without them"),
    "taken id": (
        twice,
        "fragment ids [9] are in use, listed twice or above",
        "set the ids to 0",
    ),
}


@pytest.mark.parametrize(("change", "message", "hint"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_with_an_append(change: Change, message: str, hint: str) -> None:
    table = created()
    before = table.table
    result = table.result(changed(append(), change))
    assert isinstance(result, Invalid)
    assert message in result.message
    assert hint in result.hint
    assert table.state is before.state


@pytest.mark.parametrize("count", [0, 2**24 + 1, 2**32 - 1])
def test_what_is_wrong_with_a_reservation(count: int) -> None:
    result = created().result(reserve(count))
    assert isinstance(result, Invalid)
    assert f"{count} fragment ids can't be reserved" in result.message
    assert result.hint == "reserve from 1 to 16777216 at once"


def test_a_reservation_must_name_a_version_too() -> None:
    assert isinstance(created().result(reserve(1, read=0)), Invalid)
    assert isinstance(created().result(reserve(1, read=2)), Invalid)


def test_a_file_that_is_missing() -> None:
    result = created().result(append(), sizes={"data/f-0.lance": None})
    assert result == Invalid(
        "data file data/f-0.lance is missing", "write the files before the transaction is sent"
    )


def test_a_file_of_another_size() -> None:
    result = created().result(append(), sizes={"data/f-0.lance": 999})
    assert isinstance(result, Invalid)
    assert result.message == "data file data/f-0.lance has 999 bytes, but the transaction says 1000"
    assert "write it again under a new name" in result.hint


@pytest.mark.parametrize("sizes", [{}, {"data/f-0.lance": 1000}, {"data/other.lance": None}])
def test_files_that_are_as_proposed_or_were_not_checked(sizes: dict[str, int | None]) -> None:
    assert not isinstance(created().result(append(), sizes=sizes), Invalid)


def test_a_file_of_unknown_size_only_has_to_be_there() -> None:
    unsaid = changed(append(), lambda e: fragment(e).files[0].ClearField("file_size_bytes"))
    assert not isinstance(created().result(unsaid, sizes={"data/f-0.lance": 5}), Invalid)
    assert isinstance(created().result(unsaid, sizes={"data/f-0.lance": None}), Invalid)


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_whatever_is_sent_the_answer_stays_short(size: int) -> None:
    """It travels in the version's record and in the outcomes topic."""
    wide: dict[str, Change] = {
        "path": path("../" + "p" * size),
        "uuid": lambda e: setattr(e.lance, "uuid", "u" * (64 + size)),
        "keys": lambda e: e.lance.transaction_properties.update(
            {f"lakefold.{number}": "" for number in range(size // 100 + 1)}
        ),
        "key": lambda e: e.lance.transaction_properties.update({"lakefold." + "k" * size: ""}),
        "fields": lambda e: fragment(e).files[0].fields.extend(range(2, 2 + size // 100 + 1)),
        "app": lambda e: long_app(e, 256 + size),
    }
    for change in wide.values():
        folded = created().fold(changed(append(), change))
        (outcome,) = folded.outcomes
        assert isinstance(outcome.result, Invalid)
        assert len(outcome.result.message) + len(outcome.result.hint) < 1100
        assert len(outcome.uuid) + len(outcome.app_id) + len(outcome.branch) < 1600
