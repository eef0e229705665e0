"""A node as the holder manages it: its processes, cores and cable."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from paceline.specs.errors import PacelineError
from paceline.testbed import node_init
from paceline.testbed.commands import children_of, namespace_options
from paceline.testbed.network import Cable, Link
from paceline.testbed.state_folder import StateFolder
from paceline.testbed.status import NodeStatus
from paceline.testbed.testbed_spec import PREFIX_LENGTH, node_address

_ENDING_SECONDS = 10.0


class Node:
    """A node of the testbed, running or stopped."""

    def __init__(
        self,
        name: str,
        cores: list[int],
        link: Link,
        state: StateFolder,
        scratch: str | None = None,
    ) -> None:
        self.name = name
        self.cores = cores
        self.link = link
        self._state, self._scratch = state, scratch
        self._process: subprocess.Popen[str] | None = None
        self._cable: Cable | None = None

    @property
    def has_power(self) -> bool:
        """Whether the node's first process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        """A process in all the node's namespaces except the PID namespace, which it created."""
        if self._process is None or not self.has_power:
            raise PacelineError(
                f"node {self.name} is stopped", fix=f"start it: paceline testbed start {self.name}"
            )
        return self._process.pid

    def switch_on(self) -> None:
        """Start the node's first process; `boot` continues when its namespaces exist."""
        if self.has_power:
            raise PacelineError(
                f"node {self.name} is running already",
                fix=f"cut its power first: paceline testbed stop {self.name}",
            )
        self._clear_up()
        share = ["taskset", "--cpu-list", ",".join(map(str, self.cores))]
        unshare = ["unshare", *namespace_options()]  # the holder is root in its user namespace
        first_process = [sys.executable, "-I", "-S", str(Path(node_init.__file__))]
        address = f"{node_address(self.name)}/{PREFIX_LENGTH}"
        # -b tells slurmctld that the node rebooted and its jobs are gone.
        arguments = [self.name, address, str(self._state.log(self.name))]
        arguments += [self._scratch or "", "-b"]
        self._process = subprocess.Popen(
            [*share, *unshare, *first_process, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def boot(self) -> None:
        """Connect the cable, and let the node's first process start slurmd."""
        assert self._process
        assert self._process.stdin
        assert self._process.stdout
        if self._process.stdout.readline() != "ready\n":
            raise PacelineError(
                f"node {self.name} did not start", fix="see the last lines of holder.log"
            )
        self._cable = Cable(self.name, self._process.pid, self.link)
        self._cable.plug_in()
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def cut_power(self) -> None:
        """Kill every process of the node at once."""
        for first_process in children_of(self.process_id):
            # The kernel ends the rest of the PID namespace before unshare can end.
            os.kill(first_process, signal.SIGKILL)
        self._clear_up()

    def change_link(
        self,
        *,
        rate_bits_per_second: int | None,
        delay_seconds: float | None,
        loss: float | None,
        up: bool | None,
    ) -> None:
        """Change the given properties of the node's link."""
        if self._cable is None or not self.has_power:
            raise PacelineError(
                f"node {self.name} is stopped, so its link can't be changed",
                fix=f"start it: paceline testbed start {self.name}",
            )
        self._cable.change(
            rate_bits_per_second=rate_bits_per_second,
            delay_seconds=delay_seconds,
            loss=loss,
            up=up,
        )

    def status(self, slurm_state: str) -> NodeStatus:
        """Return the node's status."""
        return NodeStatus(
            name=self.name,
            address=node_address(self.name),
            state="up" if self.has_power else "down",
            link="up" if self.link.is_up else "down",
            rate_bits_per_second=self.link.rate_bits_per_second,
            delay_seconds=self.link.delay_seconds,
            loss=self.link.loss,
            cores=self.cores,
            slurm_state=slurm_state,
        )

    def _clear_up(self) -> None:
        if self._process:
            self._process.communicate(timeout=_ENDING_SECONDS)
            self._process = None
        if self._cable:
            self._cable.unplug()
            self._cable = None
