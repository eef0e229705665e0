"""A member that stops in the middle of what it sends: started as a process, to be killed."""

import sys
import threading
from collections.abc import Iterable

from paceline.peers.memory_client import Peer
from paceline.peers.peer_memory import PeerMemory
from paceline.peers.protocol import Wire
from peers.crew import SECRET, snapshot_of

sending_begins = threading.Event()


send = Wire.send


def send_half(self: Wire, parts: Iterable[memoryview]) -> None:
    sent = b"".join(parts)
    if len(sent) < 20_000:  # what it says of its files
        send(self, [memoryview(sent)])
        return
    self._connection.sendall(sent[: len(sent) // 2])
    sending_begins.set()
    threading.Event().wait()


if __name__ == "__main__":
    Wire.send = send_half  # type: ignore[method-assign]
    memory = PeerMemory(SECRET, "127.0.0.1", lambda *_: None)
    print(memory.port, flush=True)
    peers = [
        Peer("127.0.0.1", int(sys.stdin.readline()), "a"),
        Peer("127.0.0.1", memory.port, "b"),
    ]
    memory.join(0, 1, peers, step=0, parity_group=0, parity=1)
    memory.copy(snapshot_of(20, 1, 2))
    sending_begins.wait()
    print("half", flush=True)
    threading.Event().wait()
