"""AWS settings in storage options: the names and values that pylance takes mean the same here."""

from __future__ import annotations

import pytest

from lakefold_table.errors import InvalidError
from lakefold_table.storage.aws_options import AwsOptions, read_options

FULL = {
    "access_key_id": "key",
    "secret_access_key": "secret",
    "session_token": "token",
    "region": "eu-central-1",
    "endpoint": "https://store:9000",
    "virtual_hosted_style_request": "true",
    "skip_signature": "false",
    "connect_timeout": "500ms",
    "timeout": "2m",
    "client_max_retries": "7",
    "allow_invalid_certificates": "true",
}
READ = AwsOptions(
    access_key_id="key",
    secret_access_key="secret",  # noqa: S106 - of nobody
    session_token="token",  # noqa: S106 - of nobody
    region="eu-central-1",
    endpoint="https://store:9000",
    virtual_hosted=True,
    connect_timeout=0.5,
    read_timeout=120,
    attempts=8,
    verify_certificates=False,
)


@pytest.mark.parametrize("prefix", ["", "aws_", "AWS_"])
def test_names_are_taken_with_and_without_their_prefix_in_any_case(prefix: str) -> None:
    given = {prefix + name: value for name, value in FULL.items()}
    assert read_options(given, {}) == READ
    assert read_options({name.upper(): value for name, value in given.items()}, {}) == READ


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("aws_endpoint_url", "endpoint"),
        ("endpoint_url", "endpoint"),
        ("aws_endpoint_url_s3", "endpoint"),
        ("aws_token", "session_token"),
        ("token", "session_token"),
        ("default_region", "region"),
        ("aws_default_region", "region"),
        ("profile", "profile"),
        ("aws_profile", "profile"),
        ("proxy_url", "proxy_url"),
        ("aws_sse_kms_key_id", "encryption_key"),
        ("aws_server_side_encryption", "encryption"),
    ],
)
def test_other_names_mean_the_same(name: str, field: str) -> None:
    assert getattr(read_options({name: "x"}, {}), field) == "x"


def test_what_is_not_known_is_left_to_others() -> None:
    assert read_options({"dynamodb_endpoint": "x", "google_service_account": "y", "http2_only": "1"}, {}) == (
        AwsOptions()
    )


def test_variables_that_boto3_does_not_know_are_read_and_options_win() -> None:
    environment = {
        "AWS_ENDPOINT": "http://store:9000",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "found by boto3",
        "AWS_REGION": "found by boto3",
        "AWS_ENDPOINT_URL": "found by boto3",
        "AWS_SKIP_SIGNATURE": "true",
        "HOME": "/",
    }
    assert read_options({}, environment) == AwsOptions(endpoint="http://store:9000", skip_signature=True)
    assert read_options({"endpoint": "https://other"}, environment).endpoint == "https://other"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"aws_access_key_id": "k"}, "without its secret"),
        ({"secret_access_key": "s"}, "without its secret"),
        ({"aws_endpoint": "http://store:9000"}, "no TLS"),
        ({"aws_endpoint": "http://store:9000", "allow_http": "no"}, "no TLS"),
        ({"aws_endpoint": "https://me:a2V5@store:9000"}, "names a user"),
        ({"endpoint_url_s3": "http://me:a2V5@store:9000"}, "names a user"),
        ({"aws_virtual_hosted_style_request": "maybe"}, "neither true nor false"),
        ({"timeout": "soon"}, "not a duration"),
        ({"timeout": "0s"}, "not a duration"),
        ({"timeout": "3h"}, "not a duration"),
        ({"client_max_retries": "-1"}, "not a number"),
        ({"aws_sse_customer_key_base64": "a2V5"}, "customer's key"),
    ],
)
def test_what_can_not_be_used_is_said(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidError, match=says) as refused:
        read_options(options, {})
    assert "a2V5" not in str(refused.value)


def test_credentials_do_not_come_into_a_log() -> None:
    shown = repr(READ)
    assert "eu-central-1" in shown
    assert not any(word in shown for word in ("key", "secret", "token"))
