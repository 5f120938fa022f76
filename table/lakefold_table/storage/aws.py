"""The only module that uses boto3: makes its clients, from the same options as pylance, and reads its errors.

Making a client takes some 10 ms, and it holds a pool of connections. So each is made once per process and
options, and shared by all tables and threads. A forked process makes its own: sockets can't be shared. The
description of a service, which takes another 70 ms to read, is shared by all clients.

There are two clients for each service. `patient` repeats a request that failed, as boto3 does by default.
`once` never does: the request that publishes a version must not be repeated by a layer that hides how often
it was sent, since the answer to the second request would be "exists", caused by our own object.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

import boto3
import botocore.session
from botocore import UNSIGNED
from botocore import exceptions as aws
from botocore.config import Config
from botocore.loaders import Loader, create_loader
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from lakefold_table.errors import InvalidError, LakefoldError, LocationError, RetryError
from lakefold_table.own_process import ProcessLock
from lakefold_table.storage.aws_options import AwsOptions, read_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from types_boto3_dynamodb import DynamoDBClient
    from types_boto3_s3 import S3Client

CONNECTIONS: Final = 64
"""How many connections a client keeps: more than the threads that a process lets send requests at one
time."""

SKEW: Final = timedelta(minutes=5)
"""From this difference on a refusal is blamed on the clocks. AWS itself refuses from 15 minutes on."""

_TO_FIX: Final = {
    "AccessDenied": "give these credentials the permissions that docs/operations/stores.md lists for a table",
    "AllAccessDisabled": "the bucket's owner has closed it",
    "ExpiredToken": "the session token has expired: supply a new one",
    "InvalidAccessKeyId": "the store knows no such key: check aws_access_key_id, or the profile",
    "InvalidToken": "the session token isn't valid: check aws_session_token",
    "SignatureDoesNotMatch": "check aws_secret_access_key, and that no proxy alters the request",
    "NoSuchBucket": "create the bucket, or check its name and the endpoint",
    "AuthorizationHeaderMalformed": "the bucket is in another region: set aws_region",
    "PermanentRedirect": "the bucket is in another region: set aws_region",
    "NotImplemented": "this server lacks something that a table needs: see docs/operations/stores.md",
    "MethodNotAllowed": "this server lacks something that a table needs: see docs/operations/stores.md",
}
_CHOOSE: Final = {
    "InvalidBucketName": "choose a bucket's name of 3 to 63 lower-case letters, digits, dots and hyphens",
    "KeyTooLongError": "choose a shorter path: a key has at most 1,024 bytes",
}
_PASSING: Final = frozenset(
    {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests"}
    | {"ConditionalRequestConflict", "OperationAborted", "ProvisionedThroughputExceededException"}
    | {"RequestLimitExceeded", "InternalError", "ServiceUnavailable", "TransactionConflictException"}
)
_PASSING_STATUS: Final = frozenset({408, 409, 425, 429})
_CREDENTIALS: Final = (
    aws.NoCredentialsError,
    aws.PartialCredentialsError,
    aws.ProfileNotFound,
    aws.ConfigParseError,
    aws.NoAuthTokenError,
    aws.UnauthorizedSSOTokenError,
    aws.LoginError,
)
_AWAY: Final = (
    aws.ConnectionError,
    aws.HTTPClientError,
    aws.IncompleteReadError,
    aws.ChecksumError,
    aws.FlexibleChecksumError,
    aws.CredentialRetrievalError,
    aws.MetadataRetrievalError,
    # boto3 reads the body of a refused GET outside of what translates errors of its connections.
    HTTPError,
    # The answer is no answer of S3, e.g. the page of a proxy.
    ResponseParserError,
)
CLIENT_ERRORS: Final = (aws.BotoCoreError, aws.ClientError, HTTPError, ResponseParserError, ValueError)
"""What boto3 raises if a request has failed."""
NEVER_SENT: Final = (
    aws.EndpointConnectionError,
    aws.ConnectTimeoutError,
    aws.ProxyConnectionError,
    aws.CredentialRetrievalError,
    aws.MetadataRetrievalError,
)
"""Errors from before a request was sent: the store has not done what it asked for."""


@dataclass(frozen=True, slots=True)
class S3Clients:
    """The clients of an S3 service: `once` sends a request once, `patient` repeats requests that failed."""

    once: S3Client
    patient: S3Client


Style = Literal["auto", "virtual", "path"]
"""Where the bucket's name is in an address: `auto` is boto3's own choice."""

_lock = ProcessLock()
_made: dict[tuple[object, ...], Any] = {}


def aws_options(storage_options: Mapping[str, str] | None) -> AwsOptions:
    """Returns `read_options` with this process's environment."""
    return read_options(storage_options or {}, os.environ)


def s3_clients(options: AwsOptions, bucket: str) -> S3Clients:
    """Returns the clients for these options, shared in this process. The endpoint may begin with `bucket`.

    Raises `InvalidError` if boto3 refuses the settings (a missing profile, a malformed endpoint).
    """
    path_style = bool(options.endpoint) and not options.virtual_hosted
    endpoint = _without_bucket(options.endpoint, bucket) if options.virtual_hosted else options.endpoint
    style: Style = "path" if path_style else "virtual" if options.virtual_hosted else "auto"
    key = (os.getpid(), "s3", options, endpoint)
    with _lock.current:
        if key not in _made:
            _made[key] = S3Clients(
                *(_client("s3", options, endpoint, tries, style) for tries in (1, options.attempts))
            )
        clients: S3Clients = _made[key]
    return clients


