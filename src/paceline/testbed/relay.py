"""A link with delay and loss: forwards Ethernet frames between two TAP devices.

For kernels without netem. It is started by path with a bare interpreter, so it imports nothing of
Paceline. It creates both devices, prints "ready", and reads lines with a new delay (seconds) and
loss (fraction of frames) from its standard input. It ends when its standard input closes, and its
devices disappear.

Frames keep their virtio header, so the kernel passes segments of up to 64 KiB without computed
checksums, as between two virtual machines. This keeps a relay cheap, but a dropped frame loses all
its packets.
"""

import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque

_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_OFFLOAD_CHECKSUM_AND_SEGMENTATION = 0x01 | 0x02 | 0x04  # TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6

_LARGEST_FRAME_BYTES = 66_000
_FRAMES_PER_TURN = 64
_QUEUE_BYTES = 256 * 2**20


def main(near: str, far: str, delay_seconds: float, loss: float) -> None:
    """Forward frames between the two devices until standard input closes."""
    near_tap, far_tap = _open_tap(near), _open_tap(far)
    print("ready", flush=True)
    _relay(near_tap, far_tap, delay_seconds, loss)


def _open_tap(name: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    request = struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR)
    fcntl.ioctl(tap, _TUNSETIFF, request)
    fcntl.ioctl(tap, _TUNSETOFFLOAD, _OFFLOAD_CHECKSUM_AND_SEGMENTATION)
    return tap


def _relay(near_tap: int, far_tap: int, delay_seconds: float, loss: float) -> None:
    luck = random.Random(0)  # noqa: S311 -- not for secrets
    commands = sys.stdin.fileno()
    leads_to = {near_tap: far_tap, far_tap: near_tap}
    on_the_way: deque[tuple[float, int, bytes]] = deque()
    queued_bytes = 0
    last_due = 0.0
    while True:
        wait_seconds = max(0.0, on_the_way[0][0] - time.monotonic()) if on_the_way else None
        # select, because poll and epoll have timeouts in whole milliseconds.
        readable, _, _ = select.select([near_tap, far_tap, commands], [], [], wait_seconds)
        if commands in readable:
            line = os.read(commands, 64)
            if not line:
                return
            delay_seconds, loss = (float(word) for word in line.split()[-2:])
        # Never before the previous frame: a shorter delay must not reorder a connection.
        last_due = max(last_due, time.monotonic() + delay_seconds)
        for tap in readable:
            if tap != commands:
                for frame in _frames(tap):
                    if queued_bytes < _QUEUE_BYTES and luck.random() >= loss:
                        on_the_way.append((last_due, leads_to[tap], frame))
                        queued_bytes += len(frame)
        now = time.monotonic()
        while on_the_way and on_the_way[0][0] <= now:
            _, to, frame = on_the_way.popleft()
            queued_bytes -= len(frame)
            _send(to, frame)


def _frames(tap: int) -> list[bytes]:
    frames = []
    try:
        for _ in range(_FRAMES_PER_TURN):
            frames.append(os.read(tap, _LARGEST_FRAME_BYTES))
    except OSError:
        pass  # nothing more to read, or the device is not up yet
    return frames


def _send(tap: int, frame: bytes) -> None:
    try:
        os.write(tap, frame)
    except OSError:
        return  # the device is down: the frame is lost, as on a real cable


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
