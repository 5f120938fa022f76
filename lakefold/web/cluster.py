"""Watches the brokers, the committers and the outcomes topic, in threads of its own.

While no page is open, the brokers are asked seldom. If they can't be reached, the last answer is shown
together with the reason, and the requests are repeated.
"""

from __future__ import annotations

import http
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from lakefold.setup.status import committer_answer, seen_tables
from lakefold.web.dead_letter_count import DeadLetterCount
from lakefold.web.loopback import is_this_machine
from lakefold_log.client.admin import INSTANCE, Admin
from lakefold_log.client.members import SUFFIX
from lakefold_log.client.overview import Overview, overview
from lakefold_log.client.requests import group_members
from lakefold_log.read.offset_metadata import OffsetMetadata
from lakefold_log.read.outcome_feed import OutcomeFeed
from lakefold_table.errors import LakefoldError
from lakefold_table.new_threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakefold.console.settings import Settings
    from lakefold.web.activity import Activity
    from lakefold_log.client.requests import GroupMember

WATCHED_S: Final = 2.0
"""How often the brokers are asked while a page is open."""
COMMITTER_S: Final = 0.5
"""How often the committer is asked while a page is open: its end is noticed even if another one starts."""
UNWATCHED_S: Final = 30.0
NAMES_S: Final = 30.0
"""How often the tables are listed."""
BACK: Final = 20_000
"""How many of each partition's newest outcomes are read at first, so that the plots begin with them."""
NOT_YET: Final = "the brokers were not asked yet"
_OPEN_S: Final = 15.0
_TIMEOUT_S: Final = 5.0
_RETRY_S: Final = 2.0
_JOIN_S: Final = 1.0
_POLL_S: Final = 0.5
_CHANGES: Final = 20
"""How many changes of the committer's state are kept."""


