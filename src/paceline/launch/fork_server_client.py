"""The launcher's side of the nursery: the process that workers of this machine are forked from."""

import ctypes
import json
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Mapping
from typing import IO

from paceline.specs import JOINS, Run

_PR_SET_CHILD_SUBREAPER = 36
_ANSWER_BYTES = 64


class Worker:
    """A worker's process, also before it is born: until torch is loaded, it has no number."""

    def __init__(self, nursery: "Nursery", output: int) -> None:
        self._nursery = nursery
        self._pid: int | None = None
        self.output: IO[bytes] = os.fdopen(output, "rb")
        """What it says; whoever reads it closes it."""
        self.returncode: int | None = None
        """Its exit code, or the negative number of the signal that ended it; None while it
        lives."""

    def poll(self) -> int | None:
        """Its exit code, None while it lives."""
        if self._pid is None:
            self._nursery.listen()
        if self._pid is not None and self.returncode is None:
            try:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:  # it is being adopted just now
                return None
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; one that is not born yet never will be."""
        if self.poll() is None and self._pid is None:
            self._nursery.end(-number)
        if self.returncode is None and self._pid is not None:
            os.kill(self._pid, number)

    def born(self, pid: int) -> None:
        """It has this number."""
        self._pid = pid

    def lost(self, code: int) -> None:
        """It will never be born: what it would come from has ended with this code."""
        self.returncode = code


class Nursery:
    """Starts workers of a run; the process that does it is started anew where it is gone."""

    def __init__(self, run: Run, log: IO[str]) -> None:
        self._run, self._log = run, log
        self._process: subprocess.Popen[bytes] | None = None
        self._unborn: deque[Worker] = deque()

    def start(self, environment: Mapping[str, str]) -> Worker:
        """A worker with this added to its environment."""
        if self._process is not None and self._process.poll() is not None:
            self._ended()
        if self._process is None:
            self._begin()
        reader, writer = os.pipe()
        worker = Worker(self, reader)
        self._unborn.append(worker)
        try:
            socket.send_fds(self._socket, [json.dumps(dict(environment)).encode()], [writer])
        except OSError:
            self._ended()
        finally:
            os.close(writer)
        return worker

    def listen(self) -> None:
        """Hear of births, without waiting for any."""
        while self._unborn:
            try:
                answer = self._answer(socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if not answer:
                self._ended()
                return
            self._unborn.popleft().born(int(answer))

    def end(self, code: int = 0) -> None:
        """End the nursery: nobody is born any more, those who live go on; whoever is not born ends
        with this code."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        while self._unborn and (answer := self._answer()):
            self._unborn.popleft().born(int(answer))
        for worker in self._unborn:
            worker.lost(code)
        self._unborn.clear()
        self._socket.close()
        self._process = None

    def _answer(self, flags: int = 0) -> bytes:
        """The next one; none when it has hung up."""
        try:
            return self._socket.recv(_ANSWER_BYTES, flags)
        except ConnectionResetError:
            # It ended with requests unread. That is told once; answers from before are behind it.
            return self._socket.recv(_ANSWER_BYTES, flags)

    def _ended(self) -> None:
        """It hung up by itself: what it died of, those whom it owes died of."""
        if self._process is not None:
            self.end(self._process.wait() or 1)

    def _begin(self) -> None:
        # This process adopts the workers, see paceline.train.worker.fork_server, and whatever
        # they leave behind when they are killed, which so ends with it.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        # Where whoever started this process ignored it, the kernel would keep no exit codes.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    str(self._run.job.python),
                    "-m",
                    "paceline.train.worker.fork_server",
                    str(self._run.path),
                ],
                env=os.environ
                | {
                    "PACELINE_RANK": str(JOINS),
                    "PACELINE_WORKERS": str(self._run.job.workers),
                    "PACELINE_LAUNCHER_PID": str(os.getpid()),
                    "PYTHONUNBUFFERED": "1",
                },
                stdin=theirs.fileno(),
                stdout=self._log,
                stderr=self._log,
                process_group=0,
            )
