"""`paceline submit` on a real Slurm: the way of a user's training onto four nodes."""

import re
from datetime import datetime
from pathlib import Path

import pytest

from command import EXAMPLES, paceline, paceline_json, write_training

pytestmark = pytest.mark.slurm

SHORT_GPT = f"""
import dataclasses, sys
sys.path.insert(0, {str(EXAMPLES / "gpt")!r})
import train as example

def training():
    return dataclasses.replace(example.training(), steps=8)
"""


def only_run(folder: Path) -> Path:
    (run,) = (folder / "runs").iterdir()
    return run


CONTRASTIVE = """
import dataclasses
alone = training

def contrast(output, target):
    rows = F.normalize(output)
    return F.cross_entropy(rows @ rows.T, torch.arange(len(rows)))

def training():
    return dataclasses.replace(alone(), loss=contrast)
"""
"""More of a train.py: each sample's loss depends on the others in its batch."""


@pytest.mark.nightly
def test_the_gpt_example_on_four_nodes(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder, text=SHORT_GPT)
    result = paceline_json(
        *("submit", "train.py", "--nodes", "4", "--testbed", cluster, "--wait"),
        folder=shared_folder,
    )
    assert result["status"] == "finished"
    assert (result["steps"], result["workers"], result["nodes"]) == (8, 4, 4)
    assert sorted(result["hosts"]) == ["n1", "n2", "n3", "n4"]
    assert (result["backend"], result["interface"]) == ("gloo", "eth0")
    # Each node has a network of its own here: what one sends another one receives, and summing the
    # gradients takes twice what three quarters of them hold (four bytes each), of every node.
    nodes = result["usage"]["nodes"]
    assert [each["node"] for each in nodes] == ["n1", "n2", "n3", "n4"]
    sent, received = (
        sum(each[f"{way}_bytes_per_step"] for each in nodes) for way in ("sent", "received")
    )
    assert sent == pytest.approx(received, rel=0.02)
    assert sent > 0.95 * 4 * 2 * 3 / 4 * 4 * result["parameters"]
    run = only_run(shared_folder)
    assert {path.stem for path in (run / "events").iterdir()} == {"n1", "n2", "n3", "n4", "batch"}
    local = paceline_json("run", "train.py", "-n", "1", folder=shared_folder)
    assert result["final_loss"] == pytest.approx(local["final_loss"], rel=1e-5)
    assert "finished" in paceline("watch", run, folder=shared_folder).stdout
    paceline("report", run, "-o", "page.html", folder=shared_folder)
    assert "n3" in (shared_folder / "page.html").read_text()


@pytest.mark.nightly
def test_two_workers_per_node(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder)
    result = paceline_json(
        *("submit", "train.py", "--nodes", "2", "--devices", "2"),
        *("--testbed", cluster, "--wait"),
        folder=shared_folder,
    )
    assert (result["workers"], result["nodes"], result["status"]) == (4, 2, "finished")


def test_the_first_node_of_a_job_checks_the_training(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder, CONTRASTIVE)
    words = ("submit", "train.py", "--nodes", "2", "--testbed", cluster, "--wait")
    said = paceline(*words, folder=shared_folder, expect=2).stderr
    assert "worker 0 on node n1 failed: the loss of a sample depends on the others" in said
    result = paceline_json(*words, "--no-check", "--name", "unchecked", folder=shared_folder)
    assert result["status"] == "finished"


def test_without_waiting_it_says_what_to_do_next(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder)
    said = paceline("submit", "train.py", "--testbed", cluster, folder=shared_folder).stderr
    assert re.search(r"job \d+ submitted to the testbed submit-box: 1 nodes x 1 workers", said)
    run = only_run(shared_folder)
    assert f"next: paceline watch runs/{run.name}" in said
    watched = paceline("watch", run, folder=shared_folder).stdout
    assert "finished" in watched


def test_what_the_site_asks_for_reaches_slurm(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder)
    asked = ("--exclusive", "--begin", "now+1hour", "--mail", "ann@example.org")
    other = ("--scheduler-option", "--comment=trial 3", "--scheduler-option", "--nice=7")
    words = ("submit", "train.py", "--testbed", cluster, *asked, *other)
    said = paceline_json(*words, folder=shared_folder)
    job = said["job"]
    assert said["waits_for"] == "BeginTime"
    soon = datetime.fromisoformat(said["estimated_start"]) - datetime.now().astimezone()
    assert 50 < soon.total_seconds() / 60 <= 60
    head = ("testbed", "exec", "head", "--name", cluster, "--")
    shown = paceline(*head, "scontrol", "show", "job", job, folder=shared_folder).stdout
    paceline(*head, "scancel", job, folder=shared_folder)
    for each in ("OverSubscribe=NO", "Comment=trial 3", "Nice=7", "MailUser=ann@example.org"):
        assert each in shown
    assert "Reason=BeginTime" in shown


SAYS_ITS_VARIABLES = """
import os
print("seen", *(os.environ.get(name) for name in ("A", "B", "KEPT", "LOST")), flush=True)
"""


