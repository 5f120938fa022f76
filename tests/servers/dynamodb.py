"""Runs DynamoDB Local on loopback: Amazon's own program for tests, whose conditional puts hold under a race.

Items are kept in memory only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import boto3

from lakefold.local.jars import fetch_jars
from lakefold.local.java import find_java
from tests.servers.process import LoopbackServer
from tests.servers.s3 import KEY, SECRET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from types_boto3_dynamodb import DynamoDBClient

TABLE: Final = "versions"
KEYS: Final = (("base_uri", "S"), ("version", "N"))
_JVM: Final = ("-Xms32m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_MAIN: Final = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"


class DynamoServer(LoopbackServer):
    """A DynamoDB whose tables are in memory; `TABLE` is there once it has started."""

    def options(self, **more: str) -> dict[str, str]:
        """The `storage_options` that name this server; `more`: those of the objects."""
        return {**more, "dynamodb_endpoint": self.endpoint}

    def prepare(self) -> Sequence[str]:
        """See `LoopbackServer.prepare`."""
        jars = os.pathsep.join(str(jar) for jar in fetch_jars("dynamodb"))
        flags = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(self.port)]
        # It unpacks a library for its tables, which a killed server leaves there.
        scratch = f"-Djava.io.tmpdir={self.directory.resolve()}"
        return [str(find_java()), *_JVM, scratch, "-cp", jars, _MAIN, *flags]

    def start(self) -> None:
        """See `LoopbackServer.start`."""
        super().start()
        self.make_table(TABLE)

    def client(self) -> DynamoDBClient:
        """A client of a test's own, for what is put and read by hand."""
        return boto3.client(
            "dynamodb",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
        )

    def make_table(
        self, name: str, keys: Sequence[tuple[str, str]] = (("base_uri", "S"), ("version", "N"))
    ) -> None:
        """Make a table with the keys (name, type) that Lance clients ask for, or with others."""
        kinds: tuple[Any, Any] = ("HASH", "RANGE")
        definitions: Any = [{"AttributeName": key, "AttributeType": kind} for key, kind in keys]
        self.client().create_table(
            TableName=name,
            KeySchema=[
                {"AttributeName": key, "KeyType": kind} for (key, _), kind in zip(keys, kinds, strict=False)
            ],
            AttributeDefinitions=definitions,
            BillingMode="PAY_PER_REQUEST",
        )

    def items(self, base: str, table: str = TABLE) -> dict[int, dict[str, Any]]:
        """The items of a table or branch by version, as they lie there."""
        actual = self.client().query(
            TableName=table,
            KeyConditionExpression="base_uri = :base",
            ExpressionAttributeValues={":base": {"S": base}},
            ConsistentRead=True,
        )
        return {int(item["version"]["N"]): dict(item) for item in actual["Items"]}
