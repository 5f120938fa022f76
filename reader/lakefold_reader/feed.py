"""The change feed: every row that versions inserted, changed or deleted, as it was and as it became.

`lakefold.changes` returns it as a stream. A distributed reader plans it and reads its parts in other
processes (`FeedFormat`).
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from lakefold_reader.format.changes import Misfits, Rewritten, misfits_of, rewritten_of
from lakefold_reader.formats import on_branch
from lakefold_reader.row_stream import row_stream
from lakefold_reader.versions.ranges import checked_range

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lakefold_reader.format.source import Source


def changes(
    uri: str | os.PathLike[str],
    after: int,
    to: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    branch: str | None = None,
    rewritten: Rewritten | str = Rewritten.ROWS,
    misfits: Misfits | str = Misfits.FAIL,
    storage_options: Mapping[str, str] | None = None,
) -> pa.RecordBatchReader:
    """Returns the rows that versions inserted, changed or deleted.

        changed = lakefold.changes("s3://lake/flights.lance", 7, 12).read_all()
        changed.group_by("_change_type").aggregate([([], "count_all")])

    These are the versions after `after` up to `to` (None: the newest).

    Batch by batch, version by version. The columns are those of version `to` (or of these `columns`, none for
    an empty list), each of which may be null, with blobs as their bytes, and after them:

    - `_change_type` (string): `insert`, `update_preimage` (a row before it changed), `update_postimage`
      (after it), `delete`.
    - `_commit_version` (int64): the version that did it; `_commit_timestamp` (timestamp[us, UTC]): its time.
      For a time before the year 1 or after 9999, which a Delta table may have, the first or the last
      microsecond of these years.
    - `_log_offset` (int64): the offset of the log entry that changed the row. If several entries share the
      version, it is that of the entry that added the row; for what they deleted or changed in place it is the
      last offset that is in the version. Null for a version that no committer made.

    Within a version rows that were removed come first: `delete`, `update_preimage`, `update_postimage`,
    `insert`. Applied in their order to the rows of `after` the changes give those of `to`.

    - On a table with stable row ids a row that an update moved is a single change with two images. Without
    them
      nothing pairs the two, so an update of rows is a `delete` and an `insert` of each.
    - A row of a Delta table that a version wrote again as it was, because its file has a row that changed, is
      no change. Tables without deletion vectors have such files, and both are read to find these rows.
    - Values that were rewritten in place (an update of columns, a data replacement, a column that is added
      with values) are updates of all rows of the fragments concerned, or of those that the update says it
      changed. A value may be equal before and after.
    - A compaction, an index, a setting and a column dropped or renamed change nothing. A column that version
      `to` doesn't have isn't shown, a column that an older version didn't have is null there; a renamed
      column is followed, values of another type are cast. A column that a Restore brings back is the same
      column as before: the versions that dropped it and restored it are changes of its rows, and rows before
      show its values.
    - `rewritten`: what is shown of an Overwrite or a Restore. "rows": the rows that were removed and added,
      of a Restore those of fragments that differ. "fail": `RewrittenError`. "skip": nothing of that version.

    - `misfits`: what is shown of a value of an older version that doesn't fit the type of version `to`, as a
      large number in a column that became narrower. "fail": `MisfitError`, which names version and column.
      "null": null, and a warning in the log for each version and column with the number of such values.

    `branch` and `storage_options` are as for `lakefold.open`. Nothing is kept: rows are read when they are
    requested.

    Raises, at once or while it is read, `VersionExpiredError` if a version is gone or does not exist yet
    (`after` itself is needed only if the first version did more than append), `InvalidError` for a wrong
    request, `MisfitError` for a value that doesn't fit version `to`, `DamagedError` if a file is missing or
    can't be read.
    """
    read = partial(changes_of, after=after, to=to, columns=columns, rewritten=rewritten, misfits=misfits)
    return on_branch(uri, branch, storage_options, read)


def changes_of(
    source: Source,
    after: int,
    to: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    rewritten: Rewritten | str = Rewritten.ROWS,
    misfits: Misfits | str = Misfits.FAIL,
) -> pa.RecordBatchReader:
    """Returns what `changes` does, of a table that is open already."""
    after, last = checked_range(source, after, to)
    feed = source.format.feed
    end = feed.end(source, last)
    parts = feed.plan(source, after, end, rewritten_of(rewritten))
    shown = feed.columns(end.schema, columns)
    batches = chain.from_iterable(map(feed.reader(source, shown, misfits_of(misfits)).read, parts))
    return row_stream(feed.schema(shown), batches)
