"""`lakefold status`: shows the brokers, the topics, the committer's lag, the tables and which are parked."""

from __future__ import annotations

import difflib
import http
import http.client
import json
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Unpack

import click

from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.output import print_columns, print_json, print_line
from lakefold.console.settings import BrokerOptions
from lakefold_table.errors import InvalidError, LakefoldError
from lakefold_table.packages import explained_imports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold.console.settings import Settings
    from lakefold_log.client.admin import Admin
    from lakefold_log.client.overview import Overview, PartitionView

_TIMEOUT_S = 5.0
_LARGE_KIB = 64
"""What the apps of a table take in each version is shown from so many KiB on."""


@verb(
    "lakefold status",
    "lakefold status --bootstrap-servers broker-1:9092 --root s3://lake",
    "lakefold status --json | jq .lag.total",
)
@settings_options(*KAFKA, *TOPICS, "group", "roots", "http_host", "http_port", *STORE)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 600),
    default=_TIMEOUT_S,
    show_default=True,
    help="Seconds that each request to the brokers may take.",
)
@json_option
def command(settings: Settings, timeout: float, *, as_json: bool) -> None:
    """Show the brokers, the topics with their offsets, the committer's lag, the tables and what is parked.

    The tables are those in local folders below the roots, and those that the newest proposals name. Which
    tables are parked (not worked on for a while), and why, is requested from the committer at --http-host and
    --http-port. The number of apps is that of the applications whose batches a table knows; `lakefold forget`
    forgets one. The exit code is 5 if no broker answers, and 2 if the transactions topic does not exist.
    """
    document = _status(settings, timeout)
    if as_json:
        print_json(document)
    else:
        _show(settings, document)
        _show_parked(settings, document["parked"])
        _show_absent_removals(document["absent_removals"] or [])


class StatusOptions(BrokerOptions, total=False):
    """Options of `status`: `BrokerOptions`, and the settings of these names."""

    dead_letters_topic: str
    group: str
    roots: Sequence[str]
    http_host: str
    http_port: int


@explained_imports()
def status(**options: Unpack[StatusOptions]) -> dict[str, Any]:
    """Returns the brokers, topics, lag and tables, and what is parked, as `lakefold status --json` prints it.

        lakefold.status(roots=["s3://lake"])["lag"]["total"]

    `parked` is None if no committer of these brokers answers. Raises `RetryError` if no broker answers,
    `InvalidError` if the transactions topic does not exist or an option is wrong.
    """
    from lakefold.writing.options import function_settings

    settings = function_settings(options, StatusOptions.__annotations__)
    return _status(settings, options.get("timeout", _TIMEOUT_S))


def _status(settings: Settings, timeout_s: float) -> dict[str, Any]:
    """Returns the status as plain values."""
    from lakefold_log.client.admin import Admin
    from lakefold_log.client.overview import overview

    # Two topics with the same name are an error before any broker is connected.
    settings.topics()
    admin = Admin(settings.kafka_config(), timeout_s=timeout_s)
    cluster = overview(admin, settings.group)
    _check_topic(admin, settings, {view.topic for view in cluster.partitions})
    waiting = [view for view in cluster.partitions if view.topic == settings.transactions_topic]
    tables = [_looked_up(uri, settings) for uri in sorted(set(_tables(admin, waiting, settings)))]
    seen = seen_tables(settings.http_host, settings.http_port, timeout_s, cluster.cluster_id)
    return {
        **_document(settings, cluster, waiting, tables),
        "parked": None if seen is None else seen["parked"],
        "absent_removals": None if seen is None else seen.get("absent_removals", []),
    }


def _check_topic(admin: Admin, settings: Settings, topics: set[str]) -> None:
    """Raises `InvalidError` if the transactions topic is missing, unless no committer has created topics yet.

    A committer creates all topics together. So the name is wrong if another of the topics exists, or if it
    is not the default name. A topic that this user may not describe isn't listed either.
    """
    from lakefold_log.client.failures import MissingTopicError
    from lakefold_log.client.topics import describe

    name = settings.transactions_topic
    others = {settings.outcomes_topic, settings.dead_letters_topic}
    usual = type(settings).model_fields["transactions_topic"].default
    if name in topics:
        return
    with suppress(MissingTopicError):
        describe(admin, name)
    if name == usual and not others & topics:
        return
    near = difflib.get_close_matches(name, topics, n=1)
    hint = (
        f"did you mean {near[0]}?"
        if near
        else "check the name; a committer creates its topics when it starts"
    )
    raise InvalidError("this topic does not exist", where=name, hint=hint)


def seen_tables(host: str, port: int, timeout: float, cluster_id: str) -> dict[str, Any] | None:
    """Returns which tables the committer at this address has parked, and for which entries wait.

    Returns None if no committer answers, or one of another cluster than `cluster_id` (empty: not known). An
    older release names neither its cluster, nor its partitions, nor what waits.
    """
    answer = committer_answer(host, port, "/parked", timeout) if port else None
    if answer is None or answer[0] != http.HTTPStatus.OK:
        return None
    try:
        seen = json.loads(answer[1])
    except ValueError:
        return None
    if not isinstance(seen, dict) or not isinstance(seen.get("parked"), list):
        return None
    theirs = seen.get("cluster_id")
    return None if theirs and cluster_id and theirs != cluster_id else seen


