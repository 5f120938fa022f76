"""The page of the forms in which Debezium and Kafka Connect send values, and of the columns for them."""

from __future__ import annotations

from docs.markdown import page, table
from lakefold_ingest.cdc.debezium_forms import DECIMAL, FORMS, Form

DEBEZIUM = """\
With `envelope=debezium` a column of the messages has one of these forms, as their schema says
(`value.converter.schemas.enable=true`), or the option `debeziumTypes`, by the last part of the form's name:
`born=Date,price=Decimal(2),photo=Bytes`. What the option says counts more. For a list it names the form of
the items. A form is read into the columns of the table that are listed; another column is an error that
names both, before a row is written. A value that such a column can't have is a [bad
row](spark-writes.md#bad-rows).

A table that does not exist is created with the columns of the schemas, and the columns of `orderBy`, by
`lakefold.apply_changes` and `sink`; `format("lakefold")` needs a table. Messages without a schema need one,
too; their values are read as its types say, and as JSON has them.

A name that begins with `io.debezium.` or `org.apache.kafka.connect.` and is not listed is refused; the
names of your own are ignored. The forms are those of Debezium 3.7."""

NOTES = """\
## What the values become

- **Columns of text** get what the message has: the text, for bytes their base64. JSON columns are such
  columns.
- **Timestamps** without a zone are in UTC in a column that has one. A column without one has the same
  numbers. `ZonedTimestamp` needs a column with a zone; more than six digits of a second need nanoseconds.
- **Times** are within a day. MySQL's `TIME` goes from -838:59:59 to 838:59:59: for such values use a column
  of a duration, which Lance has. `ZonedTime` and `IsoTime` are converted to UTC.
- **Decimals** are exact. They are base64, or numbers (`decimal.format=NUMERIC`); a batch that has both in a
  column is refused. A scale below 0 becomes zeros: a new table gets a scale of 0. A `VariableScaleDecimal`
  has a scale in each value: a column of decimals takes those that it holds exactly, and a column of text
  has all of their digits.
- **Floats** may be `"NaN"`, `"Infinity"` and `"-Infinity"`, as Connect writes them, also in lists and
  structs; not if a column or field of text has the same name.
- **Lists and structs** are converted inside: arrays of `numeric`, `timestamp` or `bytea`, the `wkb` of
  geometries. A struct in the table may lack no field that the messages have.
- **Vectors**: create the table with lists of a fixed size, if it is to have a vector index.
- **Maps**: PostgreSQL's `hstore` is JSON text by default (`hstore.handling.mode=json`). As a map it needs
  columns, as Spark's `from_json` makes them with the type `map<string,string>`.
- **`Bits`** stay bytes, the lowest first.

If Spark parses the messages (`from_json`), the same is true of its columns, for the forms that
`debeziumTypes` names. But what Spark has made of a number can't be seen any more: it reads 1e39 as an
infinite `float`, and rounds what a `decimal` can't have. So give `from_json` `double` and wide decimals, or
pass the messages as they are."""


def debezium_types() -> str:
    """Returns the page of the forms of Debezium's and Kafka Connect's values."""
    rows = [
        [
            f"`{form.name}`",
            f"`{form.sent}`" if form.sent != form.name else "",
            ", ".join(form.into) or f"refused: {form.instead}",
            _new(form),
        ]
        for form in FORMS
    ]
    head = ["form", "type in the schema", "read into columns of", "column of a new table"]
    source = "ingest/lakefold_ingest/cdc/debezium_forms.py"
    return page("Values of Debezium and Kafka Connect", source, DEBEZIUM, f"{table(head, rows)}\n{NOTES}\n")


def _new(form: Form) -> str:
    if form is DECIMAL:
        return "`decimal` with its precision and scale"
    return f"`{form.new}`" if form.new else "of its items or fields" if form.into else ""
