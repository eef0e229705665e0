"""The supervisor of workers on this machine: starts them, logs their output and ends them."""

import signal
import socket
import threading
import time

from paceline.launch.fork_server_client import ForkServer
from paceline.launch.local_worker import LocalWorker
from paceline.launch.worker_log import WorkerLog
from paceline.lease.lease import TERM_VARIABLE, Lease
from paceline.observe.event_writer import EventWriter
from paceline.observe.killed_workers import shell_code, tell_killed
from paceline.specs import (
    FOLDER_GONE_EXIT_CODE,
    JOINS,
    STOPPED_EXIT_CODE,
    TOO_FEW_EXIT_CODE,
    Ended,
    PacelineError,
    Run,
)

_GRACE_SECONDS = 10.0
_SAVING_SECONDS = 300.0
_ENDING_SECONDS = 3.0
_LEASES_TO_BEGIN = 3


class LocalLaunch:
    """The workers of one run on this machine.

    A killed worker is restarted and joins the survivors, which continue meanwhile. A worker whose
    device failed is not: its device is left out, and a spare or fewer workers continue. A worker
    that fails with an error ends the run, because the others would fail as well. The run's lease is
    released when the workers have ended; if it is lost, they are killed.
    """

    def __init__(self, run: Run, lease: Lease) -> None:
        self._run, self._lease = run, lease
        self._node = socket.gethostname()
        self._writer = EventWriter(run.events, self._node)
        self._log = WorkerLog(run.logs / f"{self._node}.log")
        self._fork_server = ForkServer(run, self._log.file)
        self._term_sent: float | None = None
        self._over_since: float | None = None
        """Time at which the first worker finished the training."""
        self._failed: LocalWorker | None = None
        self._last_lost: LocalWorker | None = None
        self._sick_devices: set[int] = set()
        self._code: int | None = None
        self._folder_gone = False
        self._job = run.job
        minutes = self._job.limits.minutes
        self._deadline = time.monotonic() + 60 * minutes if minutes else None
        self._faults = run.plan.faults
        self._pumps: list[threading.Thread] = []
        self._turns = 1
        self._nobody_since: float | None = None
        """Time since which no living worker can be a member of the newest generation."""
        run.outcome_file.unlink(missing_ok=True)
        self._workers = self._all()

    def poll(self) -> int | None:
        """Return the run's exit code once all workers have ended; None before."""
        if self._code is not None:
            return self._code
        if not self._folder_gone and self._run.is_gone:
            self._folder_gone = True
            self.kill()
        if self._lease.lost:
            self.stop()  # so that no worker is restarted
            self.kill()
        for worker in list(self._workers):
            code = worker.process.poll()
            if code in (0, STOPPED_EXIT_CODE) and self._over_since is None:
                self._over_since = time.monotonic()
            elif code == TOO_FEW_EXIT_CODE and self._may_start_all_again:
                self._start_all_again()
                return None
            elif code and self._failed is None and self._over_since is None:
                self._lose(worker)
        if any(worker.process.returncode is None for worker in self._workers):
            if self._all_are_lost():
                self._start_all_again() if self._may_start_all_again else self._give_up()
            self._mind_the_time()
            return None
        self._fork_server.end()
        for pump in self._pumps:
            pump.join()
        self._code = self._exit_code()
        self._close(self._code)
        return self._code

    def _lose(self, worker: LocalWorker) -> None:
        """Restart a killed worker, exclude a failed device, or end the run."""
        self._last_lost = worker
        if worker.is_on_sick_device:
            self._sick_devices.add(worker.device)
        others = [each for each in self._workers if each.process.returncode is None]
        # Before the rendezvous is complete, no worker can continue without the others.
        met = self._run.has_begun(self._job.first_generation)
        survivable = worker.was_killed or worker.is_on_sick_device
        if not (survivable and self._faults.regroup and others and met):
            self._failed = worker
            if others:
                self.stop()
            return
        self._workers.remove(worker)
        # After a stop request, a worker that still loads can only die; the others save and stop.
        may_restart = worker.was_killed and worker.starts < self._faults.attempts
        if may_restart and not self._term_sent:
            self._workers.append(self._again(worker))

    def _all_are_lost(self) -> bool:
        """Whether no member of the newest generation is left: restarted workers would wait
        forever for members to join."""
        if self._is_over:
            return False
        oldest = min(
            worker.newest_generation
            for worker in self._workers
            if worker.process.returncode is None
        )
        # While a worker from the last full start lives, skip reading the run folder.
        if oldest < self._job.first_generation or oldest < self._newest_generation:
            self._nobody_since = None
            return False
        self._nobody_since = self._nobody_since or time.monotonic()
        # A worker may be in a generation whose leader died before it recorded the generation.
        patience_seconds = _LEASES_TO_BEGIN * self._faults.lease_seconds
        return time.monotonic() - self._nobody_since > patience_seconds

    def _give_up(self) -> None:
        """End a run whose workers only wait for others that are gone."""
        self._failed = self._last_lost
        self.kill()

    @property
    def _is_over(self) -> bool:
        return bool(self._failed or self._term_sent or self._over_since or self._folder_gone)

    @property
    def _may_start_all_again(self) -> bool:
        enough = len(self._devices) >= self._job.workers
        return not self._is_over and enough and self._turns < self._faults.attempts

    @property
    def _devices(self) -> list[int]:
        """The devices of workers and spares that have not failed."""
        job = self._job
        return [each for each in range(job.workers + job.spares) if each not in self._sick_devices]

    def _start_all_again(self) -> None:
        """Restart all workers from the last checkpoint, as `paceline resume` does."""
        self._turns += 1
        self._nobody_since = None
        self.kill()
        while any(worker.process.poll() is None for worker in self._workers):
            time.sleep(0.001)
        self._job = self._job.model_copy(update={"first_generation": self._newest_generation + 1})
        try:
            self._run.write_job(self._job)
        except OSError as error:
            self._fork_server.end()
            raise PacelineError(
                f"all workers were lost, and {self._run.job_file} cannot be written to restart"
                f" them: {error.strerror}",
                fix=f"free disk space, then `paceline resume {self._run.path}`",
            ) from None
        self._workers = self._all()

    def _exit_code(self) -> int:
        if self._folder_gone:
            return FOLDER_GONE_EXIT_CODE
        if self._failed is not None:
            return shell_code(self._failed.code)
        codes = [worker.process.returncode for worker in self._workers]
        return next((code for code in codes if code in (0, STOPPED_EXIT_CODE)), 1)

    def _mind_the_time(self) -> None:
        now = time.monotonic()
        if self._deadline is not None and now > self._deadline and not self._term_sent:
            self.stop()
        # Workers that lost a peer can only wait for it; otherwise workers are saving their state.
        grace = _GRACE_SECONDS if self._failed is not None else _SAVING_SECONDS
        if self._term_sent and now - self._term_sent > grace:
            self.kill()
        # Joining workers and spares still wait after the others finished.
        if self._over_since and now - self._over_since > _ENDING_SECONDS:
            self.kill()

    def wait(self, seconds: float) -> None:
        """Wait until a worker ends, at most this many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if any(
                worker.process.returncode is None and worker.process.poll() is not None
                for worker in self._workers
            ):
                return
            time.sleep(0.01)

    def stop(self) -> None:
        """Ask the workers to stop after the current step."""
        self._term_sent = self._term_sent or time.monotonic()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the workers immediately."""
        self._signal(signal.SIGKILL)

    def _again(self, worker: LocalWorker) -> LocalWorker:
        return self._start(JOINS, worker.device, worker.starts + 1)

    @property
    def _newest_generation(self) -> int:
        newest = self._run.newest_generation
        return -1 if newest is None else newest

    def _all(self) -> list[LocalWorker]:
        """Start the workers and the spares."""
        job = self._job
        ranks = [*range(job.workers), *[JOINS] * job.spares]
        return [self._start(*each) for each in zip(ranks, self._devices, strict=False)]

    def _start(self, rank: int, device: int, starts: int = 1) -> LocalWorker:
        newest = self._newest_generation
        process = self._fork_server.start(
            {
                "PACELINE_RANK": str(rank),
                "PACELINE_DEVICE": str(device),
                TERM_VARIABLE: str(self._lease.term),
            }
        )
        label = "joins" if rank == JOINS else str(rank)
        worker = LocalWorker(process, label, device, newest, starts)
        pump = threading.Thread(target=self._pump, args=(worker,), daemon=True)
        self._pumps.append(pump)
        pump.start()
        return worker

    def _pump(self, worker: LocalWorker) -> None:
        with worker.process.output as output:
            for line in output:
                self._log.write(f"{worker.label}: {line.decode(errors='replace').rstrip()}\n")

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.process.poll() is None:
                worker.process.send_signal(number)

    def _close(self, code: int) -> None:
        self._log.close()
        if not self._lease.lost:  # else the events are about the next holder's training
            self._tell_end(code)
        self._lease.release()

    def _tell_end(self, code: int) -> None:
        generation = max(self._newest_generation, self._job.first_generation)
        failed = self._failed
        if failed is not None and failed.was_killed:  # it could not write the event itself
            rank = int(failed.label) if failed.label.isdigit() else JOINS
            tell_killed(self._run, self._node, generation, rank, failed.code)
        self._writer.write(
            Ended(time=time.time(), node=self._node, generation=generation, exit_code=code)
        )
