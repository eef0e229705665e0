"""The network interface that reaches the other workers."""

import errno
import os
import socket
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import psutil

from paceline.specs import PacelineError

_ARPHRD_INFINIBAND = 32
_SYS = Path("/sys/class/net")


class Kind(IntEnum):
    """The kind of an interface, worst first; `outward` prefers the highest."""

    LOOPBACK = 0
    VIRTUAL = 1
    ETHERNET = 2
    INFINIBAND = 3


@dataclass(frozen=True)
class Interface:
    """An interface that is up and has an IPv4 address."""

    name: str
    address: str
    kind: Kind


def interfaces() -> list[Interface]:
    """Return this machine's interfaces that are up and have an IPv4 address."""
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    return [
        Interface(name, address.address, _kind(name))
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if name in up and address.family == socket.AF_INET
    ]


def loopback() -> Interface:
    """Return the interface for workers that are all on this machine."""
    for interface in interfaces():
        if interface.kind is Kind.LOOPBACK:
            return interface
    raise PacelineError("the loopback interface is down", fix="ip link set lo up")


def outward(known: list[Interface] | None = None) -> Interface:
    """Return the interface on which other nodes reach this one.

    The user's setting for NCCL or Gloo has priority; then InfiniBand; then the interface of this
    host's name, because other nodes resolve it the same way; then any physical one.
    """
    known = interfaces() if known is None else known
    usable = [interface for interface in known if interface.kind is not Kind.LOOPBACK]
    if not usable:
        raise PacelineError(
            f"{socket.gethostname()} has no network interface that is up and has an IPv4 address",
            fix="bring one up, or run on one node",
        )
    wanted = os.environ.get("NCCL_SOCKET_IFNAME") or os.environ.get("GLOO_SOCKET_IFNAME")
    if wanted:
        for interface in usable:
            if interface.name == wanted.lstrip("="):
                return interface
        names = ", ".join(interface.name for interface in usable)
        raise PacelineError(
            f"the environment asks for the interface {wanted}, but"
            f" {socket.gethostname()} has {names}",
            fix="set NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME to one of these, or unset it",
        )
    own = _own_addresses()
    return max(usable, key=lambda interface: (interface.kind, interface.address in own))


def towards(address: str) -> Interface:
    """Return the interface that the kernel's routes use for `address`."""
    # Connecting a datagram socket sends nothing; it only looks up the route.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError as error:
            raise PacelineError(
                f"{socket.gethostname()} has no route to worker 0 at {address}: {error.strerror}",
                fix="set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to the interface that all"
                " nodes share",
            ) from None
        local = probe.getsockname()[0]
    for interface in interfaces():
        if interface.address == local:
            return interface
    raise PacelineError(f"no interface has the address {local}", fix="check `ip address`")


def listener(interface: Interface, port: int | None) -> socket.socket:
    """Return a socket that listens on one interface; `port` None: any free port."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((interface.address, port or 0))
        listener.listen(4096)
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise PacelineError(
            f"port {port} of {interface.address} ({interface.name}) is taken by another program",
            fix="leave --port out to use a free one, or give another",
        ) from None
    return listener


def _kind(name: str) -> Kind:
    if name == "lo" or name.startswith("lo:"):
        return Kind.LOOPBACK
    try:
        if int((_SYS / name / "type").read_text()) == _ARPHRD_INFINIBAND:
            return Kind.INFINIBAND
    except OSError:
        pass  # containers may hide /sys
    virtual = ("docker", "br-", "virbr", "veth", "cni", "flannel", "tun", "tap", "kube", "podman")
    return Kind.VIRTUAL if name.startswith(virtual) else Kind.ETHERNET


def _own_addresses() -> set[str]:
    try:
        return set(socket.gethostbyname_ex(socket.gethostname())[2])
    except OSError:
        return set()
