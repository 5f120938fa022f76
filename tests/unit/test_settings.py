"""Settings come from four places in a fixed order; errors name the place; secrets are never printed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lakefold.console.settings import MOST_FILE_BYTES, Settings, read_settings
from lakefold.errors import SettingError
from lakefold.local.broker import Broker
from lakefold.local.home import known_broker, nearest_broker, remember
from lakefold_table.uri import canonical


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keeps the user's environment variables and folder out of the tests."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"LAKEFOLD_{name.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)


def write(folder: Path, text: str) -> Path:
    path = folder / "lakefold.toml"
    path.write_text(text)
    return path


def test_the_defaults_are_those_that_outsiders_rely_on(tmp_path: Path) -> None:
    settings = read_settings({})
    assert settings.transactions_topic == "lakefold.transactions"
    assert settings.outcomes_topic == "lakefold.outcomes"
    assert settings.dead_letters_topic == "lakefold.dead-letters"
    assert settings.partitions is None
    assert settings.group == "lakefold"
    assert settings.roots == (canonical(tmp_path),)
    assert settings.storage_options == {}
    assert settings.http_port == 8080


def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(tmp_path, 'group = "file"\nhttp_port = 1\ntransactions_topic = "file"\n')
    monkeypatch.setenv("LAKEFOLD_GROUP", "variable")
    monkeypatch.setenv("LAKEFOLD_HTTP_PORT", "2")
    settings = read_settings({"group": "flag"}, config)
    assert (settings.group, settings.http_port, settings.transactions_topic) == ("flag", 2, "file")
    assert settings.outcomes_topic == "lakefold.outcomes"


def test_a_settings_file_is_a_file_of_a_bounded_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(SettingError, match="not a regular file") as caught:
            read_settings({}, path)
        assert caught.value.where == str(path)
        assert caught.value.hint
    comment = "#" * (MOST_FILE_BYTES - 1) + "\n"
    assert read_settings({}, write(tmp_path, comment)) == read_settings({})
    with pytest.raises(SettingError, match="is not TOML"):
        read_settings({}, write(tmp_path, "a = " + "[" * 100_000))
    with pytest.raises(SettingError, match="larger than 1,048,576 bytes"):
        read_settings({}, write(tmp_path, comment + 'group = "x"'))


def test_options_of_kafka_are_merged_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(
        tmp_path, '[kafka]\n"linger.ms" = 1\n"a" = "file"\n"b" = "file"\n"c" = "file"\n"d" = "file"\n'
    )
    monkeypatch.setenv("LAKEFOLD_KAFKA", '{"a": "json", "b": "json", "c": "json"}')
    monkeypatch.setenv("LAKEFOLD_KAFKA__B", "variable")
    monkeypatch.setenv("LAKEFOLD_KAFKA__SASL_PASSWORD", "x")
    settings = read_settings({"kafka": ("a=flag=with=equals",)}, config)
    assert settings.kafka == {
        "linger.ms": "1",
        "a": "flag=with=equals",
        "b": "variable",
        "c": "json",
        "d": "file",
        "sasl.password": "x",
    }


def test_dots_in_toml_need_no_quotes_and_values_become_texts(tmp_path: Path) -> None:
    config = write(tmp_path, '[kafka]\nsecurity.protocol = "SSL"\nssl.verify = true\nlinger.ms = 5\n')
    options = {"security.protocol": "SSL", "ssl.verify": "true", "linger.ms": "5"}
    assert read_settings({}, config).kafka == options


def test_storage_options_come_from_single_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEFOLD_STORAGE_OPTIONS__AWS_REGION", "eu-west-1")
    assert read_settings({}).storage_options == {"aws_region": "eu-west-1"}


@pytest.mark.parametrize(
    ("given", "meant"),
    [("0,2,4-7", (0, 2, 4, 5, 6, 7)), ("3", (3,)), ("", None), ("2,1-2", (1, 2)), ([1], (1,))],
)
def test_partitions_are_a_list_with_ranges(given: object, meant: tuple[int, ...] | None) -> None:
    assert read_settings({"partitions": given}).partitions == meant


def test_roots_are_made_canonical() -> None:
    roots = read_settings({"roots": "S3A://Lake/x/, s3://lake/y"}).roots
    assert roots == ("s3://lake/x", "s3://lake/y")
    assert read_settings({"roots": ["s3://lake/a,b"]}).roots == ("s3://lake/a,b",)
    assert read_settings({"roots": '["s3://lake/a,b", "file:///c"]'}).roots == ("s3://lake/a,b", "file:///c")


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("http_port", "99999", "http_port: .*65535, not '99999'"),
        ("http_port", "web", "http_port: .*integer.*, not 'web'"),
        ("group_max_entries", "0", "group_max_entries: .*greater than or equal to 1"),
        (
            "transactions_topic",
            "no spaces",
            "transactions_topic: a topic's name consists of .*, not 'no spaces'",
        ),
        ("bootstrap_servers", "a:1,b:99999", "bootstrap_servers: 'b:99999' has no port between 1 and 65535"),
        ("partitions", "3-1", "partitions: '3-1' ends before it begins"),
        ("partitions", "0-99999999999", "partitions: '0-99999999999' has more than 100,000 partitions"),
        (
            "partitions",
            "1-x",
            "partitions: '1-x' is not a partition, a range such as 4-7, ordinal/N, all or shared",
        ),
        ("roots", "s3://lake/../x", "roots: "),
        ("roots", '["s3://lake/x", ', r"roots: it begins with \[ and is not a JSON list"),
    ],
)
def test_a_wrong_value_is_named_with_its_source(
    name: str, value: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(tmp_path, f"{name} = {json.dumps(value)}\n")
    with pytest.raises(SettingError, match=complaint) as from_file:
        read_settings({}, config)
    assert from_file.value.where == f"{config}: {name}"
    monkeypatch.setenv(f"LAKEFOLD_{name.upper()}", value)
    with pytest.raises(SettingError, match=complaint) as from_variable:
        read_settings({}, config)
    assert from_variable.value.where == f"environment variable LAKEFOLD_{name.upper()}"
    with pytest.raises(SettingError, match=complaint) as from_flag:
        read_settings({name: value}, config)
    assert from_flag.value.where == f"--{name.replace('_', '-')}"
    assert from_flag.value.exit_code == 2


def test_an_unknown_name_in_the_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="there is no setting htp_port") as caught:
        read_settings({}, write(tmp_path, "htp_port = 1\n"))
    assert caught.value.where.endswith("lakefold.toml: htp_port")


@pytest.mark.parametrize(("text", "complaint"), [("group =", "not TOML"), (None, "can't be read")])
def test_a_file_that_cannot_be_read_is_named(text: str | None, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "other.toml" if text is None else write(tmp_path, text)
    with pytest.raises(SettingError, match=complaint) as caught:
        read_settings({}, path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (("security.protocol",), "KEY=VALUE"),
        ("{", "not a JSON object"),
        ("[1]", "KEY=VALUE"),
        (7, "not a table"),
        (("bootstrap.servers=a:1",), "bootstrap_servers"),
    ],
)
def test_options_that_are_none_are_refused(value: object, complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint) as caught:
        read_settings({"kafka": value})
    assert caught.value.where == "--kafka"


def test_no_secret_is_printed() -> None:
    secrets = {
        "kafka": {
            "sasl.password": "hush1",
            "sasl.username": "hush2",
            "ssl.key.pem": "hush3",
            "sasl.jaas.config": "hush4",
            "ssl.keystore.password": "hush5",
        },
        "storage_options": {
            "aws_secret_access_key": "hush6",
            "aws_session_token": "hush7",
            "account_key": "hush8",
            "aws_endpoint": "http://user:hush9@store:9000",
        },
        "bootstrap_servers": "sasl://user:hush10@broker:9092",
    }
    settings = read_settings({**secrets, "group": "shown"})
    printed = json.dumps(settings.printable()) + repr(settings) + str(settings)
    assert "hush" not in printed
    assert printed.count("shown") == 3
    assert "store:9000" in printed
    assert settings.kafka["sasl.password"] == "hush1"


def test_an_error_prints_no_secret() -> None:
    with pytest.raises(SettingError) as caught:
        read_settings({"kafka": {"sasl.password": "hush", "bootstrap.servers": "hush"}})
    assert "hush" not in str(caught.value)


def test_without_brokers_the_error_says_how_to_get_them() -> None:
    with pytest.raises(SettingError, match="lakefold up") as caught:
        read_settings({}).brokers()
    assert caught.value.exit_code == 2
    assert read_settings({"bootstrap_servers": "a:1,b:2"}).brokers() == "a:1,b:2"


def test_the_local_broker_of_this_folder_is_the_default(tmp_path: Path) -> None:
    home = tmp_path / ".lakefold"
    (home / "broker").mkdir(parents=True)
    (home / "broker.json").write_text('{"folder": "broker"}')
    (home / "broker" / "ports.json").write_text('{"port": 4711, "controller_port": 4712}')
    assert read_settings({}).brokers() == "127.0.0.1:4711"


def test_a_folder_finds_the_broker_of_the_nearest_folder_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "tables" / "raw"
    below.mkdir(parents=True)
    remember(Broker(tmp_path / "away"), tmp_path)
    monkeypatch.chdir(below)
    nearest = nearest_broker()
    assert nearest is not None
    assert nearest.directory == tmp_path / "away"
    assert known_broker() is None  # so `up` starts one of this folder, and `down` stops no other


def test_a_broker_that_another_user_recorded_above_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "mine"
    below.mkdir()
    remember(Broker(tmp_path / "away"), tmp_path)
    monkeypatch.chdir(below)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert nearest_broker() is None
