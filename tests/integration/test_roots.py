"""A committer checks its roots when it starts: on a real broker and a real S3 server."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from lakefold_table.uri import canonical
from tests.integration.committers import committer_arguments, running_committer
from tests.integration.copies import command_line
from tests.integration.own_log import OwnLog
from tests.integration.stage import Stage
from tests.proposals import creation
from tests.servers.s3 import BUCKET, S3Server
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import TopicNames


def options(s3: S3Server, **more: str) -> list[str]:
    """The storage options as flags."""
    return [
        part for key, value in s3.options(**more).items() for part in ("--storage-option", f"{key}={value}")
    ]


@pytest.mark.parametrize(
    ("root", "more", "code", "message"),
    [
        (f"s3://{BUCKET}/roots", {}, 0, ""),
        (f"s3+ddb://{BUCKET}/roots", {}, 0, ""),
        ("s3://lakefold-no-such/roots", {}, 2, "create the bucket, or check its name and the endpoint"),
        ("s3+ddb://lakefold-no-such/roots", {}, 2, "create the bucket, or check its name and the endpoint"),
        (f"s3://{BUCKET}/roots", {"aws_secret_access_key": "wrong"}, 2, "check aws_secret_access_key"),
        (
            f"s3://{BUCKET}",
            {"aws_endpoint": "http://127.0.0.1:1", "client_max_retries": "0"},
            5,
            "can't be reached",
        ),
        ("not-there-yet", {}, 0, "root does not exist yet"),
        ("/dev/null", {}, 2, "a part of this path is a file"),
    ],
)
def test_work_that_has_an_end_needs_its_roots(
    s3: S3Server,
    root: str,
    more: dict[str, str],
    code: int,
    message: str,
    topic_names: TopicNames,
    bootstrap: str,
    tmp_path: Path,
) -> None:
    if root == "not-there-yet":
        root = str(tmp_path / root)
    arguments = committer_arguments(bootstrap, topic_names, root)
    arguments += ["--http-port", "0", "--until-caught-up", "--json", *options(s3, **more)]
    done = command_line().run(arguments, timeout=240)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    if code:
        error = json.loads(done.stdout)["error"]
        assert error["exit_code"] == code
        assert error["where"]


def test_a_missing_root_is_reported_and_delays_no_table_of_another(
    s3: S3Server, topic_names: TopicNames, bootstrap: str, tmp_path: Path
) -> None:
    stage = Stage(bootstrap, topic_names, OwnLog.make(bootstrap, topic_names), tmp_path)
    stage.send(creation(stage.uri))
    bucket = f"made-{time.time_ns()}"
    more = ["--root", f"s3://{bucket}/t", *options(s3)]
    with running_committer(bootstrap, topic_names, tmp_path, *more) as committer:
        versions = stage.path / "_versions"
        until(lambda: list(versions.glob("*.manifest")), "the table of the other root", seconds=120)
        until(lambda: bucket in committer.get("/readyz")[1], "the missing bucket to be reported", seconds=120)
        code, text = committer.get("/readyz")
        assert (code, text.startswith(f"root s3://{bucket}/t: ")) == (503, True), text
        assert "create the bucket" in text
        s3.make_bucket(bucket)
        committer.wait_until_ready()
        assert committer.stop() == 0
    # Before the log begins, the command line warns of secrets that are given as flags.
    lines = [json.loads(line) for line in committer.log.read_text().splitlines() if line.startswith("{")]
    values = [line for line in lines if line["event"].startswith("root ")]
    assert (values[0]["event"], values[0]["level"]) == ("root not usable", "warning")
    assert values[-1]["event"] == "root usable"
    assert {line["root"] for line in values} == {f"s3://{bucket}/t"}
    assert canonical(tmp_path) not in {line["root"] for line in values}
