"""The external manifest store of `s3+ddb://`: items of a DynamoDB table, as Lance clients keep them.

One item is one version. Keys, attributes, conditions and reads are those of pylance 14.0.2 (Lance
fact 12.3), so that it and we go on with each other's versions. The table is made by whoever
runs it, never here: its keys, its cost and who may write it are decisions of theirs.
"""

from __future__ import annotations

import os
import shlex
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from botocore import exceptions as aws

from lakefold_table.errors import DamagedError, InvalidError, LakefoldError, RetryError
from lakefold_table.lance.manifests.naming import DETACHED_BIT
from lakefold_table.storage.aws import NEVER_SENT, aws_options, dynamodb_client, failure
from lakefold_table.storage.base import DoubtfulPutError, Put
from lakefold_table.storage.concurrently import together
from lakefold_table.storage.external import ExternalManifests
from lakefold_table.storage.manifest_stores import Recorded
from lakefold_table.storage.s3 import AT_ONE_TIME, S3Storage
from lakefold_table.uri import canonical, place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from types_boto3_dynamodb import DynamoDBClient

SCHEME: Final = "s3+ddb"
KEYS: Final = {"base_uri": "HASH", "version": "RANGE"}
_TYPES: Final = {"base_uri": "S", "version": "N"}
COMMITTER: Final = "lancedb"
"""What Lance clients write for who committed; nobody reads it, and one item looks like the other."""

PAGE: Final = 8
"""How many of the newest items are read in one request: some 2 KB, which cost as little as one."""

_ABSENT: Final = "attribute_not_exists(base_uri) AND attribute_not_exists(version)"
_THERE: Final = "attribute_exists(base_uri) AND attribute_exists(version)"
_OF_BASE: Final = "base_uri = :base_uri"
_BELOW: Final = "base_uri = :base_uri AND version < :detached"
_ENDPOINT: Final = "dynamodb_endpoint"

_CREDENTIALS: Final = "check the key, its secret and the session token, and the region"
_CLOCK: Final = "set this machine's clock: it differs from DynamoDB's by minutes"
_SKEWED: Final = ("Signature expired", "Signature not yet current")
_RIGHTS: Final = (
    "allow dynamodb:DescribeTable, GetItem, PutItem and Query on this table, to drop one DeleteItem"
)
_MEND: Final = {
    "AccessDeniedException": _RIGHTS,
    "UnrecognizedClientException": _CREDENTIALS,
    "InvalidSignatureException": _CREDENTIALS,
    "IncompleteSignatureException": _CREDENTIALS,
    "MissingAuthenticationTokenException": _CREDENTIALS,
    "MissingAuthenticationToken": _CREDENTIALS,
    "ExpiredTokenException": "the session token has run out: bring a new one",
    "ValidationException": "its keys must be base_uri (a string, HASH) and version (a number, RANGE)",
}
_THROTTLED: Final = frozenset(
    {"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"}
)
"""Answers by which nothing was done, and the same request may succeed later."""


def on_dynamodb(uri: str, storage_options: Mapping[str, str] | None = None) -> ExternalManifests:
    """The store of `s3+ddb://BUCKET/PATH?ddbTableName=TABLE`; nothing is asked for yet.

    `storage_options`: those of S3, and `dynamodb_endpoint` (or the variable `DYNAMODB_ENDPOINT`), as pylance
    takes them. Raises `InvalidError` where they can't be used, or where the URI names no table.
    """
    name = canonical(uri)
    found = place(name)
    if found.scheme != SCHEME or not found.external:
        hint = f"write {SCHEME}://BUCKET/PATH?ddbTableName=TABLE"
        raise InvalidError("the URI names no DynamoDB table for the manifests", where=uri, hint=hint)
    objects = name.partition("?")[0].replace(f"{SCHEME}://", "s3://", 1)
    manifests = DynamoManifests(found.external, storage_options)
    return ExternalManifests(name, S3Storage(objects, storage_options), manifests)


