"""A worker that the supervisor has started, and how it ended."""

from dataclasses import dataclass

from paceline.launch.fork_server_client import Worker
from paceline.specs import DEVICE_FAILED_EXIT_CODE


@dataclass
class LocalWorker:
    """A worker's process and its number of starts."""

    process: Worker
    label: str
    """Prefix of its lines in the log."""
    device: int
    newest_generation: int
    """The newest generation at its start; it can only join a later one."""
    starts: int = 1

    @property
    def code(self) -> int:
        """Its exit code; 0 while it runs."""
        return self.process.returncode or 0

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended it, rather than an error of its own."""
        return self.code < 0

    @property
    def is_on_sick_device(self) -> bool:
        """Whether it ended because its device failed."""
        return self.code == DEVICE_FAILED_EXIT_CODE
