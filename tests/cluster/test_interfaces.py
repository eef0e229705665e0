"""The interface that reaches the other workers."""

import pytest

from paceline.cluster.interfaces import Interface, Kind, interfaces, loopback, outward, towards
from paceline.specs import PacelineError

LO = Interface("lo", "127.0.0.1", Kind.LOOPBACK)
DOCKER = Interface("docker0", "172.17.0.1", Kind.VIRTUAL)
ETHERNET = Interface("eth0", "10.1.0.2", Kind.ETHERNET)
INFINIBAND = Interface("ib0", "10.2.0.2", Kind.INFINIBAND)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)


def test_the_fastest_kind_wins() -> None:
    assert outward([LO, DOCKER, ETHERNET, INFINIBAND]) is INFINIBAND
    assert outward([LO, DOCKER, ETHERNET]) is ETHERNET
    assert outward([LO, DOCKER]) is DOCKER


def test_what_the_user_set_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    assert outward([LO, ETHERNET, INFINIBAND]) is ETHERNET
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    with pytest.raises(PacelineError, match=r"asks for the interface eth7, but .* has eth0, ib0"):
        outward([LO, ETHERNET, INFINIBAND])


def test_a_machine_without_a_network() -> None:
    with pytest.raises(PacelineError, match="no network interface that is up"):
        outward([LO])


def test_loopback_is_found_and_reached_by_itself() -> None:
    assert loopback() in interfaces()
    assert towards("127.0.0.1").name == "lo"
