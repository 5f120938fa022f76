"""`lakefold.promote`: puts what was written to a branch on the main branch, as one proposal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from lakefold.branching.functions import WAIT_S, ProposalOptions, settings_of
from lakefold.branching.ref_proposals import main_branch
from lakefold.writing.options import settings_for
from lakefold_ingest.formats import read_view, seen_source
from lakefold_ingest.lance.view import lance_view
from lakefold_ingest.promote.branch_promote import PromoteBranch
from lakefold_ingest.promote.promotion import PromotedBranch, Promotion
from lakefold_ingest.proposals.key import new_key
from lakefold_ingest.writing.batch import put_batch
from lakefold_reader.versions.branches import branched
from lakefold_reader.versions.listing import newest_of
from lakefold_table.branch_names import check_branch_name
from lakefold_table.errors import NotATableError, PreconditionError
from lakefold_table.marks.promoted_keys import folded_on_both
from lakefold_table.versions.refs import Refs

if TYPE_CHECKING:
    import os

    from lakefold.console.settings import Settings
    from lakefold_ingest.promote.promotion import PromotionPlan
    from lakefold_ingest.revert.conflicts import RowConflict
    from lakefold_reader.format.source import Source

PromoteKind = Literal["committed", "empty", "planned"]
PROMOTES: Final = "promotes"
"""The property of a version in which it says for people what it promoted."""


@dataclass(frozen=True, slots=True)
class PromoteReport:
    """What a promote did, or would do.

    `kind`: "committed" in `version` of the main branch; "empty": nothing was written to the branch since it
    was promoted last, and nothing was sent; "planned": it was a dry run. `branch_version`: up to which
    version of the branch. `rows_added`, `rows_removed`: rows that the main branch got and lost; an updated
    row is both. `batches`: how many batches of apps count on the main branch now. `conflicts`: the rows that
    were changed on both, and `shared_batches` batches that were folded into both: then it would be refused.
    """

    table: str
    branch: str
    kind: PromoteKind
    version: int | None
    branch_version: int
    rows_added: int
    rows_removed: int
    batches: int
    conflicts: tuple[RowConflict, ...] = ()
    shared_batches: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Returns it as plain values, as `lakefold branch --promote --json` prints it."""
        return {**asdict(self), "conflicts": [dict(each.document()) for each in self.conflicts]}


def promote(
    table: str | os.PathLike[str], name: str, *, dry_run: bool = False, **options: Unpack[ProposalOptions]
) -> PromoteReport:
    """Puts what was written to a branch since it began on the main branch, by one proposal in the log.

        lakefold.branch("s3://lake/flights.lance", "audit")
        lakefold.append("s3://lake/flights.lance/tree/audit", rows, app_id="loader", batch_id=7)
        lakefold.open("s3://lake/flights.lance", branch="audit").count_rows()  # check what was written
        lakefold.promote("s3://lake/flights.lance", "audit").rows_added

    Rows that were added, updated or deleted on the branch are so on the main branch afterwards: all of them,
    or none if it is refused. Other rows of the main branch stay as they are, also those that it got since.
    The batches of the branch count on the main branch: `loader:7` is a Duplicate there. The branch stays, and
    may be deleted; another promote puts only what came since. With `dry_run` nothing is sent, and the report
    says what would be done, with all conflicts.

    Raises `PromoteConflictError` if rows were changed on both branches since, or inserted on both by a merge
    under the same keys, `PreconditionError` if the columns differ, or the main branch was overwritten or
    restored meanwhile, `UnknownRefError` if there is no such branch, `OtherFormatError` for a Delta table,
    which has no branches, `VersionExpiredError` if versions of the branch were cleaned up, and `RefusedError`
    and `RetryError` as `lakefold.append`.
    """
    settings = settings_of(options)
    wait_s, message = options.get("timeout", WAIT_S), options.get("commit_message", "")
    return promoted(settings, str(table), name, dry_run=dry_run, wait_s=wait_s, message=message)


def promoted_branch(main: Source, name: str) -> PromotedBranch:
    """Returns a branch as it is now. Raises `PreconditionError` if it didn't begin at the main branch."""
    check_branch_name(name)
    source, refs = branched(main, name), Refs(main.storage)
    refs.record_branch(name)
    described = refs.branch(name)
    if described.parent is not None or not described.lineage:
        began = f"began at the branch {described.parent}" if described.parent else "has no known beginning"
        message = f"the branch {name} {began}, and only one that began at the main branch can be promoted"
        hint = "send its batches to the main branch, or to a branch of that"
        raise PreconditionError(message, where=main.uri, hint=hint)
    fork = described.lineage[-1][1]
    return PromotedBranch(source, name, fork, described.parent_version, newest_of(source))


def promoted(
    settings: Settings, table: str, name: str, *, dry_run: bool, wait_s: float, message: str
) -> PromoteReport:
    """Promotes a branch, or returns what that would do. Raises as `promote`."""
    main = main_branch(table, settings)
    branch = promoted_branch(main, name)
    if dry_run:
        view = read_view(main.uri, settings.storage_options)
        if view is None:
            raise NotATableError("the table does not exist", where=main.uri)
        source = seen_source(main.uri, settings.storage_options)
        plan = Promotion(branch, source, lance_view(view, "promoting a branch")).plan()
        shared = tuple(folded_on_both(view.carried, plan.message))
        return _report(main, branch, "planned", None, plan, shared)
    recorded = {PROMOTES: f"{branch.name}@{branch.until}"}
    write = settings_for(
        main.uri, settings, wait_s=wait_s, commit_properties=recorded, commit_message=message
    )
    operation = PromoteBranch(branch)
    report = put_batch(write, new_key(), operation)
    assert operation.plan is not None  # noqa: S101 - it was made, as no error was raised
    kind: PromoteKind = "empty" if report.kind == "empty" else "committed"
    return _report(main, branch, kind, report.version, operation.plan)


def _report(
    main: Source,
    branch: PromotedBranch,
    kind: PromoteKind,
    version: int | None,
    plan: PromotionPlan,
    shared: tuple[str, ...] = (),
) -> PromoteReport:
    keys = plan.message.keys
    batches = sum(max(key.last_batch_id, key.batch_id) - key.batch_id + 1 for key in keys if key.app_id)
    return PromoteReport(
        main.uri,
        branch.name,
        kind,
        version,
        branch.until,
        int(plan.effect.added.size),
        int(plan.effect.removed.size),
        batches,
        plan.conflicts,
        shared,
    )
