"""`lakefold committer`: the daemon that folds the log into versions."""

from __future__ import annotations

import os
import re
import socket
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from lakefold.console.http_port import open_port
from lakefold.console.interrupts import on_end
from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.output import print_json
from lakefold.console.settings import ALL, SHARED, Settings
from lakefold.errors import SettingError
from lakefold_table.errors import GapError, OptionName

if TYPE_CHECKING:
    from lakefold_committer.observability.health import HealthServer
    from lakefold_committer.observability.metrics import Metrics
    from lakefold_committer.process.daemon import Committer, Options
    from lakefold_committer.process.ordinals import PartitionShare

_COUNTED: Final = re.compile(r"-(\d+)$")
"""The ordinal of a process at the end of its host's name, as in the pods of a StatefulSet of Kubernetes."""
LAST_WORDS_SECONDS = 60.0
"""A process that stops at a gap in the log waits at most this long for one more scrape of its metrics."""

PACE = (
    "group_max_entries",
    "group_max_bytes",
    "group_max_wait",
    "manifest_bytes_per_second",
    "manifest_max_wait",
    "table_memory",
    "claim_memory",
    "transaction_files",
)
WORK = (
    "partitions",
    "ordinal",
    "group",
    "roots",
    "http_host",
    "http_port",
    "console",
    "topic_partitions",
    "topic_replication",
    "umask",
)


@verb(
    "lakefold committer --root /data/tables",
    "lakefold committer --until-caught-up --http-port 0",
    "lakefold committer --partitions all",
    "lakefold committer --accept-new-log",
    "lakefold committer --config committer.toml --print-config",
)
@settings_options(*KAFKA, *TOPICS, *WORK, *STORE, *PACE)
@click.option("--until-caught-up", is_flag=True, help="Fold up to the present end of the log, then exit.")
@click.option(
    "--give-up-after",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 86_400),
    default=60.0,
    show_default=True,
    help="With --until-caught-up: exit with code 5 if brokers or stores don't answer for this long.",
)
@click.option(
    "--accept-new-log",
    is_flag=True,
    help="Continue although the topic was created again or has lost entries. This is recorded in each table.",
)
@click.option(
    "--print-config", is_flag=True, help="Print the effective settings with secrets masked, and exit."
)
@json_option
def command(
    settings: Settings,
    *,
    until_caught_up: bool,
    give_up_after: float,
    accept_new_log: bool,
    print_config: bool,
    as_json: bool,
) -> None:
    """Fold proposals into their tables in the order of the log, and report the outcome of each proposal.

    Proposals that wait together share a new version of their table. The committer continues where the last
    committer stopped, according to the tables and the committed offset of the consumer group. Any number of
    committers of a group divide the partitions among themselves. The partitions are assigned again when a
    committer starts or stops; a committer without a partition waits. A committer whose partitions are named,
    or that folds all of them (`--partitions all`), takes them from the others: an older committer on the same
    partitions stops with exit code 5.

    SIGTERM or Ctrl-C finishes the group in flight and exits. While a broker or a store can't be reached, the
    committer keeps trying, and /readyz says why it isn't ready. A root that can't be used does not delay the
    tables below other roots. With --until-caught-up, such a root ends it before anything is folded, and
    brokers or stores that don't answer end it after --give-up-after.

    /livez, /readyz and /metrics are served on --http-port. At its exit it prints how many outcomes and
    versions it made.
    """
    if print_config:
        print_json(settings.in_force().printable())
        return
    if until_caught_up and settings.partitions is None:
        settings = settings.model_copy(update={"partitions": ALL})
    if until_caught_up and shares(settings):
        message = "it can't be used with --partitions shared, because the assigned partitions may change"
        hint = "name the partitions, as in --partitions 0,1"
        raise SettingError(message, where="--until-caught-up", hint=hint)
    stopped = threading.Event()
    stops = [stopped.set]
    # The imports take a moment, during which a signal may arrive.
    on_end(lambda: [stop() for stop in stops])
    from lakefold_committer.observability.gc_tuning import collect_seldom
    from lakefold_committer.observability.metrics import Metrics
    from lakefold_committer.observability.tracing import tracing_from
    from lakefold_committer.process.daemon import Committer

    options = replace(_options(settings), accept_new_log=accept_new_log, give_up_after_s=give_up_after)
    collect_seldom()
    metrics = Metrics()
    tracing = tracing_from(os.environ)
    committer = Committer(options, metrics, tracing)

    stops.append(committer.stop)
    if stopped.is_set():
        committer.stop()
    with ExitStack() as stack:
        stack.callback(tracing.close)
        health = _health(settings, metrics, committer, stack) if settings.http_port else None
        try:
            committer.run(until_caught_up=until_caught_up)
        except GapError:
            if health is not None:
                health.notify_when_scraped(stopped)
                stopped.wait(LAST_WORDS_SECONDS)
            raise
    _print_summary(metrics.summary(), as_json=as_json)


