"""The demo's events say what the CSV file says, and its checksum notices whatever may differ."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import json as arrow_json

from lakefold.demo import DEPARTURES
from lakefold.demo.dataset import (
    SCHEMA,
    SEQUENCE,
    TIME,
    Departures,
    events_of,
    find_csv,
    json_texts,
)
from lakefold.demo.verification import (
    Checksum,
    DemoVerification,
    ServicesVerification,
    checksum_of,
    judge,
)
from lakefold_table.errors import DamagedError


@pytest.fixture(scope="module")
def departures() -> Departures:
    return Departures(find_csv())


@pytest.fixture(scope="module")
def few(departures: Departures) -> pa.Table:
    return departures.typed.slice(0, 300)


def changed(table: pa.Table, column: str, row: int, value: object) -> pa.Table:
    """The table with another value in one place."""
    values = table[column].to_pylist()
    values[row] = value
    location = table.schema.get_field_index(column)
    return table.set_column(location, SCHEMA.field(location), pa.array(values, SCHEMA.field(location).type))


def test_has_every_departure_once(departures: Departures) -> None:
    assert departures.typed.num_rows == DEPARTURES
    assert departures.typed.schema == SCHEMA
    assert departures.typed[SEQUENCE].to_pylist() == list(range(DEPARTURES))


def test_events_are_ordered_by_the_minute_of_departure(departures: Departures) -> None:
    typed = departures.typed
    delay = pc.fill_null(typed["dep_delay"].cast(pa.int64()), 0)
    minutes = pc.add(pc.divide(typed[TIME].cast(pa.int64()), 60_000_000), pc.add(typed["minute"], delay))
    left = minutes.combine_chunks()
    assert pc.all(pc.greater_equal(left.slice(1), left.slice(0, len(left) - 1))).as_py()
    # Delayed by more than 21 hours: it left on the next day.
    late = typed.filter(pc.equal(typed["dep_delay"], 1301)).to_pylist()[0]
    assert (late["day"], late["sched_dep_time"], late["dep_time"]) == (9, 900, 641)
    assert typed["day"][late[SEQUENCE] - 1].as_py() == 10


def test_events_are_the_typed_rows_in_json(departures: Departures) -> None:
    lines = "\n".join(json_texts(departures.texts).to_pylist()).encode()
    options = arrow_json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="error")
    assert arrow_json.read_json(io.BytesIO(lines), parse_options=options).equals(departures.typed)


def test_an_event_is_keyed_by_its_aircraft_and_has_every_column(departures: Departures) -> None:
    sent = [event for chunk in events_of(departures.texts.slice(0, 45_000)) for event in chunk]
    assert len(sent) == 45_000
    for key, value in sent[::5_000]:
        event = json.loads(value)
        assert list(event) == SCHEMA.names
        assert key == (None if event["tailnum"] is None else event["tailnum"].encode())


def test_a_slice_is_the_beginning_of_the_whole(departures: Departures) -> None:
    slice_ = Departures(departures.content, 1_000)
    assert slice_.typed.equals(departures.typed.slice(0, 1_000))
    assert slice_.texts.equals(departures.texts.slice(0, 1_000))


@pytest.mark.parametrize("content", [b"", b"year,month\n2013,1\n"], ids=["empty", "other columns"])
def test_another_file_is_refused(content: bytes) -> None:
    with pytest.raises(DamagedError, match="not the one this demo was made for"):
        assert Departures(content).typed


def test_a_file_with_other_rows_is_refused(departures: Departures) -> None:
    shorter = departures.content[: departures.content.rindex(b"\n", 0, -1) + 1]
    with pytest.raises(DamagedError, match="336775 rows, not 336776"):
        assert Departures(shorter).typed


def test_a_text_that_json_would_escape_is_refused(departures: Departures) -> None:
    texts = departures.texts.slice(0, 2)
    location = texts.schema.get_field_index("dest")
    odd = texts.set_column(location, "dest", pa.array(['I"AH', "IAH"]))
    with pytest.raises(DamagedError, match="the column dest"):
        json_texts(odd)


def test_order_and_parting_do_not_change_the_checksum(few: pa.Table) -> None:
    order = list(range(few.num_rows))
    random.Random(7).shuffle(order)
    mixed = few.take(order)
    whole = checksum_of(few, "it")
    assert whole.rows == 300
    assert checksum_of(mixed, "it") == whole
    assert (
        sum((checksum_of(mixed.slice(start, 70), "it") for start in range(0, 300, 70)), Checksum()) == whole
    )


@pytest.mark.parametrize("column", SCHEMA.names)
def test_every_column_counts(few: pa.Table, column: str) -> None:
    kind = SCHEMA.field(column).type
    other: Any = few[TIME][200].as_py() if pa.types.is_timestamp(kind) else 77
    before = checksum_of(few, "it")
    assert checksum_of(changed(few, column, 5, "X" if kind == pa.string() else other), "it") != before
    assert checksum_of(changed(few, column, 5, None), "it") != before


def test_null_is_not_the_empty_text(few: pa.Table) -> None:
    empty, null = changed(few, "tailnum", 3, ""), changed(few, "tailnum", 3, None)
    assert checksum_of(empty, "it") != checksum_of(null, "it")


def test_values_that_change_places_are_noticed(few: pa.Table) -> None:
    swapped = changed(changed(few, "dest", 0, "MIA"), "dest", 2, "IAH")
    assert [few["dest"][location].as_py() for location in (0, 2)] == ["IAH", "MIA"]
    assert checksum_of(swapped, "it") != checksum_of(few, "it")


def test_a_doubled_and_a_lost_row_are_noticed(few: pa.Table) -> None:
    exchanged = pa.concat_tables([few.slice(0, 299), few.slice(0, 1)])
    checksum, whole = checksum_of(exchanged, "it"), checksum_of(few, "it")
    assert (checksum.rows, checksum != whole) == (whole.rows, True)


def test_another_schema_is_named(few: pa.Table) -> None:
    with pytest.raises(DamagedError, match=r"the columns of somebody .* flight is missing instead of int32"):
        checksum_of(few.drop_columns(["flight"]), "somebody")


def test_the_proof_names_who_saw_other_rows() -> None:
    sent = Checksum(10, 0xABC)
    services = ServicesVerification(8, 100, 20, same=True)
    judge(
        [DemoVerification("the CSV file", sent, same=True), DemoVerification("pylance", sent, same=True)],
        services,
    )
    with pytest.raises(DamagedError, match=r"pylance: 11 rows instead of 10"):
        judge(
            [
                DemoVerification("the CSV file", sent, same=True),
                DemoVerification("pylance", Checksum(11, 1), same=False),
            ],
            services,
        )
    with pytest.raises(DamagedError, match=r"checksum is abd instead of abc"):
        judge(
            [
                DemoVerification("the CSV file", sent, same=True),
                DemoVerification("pylance", Checksum(10, 0xABD), same=False),
            ],
            services,
        )
