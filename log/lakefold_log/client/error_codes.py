"""The client library's own error codes, by name, as far as code names them (see `meanings`).

The broker's codes are public attributes of `KafkaError`; those that librdkafka raises itself are spelled
there with a leading underscore. Their numbers are part of librdkafka's stable interface
(`rd_kafka_resp_err_t`).
"""

from __future__ import annotations

from enum import IntEnum


class Local(IntEnum):
    """Errors that come from the client, not from a broker."""

    CRIT_SYS_RESOURCE = -194
    PARTITION_EOF = -191
    ALL_BROKERS_DOWN = -187
    SSL = -181
    FAIL = -196
    AUTHENTICATION = -169
    FENCED = -144
