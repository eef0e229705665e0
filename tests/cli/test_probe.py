"""`paceline probe`: here on two workers, and on a testbed with a slow link."""

import re
from pathlib import Path
from statistics import median

import pytest

from command import paceline, paceline_json
from paceline.cluster.catalog import read_cluster
from paceline.cluster.probe.link_fit import line
from paceline.cluster.probe.probe_folder import read_probed
from paceline.specs import Run
from paceline.specs.measurements.cluster import Cluster
from paceline.specs.measurements.kernels import KernelTable
from paceline.specs.measurements.probe import CollectiveTime

pytestmark = pytest.mark.alone

OPERATIONS = {"all-reduce", "all-gather", "reduce-scatter", "send"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))


def test_two_workers_here(tmp_path: Path) -> None:
    words = ("probe", "-n", "2", "-o", "here.toml", "--kernels", "0")
    result = paceline_json(*words, folder=tmp_path)
    assert result["kernels"] is None
    cluster = read_cluster(tmp_path / "here.toml")
    assert cluster == Cluster.model_validate(result["cluster"])
    assert (cluster.nodes, cluster.devices_per_node, cluster.remarks) == (1, 2, ())
    lines = {(each.operation, each.members, each.members_per_node) for each in cluster.collectives}
    assert lines == {(operation, 2, 2) for operation in OPERATIONS}
    assert cluster.device.kind == "cpu"
    assert re.search(rf", {cluster.device.units} cores?$", cluster.device.name)
    assert cluster.device.source.startswith("measured by paceline probe on 20")
    assert {each.precision for each in cluster.device.matmuls} == {"fp32", "bf16"}
    best = max(each.flops_per_second for each in cluster.device.matmuls if each.precision == "fp32")
    assert cluster.device.peak_flops["fp32"] == best > 1e8
    # Between "nothing was sent" and "nothing was waited for".
    assert all(1e7 < each.bytes_per_second < 1e12 for each in cluster.collectives)
    assert 1e8 < cluster.device.memory_bytes_per_second < 1e13
    assert result["seconds"] < 60


MODEL = "gpt: layers=2 width=256 heads=4 seq=128 vocab=512"


def test_one_worker_alone_and_its_kernels(tmp_path: Path) -> None:
    done = paceline("probe", "-n", "1", "--kernels", "8", folder=tmp_path)
    assert "1 node with 1 device each" in done.stdout
    assert "Products of square matrices" in done.stdout
    assert "Collectives" not in done.stdout
    cluster = read_cluster(tmp_path / "cluster.toml")
    assert cluster.collectives == ()
    (file,) = tmp_path.glob("kernels-*.json")
    assert file.name in done.stderr
    table = KernelTable.model_validate_json(file.read_text())
    assert table.source.device == cluster.device.name
    assert table.source.versions[0][0] == "torch"
    assert ("linear", "bf16") in {(each.kernel, each.precision) for each in table.grids}
    file.unlink()
    again = paceline_json("probe", "-n", "1", folder=tmp_path)
    assert again["kernels_cached"]
    assert Path(again["kernels"]) == Path(file.name)
    assert KernelTable.model_validate_json(file.read_text()) == table
    words = ("plan", "--model", MODEL, "--batch", "2", "--nodes", "1")
    said = paceline_json(*words, folder=tmp_path)["compute_origin"]
    assert 0 < said["kernels"] <= 1
    assert said["source"].startswith(cluster.device.name)
    assert "from measured kernels (" in paceline(*words, folder=tmp_path).stdout


@pytest.mark.slurm
def test_more_nodes_than_there_are(cluster: str, shared_folder: Path) -> None:
    done = paceline("probe", "--nodes", "9", "--testbed", cluster, folder=shared_folder, expect=2)
    assert "--nodes 9 asks for more than the 4 nodes of the partition main" in done.stderr
    assert list(shared_folder.iterdir()) == []


@pytest.mark.slurm
@pytest.mark.nightly
def test_a_slow_link_is_named(cluster: str, shared_folder: Path) -> None:
    def link(rate: str) -> None:
        paceline("testbed", "link", "n3", "--rate", rate, "--name", cluster, folder=shared_folder)

    link("300mbit")
    try:
        done = paceline("probe", "--nodes", "3", "--testbed", cluster, folder=shared_folder)
    finally:
        link("1gbit")
    found = read_cluster(shared_folder / "cluster.toml")
    assert (found.nodes, found.devices_per_node) == (3, 1)
    (slow,) = [each for each in found.remarks if "link" in each]
    assert slow.startswith("n3: link at 0.")
    assert 0.25 < float(slow.split()[3]) < 0.4
    assert slow in done.stdout
    assert found.between.name == "gloo over eth0"
    lines = {(each.operation, each.members) for each in found.collectives}
    assert lines == {(each, 2) for each in OPERATIONS} | {
        (each, 3) for each in OPERATIONS - {"send"}
    }
    # 1 Gbit/s are 125 MB/s, less headers; short messages may pass a token bucket at once.
    (send,) = [each for each in found.collectives if each.operation == "send"]
    assert 90e6 < send.bytes_per_second < 140e6
    (run,) = (shared_folder / "runs").iterdir()
    errors = held_out_errors(read_probed(Run.open(run)).collectives, over_bytes=1_000_000)
    assert len(errors) > 10
    assert median(errors) < 0.15


def held_out_errors(times: tuple[CollectiveTime, ...], over_bytes: int) -> list[float]:
    """Of each large message, predicted by the line through the others of its kind."""
    errors = []
    for one in times:
        others = [
            each
            for each in times
            if each is not one and (each.operation, each.members) == (one.operation, one.members)
        ]
        if one.nbytes > over_bytes:
            drawn = line([each.nbytes for each in others], [each.seconds for each in others])
            errors.append(abs(drawn.seconds(one.nbytes) / one.seconds - 1))
    return errors


@pytest.mark.parametrize(
    ("words", "said", "fix"),
    [
        (("-n", "2", "--nodes", "2"), "-n 2 was given, which is for a probe here", "--devices"),
        (("--devices", "2"), "--devices was given without --nodes", "--nodes N"),
        (("--partition", "gpu"), "--partition is for a job of a cluster", "--nodes N"),
        (("--account", "physics"), "--account is for a job of a cluster", "--nodes N"),
        (("--testbed", "nowhere"), "there is no testbed 'nowhere'", "testbed up"),
    ],
)
def test_mistakes(words: tuple[str, ...], said: str, fix: str, tmp_path: Path) -> None:
    done = paceline("probe", *words, folder=tmp_path, expect=2)
    assert said in done.stderr
    assert fix in done.stderr.partition("  -> ")[2]
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    done = paceline("probe", "-o", "none/cluster.toml", folder=tmp_path, expect=2)
    assert "there is no folder none for cluster.toml" in done.stderr
    assert list(tmp_path.iterdir()) == []
