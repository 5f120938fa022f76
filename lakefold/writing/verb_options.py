"""The options that every verb that writes a batch has: its key, and how long to wait for its outcome."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")
WAIT_S: Final = 60.0
FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


def key_options(function: Callable[..., Result]) -> Callable[..., Result]:
    """Gives a verb `--app-id` and `--batch-id`, which it gets as `key`. Raises `InvalidError` on call.

    Without both it is a key that no other batch has. The verb also gets `on_reused_key`.
    """

    @wraps(function)
    def call(*args: object, app_id: str | None, batch_id: int | None, **rest: object) -> Result:
        from lakefold.writing.options import batch_key

        return function(*args, key=batch_key(app_id, batch_id), **rest)

    reused = click.option(
        "--on-reused-key",
        type=click.Choice(["raise", "skip"]),
        default="raise",
        show_default=True,
        help="For another batch under a key that was used before: fail, or leave its rows out.",
    )
    batch = click.option(
        "--batch-id", type=click.IntRange(0, 2**64 - 1), help="The batch's number within the application."
    )
    decorated: Callable[..., Result] = batch(reused(call))
    return click.option("--app-id", help="The application that numbers its batches.")(decorated)


def layout_options(function: Callable[..., Result]) -> Callable[..., Result]:
    """Gives a verb the options of its files, which it gets as `layout`: the settings by their names.

    They are `--format`, `--partition-by`, `--property` and `--sort-by`.
    """

    @wraps(function)
    def call(
        *args: object,
        table_format: str | None,
        partition_by: str,
        sort_by: str,
        properties: dict[str, str],
        **rest: object,
    ) -> Result:
        columns = {"partition_by": columns_of(partition_by), "sort_by": columns_of(sort_by)}
        layout = {"format": table_format or "", "table_properties": properties, **columns}
        return function(*args, layout=layout, **rest)

    text = "Each file has the rows in the order of these columns."
    decorated: Callable[..., Result] = click.option("--sort-by", default="", metavar="A,B", help=text)(call)
    text = "A property of TABLE if it is created as a Delta table, such as delta.enableDeletionVectors=true."
    decorated = click.option(
        "--property", "properties", multiple=True, metavar="NAME=VALUE", callback=_properties, help=text
    )(decorated)
    text = "The partition columns of TABLE, if it is a Delta table that is created."
    decorated = click.option("--partition-by", default="", metavar="A,B", help=text)(decorated)
    text = "The format of TABLE. If it exists, it must have this one.  [default: its own, or lance]"
    names = click.Choice(["lance", "delta"])
    return click.option("--format", "table_format", type=names, help=text)(decorated)


def merge_options(function: Callable[..., Result]) -> Callable[..., Result]:
    """Gives a verb the options of a merge, which it gets as `merge`. Raises `InvalidError` on call."""

    @wraps(function)
    def call(*args: object, keys: str, order_by: str | None, **rest: Any) -> Result:  # noqa: ANN401 - each option has a type of its own
        from lakefold_ingest.merge.clause_texts import ClauseTexts
        from lakefold_ingest.merge.modes import UPSERTS, merge_of

        values = {name: rest.pop(name) for name in _CLAUSES}
        given = {name: value for name, value in values.items() if value or value == ""}
        clauses = ClauseTexts(**given).clauses() if given else None
        merge = merge_of(UPSERTS, columns_of(keys), columns_of(order_by or ""), clauses)
        return function(*args, merge=merge, **rest)

    decorated: Callable[..., Result] = call
    for name, (metavar, callback, text) in reversed(_CLAUSES.items()):
        flag = f"--{name.replace('_', '-')}"
        decorated = click.option(flag, metavar=metavar, callback=callback, help=text)(decorated)
    order = (
        "The columns that order the rows of one key: the last row counts. They may be missing in the table."
    )
    decorated = click.option("--order-by", metavar="A,B", help=order)(decorated)
    text = "The columns by which rows are the same."
    return click.option("--keys", required=True, metavar="A,B", help=text)(decorated)


def columns_of(names: str) -> tuple[str, ...]:
    """Returns the columns that an option names, separated by commas."""
    return tuple(filter(None, (name.strip() for name in names.split(","))))


def _columns(_: click.Context, __: click.Parameter, names: str | None) -> tuple[str, ...]:
    return columns_of(names or "")


def _properties(_: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    parts = [each.partition("=") for each in given]
    if not all(name.strip() and equals for name, equals, _ in parts):
        message = "give NAME=VALUE"
        raise click.BadParameter(message, param=option)
    return {name.strip(): text.strip() for name, _, text in parts}


def _assignments(_: click.Context, option: click.Parameter, text: str | None) -> dict[str, str]:
    from lakefold_ingest.options.write_options import assignments

    try:
        return {} if text is None else assignments(text)
    except ValueError as error:
        message = f"give {error}"
        raise click.BadParameter(message, param=option) from error


_CLAUSES: Final[dict[str, tuple[str, Callable[..., Any] | None, str]]] = {
    "when_matched_update": ("SQL", None, "Update rows whose key is in the files, if this holds."),
    "update_columns": ("A,B", _columns, "The columns that are updated; all of the files if it is not given."),
    "when_matched_set": (
        "COLUMN=SQL;…",
        _assignments,
        "Values of updated rows, with source.x of the files and target.x, the old value of the column x.",
    ),
    "when_matched_delete": ("SQL", None, "Delete rows whose key is in the files, if this holds."),
    "when_not_matched_insert": (
        "SQL",
        None,
        "Insert rows of the files whose key is not in the table, if this holds.",
    ),
    "when_not_matched_by_source_delete": (
        "SQL",
        None,
        "Delete rows whose key is not in the files, if this holds.",
    ),
    "when_not_matched_by_source_update": (
        "SQL",
        None,
        "Update rows whose key is not in the files, if this holds.",
    ),
    "when_not_matched_by_source_set": (
        "COLUMN=SQL;…",
        _assignments,
        "Their new values, in which target.x is the old value of the column x.",
    ),
}
"""The options of clauses: what is given, how it is read (None: as text), and the help."""


def pairs_option(
    flag: str, *, metavar: str, text: str
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Gives a verb an option of name=value pairs, which it gets as a dictionary, empty without it."""

    def read(_: click.Context, option: click.Parameter, given: str | None) -> dict[str, str]:
        from lakefold_ingest.options.write_options import pairs

        try:
            return {} if given is None else pairs(given)
        except ValueError as error:
            message = f"give {error}"
            raise click.BadParameter(message, param=option) from error

    return click.option(flag, metavar=metavar, callback=read, help=text)


def wait_option(*, or_log: bool) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Gives a verb `--wait SECONDS`. `or_log`: 0 means that it waits for the brokers only."""
    text = "; 0 only waits until the brokers have stored the proposal" if or_log else ""
    return click.option(
        "--wait",
        type=click.FloatRange(0, min_open=not or_log),
        default=WAIT_S,
        show_default=True,
        metavar="SECONDS",
        help=f"Seconds to wait for the outcome{text}.",
    )


MERGE_SCHEMA: Final = click.option(
    "--merge-schema",
    is_flag=True,
    help="Before the rows, add columns that TABLE lacks, as nullable ones, and make narrow types wider.",
)
