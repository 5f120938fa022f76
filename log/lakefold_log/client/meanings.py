"""Says what each error code of Kafka means in the answer to each kind of request, as a table.

Kafka has some 190 codes, and many of them are states that pass: a leader that is not elected yet, a
coordinator that loads, brokers that are fenced because the machine is busy. If one of those is taken for the
caller's mistake, a process ends that only had to wait. Kafka itself marks codes as retriable, but leaves out
some of these states, such as the refusal of a topic while all brokers are fenced. So each code is listed
here, and no other module judges codes. A code that a later broker invents passes.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import KafkaError


class Request(Enum):
    """The kinds of requests that this package sends."""

    CONNECTION = "connect for the first time"
    CLUSTER = "ask for the cluster's id, brokers and topics"
    CREATE_TOPIC = "create a topic"
    TOPIC = "describe a topic"
    SETTINGS = "read a topic's settings"
    LIST_OFFSETS = "ask for a partition's offsets"
    SENDING = "send a message"
    TRANSACTION = "take a step of a transaction"
    READ = "read a partition"
    COMMITTED_OFFSETS = "read a group's offsets"
    MEMBERS = "ask for a group's members"
    SHARE = "share partitions with the other members of a group"


class Meaning(Enum):
    """What an error says about the request that it answers."""

    PASSING = "a state that passes: the same request may succeed in a moment"
    UNANSWERED = "no broker answered in time, or the connection to it broke"
    MISSING = "the broker that answered doesn't know the topic: it was just created, or does not exist"
    REFUSED = "the request is refused as long as it, or a setting, stays as it is"
    RIGHT = "the client's user lacks a right"
    FENCED = "another process of this name took over, or the broker removed this one"
    ENDED = "this client can't be used any more, another one can"
    LOST = "the log lost the offset, or what this producer sent before"
    DAMAGED = "what the brokers return can't be read"
    COMPRESSION = "what the brokers return can't be unpacked"
    DONE = "nothing is wrong: what was asked for is the case, or it doesn't concern this client"


_ALWAYS: Final[Mapping[Meaning, str]] = {
    Meaning.PASSING: """
        BROKER_NOT_AVAILABLE CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS
        COORDINATOR_NOT_AVAILABLE DUPLICATE_SEQUENCE_NUMBER ELECTION_NOT_NEEDED
        ELIGIBLE_LEADERS_NOT_AVAILABLE FEATURE_UPDATE_FAILED FENCED_LEADER_EPOCH FENCED_MEMBER_EPOCH
        FENCED_STATE_EPOCH FETCH_SESSION_ID_NOT_FOUND GROUP_ID_NOT_FOUND GROUP_MAX_SIZE_REACHED
        ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL INCONSISTENT_TOPIC_ID INVALID_FETCH_SESSION_EPOCH
        INVALID_MSG INVALID_PRODUCER_ID_MAPPING INVALID_RECORD_STATE INVALID_REQUEST
        INVALID_SHARE_SESSION_EPOCH INVALID_TXN_STATE KAFKA_STORAGE_ERROR LEADER_NOT_AVAILABLE
        LISTENER_NOT_FOUND LOG_DIR_NOT_FOUND MEMBER_ID_REQUIRED NETWORK_EXCEPTION NON_EMPTY_GROUP
        NOT_CONTROLLER NOT_COORDINATOR NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND
        NOT_LEADER_FOR_PARTITION NO_REASSIGNMENT_IN_PROGRESS OFFSET_NOT_AVAILABLE OFFSET_OUT_OF_RANGE
        OPERATION_NOT_ATTEMPTED OUT_OF_ORDER_SEQUENCE_NUMBER PREFERRED_LEADER_NOT_AVAILABLE
        PRINCIPAL_DESERIALIZATION_FAILURE REASSIGNMENT_IN_PROGRESS REBALANCE_IN_PROGRESS
        REBOOTSTRAP_REQUIRED REPLICA_NOT_AVAILABLE REQUEST_TIMED_OUT RESOURCE_NOT_FOUND
        SHARE_SESSION_LIMIT_REACHED SHARE_SESSION_NOT_FOUND STALE_BROKER_EPOCH STALE_CTRL_EPOCH
        STALE_MEMBER_EPOCH THROTTLING_QUOTA_EXCEEDED TRANSACTION_ABORTABLE TRANSACTION_COORDINATOR_FENCED
        UNKNOWN UNKNOWN_CONTROLLER_ID UNKNOWN_LEADER_EPOCH UNKNOWN_MEMBER_ID UNKNOWN_PRODUCER_ID
        UNKNOWN_SUBSCRIPTION_ID UNKNOWN_TOPIC_ID UNRELEASED_INSTANCE_ID UNSTABLE_OFFSET_COMMIT

        INVALID_REGISTRATION INCONSISTENT_VOTER_SET DUPLICATE_VOTER VOTER_NOT_FOUND INVALID_VOTER_KEY
        INVALID_UPDATE_VERSION MISMATCHED_ENDPOINT_TYPE STREAMS_TOPOLOGY_FENCED

        _ASSIGNMENT_LOST _ASSIGN_PARTITIONS _AUTHENTICATION _AUTO_OFFSET_RESET _BAD_COMPRESSION _BAD_MSG
        _CONFLICT _CRIT_SYS_RESOURCE _DESTROY _DESTROY_BROKER _EXISTING_SUBSCRIPTION _FAIL _FS
        _GAPLESS_GUARANTEE _INCONSISTENT _INTR _INVALID_DIFFERENT_RECORD _IN_PROGRESS _ISR_INSUFF
        _LOG_TRUNCATION _MAX_POLL_EXCEEDED _NODE_UPDATE _NOENT _NOOP _NOT_IMPLEMENTED _NO_OFFSET _OUTDATED
        _PARTIAL _PREV_IN_PROGRESS _PURGE_INFLIGHT _PURGE_QUEUE _QUEUE_FULL _RESOLVE _RETRY
        _REVOKE_PARTITIONS _SSL _STATE _TIMED_OUT_QUEUE _UNDERFLOW _UNKNOWN_BROKER _UNKNOWN_GROUP
        _UNKNOWN_PARTITION _UNKNOWN_PROTOCOL _WAIT_CACHE _WAIT_COORD

        SASL_AUTHENTICATION_FAILED DELEGATION_TOKEN_EXPIRED DELEGATION_TOKEN_NOT_FOUND
    """,
    Meaning.UNANSWERED: "_ALL_BROKERS_DOWN _MSG_TIMED_OUT _TIMED_OUT _TRANSPORT",
    Meaning.MISSING: "UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC",
    Meaning.REFUSED: """
        DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_OWNER_MISMATCH
        DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DUPLICATE_RESOURCE GROUP_SUBSCRIBED_TO_TOPIC
        ILLEGAL_SASL_STATE INVALID_COMMIT_OFFSET_SIZE INVALID_CONFIG INVALID_GROUP_ID INVALID_MSG_SIZE
        INVALID_PARTITIONS INVALID_PRINCIPAL_TYPE INVALID_RECORD INVALID_REGULAR_EXPRESSION
        INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_REQUIRED_ACKS
        INVALID_SESSION_TIMEOUT INVALID_TIMESTAMP INVALID_TRANSACTION_TIMEOUT MSG_SIZE_TOO_LARGE
        OFFSET_METADATA_TOO_LARGE POLICY_VIOLATION RECORD_LIST_TOO_LARGE SECURITY_DISABLED
        STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH TELEMETRY_TOO_LARGE TOPIC_ALREADY_EXISTS
        TOPIC_DELETION_DISABLED TOPIC_EXCEPTION UNACCEPTABLE_CREDENTIAL UNSUPPORTED_ASSIGNOR
        UNSUPPORTED_COMPRESSION_TYPE UNSUPPORTED_ENDPOINT_TYPE UNSUPPORTED_FOR_MESSAGE_FORMAT
        UNSUPPORTED_SASL_MECHANISM UNSUPPORTED_VERSION

        _APPLICATION _INVALID_ARG _INVALID_TYPE _KEY_DESERIALIZATION _KEY_SERIALIZATION _NOT_CONFIGURED
        _READ_ONLY _UNSUPPORTED_FEATURE _VALUE_DESERIALIZATION _VALUE_SERIALIZATION
    """,
    Meaning.RIGHT: """
        CLUSTER_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED
        TOPIC_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    """,
    Meaning.FENCED: "FENCED_INSTANCE_ID INVALID_PRODUCER_EPOCH PRODUCER_FENCED _FENCED",
    Meaning.ENDED: "_FATAL",
    Meaning.DONE: "NO_ERROR _PARTITION_EOF",
}
"""What a code means unless `_IN` says something else for the request.

