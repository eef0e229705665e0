"""The cluster behind a scheduler, and calls of its commands."""

import os
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from paceline.specs import PacelineError

_CALL_SECONDS = 30.0


class Unreachable(PacelineError):
    """The scheduler does not answer on this machine."""

    class_topic = "submit"


class CommandFailed(PacelineError):
    """A command of the scheduler failed; `output` is its output, `code` its exit code."""

    def __init__(self, problem: str, *, fix: str, output: str, code: int) -> None:
        super().__init__(problem, fix=fix)
        self.output, self.code = output, code


@dataclass(frozen=True)
class Site:
    """A scheduler's cluster: this machine's, or one that a command prefix reaches."""

    name: str | None = None
    """Name in messages; by default the scheduler's title."""
    testbed: str | None = None
    """Name of the testbed, if it is one."""
    prefix: tuple[str, ...] = ()
    """Prefix of every command, if another program gives access to the cluster."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Additional environment variables of the commands."""
    shares_files: bool = False
    """Whether every node is known to see this machine's disks."""

    def call(
        self,
        *command: str,
        title: str,
        seconds: float = _CALL_SECONDS,
        without: Collection[str] = (),
    ) -> str:
        """Run a command of the scheduler and return its output.

        `title`: the scheduler's name in messages. `without`: variables that it must not see. Every
        call has a time limit, because most clients wait forever when no server answers.
        """
        name = self.name or title
        environment = os.environ | dict(self.environment)
        try:
            done = subprocess.run(
                [*self.prefix, *command],
                env={key: value for key, value in environment.items() if key not in without},
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError:
            raise Unreachable(
                f"{name} is not reachable: there is no command {command[0]} on this machine",
                fix="run this on a login node of the cluster, or try it on one machine:"
                " `paceline testbed up`",
            ) from None
        except subprocess.TimeoutExpired:
            raise Unreachable(
                f"{name} is not reachable: {command[0]} did not answer within {seconds:.0f} s",
                fix="check that its server runs; on a machine without a cluster, try"
                " `paceline testbed up`",
            ) from None
        if done.returncode != 0:
            output = (done.stderr or done.stdout).strip()
            raise CommandFailed(
                f"{name} refused `{command[0]}`: {last_line(output)}",
                fix="correct the option that it names, and try again",
                output=output,
                code=done.returncode,
            )
        return done.stdout


def last_line(text: str) -> str:
    """Return the last line of a command's output, for a message."""
    lines = text.splitlines()
    return lines[-1] if lines else "no reason given"