def _options(settings: Settings) -> Options:
    """Returns the committer's options according to the settings."""
    from lakefold_committer.process.daemon import Options

    return Options(
        kafka=settings.kafka_config(),
        topics=settings.topics(),
        roots=settings.roots,
        roots_are_chosen="roots" in settings.model_fields_set,
        partitions=fixed(settings, socket.gethostname()),
        share=shares(settings),
        group=settings.group,
        topic_partitions=settings.topic_partitions,
        topic_replication=settings.topic_replication,
        storage_options=settings.storage_options,
        group_max_entries=settings.group_max_entries,
        group_max_bytes=settings.group_max_bytes,
        group_max_wait_s=settings.group_max_wait,
        manifest_bytes_per_second=settings.manifest_bytes_per_second,
        manifest_max_wait_s=settings.manifest_max_wait,
        table_bytes=settings.table_memory,
        claim_bytes=settings.claim_memory,
        transaction_files=settings.transaction_files,
        name=_name(settings, socket.gethostname()),
    )


def _name(settings: Settings, hostname: str) -> str:
    """Returns how this process is named to people: its host, in Kubernetes its pod, and its HTTP port."""
    return f"{hostname}:{settings.http_port}" if settings.http_port else hostname


def _health(settings: Settings, metrics: Metrics, committer: Committer, stack: ExitStack) -> HealthServer:
    """Serves the HTTP port until `stack` is closed, with the console's page if that is on."""
    others = None
    if settings.console:
        from lakefold.web.site import ConsoleSite

        site = ConsoleSite(settings, settings.http_host, settings.console_token)
        others = stack.enter_context(site).respond
    trouble, role, detail = (lambda: committer.trouble), (lambda: committer.role), (lambda: committer.detail)
    return stack.enter_context(open_port(settings, metrics, trouble, role, detail, others))


def _print_summary(counts: dict[str, int], *, as_json: bool) -> None:
    """Prints how many outcomes of each kind and how many versions this process made."""
    if as_json:
        print_json(counts)
    else:
        click.echo(", ".join(f"{count:,} {what}" for what, count in counts.items()))


def shares(settings: Settings) -> bool:
    """Returns whether processes divide the partitions among themselves by a consumer group."""
    return settings.partitions in {None, SHARED}


def fixed(settings: Settings, hostname: str) -> tuple[int, ...] | PartitionShare | None:
    """Returns the partitions that only this process folds; None for all of them, or if they are shared.

    Raises `SettingError` if the setting is `ordinal/N` and this process has no ordinal, or one of N or more.
    """
    partitions = settings.partitions
    if not isinstance(partitions, str) or partitions in {SHARED, ALL}:
        return None if isinstance(partitions, str) else partitions
    from lakefold_committer.process.ordinals import PartitionShare

    replicas = int(partitions.partition("/")[2])
    ordinal = _ordinal(settings, hostname)
    if ordinal >= replicas:
        message = (
            f"the ordinal {ordinal} is too high for partitions {partitions}: the highest is {replicas - 1}"
        )
        hint = f"set N of ordinal/N to the number of processes; the host of this one is {hostname}"
        raise SettingError(message, where=OptionName("partitions"), hint=hint)
    return PartitionShare(ordinal, replicas)


def _ordinal(settings: Settings, hostname: str) -> int:
    if settings.ordinal is not None:
        return settings.ordinal
    if match := _COUNTED.search(hostname):
        return int(match[1])
    message = (
        f"partitions {settings.partitions} needs an ordinal, and the host's name {hostname} ends in no number"
    )
    hint = "run it as a StatefulSet, or set --ordinal or LAKEFOLD_ORDINAL: 0 for the first process"
    raise SettingError(message, where=OptionName("ordinal"), hint=hint)
