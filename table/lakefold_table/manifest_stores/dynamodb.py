"""The external manifest store of `s3+ddb://`: items of a DynamoDB table, as Lance clients keep them.

An item is a version. Keys, attributes, conditions and reads are those of pylance 14.0.2 (Lance fact 12.3),
so that each client can read and finalize the other's versions. The DynamoDB table is created by its operator,
never here: its keys, its cost and who may write to it are the operator's decisions.
"""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from botocore import exceptions as aws

from lakefold_table.errors import DamagedError, InvalidError, LakefoldError, RetryError
from lakefold_table.manifest_stores.base import MANIFESTS, ManifestRecord
from lakefold_table.manifest_stores.external import ExternalManifests
from lakefold_table.own_process import ProcessLock
from lakefold_table.storage.aws import NEVER_SENT, aws_options, dynamodb_client, failure
from lakefold_table.storage.base import DoubtfulPutError, Put
from lakefold_table.storage.concurrently import together
from lakefold_table.storage.s3 import AT_ONE_TIME, S3Storage
from lakefold_table.uri import canonical, parse_location

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from types_boto3_dynamodb import DynamoDBClient

SCHEME: Final = "s3+ddb"
KEYS: Final = {"base_uri": "HASH", "version": "RANGE"}
_TYPES: Final = {"base_uri": "S", "version": "N"}
COMMITTER: Final = "lancedb"
"""The committer that Lance clients write. No client reads it, and all items have the same."""

PAGE: Final = 8
"""How many of the newest items are read in one request: some 2 KB, which cost as little as a single item."""

_ABSENT: Final = "attribute_not_exists(base_uri) AND attribute_not_exists(version)"
_PRESENT: Final = "attribute_exists(base_uri) AND attribute_exists(version)"
_OF_BASE: Final = "base_uri = :base_uri"
_BELOW: Final = "base_uri = :base_uri AND version < :detached"
_ENDPOINT: Final = "dynamodb_endpoint"

_CREDENTIALS: Final = "check the key, its secret and the session token, and the region"
_CLOCK: Final = "set this machine's clock: it differs from DynamoDB's by minutes"
_SKEWED: Final = ("Signature expired", "Signature not yet current")
_RIGHTS: Final = (
    "allow dynamodb:DescribeTable, GetItem, PutItem and Query on this table; "
    "dropping a table of Lakefold needs DeleteItem"
)
_TO_FIX: Final = {
    "AccessDeniedException": _RIGHTS,
    "UnrecognizedClientException": _CREDENTIALS,
    "InvalidSignatureException": _CREDENTIALS,
    "IncompleteSignatureException": _CREDENTIALS,
    "MissingAuthenticationTokenException": _CREDENTIALS,
    "MissingAuthenticationToken": _CREDENTIALS,
    "ExpiredTokenException": "the session token has expired: supply a new one",
    "ValidationException": "its keys must be base_uri (a string, HASH) and version (a number, RANGE)",
}
_THROTTLED: Final = frozenset(
    {"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"}
)
"""Answers by which nothing was done, and after which the same request may succeed later."""


def open_dynamodb(uri: str, storage_options: Mapping[str, str] | None = None) -> ExternalManifests:
    """Returns the store of `s3+ddb://BUCKET/PATH?ddbTableName=TABLE`. Sends no request yet.

    `storage_options`: those of S3, and `dynamodb_endpoint` (or the variable `DYNAMODB_ENDPOINT`), as pylance
    takes them. Raises `InvalidError` if they can't be used, or if the URI names no DynamoDB table.
    """
    name = canonical(uri)
    location = parse_location(name)
    if location.scheme != SCHEME or not location.external:
        hint = f"write {SCHEME}://BUCKET/PATH?ddbTableName=TABLE"
        raise InvalidError("the URI names no DynamoDB table for the manifests", where=uri, hint=hint)
    objects = name.partition("?")[0].replace(f"{SCHEME}://", "s3://", 1)
    manifests = DynamoManifests(location.external, storage_options)
    return ExternalManifests(name, S3Storage(objects, storage_options), manifests)


