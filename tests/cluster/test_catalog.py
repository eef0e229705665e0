"""Every entry of the catalog is valid, and cluster files may name them."""

from pathlib import Path

import pytest

from paceline.cluster.catalog import device, link, names, read_cluster, usual_cluster
from paceline.specs import Cluster, PacelineError

WRITTEN = """\
nodes = 16
devices_per_node = 8
device = "h100-80gb"
inside = "nvlink4"
between = "infiniband-ndr"
"""


def test_every_entry_has_a_source() -> None:
    for name in names("devices"):
        each = device(name)
        assert each.source
        assert each.efficiency_source
        assert each.peak("fp16") > each.peak("fp32")
    for name in names("links"):
        assert link(name).source


def test_a_cluster_that_names_entries(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(WRITTEN)
    cluster = read_cluster(path)
    assert cluster.devices == 128
    assert cluster.device == device("h100-80gb")
    assert cluster.network_bytes_per_second == 50e9
    cluster.write(path)
    assert Cluster.read(path) == read_cluster(path) == cluster


def test_fewer_interfaces_than_devices(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(f"{WRITTEN}interfaces_per_node = 2\n")
    assert read_cluster(path).network_bytes_per_second == 12.5e9


@pytest.mark.parametrize(
    ("right", "said"),
    [("h100-80gb", "no device 'h1000'"), ("infiniband-ndr", "no link 'h1000'")],
)
def test_a_name_that_the_catalog_has_not(tmp_path: Path, right: str, said: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(WRITTEN.replace(right, "h1000"))
    with pytest.raises(PacelineError, match=said):
        read_cluster(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes = ", "not valid TOML"),
        (WRITTEN.replace("nodes = 16", "nodes = 0"), "nodes: Input should be greater than 0"),
        (f"{WRITTEN}racks = 2\n", "racks: Extra inputs"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(PacelineError, match=said):
        read_cluster(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="does not exist"):
        read_cluster(tmp_path / "cluster.toml")


def test_every_device_has_usual_neighbours() -> None:
    for name in names("devices"):
        cluster = usual_cluster(name, nodes=2)
        assert cluster.device.name == name
        assert cluster.devices == 2 * cluster.devices_per_node