class DynamoManifests:
    """The items of one DynamoDB table as a `ManifestStore`. Safe for many threads.

    That the table is there and has the right keys is asked once, before the first item is written.
    """

    def __init__(self, table: str, storage_options: Mapping[str, str] | None = None) -> None:
        options = aws_options(storage_options)
        endpoint = (storage_options or {}).get(_ENDPOINT) or os.environ.get("DYNAMODB_ENDPOINT", "")
        self._table = table
        self._once: DynamoDBClient = dynamodb_client(options, endpoint, attempts=1)
        self._patient: DynamoDBClient = dynamodb_client(options, endpoint)
        self._lock = threading.Lock()
        self._is_checked = False

    def put_if_absent(self, base: str, recorded: Recorded) -> Put:
        """See `ManifestStore.put_if_absent`. One request, sent once.

        What DynamoDB refuses it has not done, and what was never sent neither. All else is doubt.
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
            found = self._failure(error, base)
            if isinstance(found, RetryError) and _code(error) not in _THROTTLED:
                raise DoubtfulPutError(str(found)) from error
            raise found from error
        return Put.STORED

    def put_if_there(self, base: str, recorded: Recorded) -> bool:
        """See `ManifestStore.put_if_there`. May be sent again: it always writes the same."""
        with self._told(base):
            try:
                self._patient.put_item(
                    TableName=self._table, Item=_item(base, recorded), ConditionExpression=_THERE
                )
            except self._patient.exceptions.ConditionalCheckFailedException:
                return False
        return True

    def get(self, base: str, version: int) -> Recorded | None:
        """See `ManifestStore.get`. One request."""
        with self._told(base):
            answer = self._patient.get_item(
                TableName=self._table, Key=_key(base, version), ConsistentRead=True
            )
        item = answer.get("Item")
        return None if item is None else self._recorded(base, item)

    def newest(self, base: str) -> Iterator[Recorded]:
        """See `ManifestStore.newest`. One request for each `PAGE` of items."""
        asked: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": _BELOW,
            "ExpressionAttributeValues": {":base_uri": {"S": base}, ":detached": {"N": str(DETACHED_BIT)}},
            "ScanIndexForward": False,
            "ConsistentRead": True,
            "Limit": PAGE,
        }
        return (self._recorded(base, item) for item in self._items(base, asked))

    def forget(self, base: str) -> None:
        """See `ManifestStore.forget`. A request for each item, several at one time."""
        asked: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": _OF_BASE,
            "ExpressionAttributeValues": {":base_uri": {"S": base}},
            "ConsistentRead": True,
        }
        versions = [self._recorded(base, item).version for item in self._items(base, asked)]
        newest = max((one for one in versions if one < DETACHED_BIT), default=0)
        together(partial(self._delete, base), [one for one in versions if one != newest], AT_ONE_TIME)
        if newest:
            self._delete(base, newest)

    def _items(self, base: str, asked: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
        while True:
            with self._told(base):
                page = self._patient.query(**asked)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            asked["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _delete(self, base: str, version: int) -> None:
        with self._told(base):
            self._patient.delete_item(TableName=self._table, Key=_key(base, version))

    def _check_table(self) -> None:
        """Raises unless the table has the keys that Lance clients ask for; they check the same."""
        with self._lock:
            if self._is_checked:
                return
            with self._told(""):
                found = self._patient.describe_table(TableName=self._table)["Table"]
            keys = {key["AttributeName"]: key["KeyType"] for key in found.get("KeySchema", ())}
            types = {one["AttributeName"]: one["AttributeType"] for one in found["AttributeDefinitions"]}
            if keys != KEYS or any(types.get(name) != kind for name, kind in _TYPES.items()):
                raise InvalidError(
                    f"this table has other keys than a manifest store: {keys}",
                    where=self._where(""),
                    hint=f"{_MEND['ValidationException']}; make another one: {_making(self._table)}",
                )
            self._is_checked = True

    def _recorded(self, base: str, item: Mapping[str, Any]) -> Recorded:
        try:
            size = item.get("size")
            return Recorded(
                int(item["version"]["N"]), item["path"]["S"], None if size is None else int(size["N"])
            )
        except (KeyError, ValueError, TypeError) as error:
            raise DamagedError(
                f"this item can't be a version: {dict(item)}",
                where=self._where(base),
                hint="path must be a string, version and size numbers: correct the item",
            ) from error

    @contextmanager
    def _told(self, base: str) -> Iterator[None]:
        """Translates what boto3 raises into the error that says what to do."""
        try:
            yield
        except (aws.BotoCoreError, aws.ClientError) as error:
            raise self._failure(error, base) from error

    def _failure(self, error: Exception, base: str) -> LakefoldError:
        code = _code(error)
        where = self._where(base)
        if code == "ResourceNotFoundException":
            return InvalidError(
                f"there is no DynamoDB table {self._table}", where=where, hint=_making(self._table)
            )
        if isinstance(error, aws.NoRegionError):
            return InvalidError(str(error), where=where, hint="set aws_region, or AWS_REGION")
        if code in _THROTTLED:
            return RetryError(
                f"DynamoDB takes no more requests now ({code})",
                where=where,
                hint="try again; if it stays so, raise the table's capacity",
            )
        if code in _MEND and isinstance(error, aws.ClientError):
            said = error.response["Error"].get("Message") or "DynamoDB refuses"
            hint = _CLOCK if any(words in said for words in _SKEWED) else _MEND[code]
            return InvalidError(f"{said} ({code})", where=where, hint=hint)
        return failure(error, where)

    def _where(self, base: str) -> str:
        return f"dynamodb://{self._table}/{base}".rstrip("/")


def _key(base: str, version: int) -> dict[str, Any]:
    return {"base_uri": {"S": base}, "version": {"N": str(version)}}


def _item(base: str, recorded: Recorded) -> dict[str, Any]:
    size = {} if recorded.size is None else {"size": {"N": str(recorded.size)}}
    return {
        **_key(base, recorded.version),
        "path": {"S": recorded.path},
        "committer": {"S": COMMITTER},
        **size,
    }


def _code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, aws.ClientError) else ""


def _making(table: str) -> str:
    """The command that makes such a table."""
    return (
        f"aws dynamodb create-table --table-name {shlex.quote(table)} --attribute-definitions "
        "AttributeName=base_uri,AttributeType=S AttributeName=version,AttributeType=N --key-schema "
        "AttributeName=base_uri,KeyType=HASH AttributeName=version,KeyType=RANGE "
        "--billing-mode PAY_PER_REQUEST"
    )
