from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.specs.errors import PacelineError
from paceline.testbed import TestbedSpec
from paceline.testbed.state_folder import locked_parent_folder, parent_folder, state_folder
from paceline.testbed.testbed_spec import (
    bits_per_second,
    cores_of_nodes,
    delay_seconds,
    lost_part,
    node_address,
)


@pytest.mark.parametrize(
    ("text", "bits"),
    [("1gbit", 10**9), ("100mbit", 10**8), ("2.5Gbit", 25 * 10**8), ("64kbit", 64_000)],
)
def test_rates(text: str, bits: int) -> None:
    assert bits_per_second(text) == bits


@pytest.mark.parametrize(
    ("text", "seconds"), [("20ms", 0.02), ("0", 0.0), ("0ms", 0.0), ("150us", 150e-6), ("1s", 1.0)]
)
def test_delays(text: str, seconds: float) -> None:
    assert delay_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "fast", "100", "1 gbyte", "-1gbit", "0mbit", "1bit", "infgbit"]
)
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(PacelineError, match=r"is not a link rate(.|\n)*such as 100mbit"):
        TestbedSpec(link=text)


@pytest.mark.parametrize("text", ["", "soon", "20", "-1ms", "11s", "1e3s"])
def test_what_is_no_delay(text: str) -> None:
    with pytest.raises(PacelineError, match=r"is not a link delay(.|\n)*such as 20ms"):
        TestbedSpec(delay=text)


@pytest.mark.parametrize("name", ["", "../x", "A", "-x", "a b", "x" * 32])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(PacelineError, match="can't be the name"):
        TestbedSpec(name=name)


@pytest.mark.parametrize("nodes", [0, -1, 65])
def test_how_many_nodes_there_can_be(nodes: int) -> None:
    with pytest.raises(PacelineError, match="from 1 to 64"):
        TestbedSpec(nodes=nodes)


@given(nodes=st.integers(1, 64), cores=st.integers(1, 200))
def test_every_node_has_a_core_and_none_has_more_than_its_share(nodes: int, cores: int) -> None:
    shares = cores_of_nodes(nodes, list(range(cores)))
    assert len(shares) == nodes
    sizes = {len(share) for share in shares}
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    used = [core for share in shares for core in share]
    assert set(used) == set(range(min(cores, max(nodes, cores))))
    if nodes <= cores:
        assert len(used) == cores


def test_addresses_are_all_different() -> None:
    assert node_address("n1") == "10.77.0.11"
    assert len({node_address(f"n{number}") for number in range(1, 65)}) == 64


def test_a_folder_that_others_can_open_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with locked_parent_folder():
        assert parent_folder().parent.samefile(tmp_path)
    parent_folder().chmod(0o755)
    with (
        pytest.raises(PacelineError, match=r"others can open it(.|\n)*chmod 700"),
        locked_parent_folder(),
    ):
        pass


def test_a_path_too_long_for_a_socket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.testbed.state_folder._is_ours", lambda path: True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/" + "long/" * 20)
    with pytest.raises(PacelineError, match=r"too long(.|\n)*shorter --name"):
        state_folder("default")


@pytest.mark.parametrize(("text", "part"), [("2%", 0.02), ("0.5%", 0.005), ("0", 0), ("0%", 0)])
def test_losses(text: str, part: float) -> None:
    assert lost_part(text) == pytest.approx(part)


@pytest.mark.parametrize("text", ["2", "60%", "-1%", "some", ""])
def test_what_is_no_loss(text: str) -> None:
    with pytest.raises(PacelineError, match=r"is not a link's loss(.|\n)*such as 2%"):
        lost_part(text)
