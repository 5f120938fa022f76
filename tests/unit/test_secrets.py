"""A secret that was given in a wrong setting, or beside a wrong word, is printed nowhere."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest
import structlog

from lakefold.cli import run
from lakefold.console.masking import masked
from lakefold.console.settings import read_settings, variable_of
from lakefold_log.client.admin import KafkaConfig
from lakefold_table.errors import InvalidError
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SECRET = "s3cr3t-a7"  # noqa: S105 - nobody's
PRINT = ("committer", "--print-config", "--json")
LOGIN = f"s3://key:{SECRET}@lake/flights"
NOWHERE = ("--bootstrap-servers", "127.0.0.1:1")

OPTIONS = [
    "sasl.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
]
STORAGE = [
    "aws_secret_access_key",
    "aws_session_token",
    "azure_storage_account_key",
    "azure_storage_sas_key",
    "connection_string",
    "google_service_account_key",
]


@pytest.fixture(autouse=True)
def logs_of_its_own() -> Iterator[None]:
    """A command line has the process log to a stream that is closed after the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def check(words: Sequence[str], code: int, capfd: pytest.CaptureFixture[str]) -> str:
    """Runs a command line that ends so; gives what it printed, which doesn't hold the secret."""
    assert run(words) == code
    out, err = capfd.readouterr()
    assert SECRET not in out + err
    return f"{out}{err}"


@pytest.mark.parametrize("option", OPTIONS)
def test_options_of_kafka_are_masked(option: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert f'"{option}": "***"' in check([*PRINT, "--kafka", f"{option}={SECRET}"], 0, capfd)


@pytest.mark.parametrize("option", STORAGE)
def test_options_of_the_store_are_masked(option: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert f'"{option}": "***"' in check([*PRINT, "--storage-option", f"{option}={SECRET}"], 0, capfd)


@pytest.mark.parametrize("option", STORAGE)
def test_options_of_the_store_are_masked_in_a_sentence(option: str) -> None:
    for text in (f"wrong {option}={SECRET}, try again", f"{{'{option}': '{SECRET}'}}"):
        assert SECRET not in masked(text)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([*PRINT, "--kafka", SECRET], 2),
        ([*PRINT, "--root", LOGIN], 2),
        (["show", LOGIN, "--json"], 2),
        (["status", "--bootstrap-servers", f"user:{SECRET}@127.0.0.1:1"], 2),
        (["status", "--bootstrap-servers", f"SASL_SSL://user:{SECRET}@127.0.0.1:1", "--json"], 2),
        (["status", *NOWHERE, "--kafka", f"sasl.pasword={SECRET}"], 2),
        (["status", *NOWHERE, "--kafka", "security.protocol=SSL", "--kafka", f"ssl.key.pem={SECRET}"], 2),
        (["status", *NOWHERE, "--kafka", f"sasl.jaas.config=x password={SECRET}"], 2),
    ],
)
def test_a_wrong_command_line_is_reported_without_it(
    words: list[str], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "hint" in check(words, code, capfd).lower() or words[-2] == "--kafka"


@pytest.mark.parametrize(
    "text", [f'{{"sasl.password": "{SECRET}"', f"sasl.password={SECRET}", f'["{SECRET}"]']
)
def test_a_wrong_variable_is_reported_without_it(
    text: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKEFOLD_KAFKA", text)
    assert "LAKEFOLD_KAFKA" in check(PRINT, 2, capfd)


@pytest.mark.parametrize(
    "text",
    [f'[kafka]\nsasl.password = "{SECRET}', f'sasl_password = "{SECRET}"', f'kafka = "{SECRET}"'],
)
def test_a_wrong_file_is_reported_without_it(
    text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "settings.toml").write_text(text)
    assert "settings.toml" in check([*PRINT, "--config", str(tmp_path / "settings.toml")], 2, capfd)


def test_a_login_is_no_part_of_a_name_and_is_in_no_error() -> None:
    with pytest.raises(InvalidError) as table:
        canonical(LOGIN)
    with pytest.raises(InvalidError) as brokers:
        KafkaConfig(f"user:{SECRET}@broker:9092", {"sasl.password": SECRET})
    assert SECRET not in f"{table.value!r} {brokers.value!r}"
    assert "storage options" in table.value.hint
    assert "sasl.password" in brokers.value.hint


@pytest.mark.parametrize(
    ("flags", "variable"),
    [
        (("--kafka", f"sasl.password={SECRET}"), "LAKEFOLD_KAFKA__SASL_PASSWORD"),
        (("--kafka", f"ssl.key.password={SECRET}"), "LAKEFOLD_KAFKA__SSL_KEY_PASSWORD"),
        (
            ("--storage-option", f"aws_secret_access_key={SECRET}"),
            "LAKEFOLD_STORAGE_OPTIONS__AWS_SECRET_ACCESS_KEY",
        ),
        (("--kafka", "security.protocol=SSL"), ""),
    ],
)
def test_a_secret_given_as_a_flag_is_warned_of_with_the_variable_to_set(
    flags: tuple[str, str], variable: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*PRINT, *flags]) == 0
    out, err = capfd.readouterr()
    assert SECRET not in out + err
    assert ("process list" in err) == bool(variable)
    assert variable in err


def test_the_warning_of_a_secret_is_a_line_of_the_log_like_any_other(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run(["--log-format", "json", *PRINT, "--kafka", f"sasl.password={SECRET}"]) == 0
    (line,) = map(json.loads, capfd.readouterr().err.splitlines())
    assert (line["level"], line["flag"], line["option"]) == ("warning", "--kafka", "sasl.password")
    assert "LAKEFOLD_KAFKA__SASL_PASSWORD" in line["hint"]


def test_the_variable_that_a_warning_names_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, option in (("kafka", "sasl.password"), ("storage_options", "aws_session_token")):
        monkeypatch.setenv(variable_of(setting, option), SECRET)
        assert getattr(read_settings({}), setting) == {option: SECRET}
