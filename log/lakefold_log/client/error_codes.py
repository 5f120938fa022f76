"""The client library's own error codes, by name.

The broker's codes are public attributes of `KafkaError`; those that librdkafka raises itself are spelled
there with a leading underscore. Their numbers are part of librdkafka's stable interface
(`rd_kafka_resp_err_t`).
"""

from __future__ import annotations

from enum import IntEnum


class Local(IntEnum):
    """Errors that come from the client, not from a broker."""

    CRIT_SYS_RESOURCE = -194
    MSG_TIMED_OUT = -192
    PARTITION_EOF = -191
    UNKNOWN_PARTITION = -190
    UNKNOWN_TOPIC = -188
    ALL_BROKERS_DOWN = -187
    INVALID_ARG = -186
    TIMED_OUT = -185
    SSL = -181
    BAD_COMPRESSION = -198
    BAD_MSG = -199
    NOT_IMPLEMENTED = -170
    FAIL = -196
    TRANSPORT = -195
    AUTHENTICATION = -169
    UNSUPPORTED_FEATURE = -165
    FENCED = -144
    FATAL = -150
    NOENT = -156
    AUTO_OFFSET_RESET = -140
    LOG_TRUNCATION = -139
