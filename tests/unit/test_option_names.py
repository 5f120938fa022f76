"""An unknown storage option is reported once, with the most similar name; known options are not."""

from __future__ import annotations

import logging

import pytest
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from lakefold_table.storage import open_storage, option_names
from lakefold_table.storage.aws_options import read_options
from lakefold_table.storage.option_names import is_known, nearest, warn_unknown

# Known to Lance clients or to us, under no name of obstore's own.
OURS = {"profile", "client_max_retries", "client_retry_timeout", "request_timeout", "storage_token"}


def is_obstores(name: str) -> bool:
    """Whether one of the clients that Lance is built on takes an option of this name."""
    for store in (S3Store, AzureStore, GCSStore):
        try:
            store("probe", config={name: "1"})  # type: ignore[arg-type] # what is known is the question
        except exceptions.UnknownConfigurationKeyError:
            continue
        except exceptions.BaseError:
            return True
        return True
    return False


@pytest.mark.parametrize("prefix", [prefix for prefix in option_names._BY_PREFIX if prefix])
def test_the_names_are_those_of_the_client_below_lance(prefix: str) -> None:
    """Each with its prefix or without: the client itself isn't consistent there."""
    names = option_names._BY_PREFIX[prefix] - OURS
    assert [name for name in sorted(names) if not (is_obstores(prefix + name) or is_obstores(name))] == []


@pytest.mark.parametrize(
    "name",
    [
        "aws_region",
        "REGION",
        "AWS_Endpoint_URL",
        "allow_http",
        "aws_allow_http",
        "client_max_retries",
        "dynamodb_endpoint",
        "azure_storage_account_name",
        "account_key",
        "google_service_account",
        "timeout",
        "profile",
        "aws_profile",
        "oss_endpoint",
        "headers.x",
        "google_storage_token",
        "aws_token",
    ],
)
def test_what_somebody_knows(name: str) -> None:
    assert is_known(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("aws_regoin", "aws_region"),
        ("regoin", "region"),
        ("AWS_SECRET_ACESS_KEY", "aws_secret_access_key"),
        ("alow_http", "allow_http"),
        ("awz_region", "region"),
        ("azure_storage_acount_name", "azure_storage_account_name"),
        ("aws_endpont", "aws_endpoint"),
        ("nonsense", ""),
    ],
)
def test_the_most_similar_name_is_suggested(name: str, meant: str) -> None:
    assert not is_known(name)
    assert nearest(name) == meant


def test_every_name_that_is_read_here_is_known() -> None:
    names = read_options.__globals__["_NAMES"]
    assert [name for name in names if not (is_known(name) and is_known(f"aws_{name}"))] == []


def test_it_is_logged_once_and_never_with_a_value(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(option_names, "_warned", set())
    options = {"aws_regoin": "s3cr3t", "aws_region": "x", "other": "s3cr3t"}
    with caplog.at_level(logging.WARNING):
        open_storage("memory://listed", options)
        assert not caplog.messages
        for _ in range(2):
            open_storage("s3://lake/listed", {**options, "aws_endpoint": "https://nowhere"})
        warn_unknown(options)
    text = "neither Lakefold nor Lance knows the storage option"
    assert caplog.messages == [f"{text} aws_regoin; did you mean aws_region?", f"{text} other"]