class ClusterWatch:
    """The state of the log and the committers. `list_tables` is called from time to time. For any thread."""

    def __init__(self, settings: Settings, activity: Activity, list_tables: Callable[[], None]) -> None:
        self._settings = settings
        self._activity = activity
        self._list_tables = list_tables
        self._stopped = threading.Event()
        self._wanted = threading.Event()
        self._seen_at = time.monotonic()
        self._listed_at: float | None = None
        self._letters = DeadLetterCount()
        self._document: dict[str, Any] = {
            "partitions": [],
            "members": None,
            **self._letters.document,
            "problem": NOT_YET,
        }
        self._asked = {"address": f"{settings.http_host}:{settings.http_port}", "name": _asked_name(settings)}
        self._committer: dict[str, Any] = {
            **self._asked,
            "problem": "no committer was asked yet",
            "parked": [],
            "partitions": None,
        }
        self._seen: dict[str, Any] | None = None
        self._changes: deque[dict[str, Any]] = deque(maxlen=_CHANGES)
        self.problem = ""
        self._threads = [
            threading.Thread(target=work, name=f"console-{name}", daemon=True)
            for name, work in (("outcomes", self._follow), ("brokers", self._watch))
        ]
        for thread in self._threads:
            start_thread(thread)

    def close(self) -> None:
        """Ends the threads of the watch."""
        self._stopped.set()
        self._wanted.set()
        for thread in self._threads:
            # A request to brokers that can't be reached ends later; its thread then ends by itself.
            thread.join(_JOIN_S)

    def touch(self) -> None:
        """Records that a page is open, so that the brokers are asked more often."""
        was_idle = time.monotonic() - self._seen_at > _OPEN_S
        self._seen_at = time.monotonic()
        if was_idle:
            self._wanted.set()

    def document(self) -> dict[str, Any]:
        """Returns what is known of the brokers, the partitions and the committer."""
        committer = {**self._committer, "changes": list(self._changes)}
        return {**self._document, "feed_problem": self.problem, "committer": committer}

    def lag_of(self, position: Mapping[str, Any] | None) -> int | None:
        """Returns how many entries wait in the partition of this position of marks. None: unknown."""
        return lag_at(position, self._settings.transactions_topic, self._document["partitions"])

    def waiting_of(self, uri: str, position: Mapping[str, Any] | None) -> int | None:
        """Returns how many entries of the table were read and have no outcome yet. None: unknown.

        That is known if the committer which is asked folds the table's partition.
        """
        return waiting_at(uri, position, self._settings.transactions_topic, self._seen)

    def parked_of(self, uri: str) -> list[dict[str, Any]]:
        """Returns the branches of the table that are parked, as the committer says."""
        return [each for each in self._committer["parked"] if each["table"] == uri]

    def _follow(self) -> None:
        """Reads the outcomes until the watch is closed, and begins again if that fails."""
        config, topic = self._settings.kafka_config(), self._settings.outcomes_topic
        back = BACK
        while not self._stopped.is_set():
            try:
                with OutcomeFeed(config, topic, back=back) as feed:
                    self.problem, back = "", 0
                    while not self._stopped.is_set():
                        reported = feed.poll(_POLL_S)
                        if reported:
                            self._activity.add(reported)
            except LakefoldError as error:
                self.problem = str(error)
            self._stopped.wait(_RETRY_S)

    def _watch(self) -> None:
        """Asks brokers and committer until the watch is closed."""
        admin: Admin | None = None
        while not self._stopped.is_set():
            now = time.monotonic()
            if self._listed_at is None or now - self._listed_at >= NAMES_S:
                self._list_tables()
                self._listed_at = time.monotonic()
            admin = admin or self._admin()
            if admin is not None:
                self._ask_brokers(admin)
            self._ask_committer()
            self._wait_for_next()

    def _wait_for_next(self) -> None:
        """Waits until the brokers are asked again, and asks the committer meanwhile if a page is open."""
        if time.monotonic() - self._seen_at > _OPEN_S:
            self._wanted.wait(UNWATCHED_S)
        else:
            end = time.monotonic() + WATCHED_S
            while not self._wanted.wait(COMMITTER_S) and time.monotonic() < end:
                self._ask_committer()
        self._wanted.clear()

    def _admin(self) -> Admin | None:
        """Returns a client for the requests, None if it can't be set up now."""
        try:
            return Admin(self._settings.kafka_config(), timeout_s=_TIMEOUT_S)
        except LakefoldError as error:
            self._document = {**self._document, "problem": str(error)}
            return None

    def _ask_brokers(self, admin: Admin) -> None:
        settings = self._settings
        try:
            topics = settings.topics()
            names = (topics.transactions, topics.outcomes, topics.dead_letters)
            cluster = overview(admin, settings.group, names)
            letters = [view for view in cluster.partitions if view.topic == topics.dead_letters]
            document = {**_plain(cluster, settings, _members(admin, settings)), "problem": ""}
            # Counting takes longer, and may fail where the rest does not.
            self._document = {**document, **self._letters.document}
            self._activity.add_lag(document["lag"])
            self._letters.count(admin, topics.dead_letters, letters)
            self._document = {**document, **self._letters.document}
        except LakefoldError as error:
            self._document = {**self._document, "problem": str(error)}

    def _ask_committer(self) -> None:
        host, port = self._settings.http_host, self._settings.http_port
        before = self._committer
        cluster_id = self._document.get("cluster_id", "")
        seen = self._seen = seen_tables(host, port, _TIMEOUT_S, cluster_id)
        if seen is None:
            problem = f"no committer of these brokers answers at {self._asked['address']}"
            problem += ", so its state and parked tables are not known"
            answer: dict[str, Any] = {
                "problem": problem,
                "parked": [],
                "partitions": None,
                "state": "",
                "ready": False,
            }
        else:
            ready, state = _readiness(host, port)
            known = {"parked": seen["parked"], "partitions": seen.get("partitions")}
            self._activity.report_seconds(seen.get("visible", ()))
            answer = {"problem": "", **known, "state": state, "ready": ready}
        self._committer = {**self._asked, **answer}
        state = _state_of(self._committer)
        if not self._changes or self._changes[-1]["state"] != state:
            self._changes.append({"time": time.time(), "state": state})
        if self._committer != before:
            self._activity.wake()


