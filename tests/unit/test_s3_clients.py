"""Clients of S3: one for each set of options in a process, addressed as the options say; nothing is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from botocore.loaders import JSONFileLoader

from lakefold_table.errors import InvalidError
from lakefold_table.storage import open_storage
from lakefold_table.storage.s3 import S3Storage

if TYPE_CHECKING:
    from pathlib import Path

KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}


@pytest.fixture(autouse=True)
def no_settings_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def address(store: S3Storage) -> str:
    """Returns the address of an object's request."""
    url: str = store._patient.generate_presigned_url("get_object", {"Bucket": store._bucket, "Key": "k"})
    return url.partition("?")[0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "https://lake.s3.amazonaws.com/k"),
        ({"endpoint": "https://store:9000"}, "https://store:9000/lake/k"),
        (
            {"endpoint": "https://lake.store:9000", "virtual_hosted_style_request": "true"},
            "https://lake.store:9000/k",
        ),
        (
            {"endpoint": "https://store:9000", "virtual_hosted_style_request": "true"},
            "https://lake.store:9000/k",
        ),
    ],
)
def test_a_bucket_is_addressed_as_the_options_say(options: dict[str, str], expected: str) -> None:
    assert address(S3Storage("s3://lake/t", {**KEYS, **options})) == expected


def test_the_description_of_a_service_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    S3Storage("s3://lake/t", {**KEYS, "endpoint": "https://first:9000"})
    read: list[str] = []
    monkeypatch.setattr(JSONFileLoader, "load_file", lambda _, path: read.append(path))
    S3Storage("s3://lake/t", {**KEYS, "endpoint": "https://second:9000"})
    assert read == []


def test_a_region_is_used_and_there_is_a_default() -> None:
    assert S3Storage("s3://lake/t", {**KEYS, "region": "eu-west-1"})._once.meta.region_name == "eu-west-1"
    assert S3Storage("s3://lake/t", KEYS)._once.meta.region_name == "us-east-1"


def test_tables_share_clients_and_other_options_get_others() -> None:
    storage, other = S3Storage("s3://lake/a", KEYS), S3Storage("s3a://Lake/b/", dict(KEYS))
    assert (storage._once, storage._patient) == (other._once, other._patient)
    assert storage._once is not storage._patient
    assert other.uri == "s3://lake/b"
    assert S3Storage("s3://lake/a", {**KEYS, "region": "eu-west-1"})._once is not storage._once


def test_the_put_of_a_version_is_sent_once_whatever_the_settings() -> None:
    store = S3Storage("s3://lake/a", {**KEYS, "client_max_retries": "9"})
    once, patient = (client.meta.config for client in (store._once, store._patient))
    assert getattr(once, "retries")["total_max_attempts"] == 1  # noqa: B009 - set by boto3 as it runs
    assert getattr(patient, "retries")["total_max_attempts"] == 10  # noqa: B009 - as above


def test_a_missing_profile_is_reported() -> None:
    with pytest.raises(InvalidError, match="nobody") as refused:
        open_storage("s3://lake/a", {"profile": "nobody"})
    assert "profile" in refused.value.hint


def test_a_profile_brings_its_credentials_and_options_go_before_it(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("[lake]\naws_access_key_id=mine\naws_secret_access_key=s\n")
    (tmp_path / "config").write_text("[profile lake]\nregion=eu-north-1\n")
    client = S3Storage("s3://lake/t", {"aws_profile": "lake"})._once
    assert client.meta.region_name == "eu-north-1"
    assert signer_of(client) == "mine"
    client = S3Storage("s3://lake/t", {"profile": "lake", "region": "eu-west-1", **KEYS})._once
    assert client.meta.region_name == "eu-west-1"
    assert signer_of(client) == "key"


def signer_of(client: object) -> str:
    """Whose key a client signs with."""
    credentials = getattr(client, "_get_credentials")()  # noqa: B009 - boto3's own, and not in its types
    return str(credentials.access_key)


def test_no_credentials_at_all_is_said() -> None:
    with pytest.raises(InvalidError, match="credentials"):
        open_storage("s3://lake/a", {"endpoint": "https://127.0.0.1:1"}).put_if_absent("v", [b"x"])


def test_other_uris_are_refused() -> None:
    for uri in ("file:///x", "memory://a/b", "s3+ddb://lake/t?ddbTableName=T"):
        with pytest.raises(InvalidError, match="not a plain S3 store"):
            S3Storage(uri)


def test_without_boto3_the_extra_is_named_and_other_stores_work(tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["boto3"] = None
from lakefold_table.storage import open_storage
open_storage({str(tmp_path)!r}).put("x", [b"x"])
assert "botocore" not in sys.modules
try:
    open_storage("s3://lake/t")
except Exception as error:
    print(type(error).__name__, error)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "InvalidError" in done.stdout
    assert "boto3" in done.stdout
    assert "pip install 'lakefold[s3]'" in done.stdout
