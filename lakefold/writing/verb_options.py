"""The options that every verb that writes a batch has: its key, and how long to wait for its outcome."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")
WAIT_S: Final = 60.0
FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


def key_options(function: Callable[..., Result]) -> Callable[..., Result]:
    """Gives a verb `--app-id` and `--batch-id`, which it gets as `key`. Raises `InvalidError` on call.

    Without both it is a key that no other batch has.
    """

    @wraps(function)
    def call(*args: object, app_id: str | None, batch_id: int | None, **rest: object) -> Result:
        from lakefold.writing.options import batch_key

        return function(*args, key=batch_key(app_id, batch_id), **rest)

    batch = click.option(
        "--batch-id", type=click.IntRange(0, 2**64 - 1), help="The batch's number within the application."
    )
    decorated: Callable[..., Result] = batch(call)
    return click.option("--app-id", help="The application that numbers its batches.")(decorated)


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
