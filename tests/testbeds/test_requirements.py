import os
import subprocess
from pathlib import Path

import pytest

from paceline.specs.errors import PacelineError
from paceline.testbed import Missing, missing, requirements
from paceline.testbed.requirements import require

MACHINE_HAS_ALL: list[Missing] = []


@pytest.fixture
def ordinary_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The checks as an ordinary user meets them, with settings in a folder of the test."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr(requirements, "_ETC", tmp_path)
    monkeypatch.setattr(requirements, "_SYSCTLS", tmp_path)
    monkeypatch.setattr(requirements, "_missing_in_a_trial", lambda: MACHINE_HAS_ALL)
    for kind in ("uid", "gid"):
        (tmp_path / f"sub{kind}").write_text("ada:100000:65536\nbob:165536:65536\n")
    return tmp_path


@pytest.mark.slurm
def test_this_machine_has_all() -> None:
    assert missing() == MACHINE_HAS_ALL


def test_programs_are_named_with_the_packages_that_have_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(requirements, "search_path", lambda: str(tmp_path))
    lacking = {each.what: each.fix for each in missing()}
    assert (
        lacking["the program slurmd is not installed"]
        == "sudo apt install slurmd   (Fedora, RHEL: sudo dnf install slurm-slurmd)"
    )
    assert "iproute-tc" in lacking["the program tc is not installed"]
    with pytest.raises(PacelineError, match=r"slurmctld is not installed(.|\n)*apt install munge"):
        require(delay=False)
    assert not any("slurmdbd" in each for each in lacking)
    wanted = {each.what: each.fix for each in missing(accounting=True)}
    assert "apt install mariadb-server" in wanted["the program mariadbd is not installed"]


def test_an_ordinary_user_with_all(ordinary_user: Path) -> None:
    assert missing() == MACHINE_HAS_ALL


@pytest.mark.parametrize(
    ("setting", "refusing", "fix"),
    [
        ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
        ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_settings_that_refuse_namespaces(
    ordinary_user: Path, setting: str, refusing: str, fix: str
) -> None:
    path = ordinary_user / setting
    path.parent.mkdir()
    path.write_text(f"{refusing}\n")
    [lacking] = missing()
    assert "refuses user namespaces" in lacking.what
    assert lacking.fix == f"sudo {fix}"


def test_sub_ids_that_are_free_are_proposed(ordinary_user: Path) -> None:
    (ordinary_user / "subuid").write_text("bob:165536:65536\n")
    (ordinary_user / "subgid").unlink()
    assert [each.fix for each in missing()] == [
        "sudo usermod --add-subuids 231072-296607 ada",
        "sudo usermod --add-subgids 100000-165535 ada",
    ]


def test_the_tun_device_is_wanted_only_for_delay(
    ordinary_user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: path != "/dev/net/tun" and real_access(path, mode)
    )
    require(delay=False)
    with pytest.raises(PacelineError, match=r"/dev/net/tun(.|\n)*modprobe tun"):
        require(delay=True)


@pytest.mark.parametrize(
    ("returncode", "output", "complaint", "fix"),
    [
        (1, "", "unshare: unrecognized option '--map-auto'", "util-linux 2.38"),
        (1, "", "unshare: unshare failed: Operation not permitted", "--privileged"),
        (0, "veth\n", "", "sudo modprobe veth"),
    ],
)
def test_what_a_trial_shows(
    monkeypatch: pytest.MonkeyPatch, returncode: int, output: str, complaint: str, fix: str
) -> None:
    answer = subprocess.CompletedProcess(["unshare"], returncode, output, complaint)
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: answer)
    monkeypatch.setattr(requirements, "_missing_programs", lambda programs: [])
    assert [each for each in missing() if fix in each.fix]
