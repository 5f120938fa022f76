"""The figures of a batch, as its envelope names the files."""

from dataclasses import replace

from lakefold_ingest.writing.report import figures_of
from lakefold_protos.lakefold.log_pb2 import Envelope


def test_figures_name_the_smallest_and_the_largest_file() -> None:
    envelope = Envelope()
    for rows, size in ((10, 300), (4, 90), (7, 200)):
        fragment = envelope.lance.append.fragments.add(physical_rows=rows)
        fragment.files.add(file_size_bytes=size)
    figures = figures_of(envelope, 1.0, 0.5, 0.25)
    assert (figures.rows, figures.files, figures.bytes) == (21, 3, 590)
    assert (figures.smallest_file, figures.largest_file) == (90, 300)
    assert str(figures) == (
        "3 files with 21 rows and 590 bytes (90 to 300 each); "
        "seconds: 1.000 to write, 0.500 to send, 0.250 to wait"
    )
    behind = replace(figures, unanswered=2, lag_s=1.5)
    assert str(behind) == f"{figures}; 2 earlier batches have no outcome, the oldest for 1.500 s"


def test_a_batch_without_files_has_figures_of_zero() -> None:
    envelope = Envelope()
    envelope.lance.delete.predicate = "true"
    figures = figures_of(envelope, 0.0, 0.0, 0.0)
    assert (figures.rows, figures.files, figures.smallest_file, figures.largest_file) == (0, 0, 0, 0)