def dynamodb_client(options: AwsOptions, endpoint: str, *, attempts: int | None = None) -> DynamoDBClient:
    """Returns the DynamoDB client for these options, shared in this process.

    If `endpoint` is empty, boto3 finds it.
    """
    key = (os.getpid(), "dynamodb", options, endpoint, attempts)
    with _lock.current:
        if key not in _made:
            _made[key] = _client("dynamodb", options, endpoint, attempts or options.attempts, "auto")
        client: DynamoDBClient = _made[key]
    return client


@cache
def _descriptions() -> Loader:
    """Returns what reads the descriptions of services, and keeps them."""
    return create_loader()


def _client(service: str, options: AwsOptions, endpoint: str, attempts: int, style: Style) -> Any:  # noqa: ANN401 - boto3 makes its clients' classes as it runs
    proxies = {"http": options.proxy_url, "https": options.proxy_url} if options.proxy_url else None
    config = Config(
        connect_timeout=options.connect_timeout,
        read_timeout=options.read_timeout,
        max_pool_connections=CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": attempts},
        s3={"addressing_style": style},
        tcp_keepalive=True,
        proxies=proxies,
        **({"signature_version": UNSIGNED} if options.skip_signature else {}),
    )
    # S3 needs a region only to sign, and reports its own; a self-hosted server accepts any.
    region = "us-east-1" if endpoint or service == "s3" else None
    with translated_errors(endpoint or service):
        core = botocore.session.get_session()
        core.register_component("data_loader", _descriptions())
        session = boto3.Session(
            botocore_session=core,
            aws_access_key_id=options.access_key_id or None,
            aws_secret_access_key=options.secret_access_key or None,
            aws_session_token=options.session_token or None,
            region_name=options.region or None,
            profile_name=options.profile or None,
        )
        client = session.client(
            service,  # type: ignore[call-overload]
            endpoint_url=endpoint or None,
            region_name=session.region_name or region,
            verify=None if options.verify_certificates else False,
            config=config,
        )
        client.meta.events.register("before-call.s3.HeadBucket", _not_redirected)
        return client


def _not_redirected(params: dict[str, Any], **_: object) -> None:
    """Has boto3 not ask for the bucket's region because of an answer to that very question.

    A request that is redirected is sent again to the region that a request for the bucket names. If that one
    is redirected without a region, as by a proxy, boto3 would ask without an end.
    """
    params["context"].setdefault("s3_redirect", {})["redirected"] = True


def _without_bucket(endpoint: str, bucket: str) -> str:
    """Returns the endpoint as boto3 needs it: pylance's begins with the bucket's name."""
    scheme, slashes, host = endpoint.partition("://")
    return f"{scheme}{slashes}{host.removeprefix(bucket + '.')}"


@contextmanager
def translated_errors(where: str) -> Iterator[None]:
    """Raises boto3's errors as the error class that says what to do, with `where` as its location."""
    try:
        yield
    except CLIENT_ERRORS as error:
        raise failure(error, where) from error


def failure(error: Exception, where: str) -> LakefoldError:
    """Returns the error class that says what the caller must do about `error`, which happened at `where`."""
    if isinstance(error, aws.ClientError):
        return _of_answer(error, where)
    message = str(error)
    if isinstance(error, aws.SSLError):
        hint = "is the endpoint's certificate known here (AWS_CA_BUNDLE)?"
        return RetryError(message, where=where, hint=hint)
    if isinstance(error, _AWAY):
        return RetryError(message, where=where, hint="the store can't be reached: try again")
    if isinstance(error, _CREDENTIALS):
        hint = "set aws_access_key_id and aws_secret_access_key, a profile, or a role, as for any AWS client"
        return InvalidError(message, where=where, hint=hint)
    return InvalidError(message, where=where, hint="check the storage options and the AWS settings")


def _of_answer(error: aws.ClientError, where: str) -> LakefoldError:
    """Returns the error for an answer of the store. An answer to HEAD has no body: its code is the status."""
    answer = error.response.get("Error", {})
    code = str(answer.get("Code", ""))
    status = status_of(error)
    message = f"{answer.get('Message') or 'the store refuses'} ({code or status})"
    skew = _skew(error)
    if code == "RequestTimeTooSkewed" or (status == 403 and skew > SKEW):  # noqa: PLR2004 - forbidden
        hint = f"set this machine's clock: it is {round(skew.total_seconds())} s from the store's"
        return InvalidError(f"clock skew: {message}", where=where, hint=hint)
    if code in _PASSING or status >= 500 or status in _PASSING_STATUS:  # noqa: PLR2004 - a server's fault
        if status == 501:  # noqa: PLR2004 - not implemented
            return InvalidError(message, where=where, hint=_TO_FIX["NotImplemented"])
        return RetryError(message, where=where, hint="the store is busy or has a fault: try again")
    if code in _CHOOSE:
        return LocationError(message, where=where, hint=_CHOOSE[code])
    target = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("location")
    if 300 <= status < 400 and target:  # noqa: PLR2004 - redirections
        message = f"the store redirects requests to {target} ({code or status})"
        hint = "if that is the store, set its address as the endpoint, or else aws_region"
        return InvalidError(message, where=where, hint=hint)
    names = {"301": "PermanentRedirect", "403": "AccessDenied"}
    hint = _TO_FIX.get(names.get(code, code), "check the storage options, and what the server supports")
    return InvalidError(message, where=where, hint=hint)


def status_of(error: aws.ClientError) -> int:
    """Returns the HTTP status of an answer, 0 if it has none."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _skew(error: aws.ClientError) -> timedelta:
    """Returns how far the store's clock is from ours, by the date of its answer.

    0 if the answer has no date.
    """
    date = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        answered = parsedate_to_datetime(date) if date else None
    except ValueError:
        answered = None
    if answered is None:
        return timedelta(0)
    if answered.tzinfo is None:
        answered = answered.replace(tzinfo=UTC)
    return abs(datetime.now(UTC) - answered)
