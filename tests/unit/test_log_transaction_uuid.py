"""A batch that is sent again, by whichever release, is the same transaction."""

from __future__ import annotations

from lakefold_log.write.producer import transaction_uuid

TABLE = "s3://lake/flights"


def test_is_written_down() -> None:
    assert transaction_uuid("app", 7, TABLE) == "8520c4aa-38b3-5485-aa5b-7c0e589f2507"


def test_it_distinguishes_batches_apps_and_tables() -> None:
    batches = [
        ("app", 7, TABLE),
        ("app", 8, TABLE),
        ("app2", 7, TABLE),
        ("app", 7, "s3://lake/f"),
        ("ap", 7, "p"),
    ]
    assert len({transaction_uuid(*batch) for batch in batches}) == len(batches)
