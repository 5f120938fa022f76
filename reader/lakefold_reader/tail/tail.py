"""Following a table version by version: asks for the next one by its name, and hands out what it changed.

A tail at version V asks for V+1. In steady state that is one read of a file that is mostly not there yet,
and never a listing. A version that Lakefold published is told by the first bytes of its file, so a step
costs what the change costs, whatever the size of the table. A tail that is many versions behind has the next
ones read beforehand (`catching_up`). It hands out one change after another, or steps of several that stay
within limits (`limits`).
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from lakefold_reader.consumers.consumers import Consumers
from lakefold_reader.tail.tailing import Pace, Tail
from lakefold_reader.tail.wakeup import OutcomesTopic
from lakefold_reader.versions.branches import open_line
from lakefold_reader.versions.source import newest_of
from lakefold_reader.versions.start import (
    EARLIEST,
    LATEST,
    MadeAnewError,
    anew_for,
    expired_for,
    replaced,
    start_of,
)
from lakefold_reader.versions.stray_files import oldest_of
from lakefold_table.errors import VersionExpiredError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold_reader.versions.cursor import Cursor
    from lakefold_reader.versions.source import Source

__all__ = ["Pace", "Tail", "tail", "tail_of"]


def tail(  # noqa: PLR0913 - the public call: each is one thing that a user may say
    uri: str | os.PathLike[str],
    start: Cursor | str | int = LATEST,
    *,
    branch: str | None = None,
    follow: bool = False,
    storage_options: Mapping[str, str] | None = None,
    pace: Pace | None = None,
    stop: Callable[[], bool] | None = None,
    wake: str | OutcomesTopic | None = None,
    consumer: str | None = None,
) -> Tail:
    """The changes of the table after `start`, one for each version, in order.

    `start`: a `Cursor` or its text; the number of the version seen last; "earliest" (the first change is
    then the whole content of the oldest version behind which none is missing); or "latest" (what comes after
    this call).
    `branch`: the branch to follow, `main` for the main line (None: the line that `uri` is).
    Without `follow` it ends at the newest version; with it, it waits for the next one until `stop()` is
    true. `wake`: the brokers (`host:port,…`), or an `OutcomesTopic` with what else is to be said of them: an
    outcome of the table then ends its waiting at once, and it looks by itself only every five seconds
    (`pace`). While no broker answers it looks as often as without; that is never an error. Needs the extra
    `kafka`.

    `consumer`: a name for this reader. It begins where its last `Tail.commit` left off, and at `start` where
    the table knows no such consumer yet; clean-ups leave what it hasn't read (decision 0024).

    Raises `NotATableError` where there is no table, or none any more for `Pace.gone` seconds while it waits,
    `InvalidError` for a cursor of another branch or a
    version that isn't there yet, `MadeAnewError` where the table or the branch was removed and made anew
    since the cursor was given, `VersionExpiredError` where the next version was cleaned up (its `oldest`
    names the oldest one behind which none is missing), `DamagedError` if a folder has the name of the next
    version. The same errors may come while it runs; after a `RetryError` it can be asked again.
    """
    source = open_line(os.fspath(uri), branch, storage_options)
    begun = tail_of(source, start, follow=follow, pace=pace, stop=stop, consumer=consumer)
    if wake is not None:
        outcomes = OutcomesTopic(wake) if isinstance(wake, str) else wake
        outcomes.check()
        begun.wake_by(outcomes)
    return begun


def tail_of(
    source: Source,
    start: Cursor | str | int = LATEST,
    *,
    follow: bool = False,
    pace: Pace | None = None,
    stop: Callable[[], bool] | None = None,
    consumer: str | None = None,
) -> Tail:
    """As `tail`, on a table that is open already."""
    begin = partial(_begun, source, follow=follow, pace=pace or Pace(), stop=stop or _never)
    return begin(start) if consumer is None else _resumed(source, consumer, start, begin)


def _begun(
    source: Source, start: Cursor | str | int, *, follow: bool, pace: Pace, stop: Callable[[], bool]
) -> Tail:
    newest = newest_of(source)
    at, seen = start_of(start, newest, lambda: oldest_of(source))
    if seen > newest:
        raise replaced(source, seen, newest)
    begun = Tail(source, seen, newest=newest, follow=follow, pace=pace, stop=stop)
    begun.begin(at, whole=start == EARLIEST)
    return begun


def _resumed(
    source: Source, name: str, start: Cursor | str | int, begin: Callable[[Cursor | str | int], Tail]
) -> Tail:
    """A tail that begins where the consumer of this name stands, or makes it where it begins."""
    consumers = Consumers(source)
    known = consumers.find(name)
    if known is None:
        at = begin(start).cursor
        known = consumers.begin(name, None if start == EARLIEST else at)
    consumers.check_line(known)
    consumers.hold(known)
    try:
        begun = begin(known.start)
    except VersionExpiredError as error:
        raise expired_for(error, name) from None
    except MadeAnewError as error:
        raise anew_for(error, name) from None
    begun.commit_by(consumers, known)
    return begun


def _never() -> bool:
    return False
