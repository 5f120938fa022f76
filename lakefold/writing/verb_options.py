"""The flags of verbs that write a batch: those of the table of options, its key, and how long to wait."""

from __future__ import annotations

import re
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lakefold_ingest.options.write_options import TABLE_PROPERTIES, WRITE_OPTIONS, WRITES
from lakefold_reader.spark.option_kinds import CONDITION, FLAG, NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_ingest.merge.clauses import Merge
    from lakefold_reader.spark.option_kinds import OptionKind
    from lakefold_reader.spark.option_table import Option

Result = TypeVar("Result")
WAIT_S: Final = 60.0
FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)
_FLAGS: Final = {option.name: f"--{option.parameter.replace('_', '-')}" for option in WRITE_OPTIONS} | {
    TABLE_PROPERTIES: "--property"
}
_PROPERTY: Final = (
    "A property of TABLE if it is created as a Delta table, such as delta.enableDeletionVectors=true."
)


def option_flags(
    *names: str, into: str, required: tuple[str, ...] = ()
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Gives a verb flags of these options of a write, described as the table of options does.

    The verb gets `into`: a dictionary of what is given, by the names in Python.
    """
    options = [WRITES.known(name) for name in names]

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        @wraps(function)
        def call(*args: object, **rest: Any) -> Result:  # noqa: ANN401 - each option has a type of its own
            values = {option.parameter: rest.pop(option.parameter) for option in options}
            given = {name: value for name, value in values.items() if value is not None}
            return function(*args, **{**rest, into: {**rest.get(into, {}), **given}})

        decorated: Callable[..., Result] = call
        for option in reversed(options):
            decorated = _flag(option, required=option.name in required)(decorated)
        return decorated

    return decorate


def _flag(option: Option, *, required: bool) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Returns the flag of an option. Its value is None if it is not given, that of a switch False."""
    names, kind = (_FLAGS[option.name], option.parameter), option.kind
    if option.name == TABLE_PROPERTIES:
        return click.option(*names, multiple=True, metavar="NAME=VALUE", callback=pairs, help=_PROPERTY)
    if kind is FLAG:
        return click.option(*names, is_flag=True, help=_help(option))
    if kind.choices:
        values = click.Choice(kind.choices, case_sensitive=False)
        return click.option(*names, type=values, default=option.default, help=_help(option))

    # What makes clauses of conditions knows what to say of an empty one.
    read = None if kind is CONDITION else partial(_value, kind)
    return click.option(*names, required=required, metavar=kind.metavar, callback=read, help=_help(option))


def _value(kind: OptionKind, _: click.Context, flag: click.Parameter, text: str | None) -> Any:  # noqa: ANN401 - each option has a type of its own
    if text is None or (kind is NAMES and not text.strip(" ,")):
        return None
    try:
        return kind.read(text)
    except ValueError as error:
        message = f"give {error}"
        raise click.BadParameter(message, param=flag) from error


def _help(option: Option) -> str:
    """Returns what an option means as a sentence that names flags."""
    text = option.meaning
    if option.kind is FLAG:
        text = text.removeprefix("true: ").partition("; false:")[0]
    text = re.sub(r" \(in Python [^)]*\)", "", text)
    text = re.sub(r"`([^`]*)`", lambda code: _FLAGS.get(code[1], code[1]), text)
    default = "" if option.kind is FLAG else option.default_in_words.replace("`", "")
    return f"{text[:1].upper()}{text[1:]}." + (f"  [default: {default}]" if default else "")


def pairs(_: click.Context, flag: click.Parameter, given: tuple[str, ...]) -> dict[str, str] | None:
    """Returns what a repeatable flag was given as NAME=VALUE, None if it was not. Raises `BadParameter`."""
    parts = [each.partition("=") for each in given]
    names = [name.strip() for name, _, _ in parts]
    if len({*names} - {""}) < len(parts) or not all(equals for _, equals, _ in parts):
        message = f"give {flag.metavar or 'NAME=VALUE'}, each name once"
        raise click.BadParameter(message, param=flag)
    return {name.strip(): text.strip() for name, _, text in parts} or None


def key_options(function: Callable[..., Result]) -> Callable[..., Result]:
    """Gives a verb `--app-id` and `--batch-id`, which it gets as `key`. Raises `InvalidError` on call.

    Without both it is a key that no other batch has. The verb also gets what else a batch needs in `written`.
    """

    @wraps(function)
    def call(
        *args: object,
        app_id: str | None,
        batch_id: int | None,
        written: dict[str, Any],
        dry_run: bool,
        **rest: object,
    ) -> Result:
        from lakefold.writing.options import batch_key

        written |= {"dry_run": True} if dry_run else {}
        return function(*args, key=batch_key(app_id, batch_id), written=written, **rest)

    batch = click.option(
        "--batch-id", type=click.IntRange(0, 2**64 - 1), help="The batch's number within the application."
    )
    dry = click.option("--dry-run", is_flag=True, help="Send nothing; print what it would do.")
    flags = option_flags("onRolledBack", "onReusedKey", "commitMessage", into="written")
    decorated: Callable[..., Result] = batch(dry(flags(call)))
    return click.option("--app-id", help="The application that numbers its batches.")(decorated)


def merge_given(given: Mapping[str, Any]) -> Merge:
    """Returns the merge that the flags of an upsert describe. Raises `InvalidError` as `merge_of`."""
    from lakefold_ingest.merge.clause_texts import ClauseTexts
    from lakefold_ingest.merge.modes import UPSERTS, merge_of

    texts = {name: value for name, value in given.items() if name not in {"keys", "order_by"}}
    clauses = ClauseTexts(**texts).clauses() if texts else None
    return merge_of(UPSERTS, given.get("keys"), given.get("order_by"), clauses)


def message_option(function: Callable[..., Result]) -> Callable[..., Result]:
    """Gives a verb `--commit-message TEXT`, which it gets as `message`."""
    return click.option(
        "--commit-message",
        "message",
        metavar="TEXT",
        default="",
        callback=_message,
        help="Why; `lakefold log` and `explain` show it.",
    )(function)


def _message(_: click.Context, __: click.Parameter, message: str) -> str:
    from lakefold_log.write.authorship import check_message

    check_message(message)
    return message


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