class DynamoManifests:
    """The items of a DynamoDB table as a `ManifestStore`. Safe for many threads.

    Whether the table exists and has the right keys is checked once, before the first item is written.
    """

    def __init__(self, table: str, storage_options: Mapping[str, str] | None = None) -> None:
        options = aws_options(storage_options)
        endpoint = (storage_options or {}).get(_ENDPOINT) or os.environ.get("DYNAMODB_ENDPOINT", "")
        self._table = table
        self._once: DynamoDBClient = dynamodb_client(options, endpoint, attempts=1)
        self._patient: DynamoDBClient = dynamodb_client(options, endpoint)
        self._lock = ProcessLock()
        self._is_checked = False

    def put_if_absent(self, base: str, recorded: ManifestRecord) -> Put:
        """See `ManifestStore.put_if_absent`. A single request, sent once.

        If DynamoDB refuses, or the request was never sent, nothing was recorded. Everything else is a doubt.
        """
        self._check_table()
        try:
            self._once.put_item(
                TableName=self._table, Item=_item(base, recorded), ConditionExpression=_ABSENT
            )
        except self._once.exceptions.ConditionalCheckFailedException:
            return Put.EXISTS
        except NEVER_SENT as error:
            raise failure(error, self._where(base)) from error
        except (aws.BotoCoreError, aws.ClientError) as error:
            refusal = self._failure(error, base)
            if isinstance(refusal, RetryError) and _code(error) not in _THROTTLED:
                raise DoubtfulPutError(str(refusal)) from error
            raise refusal from error
        return Put.STORED

    def put_if_present(self, base: str, recorded: ManifestRecord) -> bool:
        """See `ManifestStore.put_if_present`. May be repeated: it always writes the same."""
        with self._translated_errors(base):
            try:
                self._patient.put_item(
                    TableName=self._table, Item=_item(base, recorded), ConditionExpression=_PRESENT
                )
            except self._patient.exceptions.ConditionalCheckFailedException:
                return False
        return True

    def get(self, base: str, version: int) -> ManifestRecord | None:
        """See `ManifestStore.get`. One request."""
        with self._translated_errors(base):
            answer = self._patient.get_item(
                TableName=self._table, Key=_key(base, version), ConsistentRead=True
            )
        item = answer.get("Item")
        return None if item is None else self._recorded(base, item)

    def newest(self, base: str) -> Iterator[ManifestRecord]:
        """See `ManifestStore.newest`. One request for each `PAGE` of items."""
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": _BELOW,
            "ExpressionAttributeValues": {
                ":base_uri": {"S": base},
                ":detached": {"N": str(MANIFESTS.first_detached)},
            },
            "ScanIndexForward": False,
            "ConsistentRead": True,
            "Limit": PAGE,
        }
        return (self._recorded(base, item) for item in self._items(base, request))

    def forget(self, base: str) -> None:
        """See `ManifestStore.forget`. A request for each item, several at once."""
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": _OF_BASE,
            "ExpressionAttributeValues": {":base_uri": {"S": base}},
            "ConsistentRead": True,
        }
        versions = [self._recorded(base, item).version for item in self._items(base, request)]
        newest = max((number for number in versions if number < MANIFESTS.first_detached), default=0)
        together(
            partial(self._delete, base), [number for number in versions if number != newest], AT_ONE_TIME
        )
        if newest:
            self._delete(base, newest)

    def _items(self, base: str, request: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
        while True:
            with self._translated_errors(base):
                page = self._patient.query(**request)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _delete(self, base: str, version: int) -> None:
        with self._translated_errors(base):
            self._patient.delete_item(TableName=self._table, Key=_key(base, version))

    def _check_table(self) -> None:
        """Raises unless the table has the keys that Lance clients need; they check the same."""
        with self._lock.current:
            if self._is_checked:
                return
            with self._translated_errors(""):
                description = self._patient.describe_table(TableName=self._table)["Table"]
            keys = {key["AttributeName"]: key["KeyType"] for key in description.get("KeySchema", ())}
            types = {
                attribute["AttributeName"]: attribute["AttributeType"]
                for attribute in description["AttributeDefinitions"]
            }
            if keys != KEYS or any(types.get(name) != kind for name, kind in _TYPES.items()):
                raise InvalidError(
                    f"this table has other keys than a manifest store: {keys}",
                    where=self._where(""),
                    hint=f"{_TO_FIX['ValidationException']}; create another: {_create_command(self._table)}",
                )
            self._is_checked = True

    def _recorded(self, base: str, item: Mapping[str, Any]) -> ManifestRecord:
        try:
            size = item.get("size")
            return ManifestRecord(
                int(item["version"]["N"]), item["path"]["S"], None if size is None else int(size["N"])
            )
        except (KeyError, ValueError, TypeError) as error:
            raise DamagedError(
                f"this item can't be a version: {dict(item)}",
                where=self._where(base),
                hint="path must be a string, version and size numbers: correct the item",
            ) from error

    @contextmanager
    def _translated_errors(self, base: str) -> Iterator[None]:
        """Raises boto3's errors as the error class that says what to do."""
        try:
            yield
        except (aws.BotoCoreError, aws.ClientError) as error:
            raise self._failure(error, base) from error

    def _failure(self, error: Exception, base: str) -> LakefoldError:
        code = _code(error)
        where = self._where(base)
        if code == "ResourceNotFoundException":
            return InvalidError(
                f"the DynamoDB table {self._table} does not exist",
                where=where,
                hint=_create_command(self._table),
            )
        if isinstance(error, aws.NoRegionError):
            return InvalidError(str(error), where=where, hint="set aws_region, or AWS_REGION")
        if code in _THROTTLED:
            return RetryError(
                f"DynamoDB accepts no more requests now ({code})",
                where=where,
                hint="try again; if it stays so, raise the table's capacity",
            )
        if code in _TO_FIX and isinstance(error, aws.ClientError):
            answer = error.response["Error"].get("Message") or "DynamoDB refuses"
            hint = _CLOCK if any(words in answer for words in _SKEWED) else _TO_FIX[code]
            return InvalidError(f"{answer} ({code})", where=where, hint=hint)
        return failure(error, where)

    def _where(self, base: str) -> str:
        return f"dynamodb://{self._table}/{base}".rstrip("/")


def _key(base: str, version: int) -> dict[str, Any]:
    return {"base_uri": {"S": base}, "version": {"N": str(version)}}


def _item(base: str, recorded: ManifestRecord) -> dict[str, Any]:
    size = {} if recorded.size is None else {"size": {"N": str(recorded.size)}}
    return {
        **_key(base, recorded.version),
        "path": {"S": recorded.path},
        "committer": {"S": COMMITTER},
        **size,
    }


def _code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, aws.ClientError) else ""


def _create_command(table: str) -> str:
    """Returns the command that creates such a table."""
    return (
        f"aws dynamodb create-table --table-name {shlex.quote(table)} --attribute-definitions "
        "AttributeName=base_uri,AttributeType=S AttributeName=version,AttributeType=N --key-schema "
        "AttributeName=base_uri,KeyType=HASH AttributeName=version,KeyType=RANGE "
        "--billing-mode PAY_PER_REQUEST"
    )
