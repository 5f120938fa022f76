"""The views read a manifest's bytes without decoding its fragments, and lose nothing of the rest."""

from google.protobuf.unknown_fields import UnknownFieldSet

from lakefold_protos.lance.table_pb2 import DataFile, DataFragment, Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_protos.lance.views_pb2 import AppendView, FragmentsView

FROM_THE_FUTURE = b"\xfa\x3e\x03abc"  # Field 1007, three bytes: no client knows it.


def fragment(number: int) -> DataFragment:
    return DataFragment(id=number, files=[DataFile(path=f"{number}.lance", fields=[0])], physical_rows=10)


def manifest() -> Manifest:
    made = Manifest(
        version=7, fragments=[fragment(0), fragment(1)], table_metadata={"a": "b"}, next_row_id=20
    )
    made.max_fragment_id = 1
    return made


def test_a_manifest_splits_into_its_fragments_and_the_rest() -> None:
    view = FragmentsView.FromString(manifest().SerializeToString() + FROM_THE_FUTURE)

    assert [DataFragment.FromString(each) for each in view.fragments] == [fragment(0), fragment(1)]

    view.ClearField("fragments")
    rest = Manifest.FromString(view.SerializeToString())
    expected = manifest()
    expected.ClearField("fragments")
    (unknown,) = (UnknownFieldSet(rest)[number] for number in range(len(UnknownFieldSet(rest))))
    assert (unknown.field_number, unknown.data) == (1007, b"abc")
    rest.DiscardUnknownFields()
    assert rest == expected


def test_a_view_written_back_is_the_same_manifest() -> None:
    stream = manifest().SerializeToString() + FROM_THE_FUTURE
    again = Manifest.FromString(FragmentsView.FromString(stream).SerializeToString())
    assert again.SerializeToString(deterministic=True) == Manifest.FromString(stream).SerializeToString(
        deterministic=True
    )


def test_the_encoded_fragments_may_come_before_the_rest() -> None:
    view = FragmentsView.FromString(manifest().SerializeToString())
    fragments = FragmentsView(fragments=view.fragments).SerializeToString()
    view.ClearField("fragments")
    assert Manifest.FromString(fragments + view.SerializeToString()) == manifest()


def test_an_append_lists_its_encoded_fragments() -> None:
    append = Transaction.Append(fragments=[fragment(0), fragment(0)])
    view = AppendView.FromString(append.SerializeToString())
    assert list(view.fragments) == [fragment(0).SerializeToString()] * 2
