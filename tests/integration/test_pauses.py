"""A client that waits for topics that never appear ends at once when it is stopped."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lakefold_ingest.writing.log_client import close_clients, open_client
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_log.client.topics import describe
from lakefold_table.errors import RetryError
from tests.integration.own_log import patient_admin
from tests.waiting import until

if TYPE_CHECKING:
    from tests.integration.conftest import TopicNames

LONG_S = 3600.0
"""Longer than the time limit of a test."""


def test_a_wait_for_a_topic_ends_when_it_is_stopped(bootstrap: str, topic_names: TopicNames) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(RetryError, match="stopped while waiting"):
        describe(patient_admin(KafkaConfig(bootstrap)), topic_names.transactions, wait_s=LONG_S, stop=stop)


def test_a_client_that_waits_for_its_topics_ends_when_all_are_closed(
    bootstrap: str, topic_names: TopicNames
) -> None:
    topics = Topics(topic_names.transactions, topic_names.outcomes, topic_names.dead_letters)
    with ThreadPoolExecutor(1) as pool:
        line = pool.submit(open_client, KafkaConfig(bootstrap), topics, LONG_S)

        def ended() -> bool:
            close_clients()
            return line.done()

        until(ended, "the line that waits to end")
        with pytest.raises(RetryError, match="is closing its connections"):
            line.result()
