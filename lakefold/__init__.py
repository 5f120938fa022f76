"""The public names of Lakefold, and its command line.

`lakefold` opens and follows tables and writes to them, `lakefold.spark` writes and reads them from Spark,
`lakefold VERB` operates them. The work is done in packages of their own (`lakefold_table`, `lakefold_log`,
…), which this package connects. A name is loaded when it is first used, so `import lakefold` is fast, and a
program that only reads needs neither Kafka nor Spark.

    table = lakefold.open("s3://lake/flights.lance")
    table.to_arrow(columns=["carrier"], filter="dep_delay > 60")

    for change in lakefold.tail("s3://lake/flights.lance", start="earliest", follow=True):
        print(change.version, change.rows, change.cursor)

    lakefold.changes("s3://lake/flights.lance", 7, 12).read_all()

    lakefold.append("s3://lake/flights.lance", rows, app_id="loader", batch_id=7).version
    lakefold.upsert("s3://lake/flights.lance", rows, keys=["id"], order_by="changed_at")
    lakefold.delete("s3://lake/flights.lance", where="carrier is null")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakefold.branching.functions import branch as branch
    from lakefold.branching.functions import restore as restore
    from lakefold.branching.functions import tag as tag
    from lakefold.branching.promote import PromoteReport as PromoteReport
    from lakefold.branching.promote import promote as promote
    from lakefold.branching.revert import RevertReport as RevertReport
    from lakefold.branching.revert import revert as revert
    from lakefold.maintaining.compaction import compact as compact
    from lakefold.namespace.functions import catalog as catalog
    from lakefold.proposals.redrive import redrive as redrive
    from lakefold.reading.functions import cleanup as cleanup
    from lakefold.reading.functions import explain as explain
    from lakefold.reading.functions import history as history
    from lakefold.reading.functions import refs as refs
    from lakefold.setup.status import status as status
    from lakefold.tables.functions import alter as alter
    from lakefold.tables.functions import create as create
    from lakefold.writing.functions import Writer as Writer
    from lakefold.writing.functions import append as append
    from lakefold.writing.functions import apply_changes as apply_changes
    from lakefold.writing.functions import delete as delete
    from lakefold.writing.functions import overwrite as overwrite
    from lakefold.writing.functions import upsert as upsert
    from lakefold.writing.options import WriteOptions as WriteOptions
    from lakefold_ingest.merge.batch_keys import BadKeysError as BadKeysError
    from lakefold_ingest.merge.clauses import MatchedDelete as MatchedDelete
    from lakefold_ingest.merge.clauses import MatchedUpdate as MatchedUpdate
    from lakefold_ingest.merge.clauses import NotMatchedBySourceDelete as NotMatchedBySourceDelete
    from lakefold_ingest.merge.clauses import NotMatchedBySourceUpdate as NotMatchedBySourceUpdate
    from lakefold_ingest.merge.clauses import NotMatchedInsert as NotMatchedInsert
    from lakefold_ingest.revert.conflicts import PromoteConflictError as PromoteConflictError
    from lakefold_ingest.revert.conflicts import RevertConflictError as RevertConflictError
    from lakefold_ingest.rows.row_faults import BadRowsError as BadRowsError
    from lakefold_ingest.writing.report import BatchReport as BatchReport
    from lakefold_ingest.writing.reused_key import ReusedKeyError as ReusedKeyError
    from lakefold_reader.consumers.consumers import Consumer as Consumer
    from lakefold_reader.consumers.consumers import consumers as consumers
    from lakefold_reader.diff.diff import Diff as Diff
    from lakefold_reader.diff.diff import diff as diff
    from lakefold_reader.feed import changes as changes
    from lakefold_reader.format.changes import MisfitError as MisfitError
    from lakefold_reader.format.changes import RewrittenError as RewrittenError
    from lakefold_reader.format.changes import UnknownChangeError as UnknownChangeError
    from lakefold_reader.format.snapshots import RowsNotFoundError as RowsNotFoundError
    from lakefold_reader.snapshot.snapshot import Table as Table
    from lakefold_reader.snapshot.snapshot import open_table
    from lakefold_reader.tail.change import Change as Change
    from lakefold_reader.tail.tail import Tail as Tail
    from lakefold_reader.tail.tail import tail as tail
    from lakefold_reader.tail.wakeup import OutcomesTopic as OutcomesTopic
    from lakefold_reader.tail.wakeup import Pace as Pace
    from lakefold_reader.versions.cursor import Cursor as Cursor
    from lakefold_reader.versions.start import MadeAnewError as MadeAnewError
    from lakefold_table.entry import RefusedError as RefusedError
    from lakefold_table.errors import DamagedError as DamagedError
    from lakefold_table.errors import InvalidError as InvalidError
    from lakefold_table.errors import LakefoldError as LakefoldError
    from lakefold_table.errors import NotATableError as NotATableError
    from lakefold_table.errors import NotFoldedYetError as NotFoldedYetError
    from lakefold_table.errors import NotPublishedYetError as NotPublishedYetError
    from lakefold_table.errors import PreconditionError as PreconditionError
    from lakefold_table.errors import RetryError as RetryError
    from lakefold_table.errors import StopError as StopError
    from lakefold_table.errors import VersionExpiredError as VersionExpiredError
    from lakefold_table.versions.refs import UnknownRefError as UnknownRefError

    open = open_table  # noqa: A001 - lakefold.open is the name users know

_HOMES = {
    "lakefold.branching.functions": ("branch", "restore", "tag"),
    "lakefold.branching.promote": ("PromoteReport", "promote"),
    "lakefold.branching.revert": ("RevertReport", "revert"),
    "lakefold.namespace.functions": ("catalog",),
    "lakefold.maintaining.compaction": ("compact",),
    "lakefold.proposals.redrive": ("redrive",),
    "lakefold.reading.functions": ("cleanup", "explain", "history", "refs"),
    "lakefold.setup.status": ("status",),
    "lakefold.tables.functions": ("alter", "create"),
    "lakefold_ingest.merge.batch_keys": ("BadKeysError",),
    "lakefold_ingest.merge.clauses": (
        "MatchedDelete",
        "MatchedUpdate",
        "NotMatchedBySourceDelete",
        "NotMatchedBySourceUpdate",
        "NotMatchedInsert",
    ),
    "lakefold_ingest.rows.row_faults": ("BadRowsError",),
    "lakefold.writing.functions": ("Writer", "append", "apply_changes", "delete", "overwrite", "upsert"),
    "lakefold.writing.options": ("WriteOptions",),
    "lakefold_ingest.revert.conflicts": ("PromoteConflictError", "RevertConflictError"),
    "lakefold_ingest.writing.report": ("BatchReport",),
    "lakefold_ingest.writing.reused_key": ("ReusedKeyError",),
    "lakefold_reader.tail.change": ("Change",),
    "lakefold_reader.consumers.consumers": ("Consumer", "consumers"),
    "lakefold_reader.versions.cursor": ("Cursor",),
    "lakefold_reader.diff.diff": ("Diff", "diff"),
    "lakefold_reader.feed": ("changes",),
    "lakefold_reader.format.changes": ("MisfitError", "RewrittenError", "UnknownChangeError"),
    "lakefold_reader.snapshot.snapshot": ("Table",),
    "lakefold_reader.format.snapshots": ("RowsNotFoundError",),
    "lakefold_reader.versions.start": ("MadeAnewError",),
    "lakefold_reader.tail.tail": ("Tail", "tail"),
    "lakefold_reader.tail.wakeup": ("OutcomesTopic", "Pace"),
    "lakefold_table.entry": ("RefusedError",),
    "lakefold_table.errors": (
        "DamagedError",
        "InvalidError",
        "LakefoldError",
        "NotATableError",
        "NotFoldedYetError",
        "NotPublishedYetError",
        "PreconditionError",
        "RetryError",
        "StopError",
        "VersionExpiredError",
    ),
    "lakefold_table.versions.refs": ("UnknownRefError",),
}
_HOME = {name: (home, name) for home, names in _HOMES.items() for name in names}
_HOME["open"] = ("lakefold_reader.snapshot.snapshot", "open_table")

__all__ = sorted(_HOME)  # noqa: PLE0605 - each name is given once, above


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a name may be a class or a function
    if name == "__version__":
        return _installed_version()
    if name not in _HOME:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    home, attribute = _HOME[name]
    from lakefold_table.packages import explained_imports

    with explained_imports():
        value = getattr(import_module(home), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _installed_version() -> str:
    """Returns the version of the installed package. Returns a text that says so if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("lakefold")
    except PackageNotFoundError:
        return "(not installed as a package)"