def committer_answer(host: str, port: int, path: str, timeout: float) -> tuple[int, bytes] | None:
    """Returns the status and the body that a committer answers a GET with, None if it does not answer."""
    connection = http.client.HTTPConnection("127.0.0.1" if host == "0.0.0.0" else host, port, timeout=timeout)  # noqa: S104 - compared, not bound
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _show_parked(settings: Settings, parked: list[dict[str, Any]] | None) -> None:
    print_line("")
    if parked is None:
        where = f"{settings.http_host}:{settings.http_port}"
        known = "so the parked tables are not known (--http-port)"
        print_line(f"no committer of these brokers answers at {where}, {known}")
    for table in parked or ():
        name = f"{table['table']} {table['branch']}".rstrip()
        where = f"partition {table['partition']}, offset {table['offset']}"
        entries = f"{table['entries']:,} entries wait"
        print_line(f"parked for {table['seconds']:,.0f} s: {name} ({where}; {entries})")
        print_line(f"  {table['reason']}")
        if table["hint"]:
            print_line(f"  {table['hint']}")


def _show_absent_removals(removals: list[dict[str, Any]]) -> None:
    for each in removals:
        files, version = f"{each['files']:,} files that were not in the table", each["version"]
        print_line(f"{each['table']}: version {version}, of another client, removed {files}")
        print_line(
            "  its rows may be there twice: compare it with the version before, and restore that if so"
        )


def _tables(admin: Admin, waiting: list[PartitionView], settings: Settings) -> Iterator[str]:
    from lakefold.setup.tables import local_tables, may_be_table
    from lakefold_log.client.overview import recent_keys

    yield from local_tables(settings.roots)
    # A malicious message may have any key.
    yield from (key for key in recent_keys(admin, waiting) if may_be_table(key, settings.roots))


def _looked_up(uri: str, settings: Settings) -> dict[str, Any]:
    """Returns a table's format, newest version and apps, or the error if it can't be read.

    If it has no version yet, the format is empty and the version 0.
    """
    from lakefold.binding.bound_partition import committed_table
    from lakefold.setup.tables import newest_version
    from lakefold_table.versions.table_address import TableAddress

    row: dict[str, Any] = {"table": uri, "format": "", "version": None, "apps": None, "error": None}
    try:
        row["format"], row["version"] = newest_version(uri, settings.storage_options)
        row["apps"] = asdict(committed_table(TableAddress(uri, settings.storage_options)).marks.app_counts)
    except LakefoldError as error:
        row["error"] = str(error)
    return row


def _document(
    settings: Settings, cluster: Overview, waiting: list[PartitionView], tables: list[dict[str, Any]]
) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for view in cluster.partitions:
        offsets = {"partition": view.partition, "low": view.low, "high": view.high}
        topics.setdefault(view.topic, []).append(offsets)
    lag = [
        {
            "partition": view.partition,
            "committed": view.committed,
            "lag": view.lag,
            "committer": _last_committer(view),
        }
        for view in waiting
    ]
    return {
        "bootstrap_servers": settings.brokers(),
        "cluster_id": cluster.cluster_id,
        "brokers": [{"id": node, "address": address} for node, address in cluster.brokers.items()],
        "topics": [{"topic": name, "partitions": partitions} for name, partitions in topics.items()],
        "lag": {
            "topic": settings.transactions_topic,
            "group": settings.group,
            "total": sum(view.lag for view in waiting),
            "partitions": lag,
        },
        "tables": tables,
    }


def _last_committer(view: PartitionView) -> str:
    """Returns the name of the committer that took the partition over last; empty if none is known."""
    from lakefold_log.read.offset_metadata import OffsetMetadata

    return OffsetMetadata.committer_of(view.metadata)


def _apps_text(apps: dict[str, int] | None) -> str | None:
    """Returns how many apps a table knows, and what they take in each version if that is much.

    Also returns of how many it has forgotten lower batch ids.
    """
    if apps is None:
        return None
    number = f"{apps['whole'] + apps['shortened']:,}"
    size, forgetful = apps["bytes"] // 1024, apps["forgetful"]
    more = [f"{size:,} KiB"] if apps["shortened"] or size > _LARGE_KIB else []
    more += [f"lower batch ids of {forgetful:,} forgotten"] if forgetful else []
    return f"{number} ({', '.join(more)})" if more else number


def _show(settings: Settings, document: dict[str, Any]) -> None:
    brokers = ", ".join(f"{each['address']} (node {each['id']})" for each in document["brokers"])
    print_line(f"cluster {document['cluster_id']}: {brokers}")
    click.echo()
    offsets = [
        (topic["topic"], str(each["partition"]), each["low"], each["high"])
        for topic in document["topics"]
        for each in topic["partitions"]
    ]
    if offsets:
        print_columns(("topic", "partition", "low", "high"), offsets)
    else:
        click.echo("no topics yet: the committer creates them")
    click.echo()
    lag, tables = document["lag"], document["tables"]
    if lag["partitions"]:
        print_line(f"group {lag['group']} on {lag['topic']}:")
        print_columns(
            ("partition", "committed", "lag", "taken over last by"),
            [
                (str(each["partition"]), each["committed"], each["lag"], each["committer"] or "-")
                for each in lag["partitions"]
            ],
        )
        click.echo()
    if tables:
        print_columns(
            ("table", "format", "version", "apps", ""),
            [
                (
                    table["table"],
                    table["format"] or None,
                    table["version"],
                    _apps_text(table["apps"]),
                    table["error"] or "",
                )
                for table in tables
            ],
        )
    else:
        print_line(f"no tables below {', '.join(settings.roots)}")