@pytest.mark.nightly
def test_setup_teardown_and_variables(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder, SAYS_ITS_VARIABLES)
    words = ("submit", "train.py", "--testbed", cluster, "--wait", "--partition", "main,short")
    said = paceline(*words, "--setup", "nosuchmodule x", folder=shared_folder, expect=1).stderr
    assert "nosuchmodule: command not found" in said
    result = paceline_json(
        *(*words, "--name", "prepared", "--setup", "export A=1  # first", "--env", "B=two words"),
        *("--keep-env", "KEPT", "--keep-env", "PYTHONPATH", "--teardown", "touch torn"),
        folder=shared_folder,
        KEPT="kept",
        LOST="lost",
    )
    assert result["status"] == "finished"
    (run,) = (shared_folder / "runs").glob("prepared-*")
    (log,) = (run / "logs").glob("n*.log")
    assert "seen 1 two words kept None" in log.read_text()
    assert (shared_folder / "torn").exists()
    assert "#SBATCH --partition=main,short\n" in (run / "job.sbatch").read_text()


def test_a_dry_run_prints_the_script_and_leaves_nothing(cluster: str, shared_folder: Path) -> None:
    write_training(shared_folder)
    script = paceline(
        *("submit", "train.py", "--nodes", "3", "--time", "1:30:00", "--memory", "600M"),
        *("--testbed", cluster, "--dry-run"),
        folder=shared_folder,
    ).stdout
    assert "#SBATCH --nodes=3\n" in script
    assert "#SBATCH --time=90 " in script
    assert "#SBATCH --mem=600M " in script
    assert "srun --no-kill --kill-on-bad-exit=0" in script
    assert not (shared_folder / "runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--partition", "gpu"), "there is no partition gpu on this cluster"),
        (("--nodes", "9"), "--nodes 9 asks for more than the 4 nodes of the partition main"),
        (("--memory", "900G"), "but the partition main allows"),
        (("--time", "20", "-p", "short"), "20 minutes, but the partition short allows 10"),
        (("--devices", "50"), "50 workers per node, but the nodes of main have 8 CPUs"),
        (("--time", "soon"), "'soon' is not a time"),
        (("--constraint", "a100"), "use --constraint with: even, odd"),
        (("--reservation", "course"), "leave out --reservation: there is no reservation"),
        (("--licenses", "foo:4"), "use --licenses with: compiler"),
        (("--gres", "gpu:4"), "use --gres with: fpga:2"),
        (("--gres", "fpga:4"), "Requested node configuration is not available"),
        (("--scheduler-option", "comment=x"), "is not an option of the scheduler"),
        (("--scheduler-option", "--no-such-option"), "refused `sbatch`"),
    ],
)
def test_what_the_cluster_does_not_carry(
    cluster: str, shared_folder: Path, words: tuple[str, ...], said: str
) -> None:
    write_training(shared_folder)
    done = paceline(
        "submit", "train.py", "--testbed", cluster, *words, folder=shared_folder, expect=2
    )
    assert said in done.stderr
    assert "  -> " in done.stderr
    assert not list((shared_folder / "runs").glob("*"))


@pytest.mark.parametrize(
    "words",
    [
        ("probe", "--nodes", "2"),
        pytest.param(("study", "train.py", "--nodes", "1"), marks=pytest.mark.nightly),
    ],
)
def test_other_jobs_ask_for_what_the_site_wants(
    cluster: str, shared_folder: Path, words: tuple[str, ...]
) -> None:
    """Only `submit` had these options, so that sites with accounts could not be probed."""
    write_training(shared_folder)
    asked = ("--constraint", "a100", "--testbed", cluster)
    done = paceline(*words, *asked, folder=shared_folder, expect=2)
    assert "use --constraint with: even, odd" in done.stderr


def test_a_script_that_the_nodes_do_not_see(cluster: str) -> None:
    folder = Path("/dev/shm/paceline-test")
    folder.mkdir(exist_ok=True)
    try:
        write_training(folder)
        done = paceline("submit", "train.py", "--testbed", cluster, folder=folder, expect=2)
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    assert "is on a tmpfs file system of this machine" in done.stderr
    assert "a folder that all nodes share" in done.stderr


def test_slurm_that_is_not_reachable(shared_folder: Path) -> None:
    write_training(shared_folder)
    done = paceline(
        *("submit", "train.py"),
        folder=shared_folder,
        expect=2,
        SLURM_CONF=str(shared_folder / "none.conf"),
        XDG_RUNTIME_DIR=str(shared_folder),  # where no testbed is up
    )
    assert "Slurm is not reachable" in done.stderr
    assert "paceline testbed up" in done.stderr


def test_a_testbed_that_is_not_up(shared_folder: Path) -> None:
    write_training(shared_folder)
    done = paceline("submit", "train.py", "--testbed", "nowhere", folder=shared_folder, expect=2)
    assert "nowhere" in done.stderr


def test_a_worker_that_dies_at_start_is_named_with_its_log(
    cluster: str, shared_folder: Path
) -> None:
    more = (
        "\nimport os, signal\nprint('about to die')\n"
        "if os.environ['SLURM_PROCID'] == '1':\n    os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    write_training(shared_folder, more)
    said = paceline(
        *("submit", "train.py", "--nodes", "2", "--testbed", cluster, "--wait"),
        folder=shared_folder,
        expect=1,
    ).stderr
    assert "worker 1 on node n2 failed" in said
    assert "about to die" in said


@pytest.mark.nightly
def test_a_worker_that_raises_is_named_with_its_log(cluster: str, shared_folder: Path) -> None:
    more = "\nimport os\nif os.environ['SLURM_PROCID'] == '0':\n    raise OSError('no disk')\n"
    write_training(shared_folder, more)
    said = paceline(
        *("submit", "train.py", "--nodes", "2", "--testbed", cluster, "--wait"),
        folder=shared_folder,
        expect=1,
    ).stderr
    assert "worker 0 on node n1 failed: OSError: no disk" in said
