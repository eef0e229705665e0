import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from testbeds.boxes import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.alone, pytest.mark.timeout(300)]

USER = "paceline-test"
CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def ordinary_user() -> Iterator[str]:
    if os.geteuid() != 0:
        pytest.skip("only root can make a user")
    _remove_user()
    subprocess.run(["useradd", "--create-home", USER], check=True, timeout=30)
    try:
        yield USER
    finally:
        user = pwd.getpwnam(USER).pw_uid
        for pid in _processes_of([user]):  # a session that was cut off leaves its testbed
            with suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
        wait_until(lambda: _processes_of([user]) == [], "the user has no process")
        _remove_user()


def _remove_user() -> None:
    command = ["userdel", "--remove", USER]
    done = subprocess.run(command, check=False, timeout=30, capture_output=True, text=True)
    assert done.returncode in (0, 6), done.stderr  # 6: there is no such user


# Where nothing has opened the device to all users, as udev does, one of the test's own.
OPEN_TUN = """
if [ "$(stat -c %a /dev/net/tun)" != 666 ]; then
  mknod -m 666 /dev/paceline-test-tun c 10 200
  mount --bind /dev/paceline-test-tun /dev/net/tun
  rm /dev/paceline-test-tun
fi"""


@pytest.fixture
def reachable_checkout() -> Iterator[Path]:
    """A folder that anybody can open; the test binds the checkout to it, for itself alone."""
    with tempfile.TemporaryDirectory(prefix="paceline-checkout-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def as_user(user: str, checkout: Path, *words: str) -> str:
    """Run Python as an ordinary user who sees the checkout, and return what it prints."""
    python = checkout / Path(sys.executable).relative_to(CHECKOUT)
    environment = [
        f"PYTHONPATH={checkout}/src:{checkout}/tests",
        "PATH=/usr/local/bin:/usr/bin:/bin",
    ]
    change_user = ["runuser", "-u", user, "--", "env", "-i", *environment]
    folder = pwd.getpwnam(user).pw_dir
    home = [f"HOME={folder}", f"TORCHINDUCTOR_CACHE_DIR={folder}/compiled"]
    bind = f'{OPEN_TUN} && mount --bind "$0" "$1" && shift && exec "$@"'
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c", bind, str(CHECKOUT), str(checkout)),
            *(*change_user, *home, f"USER={user}", str(python), *words),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_ordinary_user_has_a_testbed(ordinary_user: str, reachable_checkout: Path) -> None:
    session = reachable_checkout / "tests/testbeds/rootless_session.py"
    found = json.loads(as_user(ordinary_user, reachable_checkout, str(session)))
    print(f"4 nodes were up without root in {found['seconds']:.2f} s")
    assert found["missing"] == []
    assert found["rootless"] is True
    assert found["hosts"] == ["n1", "n2", "n3", "n4"]
    assert found["seconds"] < 20
    assert found["as"] == "0"
    assert (found["run"]["status"], found["run"]["steps"]) == ("finished", 4)
    assert sorted(found["run"]["hosts"]) == ["n1", "n2", "n3", "n4"]
    assert found["owner"] == found["user"] == pwd.getpwnam(ordinary_user).pw_uid
    assert not Path(f"/tmp/paceline-{found['user']}").exists()
    own_and_sub_ids = (found["user"], *range(100_000, 100_000 + 2 * 65_536))
    wait_until(lambda: _processes_of(own_and_sub_ids) == [], "no process is left")


@pytest.mark.nightly
def test_an_ordinary_user_has_slurms_accounting(
    ordinary_user: str, reachable_checkout: Path
) -> None:
    """MariaDB and slurmdbd refuse to run as root, unless they are told."""
    program = """
import os, subprocess
from paceline import testbed
os.chdir(os.environ["HOME"])
testbed.up(testbed.TestbedSpec(name="rootless", accounting=True))
try:
    command = [*testbed.command_prefix("rootless"), "sacctmgr", "-nP", "show", "assoc",
               "where", "user=root", "format=Account,QOS"]
    subprocess.run(command, env=os.environ | testbed.environment("rootless"), check=True)
finally:
    testbed.down("rootless")
"""
    said = as_user(ordinary_user, reachable_checkout, "-c", program)
    assert said.splitlines() == ["biology|scavenge", "physics|debug,normal"]


def _processes_of(users: Sequence[int]) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.uids().real in users:
                found.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found