A login is refused for good only when a client connects for the first time: later, a broker that restarts
opens its port a moment before it knows its users.
"""

_IN: Final[Mapping[Request, Mapping[Meaning, str]]] = {
    Request.CONNECTION: {
        Meaning.REFUSED: """
            DELEGATION_TOKEN_EXPIRED DELEGATION_TOKEN_NOT_FOUND SASL_AUTHENTICATION_FAILED _AUTHENTICATION
        """,
    },
    # The brokers place replicas on those of them that are registered and not fenced. While they start, or if
    # a busy machine kept them from reporting to the controller, these are fewer than there will be.
    Request.CREATE_TOPIC: {
        Meaning.PASSING: "INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT",
        Meaning.DONE: "TOPIC_ALREADY_EXISTS",
    },
    Request.TRANSACTION: {
        Meaning.LOST: "OUT_OF_ORDER_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID",
    },
    # A group that nobody has joined yet has no members.
    Request.MEMBERS: {Meaning.DONE: "GROUP_ID_NOT_FOUND"},
    Request.READ: {
        Meaning.LOST: "OFFSET_OUT_OF_RANGE _AUTO_OFFSET_RESET _LOG_TRUNCATION",
        # The checksum of messages is wrong, or they are of no known form.
        Meaning.DAMAGED: "_BAD_MSG _NOT_IMPLEMENTED",
        Meaning.COMPRESSION: "_BAD_COMPRESSION",
        # A reader is in no group, but the client library asks for a coordinator.
        Meaning.DONE: "GROUP_AUTHORIZATION_FAILED",
    },
}


def _by_name(meanings: Mapping[Meaning, str]) -> dict[str, Meaning]:
    return {name: meaning for meaning, names in meanings.items() for name in names.split()}


TABLE: Final[Mapping[Request, Mapping[str, Meaning]]] = {
    request: {**_by_name(_ALWAYS), **_by_name(_IN.get(request, {}))} for request in Request
}
"""What each code means in the answer to each kind of request, by the client library's names."""


def meaning_of(error: KafkaError, request: Request) -> Meaning:
    """Returns what the error means in the answer to a request of this kind."""
    return TABLE[request].get(error.name(), Meaning.PASSING)