def _state_of(committer: dict[str, Any]) -> str:
    """Returns the committer's state as a short text."""
    if committer["problem"]:
        return "no answer"
    return "ready" if committer["ready"] else "not ready"


def _asked_name(settings: Settings) -> str:
    """Returns the name in the group of the committer that is asked; empty if it has none, or none is known.

    A page that a committer serves has the settings of the committer, so it asks the member of that name.
    """
    name = settings.kafka_config().options.get(INSTANCE, "")
    return str(name) if is_this_machine(settings.http_host) else ""


def _members(admin: Admin, settings: Settings) -> list[GroupMember] | None:
    """Returns the committers that share the partitions. Returns None if the brokers don't say.

    The list is empty if the committers don't share the partitions.
    """
    try:
        return group_members(admin, settings.group + SUFFIX)
    except LakefoldError:
        return None


def plain_members(members: list[GroupMember], topic: str) -> list[dict[str, Any]]:
    """Returns the members of the committers' group with their names, hosts, and partitions of the topic."""
    plain = [
        {
            "name": member.name,
            "host": member.host.lstrip("/"),
            "partitions": [partition for name, partition in member.partitions if name == topic],
        }
        for member in members
    ]
    return sorted(plain, key=lambda each: (each["name"], each["host"], each["partitions"]))


def lag_at(
    position: Mapping[str, Any] | None, topic: str, partitions: Iterable[Mapping[str, Any]]
) -> int | None:
    """Returns the lag of the partition of a position, None if it isn't among the partitions of this topic."""
    if position is None or position["topic"] != topic:
        return None
    return next((row["lag"] for row in partitions if row["partition"] == position["partition"]), None)


def waiting_at(
    uri: str, position: Mapping[str, Any] | None, topic: str, seen: Mapping[str, Any] | None
) -> int | None:
    """Returns how many entries of a table wait by what a committer has said. None: it doesn't say."""
    if seen is None or position is None or position["topic"] != topic:
        return None
    if position["partition"] not in seen.get("partitions", ()):
        return None
    named = [row["entries"] for row in seen["waiting"] if row["table"] == uri]
    return sum(named) if named or seen["tables_waiting"] == len(seen["waiting"]) else None


def _plain(cluster: Overview, settings: Settings, members: list[GroupMember] | None) -> dict[str, Any]:
    shared = None if members is None else plain_members(members, settings.transactions_topic)
    folders = {partition: member for member in shared or () for partition in member["partitions"]}
    log = [view for view in cluster.partitions if view.topic == settings.transactions_topic]
    return {
        "cluster_id": cluster.cluster_id,
        "brokers": [{"id": node, "address": address} for node, address in cluster.brokers.items()],
        "topic": settings.transactions_topic,
        "group": settings.group,
        "lag": sum(view.lag for view in log),
        "partitions": [
            {
                "partition": view.partition,
                "low": view.low,
                "high": view.high,
                "committed": view.committed,
                "lag": view.lag,
                "committer": folders.get(view.partition, {}).get("host", ""),
                "committer_name": folders.get(view.partition, {}).get("name", ""),
                "reporter": OffsetMetadata.committer_of(view.metadata),
            }
            for view in log
        ],
        "members": shared,
    }


def _readiness(host: str, port: int) -> tuple[bool, str]:
    """Returns whether the committer at this address is ready, and what it says about that."""
    answer = committer_answer(host, port, "/readyz", _TIMEOUT_S)
    if answer is None:
        return False, "it does not answer"
    return answer[0] == http.HTTPStatus.OK, answer[1][:4096].decode(errors="replace").strip()
