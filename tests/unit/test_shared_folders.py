"""With the setting `umask`, a writer with another user id of the same group can write beside a committer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lakefold.console.settings import Settings, read_settings
from lakefold.errors import SettingError
from lakefold_log.read.file_log import framed
from tests.proposals import creation

COMMITTER, WRITER, GROUP = 40_001, 40_002, 40_100

PROGRAM = """
import os, sys
from pathlib import Path
from lakefold import cli

root, committer, writer, group = sys.argv[1], *map(int, sys.argv[2:5])

def folded(name):
    return lambda: cli.run(["fold", f"{root}/{name}", f"{root}/{name}.bin"])

def written():
    os.umask(0o002)
    data = Path(root, "table", "data")
    data.mkdir()
    (data / "new.lance").write_bytes(b"")
    return 0

def removed():
    Path(root, "table", "data", "new.lance").unlink()
    return 0

def as_user(user, act):
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
            code = act()
        except PermissionError as error:
            print(error, file=sys.stderr)
            code = 13
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

# What is imported here needn't be readable for the two users.
assert folded("first")() == 0
os.umask(0o022)
print(as_user(committer, folded("table")), as_user(writer, written), as_user(committer, removed))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@pytest.mark.parametrize(("umask", "codes"), [("002", "0 0 0"), ("", "0 13 99")], ids=["set", "not set"])
def test_two_users_of_a_group_share_a_table(umask: str, codes: str) -> None:
    with TemporaryDirectory(prefix="lakefold-") as folder:
        # As Kubernetes does with fsGroup: new folders belong to the group of the root.
        root = Path(folder)
        os.chown(root, COMMITTER, GROUP)
        root.chmod(0o2775)
        for name in ("first", "table"):
            (root / f"{name}.bin").write_bytes(framed([creation((root / name).as_uri())]))
        arguments = [folder, str(COMMITTER), str(WRITER), str(GROUP)]
        environment = {**os.environ, "LAKEFOLD_UMASK": umask, "LAKEFOLD_ROOTS": root.as_uri()}
        environment.pop("LAKEFOLD_UMASK") if not umask else None
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
            cwd=folder,
            timeout=120,
        )
        assert done.stdout.splitlines()[-1] == codes, done.stderr


def test_a_umask_is_three_octal_digits() -> None:
    assert read_settings({"umask": "0027"}).umask == "0027"
    assert Settings().umask is None
    for wrong in ("2", "888", "0o02", "rwx"):
        with pytest.raises(SettingError, match="three octal digits"):
            read_settings({"umask": wrong})
