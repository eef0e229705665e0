"""The switch and its cables, inside the holder's network namespace.

Each node has a veth pair: `eth0` in the node; the other end, named after the node, in the switch.
A link with delay or loss has a relay with its own bridge between that end and the switch.
"""

import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from paceline.specs.errors import PacelineError
from paceline.testbed import relay
from paceline.testbed.commands import run
from paceline.testbed.node_init import configure_device, tune_network
from paceline.testbed.testbed_spec import HEAD_ADDRESS, PREFIX_LENGTH, node_address

SWITCH = "switch"

_BRIDGE = ["type", "bridge", "forward_delay", "0", "mcast_snooping", "0"]
_QUEUE_MILLISECONDS = 50
# When a timer fires late, tokens beyond the bucket's size are lost, so fast links need a deep
# bucket. Below one 64 KiB segment, the kernel would have to split every segment.
_BUCKET_SECONDS = 0.002
_SMALLEST_BUCKET_BYTES = 80_000


@dataclass
class Link:
    """The current properties of a node's link."""

    rate_bits_per_second: int | None = None
    delay_seconds: float = 0.0
    loss: float = 0.0
    """Fraction of its frames that are lost."""
    is_up: bool = True


def create_switch() -> None:
    """Create the switch and connect the head to it."""
    tune_network()
    run(["ip", "link", "add", SWITCH, "address", _hardware_address(HEAD_ADDRESS), *_BRIDGE])
    configure_device(SWITCH, f"{HEAD_ADDRESS}/{PREFIX_LENGTH}")


class Cable:
    """The cable from the switch to a running node."""

    def __init__(self, node: str, namespace_process_id: int, link: Link) -> None:
        self._port = node
        self._namespace = f"/proc/{namespace_process_id}/ns/net"
        self._link = link
        self._relay: subprocess.Popen[str] | None = None

    def plug_in(self) -> None:
        """Connect the node with its link's rate, delay, loss and state."""
        # The same hardware address after every start, so that no neighbor keeps a stale one.
        address = _hardware_address(node_address(self._port))
        end_in_node = ["peer", "name", "eth0", "netns", self._namespace, "address", address]
        run(["ip", "link", "add", self._port, "type", "veth", *end_in_node])
        run(["ip", "link", "set", self._port, "master", SWITCH])
        if self._link.rate_bits_per_second is not None:
            self._shape(self._link.rate_bits_per_second)
        self._relay_as_told()
        self._switch(self._link.is_up)

    def change(
        self,
        *,
        rate_bits_per_second: int | None,
        delay_seconds: float | None,
        loss: float | None,
        up: bool | None,
    ) -> None:
        """Change the given properties of the link; connections stay open."""
        if rate_bits_per_second is not None:
            self._shape(rate_bits_per_second)
            self._link.rate_bits_per_second = rate_bits_per_second
        if delay_seconds is not None or loss is not None:
            now = self._link
            now.delay_seconds = now.delay_seconds if delay_seconds is None else delay_seconds
            now.loss = now.loss if loss is None else loss
            self._relay_as_told()
        if up is not None:
            self._switch(up)
            self._link.is_up = up

    def unplug(self) -> None:
        """Remove the cable after the node has stopped."""
        try:
            run(["ip", "link", "delete", self._port])
        except PacelineError:
            # The kernel removes it together with the node's namespace, possibly before this call.
            if self._port in (name for _, name in socket.if_nameindex()):
                raise
        if self._relay:
            self._remove_relay(self._relay)

    def _shape(self, rate_bits_per_second: int) -> None:
        bucket_bytes = round(rate_bits_per_second * _BUCKET_SECONDS / 8)
        bucket = f"{max(_SMALLEST_BUCKET_BYTES, bucket_bytes)}b"
        rate = ["rate", f"{rate_bits_per_second}bit", "burst", bucket]
        shape = ["root", "tbf", *rate, "latency", f"{_QUEUE_MILLISECONDS}ms"]
        in_node = ["nsenter", f"--net={self._namespace}"]
        run(["tc", "qdisc", "replace", "dev", self._port, *shape])
        run([*in_node, "tc", "qdisc", "replace", "dev", "eth0", *shape])

    def _switch(self, up: bool) -> None:
        run(["ip", "link", "set", self._port, "up" if up else "down"])

    def _relay_as_told(self) -> None:
        wanted = self._link.delay_seconds > 0 or self._link.loss > 0
        if self._relay is None:
            if wanted:
                self._insert_relay()
        elif wanted:
            assert self._relay.stdin
            self._relay.stdin.write(f"{self._link.delay_seconds} {self._link.loss}\n")
            self._relay.stdin.flush()
        else:
            run(["ip", "link", "set", self._port, "master", SWITCH])
            self._remove_relay(self._relay)

    def _insert_relay(self) -> None:
        near, far, bridge = self._relay_devices()
        self._relay = _start_relay(near, far, self._link)
        run(["ip", "link", "add", bridge, *_BRIDGE])
        run(["ip", "link", "set", bridge, "up"])
        run(["ip", "link", "set", near, "master", bridge, "up"])
        run(["ip", "link", "set", far, "master", SWITCH, "up"])
        run(["ip", "link", "set", self._port, "master", bridge])

    def _remove_relay(self, running: subprocess.Popen[str]) -> None:
        running.kill()
        running.communicate()
        self._relay = None
        run(["ip", "link", "delete", self._relay_devices()[2]])

    def _relay_devices(self) -> tuple[str, str, str]:
        return f"{self._port}-near", f"{self._port}-far", f"{self._port}-wire"


def _start_relay(near: str, far: str, link: Link) -> subprocess.Popen[str]:
    path = str(Path(relay.__file__))
    started = subprocess.Popen(
        [sys.executable, "-I", "-S", path, near, far, str(link.delay_seconds), str(link.loss)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout
    if started.stdout.readline() != "ready\n":
        started.kill()
        started.communicate()
        raise PacelineError(
            "the relay that delays a link did not start",
            fix="see the last lines of holder.log; /dev/net/tun must be readable and writable",
        )
    return started


def _hardware_address(address: str) -> str:
    return "02:" + ":".join(f"{int(part):02x}" for part in ["77", *address.split(".")])
