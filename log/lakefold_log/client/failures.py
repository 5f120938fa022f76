"""Maps errors of the client library to those of Lakefold, by what they mean in the answer to a request.

Callers need to know which of four things to do: try again, stop, correct something, or ask for a right.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException

from lakefold_log.client.error_codes import Local
from lakefold_log.client.meanings import Meaning, Request, meaning_of
from lakefold_log.client.rights import Right, hint, lacking
from lakefold_table.errors import FencedError, InvalidError, LakefoldError, RetryError, StopError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BROKER_HINT: Final = (
    "check that a broker runs there (`lakefold up` starts a local one), and that security.protocol is the "
    "protocol of its listener"
)
_HINTS: Final[Mapping[Request, str]] = {
    Request.CREATE_TOPIC: "the cluster needs as many live brokers as a topic has replicas: wait for them, or "
    "ask for fewer replicas",
}
"""What to do about a state that passes, if it doesn't."""


class UnknownAnswerError(RetryError):
    """The client library returned an answer that contains no information."""


class MissingTopicError(InvalidError):
    """The topic does not exist."""


def error_of(
    error: KafkaError, request: Request, doing: str, where: str = "", *, rights: Sequence[Right] = ()
) -> LakefoldError:
    """Returns the Lakefold error for a Kafka error that happened while `doing` something by a `request`.

    `meanings` says what it means there. A fenced or otherwise fatal client must stop; what is refused for
    good is invalid; everything else may pass. `rights` are those that `doing` needs; if a right is missing,
    the error names it.
    """
    if lacks := lacking(error.code(), rights):
        text = f"{doing}: this user lacks the right {' or '.join(map(str, lacks))} ({error.name()})"
        return InvalidError(text, where=where, hint=hint(lacks))
    text = f"{doing}: {error.str()} ({error.name()})"
    meaning = meaning_of(error, request)
    if meaning is Meaning.FENCED:
        return FencedError(
            text,
            where=where,
            hint="another committer took this partition, or the broker removed this one; start both with "
            "--partitions shared",
        )
    if meaning in {Meaning.REFUSED, Meaning.RIGHT}:
        return InvalidError(
            text, where=where, hint="see the kafka options, the topic's settings and the ACLs"
        )
    if error.fatal() or meaning is Meaning.ENDED:
        return StopError(
            text, where=where, hint="this client can't be used any more: start the process again"
        )
    return RetryError(text, where=where, hint=_HINTS.get(request, BROKER_HINT))


def kafka_error(caught: KafkaException) -> KafkaError:
    """Returns the error inside an exception of the client library."""
    error = caught.args[0]
    if not isinstance(error, KafkaError):
        return KafkaError(Local.FAIL, str(error))
    return error


@contextmanager
def kafka_errors(
    request: Request, doing: str, where: str = "", *, rights: Sequence[Right] = ()
) -> Iterator[None]:
    """Raises the client library's exceptions as Lakefold's; `where` names brokers, a topic or a position.

    `rights`: see `error_of`.
    """
    try:
        yield
    except KafkaException as caught:
        raise error_of(kafka_error(caught), request, doing, where, rights=rights) from caught
