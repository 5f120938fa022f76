"""What the page shows of one table, one proposal and the dead letters, as plain values."""

from __future__ import annotations

import bisect
import shlex
from collections import Counter
from functools import wraps
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

from lakefold.proposals.explain import brokers_of, explanation_document
from lakefold.proposals.explain_proposal import explain
from lakefold.proposals.redrive import plain_letter
from lakefold.reading.diff import diff_document
from lakefold.reading.refs import refs_document
from lakefold.web.evidence import evidence_document
from lakefold.web.tables import consumers_of, is_small, policy_in
from lakefold_log.client.admin import Admin
from lakefold_log.client.failures import MissingTopicError
from lakefold_log.client.topics import describe, watermarks
from lakefold_log.read.dead_letters import read_dead_letters
from lakefold_reader.as_json import iso, plain_history, plain_kept, plain_rows, plain_table
from lakefold_reader.consumers.expire_versions import plan
from lakefold_reader.consumers.kept_versions import kept_versions
from lakefold_reader.diff.diff import diff_of
from lakefold_reader.formats import in_its_format, on_branch, open_source
from lakefold_reader.snapshot.history import history_page
from lakefold_reader.snapshot.history_filter import HistoryFilter
from lakefold_reader.snapshot.snapshot import table_of
from lakefold_reader.versions.branches import branched, main_and_branch
from lakefold_reader.versions.listing import newest_of, numbers_of
from lakefold_reader.versions.proposals import sought_of
from lakefold_reader.versions.times import nearest_time
from lakefold_table.errors import InvalidError, VersionExpiredError
from lakefold_table.ref_files import CONSUMER_TAG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakefold.console.settings import Settings
    from lakefold.proposals.explanation import Explanation
    from lakefold_reader.format.source import Schema, Source
    from lakefold_table.position import LogId

Document = dict[str, Any]
P = ParamSpec("P")
MOST_VERSIONS: Final = 200
"""The most versions of a page of the history."""
MOST_LETTERS: Final = 200
"""The most dead letters that are shown of a partition, the newest."""
MOST_REASONS: Final = 10
"""The most reasons of dead letters that are counted."""
MOST_APPS: Final = 200
"""The most apps whose batches are shown."""
SEARCHED: Final = 1_000
"""How many versions are searched for a proposal, or for versions of an app or operation."""
MOST_ROWS: Final = 20
"""How many rows of a version are shown."""
MOST_ADDED_UP: Final = 2_000
"""If a table has more versions, its old versions are not added up."""
TIMEOUT_S: Final = 10.0
_NOT_CLEANED: Final = (
    "A dash: not known, because a clean-up would not remove all of these versions. Of a Delta table it "
    "removes versions before a checkpoint only, and none in which a tombstone has not expired."
)
ROW_BOUNDS: Final = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
"""The bounds of the groups in which fragments are counted by their rows."""
SHARE_BOUNDS: Final = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75)
"""The bounds of the groups in which fragments are counted by their deleted share."""


def _of_table(
    read: Callable[Concatenate[Source, P], Document],
) -> Callable[Concatenate[str, Mapping[str, str], P], Document]:
    """Has a function called with the table at a URI, in its format. It gets the URI and the storage options.

    Raises `NotATableError`, `DamagedError`, `RetryError`.
    """

    @wraps(read)
    def document(uri: str, options: Mapping[str, str], /, *args: P.args, **given: P.kwargs) -> Document:
        return in_its_format(open_source(uri, options), lambda source: read(source, *args, **given))

    return document


@_of_table
def table_document(source: Source) -> Document:
    """Returns the newest version of a table's main branch, its tags and branches, and its consumers.

    The tags by which the versions of consumers are kept are left out: the consumers stand for them.
    """
    main, _ = main_and_branch(source)
    document = plain_table(table_of(main))
    if document["marks"] is not None:
        apps = document["marks"]["apps"]
        document["marks"]["apps"] = dict(list(apps.items())[:MOST_APPS])
        document["marks"]["app_count"] = len(apps)
        document["marks"]["uuids"] = len(document["marks"]["uuids"])
    refs = refs_document(main)
    return {
        **document,
        "tags": [tag for tag in refs["tags"] if not tag["name"].startswith(CONSUMER_TAG)],
        "branches": refs["branches"],
        "consumers": consumers_of(main),
    }


