"""The first process of a node: sets host name, address and private folders, and runs slurmd.

It is started by path with a bare interpreter and imports nothing of Paceline, because sixteen of
them must start fast on two cores. It prints "ready" when its namespaces exist, waits for a line
that reports its cable (`eth0`) connected, and ends with slurmd, because the node is useless
without it. As the first process of a PID namespace, it ends everything in the node when it ends.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

_COMMAND_SECONDS = 15
_LARGEST_TCP_BUFFER_BYTES = 64 * 2**20


def main(
    name: str, address_with_prefix: str, log: str, scratch: str, slurmd_arguments: list[str]
) -> None:
    """Run the node until slurmd ends."""
    socket.sethostname(name)
    tune_network()
    for folder in ("/dev/shm", *filter(None, [scratch])):  # noqa: S108
        _give_own_folder(folder)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return  # the holder ended, or gave up on this node
    configure_device("eth0", address_with_prefix)
    reap_until_exit_of(_start_slurmd(log, slurmd_arguments))


def tune_network() -> None:
    """Apply a cluster's usual network settings in this network namespace.

    No IPv6: one address family, no neighbor discovery traffic. Buffers large enough for one
    connection to fill a fast link with a long delay. No metrics saved from earlier connections,
    because links change during a run.
    """
    settings = {
        "ipv6/conf/all/disable_ipv6": "1",
        "ipv6/conf/default/disable_ipv6": "1",
        "ipv4/tcp_no_metrics_save": "1",
        "ipv4/tcp_rmem": f"4096 131072 {_LARGEST_TCP_BUFFER_BYTES}",
        "ipv4/tcp_wmem": f"4096 65536 {_LARGEST_TCP_BUFFER_BYTES}",
    }
    for name, value in settings.items():
        setting = Path("/proc/sys/net") / name
        if setting.exists():
            setting.write_text(value)


def configure_device(device: str, address_with_prefix: str) -> None:
    """Bring up `lo` and the device, with its address, its route and cubic congestion control.

    Congestion control is pinned because machines differ (bbr ignores losses on a shaped link).
    It is set on the route, because the namespace-wide setting rejects algorithms that the host
    does not allow.
    """
    _ip("link", "set", "lo", "up")
    _ip("address", "add", address_with_prefix, "dev", device, "noprefixroute")
    _ip("link", "set", device, "up")
    address, prefix = address_with_prefix.split("/")
    network = f"{address.rpartition('.')[0]}.0/{prefix}"
    route = ["route", "add", network, "dev", device, "src", address]
    try:
        _ip(*route, "congctl", "cubic")
    except subprocess.CalledProcessError:
        _ip(*route)


def reap_until_exit_of(process_id: int) -> None:
    """Reap orphans, as a first process must, until the given child ends."""
    ended = 0
    while ended != process_id:
        ended, _ = os.wait()


def _give_own_folder(folder: str) -> None:
    mode = "1777" if folder == "/dev/shm" else "0700"  # noqa: S108
    command = ["mount", "-t", "tmpfs", "-o", f"mode={mode}", "own", folder]
    subprocess.run(command, check=True, timeout=_COMMAND_SECONDS)


def _start_slurmd(log: str, arguments: list[str]) -> int:
    with Path(log).open("ab") as output:
        return subprocess.Popen(
            ["slurmd", "-D", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ).pid


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=_COMMAND_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
