"""Reports the result of a batch, as values and as a text for the log."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from lakefold_ingest.formats import format_of
from lakefold_table.entry import Committed, Duplicate, Invalid, Outcome, Rejected, rolled_back_text

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope

Kind = Literal["committed", "duplicate", "sent", "empty", "planned"]


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What a batch cost.

    `rows`, `files`, `bytes`: of the new data files; `sizes`: the bytes of each, `smallest_file` and
    `largest_file` those of two. `write_s`, `send_s`, `wait_s`: the seconds until the files were written and
    the envelope was built, until the log had it, and until its outcome was known; of all attempts.
    `unanswered`: how many earlier batches had no outcome when it was sent without waiting, the oldest for
    `lag_s` seconds; else zeros.
    """

    rows: int = 0
    files: int = 0
    bytes: int = 0
    write_s: float = 0.0
    send_s: float = 0.0
    wait_s: float = 0.0
    smallest_file: int = 0
    largest_file: int = 0
    unanswered: int = 0
    lag_s: float = 0.0
    sizes: tuple[int, ...] = ()

    @property
    def shown(self) -> dict[str, float]:
        """Returns the figures by their names, without the size of each file."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "sizes"}

    def __str__(self) -> str:
        lag = f"; {self.unanswered} earlier batches have no outcome, the oldest for {self.lag_s:.3f} s"
        cost = (
            f"{self.files} files with {self.rows} rows and {self.bytes} bytes "
            f"({self.smallest_file} to {self.largest_file} each); seconds: "
            f"{self.write_s:.3f} to write, {self.send_s:.3f} to send, {self.wait_s:.3f} to wait"
        )
        return cost + lag if self.unanswered else cost


@dataclass(frozen=True, slots=True, repr=False)
class BatchReport:
    """What became of a batch.

        outcome = lakefold.append("s3://lake/flights.lance", rows, app_id="loader", batch_id=7)
        outcome.kind, outcome.version, outcome.rows_added, outcome.attempts

    `result`: the outcome, or None if it is not known. `is_sent`: whether a proposal was sent; if not, the
    table had the batch already, or there was nothing to change. `attempts`: how often the envelope was built;
    more than once if the committer refused it and allowed another attempt. `figures`: what it cost, zeros if
    nothing was sent. `is_by_marks`: no outcome came in time, but the table's marks have the key, and the
    version that has it doesn't say any more whether it is of this proposal or of another one.
    `is_planned`: it was a dry run, and `result` is what the outcome would be.
    """

    result: Committed | Duplicate | None
    attempts: int = 1
    is_sent: bool = True
    figures: BatchFigures = BatchFigures()
    is_by_marks: bool = False
    is_planned: bool = False

    def __repr__(self) -> str:
        """Returns the kind and what follows from it: the version, and the rows of a committed batch."""
        counted = ("rows_added", "rows_deleted") if isinstance(self.result, Committed) else ()
        shown = ("kind", *(("version",) if self.result is not None else ()), *counted)
        return f"BatchReport({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def kind(self) -> Kind:
        """What became of it.

        "committed"; "duplicate": the key was folded before; "sent": the log has it and its outcome is not
        awaited; "empty": there was nothing to change, and nothing was sent, as the batch has no key;
        "planned": a dry run that would be committed.
        """
        match self.result:
            case Committed():
                return "planned" if self.is_planned else "committed"
            case Duplicate():
                return "duplicate"
            case None:
                return "sent" if self.is_sent else "empty"

    @property
    def version(self) -> int | None:
        """The version that contains the batch. None if that is not known."""
        return self.result.version or None if self.result is not None else None

    @property
    def rows_added(self) -> int:
        """The number of rows that the proposal added; 0 if it was not committed, or that is not known."""
        return self.result.rows_added if isinstance(self.result, Committed) else 0

    @property
    def rows_deleted(self) -> int:
        """The number of rows that the proposal removed; 0 if it was not committed."""
        return self.result.rows_deleted if isinstance(self.result, Committed) else 0

    @property
    def is_doubtful(self) -> bool:
        """Whether the batch is a Duplicate whose rows may not be in the table."""
        result = self.result
        return isinstance(result, Duplicate) and bool(result.rolled_back_by or result.different_content)

    def __str__(self) -> str:
        built = f" (built {self.attempts} times)" if self.attempts > 1 else ""
        match self.result:
            case Committed() as result:
                deleted = f", {result.rows_deleted} deleted" if result.rows_deleted else ""
                done = "would be committed as" if self.is_planned else "committed in"
                return f"{done} version {result.version}, {result.rows_added} rows{deleted}{built}"
            case Duplicate() as result:
                return f"duplicate, folded before {in_version(result)}: nothing was added{_doubts(result)}"
            case None if self.is_sent:
                return f"sent, its outcome is not awaited{built}"
            case None:
                return "nothing to change, nothing was sent"


def figures_of(envelope: Envelope, write_s: float, send_s: float, wait_s: float) -> BatchFigures:
    """Returns what the batch of an envelope cost, with these seconds."""
    files = list(format_of(envelope).new_files(envelope))
    sizes = [size for _, each in files for size in each]
    return BatchFigures(
        rows=sum(rows for rows, _ in files),
        files=len(sizes),
        bytes=sum(sizes),
        write_s=write_s,
        send_s=send_s,
        wait_s=wait_s,
        smallest_file=min(sizes, default=0),
        largest_file=max(sizes, default=0),
        sizes=tuple(sizes),
    )


def refusal_text(outcome: Outcome) -> str:
    """Returns the log message for a batch that added nothing, and whose outcome was not awaited."""
    result, what = outcome.result, "refused"
    reason = result.conflict.message if isinstance(result, Rejected) else ""
    if isinstance(result, Invalid):
        reason = f"{result.message} ({result.hint})" if result.hint else result.message
    if isinstance(result, Duplicate):
        what = "a duplicate"
        reason = f"a batch with its key was folded before {in_version(result)}{_doubts(result)}"
    key = f"batch {outcome.batch_id} of {outcome.app_id} into {outcome.table}"
    return f"{key}: {what} at {outcome.position}, nothing was added (uuid {outcome.uuid}): {reason}"


def _doubts(result: Duplicate) -> str:
    """Returns why the rows of a Duplicate may not be in the table, as words; empty if they are."""
    doubts = f"; {rolled_back_text(result.rolled_back_by)}" if result.rolled_back_by else ""
    return doubts + "; its content differs from that of the first" * result.different_content


def in_version(result: Duplicate) -> str:
    """Returns in which version the key of a Duplicate was folded, as words."""
    unknown = "in a version no longer known, or by another client"
    return f"in version {result.version}" if result.version else unknown