@_of_table
def fragments_document(source: Source) -> Document:
    """Returns the fragments of the newest version, counted by their rows and by their deleted share."""
    table = table_of(source)
    policy = policy_in(table.config)
    by_rows, by_share = [0] * (len(ROW_BOUNDS) + 1), [0] * (len(SHARE_BOUNDS) + 1)
    count = small = unknown = size_in_bytes = deleted = 0
    for size in table.fragment_sizes():
        count += 1
        deleted += size.deleted
        size_in_bytes += size.bytes or 0
        unknown += size.bytes is None
        rows = size.rows or 0
        small += is_small(size, policy)
        by_rows[bisect.bisect_right(ROW_BOUNDS, rows - size.deleted)] += 1
        by_share[bisect.bisect_left(SHARE_BOUNDS, size.deleted / max(1, rows))] += 1
    return {
        "version": table.version,
        "fragments": count,
        "small": small,
        "target_rows": policy.target_rows,
        "deleted_rows": deleted,
        "bytes": size_in_bytes,
        "without_bytes": unknown,
        "rows_bounds": ROW_BOUNDS,
        "by_rows": by_rows,
        "share_bounds": SHARE_BOUNDS,
        "by_deleted_share": by_share,
    }


@_of_table
def kept_document(source: Source) -> Document:
    """Returns for whom the main branch's old versions are kept, and the files that only they need.

    The figures of files are None if a clean-up would not remove all of these versions, as of a Delta table
    without a checkpoint. Nothing is removed.
    """
    main, _ = main_and_branch(source)
    policy = policy_in(table_of(main).config)
    count = len(numbers_of(main))
    if count > MOST_ADDED_UP:
        note = f"{count:,} versions are too many for a page; lakefold cleanup --kept adds them up."
        return {"kept": [], "note": note}
    try:
        planned = plan(main, policy.version_age, keep=policy.min_versions)
        rows = kept_versions(main, planned)
    except InvalidError as error:
        return {"kept": [], "note": f"No old version can be removed: {error.message}."}
    unknown = any(row.files is None for row in rows)
    return {
        "kept": [plain_kept(row) for row in rows],
        "note": f"Not counted: what the newest version, {planned.newest:,}, needs. What is kept for several "
        "is in the first of their rows." + (f" {_NOT_CLEANED}" if unknown else ""),
    }


@_of_table
def versions_document(
    source: Source, *, branch: str, last: int | None, most: int, app: str = "", operation: str = ""
) -> Document:
    """Returns at most `most` versions from `last` on down, newest first, as `lakefold log` prints them.

    `app`, `operation`: only those with batches of this app, or of this operation, of `SEARCHED` versions.
    `older`: the `last` of the next page, None if no older version is left.
    """
    chosen = branched(source, branch) if branch else source
    most, narrows = min(most, MOST_VERSIONS), bool(app or operation)
    looked_at = SEARCHED if narrows else most
    rows = list(history_page(chosen, last, looked_at))
    wanted = list(HistoryFilter(app or None, operation or None).chosen(chosen, rows)) if narrows else rows
    last_shown = wanted[most - 1 : most] if len(wanted) > most else rows[-1:]
    is_whole = len(rows) < looked_at and len(wanted) <= most
    versions = [plain_history(row) for row in wanted[:most]]
    return {"versions": versions, "older": None if is_whole else last_shown[0].version - 1}


@_of_table
def version_document(source: Source, *, branch: str, version: int, with_rows: bool) -> Document:
    """Returns one version, and how it differs from the one before.

    `diff` is None if that one is gone; `note` says so then. `rows`: the first `MOST_ROWS` that differ, if
    they are asked for. Raises `InvalidError` if there is no such version.
    """
    chosen = branched(source, branch) if branch else source
    row = next(iter(history_page(chosen, version, 1)), None)
    if row is None or row.version != version:
        raise InvalidError(f"there is no version {version}", where=chosen.uri, hint="it may be cleaned up")
    document: Document = {"version": plain_history(row), "diff": None, "rows": None, "note": ""}
    if version == chosen.versions.first:
        return {**document, "note": "It is the first version."}
    try:
        difference = diff_of(chosen, version - 1, version, rows=False)
        rows = (each for batch in difference.to_reader() for each in plain_rows(batch)) if with_rows else ()
        shown = list(islice(rows, MOST_ROWS)) if with_rows else None
    except VersionExpiredError as error:
        return {**document, "note": f"What it changed is not known: {error.message}."}
    return {**document, "diff": diff_document(difference), "rows": shown}


