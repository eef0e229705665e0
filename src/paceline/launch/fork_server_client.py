"""The launcher's client of the fork server, from which this machine's workers are forked."""

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
    """A worker's process; it has no process ID until the fork server has loaded torch."""

    def __init__(self, fork_server: "ForkServer", output: int) -> None:
        self._fork_server = fork_server
        self._pid: int | None = None
        self.output: IO[bytes] = os.fdopen(output, "rb")
        """Its standard output and error; the reader closes it."""
        self.returncode: int | None = None
        """Its exit code, or the negative number of the signal that ended it; None while it runs."""

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        if self._pid is None:
            self._fork_server.listen()
        if self._pid is not None and self.returncode is None:
            try:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:  # the kernel has not reparented it to this process yet
                return None
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; before the fork, end the fork server instead."""
        if self.poll() is None and self._pid is None:
            self._fork_server.end(-number)
        if self.returncode is None and self._pid is not None:
            os.kill(self._pid, number)

    def forked(self, pid: int) -> None:
        """Record the process ID after the fork."""
        self._pid = pid

    def lost(self, code: int) -> None:
        """Record that the fork server ended with this code before the fork."""
        self.returncode = code


class ForkServer:
    """A run's fork server: starts workers, and is restarted when it has ended."""

    def __init__(self, run: Run, log: IO[bytes]) -> None:
        self._run, self._log = run, log
        self._process: subprocess.Popen[bytes] | None = None
        self._unforked: deque[Worker] = deque()

    def start(self, environment: Mapping[str, str]) -> Worker:
        """Start a worker with these variables added to its environment."""
        if self._process is not None and self._process.poll() is not None:
            self._ended()
        if self._process is None:
            self._begin()
        reader, writer = os.pipe()
        worker = Worker(self, reader)
        self._unforked.append(worker)
        try:
            socket.send_fds(self._socket, [json.dumps(dict(environment)).encode()], [writer])
        except OSError:
            self._ended()
        finally:
            os.close(writer)
        return worker

    def listen(self) -> None:
        """Receive the process IDs of workers forked so far, without blocking."""
        while self._unforked:
            try:
                answer = self._answer(socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if not answer:
                self._ended()
                return
            self._unforked.popleft().forked(int(answer))

    def end(self, code: int = 0) -> None:
        """End the fork server. Running workers continue; `code` becomes the exit code of workers
        that were not forked yet."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        while self._unforked and (answer := self._answer()):
            self._unforked.popleft().forked(int(answer))
        for worker in self._unforked:
            worker.lost(code)
        self._unforked.clear()
        self._socket.close()
        self._process = None

    def _answer(self, flags: int = 0) -> bytes:
        """Return the next process ID; empty when the fork server closed the socket."""
        try:
            return self._socket.recv(_ANSWER_BYTES, flags)
        except ConnectionResetError:
            # The fork server ended with unread requests. The socket reports this once; its earlier
            # answers can still be read.
            return self._socket.recv(_ANSWER_BYTES, flags)

    def _ended(self) -> None:
        """Clean up after the fork server ended; workers not forked yet get its exit code."""
        if self._process is not None:
            self.end(self._process.wait() or 1)

    def _begin(self) -> None:
        # This process becomes the parent of the workers, see paceline.train.worker.fork_server,
        # and of the children that killed workers leave behind, which therefore end with it.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        # If the parent ignored SIGCHLD, this process inherits that, and the kernel would discard
        # exit codes.
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