@_of_table
def schemas_document(source: Source, *, most: int, last: int | None = None) -> Document:
    """Returns the schema's changes in `most` versions from `last` (None: the newest) on down, newest first.

    `older`: the `last` of the next page, None if no older version is left. Only the oldest of these versions,
    and those that may have another schema than the version before, are read whole.
    """
    newest = newest_of(source)
    start = newest if last is None else min(last, newest)
    end = max(0, start - most)
    schemas: list[tuple[int, dict[str, str]]] = []
    oldest = start
    for number in range(start, end, -1):
        summary = source.summary(number)
        if summary is None:
            break
        oldest = number
        schema = source.format.schema(summary)
        if schema is not None:
            schemas.append((number, _columns(schema)))
    else:
        oldest = end if source.summary(end) is not None else oldest
    first = _columns_at(source, oldest)
    if first is not None:
        schemas.append((oldest, first))
    changes = [
        _schema_change(number, before, after)
        for (number, after), (_, before) in pairwise(schemas)
        if list(before.items()) != list(after.items())
    ]
    older = oldest if oldest == end > 0 else None
    return {"changes": changes, "searched_from": oldest, "searched_to": start, "older": older}


def _columns_at(source: Source, version: int) -> dict[str, str] | None:
    """Returns the columns of a version, None if it can't be read any more."""
    try:
        summary = source.summary(version, whole=True)
        schema = None if summary is None else source.format.schema(summary)
    except VersionExpiredError:
        return None
    return None if schema is None else _columns(schema)


def _columns(schema: Schema) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema.arrow}


def _schema_change(version: int, before: Mapping[str, str], after: Mapping[str, str]) -> Document:
    return {
        "version": version,
        "added": {name: kind for name, kind in after.items() if name not in before},
        "removed": {name: kind for name, kind in before.items() if name not in after},
        "changed": {
            name: [before[name], kind]
            for name, kind in after.items()
            if name in before and before[name] != kind
        },
        "reordered": set(before) == set(after) and list(before) != list(after),
    }


def proposal_document(uri: str, proposal: str, branch: str, settings: Settings) -> Document:
    """Returns what is known of a proposal as `lakefold explain` prints it, that command, and its conflict.

    Raises `InvalidError` if nothing is known of it, `RetryError` if a source can't be read now.
    """
    brokers = brokers_of(settings, TIMEOUT_S)

    def search(source: Source) -> tuple[Explanation, Document | None]:
        explained = explain(source, sought_of(proposal), brokers, versions=SEARCHED)
        return explained, evidence_document(source, explained)

    explanation, evidence = on_branch(uri, branch or None, settings.storage_options, search)
    words = ["lakefold", "explain", uri, proposal]
    words += ["--branch", branch] if branch else []
    words += ["--bootstrap-servers", settings.brokers()]
    document = explanation_document(explanation)
    if explanation.proposal is not None:
        document["logged_at"] = iso(nearest_time(explanation.proposal.time_us))
    return {**document, "evidence": evidence, "command": shlex.join(words)}


def dead_letters_document(settings: Settings, most: int) -> Document:
    """Returns the newest dead letters of each partition, the newest first, with the command for each.

    Raises `RetryError` if no broker answers.
    """
    config, topic = settings.kafka_config(), settings.dead_letters_topic
    admin = Admin(config, timeout_s=TIMEOUT_S)
    read_to: dict[LogId, int] = {}
    left_out = 0
    try:
        description = describe(admin, topic)
        for partition in range(description.partitions):
            start, end = watermarks(admin, topic, partition)
            first = max(start, end - min(most, MOST_LETTERS))
            left_out += first - start
            read_to[description.log_id(partition)] = first
        letters = list(read_dead_letters(config, topic, timeout_s=TIMEOUT_S, read_to=read_to))
    except MissingTopicError:
        return {"letters": [], "left_out": 0, "reasons": {}}
    letters.sort(key=lambda letter: letter.time_us, reverse=True)
    plain = []
    for letter in letters:
        at = f"{letter.position.log.partition}/{letter.position.offset}"
        words = ["lakefold", "redrive", "--offset", at, "--bootstrap-servers", settings.brokers()]
        # The same proposal meets the same version again, so only its writer can build one that fits.
        command = "" if letter.obstacle or letter.conflicts_with else shlex.join(words)
        plain.append({**plain_letter(letter), "command": command})
    reasons = Counter(letter["reason"] for letter in plain)
    return {"letters": plain, "left_out": left_out, "reasons": dict(reasons.most_common(MOST_REASONS))}
